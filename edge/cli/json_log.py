"""Log lines as JSON objects, with the ids of `edge.log_events`; repeats are left out and counted."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from numbers import Real
from typing import Any

from edge.log_events import EVENTS, phrase_of
from edge.untrusted import cleaned

__all__ = ["JsonFormatter", "Repeats", "log_json"]

_FIELD = re.compile(r"(?:(\w+)=\"?)?%[-#0 +]*[\d.]*[a-zA-Z]")
_OTHER = "other"
_MOST_EQUAL = 5
_WINDOW_S = 60.0


class Repeats(logging.Filter):
    """Leaves out, for a minute, what equals the last five lines of its stream; the next one says how many."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._said: dict[str, tuple[str, float, int]] = {}  # the last line, since when, how often

    def filter(self, record: logging.LogRecord) -> bool:
        stream = str(fields_of(record).get("stream", ""))  # "": the device itself
        text, now_s = record.getMessage(), self._clock_s()
        last, since_s, times = self._said.get(stream, (text, now_s, 0))
        if text != last or now_s - since_s >= _WINDOW_S:
            record.repeated = max(0, times - _MOST_EQUAL)
            since_s, times = now_s, 0
        self._said[stream] = (text, since_s, times + 1)
        return times < _MOST_EQUAL


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
    if isinstance(value, dict):
        return {cleaned(str(name)): _plain(one) for name, one in value.items()}
    if value is None or isinstance(value, int):
        return value
    return float(value) if isinstance(value, Real) and math.isfinite(value) else cleaned(str(value))


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
