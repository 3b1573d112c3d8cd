"""How many such cameras fit, at which rate all of them would, and which module is the smallest that serves them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edge.capacity.demand import StreamDemand
from edge.capacity.loads import Loads, loads_of
from edge.capacity.platform import Platform
from edge.capacity.work import Work
from edge.errors import ConfigError

__all__ = ["MOST_CAMERAS", "Estimate", "Fit", "answer_of", "require_headroom", "smallest"]

MOST_CAMERAS = 4096
"""More are not counted."""

_HALVINGS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Cameras like those of the pipeline.

    Attributes:
        most: that no machine of this kind serves more of, with nothing left over.
        typical: with the headroom that was asked for; None where nothing typical is known.
    """

    most: int
    typical: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a machine can do for a pipeline; `loads` None: its peaks in this precision are not published.

    Attributes:
        headroom: share of each resource that stays free.
        most_fps: the `max_fps` for each camera beyond which no machine of this kind serves all; infinite: needs none.
        typical_fps: the same with the headroom; None where nothing typical is known.
    """

    platform: Platform
    loads: Loads | None
    headroom: float
    fit: Fit | None
    most_fps: float = math.inf
    typical_fps: float | None = None

    @property
    def is_beyond_bound(self) -> bool:
        """Whether the machine cannot serve it, whatever engine and driver do."""
        return self.loads is not None and not self.loads.is_possible

    @property
    def is_served(self) -> bool:
        """Whether it serves it typically, with the headroom."""
        return self.loads is not None and self.loads.is_served(self.headroom)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        loads, fit = self.loads, self.fit
        return {
            "machine": self.platform.called,
            "name": self.platform.machine.title,
            "watts": self.platform.watts,
            "cores": self.platform.cores,
            "is_served": self.is_served,
            "is_beyond_bound": self.is_beyond_bound,
            "first": None if loads is None else loads.first.name,
            "resources": [] if loads is None else [load.as_json() for load in loads.each],
            "batch": None if loads is None else loads.frames,
            "batch_s": None if loads is None else loads.batch_s.as_json(),
            "latency_s": None if loads is None else loads.latency_s.as_json(),
            "cameras": None if fit is None else {"most": fit.most, "typical": fit.typical},
            "max_fps": {"most": _finite(self.most_fps), "typical": _finite(self.typical_fps)},
        }


def _finite(fps: float | None) -> float | None:
    return None if fps is None or math.isinf(fps) else round(fps, 2)


def require_headroom(headroom: float) -> float:
    """Return the share that is to stay free.

    Raises:
        ConfigError: if it is none from 0 to below 1.
    """
    if not 0 <= headroom < 1:  # NaN is not
        raise ConfigError(f"headroom {headroom:g}: expected a share from 0 to below 1, such as 0.3")
    return headroom


def answer_of(work: Work, platform: Platform, *, headroom: float) -> Estimate:
    """Return what a machine can do for a pipeline.

    Raises:
        ConfigError: if `headroom` is no share.
        ModelError: if the model cannot take the batch.
    """
    require_headroom(headroom)
    loads = loads_of(work, platform)
    if loads is None:
        return Estimate(platform=platform, loads=None, headroom=headroom, fit=None)

    def is_possible(loads: Loads) -> bool:
        return loads.is_possible

    def is_served(loads: Loads) -> bool:
        return loads.is_served(headroom)

    is_known = loads.typical_share is not None
    most, typical = (_most_cameras(work, platform, fits) for fits in (is_possible, is_served))
    return Estimate(
        platform=platform,
        loads=loads,
        headroom=headroom,
        fit=Fit(most=most, typical=typical if is_known else None),
        most_fps=_most_fps(work, platform, is_possible),
        typical_fps=_most_fps(work, platform, is_served) if is_known else None,
    )


def smallest(work: Work, platforms: Sequence[Platform], *, headroom: float) -> Estimate | None:
    """Return the answer of the first of `platforms` that serves a pipeline; None: none does.

    One whose decoder is not known to do it counts only where there is no other.
    """
    served = [platform for platform in platforms if _serves(work, platform, headroom)]
    known = [platform for platform in served if _shares(work, platform).is_decoder_known]
    return next((answer_of(work, platform, headroom=headroom) for platform in (*known, *served)), None)


def _serves(work: Work, platform: Platform, headroom: float) -> bool:
    loads = loads_of(work, platform)
    return loads is not None and loads.is_served(headroom)


def _shares(work: Work, platform: Platform) -> Loads:
    loads = loads_of(work, platform)
    assert loads is not None  # peaks do not depend on the cameras
    return loads


def _most_cameras(work: Work, platform: Platform, fits: Callable[[Loads], bool]) -> int:
    """Return how many cameras fit, of the kinds that the pipeline has, in turn; shares only grow with them."""
    low, high = 0, 1
    while high <= MOST_CAMERAS and fits(_shares(_of(work, high), platform)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(_shares(_of(work, middle), platform)) else (low, middle)
    return min(low, MOST_CAMERAS)


def _of(work: Work, count: int) -> Work:
    return work.with_cameras(_in_turn(work.cameras, count))


def _in_turn(cameras: Sequence[StreamDemand], count: int) -> list[StreamDemand]:
    return [cameras[number % len(cameras)] for number in range(count)]


def _most_fps(work: Work, platform: Platform, fits: Callable[[Loads], bool]) -> float:
    """Return the `max_fps` for each with which all cameras fit; 0 where decoding them alone is too much."""
    if fits(_shares(work, platform)):
        return math.inf
    low_fps, high_fps = 0.0, max(camera.wanted_fps for camera in work.cameras)
    for _ in range(_HALVINGS):
        middle_fps = (low_fps + high_fps) / 2
        is_low = fits(_shares(_capped(work, middle_fps), platform))
        low_fps, high_fps = (middle_fps, high_fps) if is_low else (low_fps, middle_fps)
    return low_fps


def _capped(work: Work, max_fps: float) -> Work:
    slower = [dataclasses.replace(camera, wanted_fps=min(max_fps, camera.wanted_fps)) for camera in work.cameras]
    return work.with_cameras(slower)
