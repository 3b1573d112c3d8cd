"""Log lines as JSON objects, with the ids of `edge.log_events`; repeats are left out and counted."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from edge.log_events import EVENTS, phrase_of
from edge.untrusted import cleaned

__all__ = ["JsonFormatter", "Repeats", "log_json"]

_FIELD = re.compile(r"(?:(\w+)=\"?)?%[-#0 +]*[\d.]*[a-zA-Z]")
_OTHER = "other"
_MOST_PER_WINDOW = 5
_WINDOW_S = 60.0


class Repeats(logging.Filter):
    """Lets five lines of one event and stream through in a minute; the first one after that says how many were not."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._seen: dict[tuple[str, str], list[float | int]] = {}  # when the window began, lines in it, left out

    def filter(self, record: logging.LogRecord) -> bool:
        key = (event_of(record), str(fields_of(record).get("stream", "")))
        now_s = self._clock_s()
        window = self._seen.setdefault(key, [now_s, 0, 0])
        if now_s - window[0] >= _WINDOW_S:
            record.repeated = window[2]
            window[:] = [now_s, 0, 0]
        window[1] += 1
        window[2] += window[1] > _MOST_PER_WINDOW
        return window[1] <= _MOST_PER_WINDOW


class JsonFormatter(logging.Formatter):
    """One line for each record, whatever it holds."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        content: dict[str, Any] = {
            "ts": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "event": event_of(record),
            "text": cleaned(record.getMessage()),
            **{name: _plain(value) for name, value in fields_of(record).items()},
        }
        if getattr(record, "repeated", 0):
            content["repeated"] = record.__dict__["repeated"]
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=True)


def event_of(record: logging.LogRecord) -> str:
    """Return the id of what is logged; `other` for lines of libraries."""
    event = EVENTS.get(phrase_of(str(record.msg)))
    return _OTHER if event is None or not record.name.startswith("edge.") else event.id


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return what the line says as `key=value`, and what has no key as `detail`."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    names = [match[1] or "detail" for match in _FIELD.finditer(str(record.msg))]
    reserved = {"ts", "level", "event", "text", "repeated", "traceback"}
    return {f"{name}_" if name in reserved else name: value for name, value in zip(names, arguments, strict=False)}


def _plain(value: object) -> object:
    return value if isinstance(value, (int, bool)) or value is None else cleaned(str(value))


def log_json() -> None:
    """Log from now on as JSON, from INFO on: every change of state."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(Repeats())
    root = logging.getLogger()
    for one in list(root.handlers):
        root.removeHandler(one)
    root.addHandler(handler)
    logging.getLogger("edge").setLevel(logging.INFO)
