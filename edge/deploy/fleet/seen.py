"""When this workstation last heard of each device, on its disk: an answer that is not there says nothing of that."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping

from edge.config.targets import Target
from edge.delivery.event import now
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.journal import state_folder
from edge.writing import write_whole

__all__ = ["last_seen", "note_seen"]

_NAME = "seen.json"


def last_seen(target: Target) -> str | None:
    """Return when a device answered last (RFC 3339 in UTC); None: never, or under this name another host did."""
    entry = _read().get(target.name)
    return entry.get("at") if isinstance(entry, dict) and entry.get("host") == target.host else None


def note_seen(targets: Iterable[Target], outcomes: Iterable[Outcome]) -> None:
    """Note which targets have answered just now; what cannot be written is left out, because it is only for people."""
    reached = {outcome.target for outcome in outcomes if outcome.result not in ("unreachable", "interrupted")}
    at = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    new = {target.name: {"host": target.host, "at": at} for target in targets if target.name in reached}
    if new:
        with contextlib.suppress(OSError):
            _write({**_read(), **new})


def _read() -> dict[str, object]:
    try:
        found = json.loads((state_folder() / _NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(seen: Mapping[str, object]) -> None:
    path = state_folder() / _NAME
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, json.dumps(seen, indent=1, sort_keys=True).encode(), mode=0o600)
