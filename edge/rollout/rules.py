"""When a ring has taken a release well enough, and when the rollout stops by itself."""

from __future__ import annotations

import math

import msgspec

__all__ = ["Rules"]


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person asks of every ring.

    Shares are of the devices that count: those of the ring that were there since it got the release.

    Attributes:
        share: this many have to have committed it.
        hold_s: for so long, before the next ring gets it.
        max_failed: the rollout stops when more have rolled it back, do not take it, or have fallen silent since.
        max_silent: of all devices that the ring has had; while more than this say nothing, nobody can tell.
        lost_after_s: a device that was there and says nothing for longer has failed.

    Raises:
        ValueError: if there can be no such rules.
    """

    share: float = 0.95
    hold_s: float = 3600.0
    max_failed: float = 0.02
    max_silent: float = 0.25
    lost_after_s: float = 1800.0

    def __post_init__(self) -> None:
        for name, least in (("share", 0.01), ("max_failed", 0.0), ("max_silent", 0.0)):
            value = getattr(self, name)
            if not least <= value <= 1.0:
                raise ValueError(f"{name}: expected a share of {least:g} to 1, got {value:g}")
        for name in ("hold_s", "lost_after_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: expected seconds of at least 0, got {value:g}")
        if self.max_failed + self.share > 1.0 + 1e-9:
            raise ValueError(
                f"share {self.share:g} and max_failed {self.max_failed:g} are more than 1 together: "
                "a ring could be good enough and have failed"
            )
