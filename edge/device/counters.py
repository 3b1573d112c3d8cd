"""What a device has ever accepted: it never goes back on its own, and its clock never goes back before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from edge.device.disk import typed
from edge.device.durable import Durable
from edge.device.files import Files
from edge.device.layout import Layout
from edge.device.sealed import open_sealed, seal
from edge.errors import DeployError

__all__ = ["Counters", "raise_counters", "read_counters", "reset_counters"]

_FORMAT = "edge.device-counters/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Highest sequence per channel, and the newest `created_at` (RFC 3339 in UTC) of all manifests.

    `reset_at` is when the last signed reset was made that the device has followed; None: never.
    """

    sequences: Mapping[str, int] = field(default_factory=dict)
    newest_created_at: str | None = None
    reset_at: str | None = None

    def merged(self, other: Counters) -> Counters:
        """Return the higher of both, channel by channel."""
        channels = {*self.sequences, *other.sequences}
        return Counters(
            sequences={name: max(self.sequences.get(name, 0), other.sequences.get(name, 0)) for name in channels},
            newest_created_at=_latest(self.newest_created_at, other.newest_created_at),
            reset_at=_latest(self.reset_at, other.reset_at),
        )


@typed
def read_counters(layout: Layout, files: Files) -> Counters:
    """Return the counters; without a file those of a new device.

    Raises:
        DeployError: `device.counters`, if the file is damaged: what was accepted is then unknown.
    """
    if files.length(layout.counters) is None:
        return Counters()
    try:
        values = open_sealed(files.read(layout.counters))
        return Counters(
            sequences={str(name): int(value) for name, value in values["sequences"].items()},
            newest_created_at=values["newest_created_at"],
            reset_at=values.get("reset_at"),  # of older software there is none
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeployError(
            "device.counters",
            f"{layout.counters}: expected sealed counters, got damage: {error}",
            hint="without them a downgrade cannot be told; look at the disk, then remove the file on the device",
        ) from None


def raise_counters(layout: Layout, durable: Durable, seen: Counters) -> Counters:
    """Return the counters raised to `seen`; they are on the disk when this returns. They never sink."""
    known = read_counters(layout, durable.files)
    raised = known.merged(seen)
    if raised != known:
        reset_counters(layout, durable, raised)
    else:
        durable.settle(layout.counters)
    return raised


def reset_counters(layout: Layout, durable: Durable, counters: Counters) -> None:
    """Make `counters` the counters, in one write; that they sink is for a signed reset alone."""
    durable.put(layout.counters, seal({"format": _FORMAT, **asdict(counters)}))


def _latest(*times: str | None) -> str | None:
    # RFC 3339 in UTC with whole seconds sorts as text.
    return max((time for time in times if time is not None), default=None)
