"""Releases that failed on this device, so that they are not tried again without being asked for."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from edge.device.disk import typed
from edge.device.durable import Durable
from edge.device.files import Files
from edge.device.layout import Layout
from edge.reading import json_object

__all__ = ["BadRelease", "Verdict", "forget_bad", "mark_bad", "read_bad"]

_FORMAT = "edge.device-bad/1"


class Verdict(str, enum.Enum):
    """How sure it is that the release itself was at fault."""

    BAD = "bad"  # it was judged
    SUSPECT = "suspect"  # power was lost twice in its trial, which may or may not be its doing


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRelease:
    """What went wrong, and when (RFC 3339 in UTC)."""

    verdict: Verdict
    reason: str
    at: str


@typed
def read_bad(layout: Layout, files: Files) -> dict[str, BadRelease]:
    """Return the failed releases by name; a damaged file says nothing, because a trial finds them again."""
    if files.length(layout.bad) is None:
        return {}
    try:
        found = json_object(files.read(layout.bad))["releases"]
        return {
            name: BadRelease(verdict=Verdict(one["verdict"]), reason=str(one["reason"]), at=str(one["at"]))
            for name, one in found.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def mark_bad(layout: Layout, durable: Durable, name: str, bad: BadRelease) -> None:
    """Remember that a release failed; call only with the state lock held."""
    _write(layout, durable, {**read_bad(layout, durable.files), name: bad})


def forget_bad(layout: Layout, durable: Durable, name: str) -> None:
    """Forget that a release failed; call only with the state lock held."""
    known = read_bad(layout, durable.files)
    if name in known:
        _write(layout, durable, {other: bad for other, bad in known.items() if other != name})
    else:
        durable.settle(layout.bad)


def _write(layout: Layout, durable: Durable, releases: Mapping[str, BadRelease]) -> None:
    values = {name: {**asdict(bad), "verdict": bad.verdict.value} for name, bad in sorted(releases.items())}
    durable.put(layout.bad, json.dumps({"format": _FORMAT, "releases": values}, indent=1).encode() + b"\n", mode=0o600)
