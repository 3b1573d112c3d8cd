"""How many such cameras fit, at which rate all of them would, and which module is the smallest that serves them.

Whether a machine can serve what a pipeline file states, by its bound alone: nothing is measured or connected to.

Only `max_fps` of live streams counts. What is not stated (other rates, sizes, codecs) takes nothing here: what is found
to be too much is too much.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edge.capacity.loads import Loads, loads_of
from edge.capacity.platform import Platform, jetson_modules, platform_of
from edge.capacity.work import Origin, PipelineModel, StreamDemand, Video, Work, work_of
from edge.config.pipeline import Pipeline
from edge.config.uris import local_path
from edge.errors import ConfigError
from edge.roofline.machines import all_machines

__all__ = [
    "Estimate",
    "MOST_CAMERAS",
    "answer_of",
    "beyond_all_jetsons",
    "beyond_bound",
    "machines_among",
    "require_headroom",
    "smallest",
    "stated_work",
]

MOST_CAMERAS = 4096  # more are not counted
_HALVINGS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A machine's answer for a pipeline; `loads` None: its peaks in this precision are not published, nothing else is
    known then. `most` and `typical` count cameras like those of the pipeline.
    """

    platform: Platform
    loads: Loads | None
    headroom: float  # share of each resource that stays free
    most: int = 0  # that no machine of this kind serves more of, with nothing left over
    typical: int | None = None  # with the headroom that was asked for; None where nothing typical is known
    # the `max_fps` for each camera beyond which no machine of this kind serves all; infinite: needs none
    most_fps: float = math.inf
    typical_fps: float | None = None  # the same with the headroom; None where nothing typical is known

    @property
    def is_beyond_bound(self) -> bool:
        """Whether the machine cannot serve it, whatever engine and driver do."""
        return self.loads is not None and not self.loads.is_possible

    @property
    def is_served(self) -> bool:
        """Whether it serves it typically, with the headroom."""
        return self.loads is not None and self.loads.is_served(self.headroom)

    def as_json(self) -> dict[str, Any]:
        loads = self.loads
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
            "cameras": None if loads is None else {"most": self.most, "typical": self.typical},
            "max_fps": {"most": _finite(self.most_fps), "typical": _finite(self.typical_fps)},
        }


def _finite(fps: float | None) -> float | None:
    return None if fps is None or math.isinf(fps) else round(fps, 2)


def require_headroom(headroom: float) -> float:
    """Return `headroom`. Raises `ConfigError` if it is no share from 0 to below 1."""
    if not 0 <= headroom < 1:  # NaN is not
        raise ConfigError(f"headroom {headroom:g}: expected a share from 0 to below 1, such as 0.3")
    return headroom


def answer_of(work: Work, platform: Platform, *, headroom: float) -> Estimate:
    """Raise `ConfigError` if `headroom` is no share; ModelError if the model cannot take the batch."""
    require_headroom(headroom)
    loads = loads_of(work, platform)
    if loads is None:
        return Estimate(platform=platform, loads=None, headroom=headroom)

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
        most=most,
        typical=typical if is_known else None,
        most_fps=_most_fps(work, platform, is_possible),
        typical_fps=_most_fps(work, platform, is_served) if is_known else None,
    )


def smallest(work: Work, platforms: Sequence[Platform], *, headroom: float) -> Estimate | None:
    """Return the answer of the first of `platforms` that serves a pipeline; None: none does.

    One whose decoder is not known to do it counts only where there is no other.
    """
    each = [(platform, loads_of(work, platform)) for platform in platforms]
    served = [(platform, loads) for platform, loads in each if loads is not None and loads.is_served(headroom)]
    known = [(platform, loads) for platform, loads in served if loads.is_decoder_known]
    return next((answer_of(work, platform, headroom=headroom) for platform, _ in (*known, *served)), None)


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
    return work.with_cameras([work.cameras[number % len(work.cameras)] for number in range(count)])


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


_LEAST_FPS = 0.01
_SUPER = "-super"


def stated_work(pipeline: Pipeline, model: PipelineModel) -> Work | None:
    """Return None where no live stream states a rate."""
    cameras = list(_cameras(pipeline, model))
    return work_of(pipeline, model, cameras) if cameras else None


def _cameras(pipeline: Pipeline, model: PipelineModel) -> Iterator[StreamDemand]:
    size, folder = model.spec.preprocess.size, pipeline.path.parent
    for stream in pipeline.config.streams:
        is_live = stream.realtime or local_path(stream.uri, folder) is None
        if is_live and stream.max_fps is not None:
            video = Video(size=size, fps=stream.max_fps, codec=None)
            yield StreamDemand(id=stream.id, video=video, wanted_fps=stream.max_fps, origin=Origin.STATED)


def machines_among(classes: Iterable[str]) -> list[Platform]:
    """Return the machines of the table, uncapped, whose names are among these device classes.

    Of a module that has one, the faster Super variant: its class does not tell what it was set to.
    """
    known = {machine.key: machine for machine in all_machines()}
    named = [key for key in dict.fromkeys(classes) if key in known]
    return [platform_of(known.get(f"{key}{_SUPER}", known[key])) for key in named]


def beyond_bound(work: Work, platforms: Sequence[Platform]) -> list[str]:
    """Return a sentence for each machine that cannot serve what is stated, with what would fit."""
    return [
        _sentence(work, answer_of(work, platform, headroom=0.0)) for platform in platforms if _is_beyond(work, platform)
    ]


def beyond_all_jetsons(work: Work) -> list[str]:
    """Return a sentence where no Jetson of the table can serve what is stated: that of the best one."""
    modules = list(jetson_modules())
    if any(_is_beyond(work, platform) is False for platform in modules):
        return []
    answers = [answer_of(work, platform, headroom=0.0) for platform in modules]
    best = max((answer for answer in answers if answer.loads is not None), key=lambda answer: answer.most_fps)
    return [f"no Jetson of the table can; the best of them: {_sentence(work, best)}"]


def _is_beyond(work: Work, platform: Platform) -> bool | None:
    """Return whether the machine cannot serve it; None where its peaks are not published.

    One look at its loads: the search for the number of cameras that would fit is left to the sentence.
    """
    loads = loads_of(work, platform)
    return None if loads is None else not loads.is_possible


def _sentence(work: Work, answer: Estimate) -> str:
    assert answer.loads is not None
    wanted_fps, most_fps = round(work.wanted_fps, 1), round(work.wanted_fps / answer.loads.least_share, 1)
    each = f"max_fps {answer.most_fps:.3g} for each" if answer.most_fps >= _LEAST_FPS else "no max_fps"
    return (
        f"{answer.platform.called}: {wanted_fps:g} fps are stated, and no engine infers more than "
        f"{most_fps:g} there ({answer.loads.first_by_bound.name}); at most {each} would fit, or {answer.most} of "
        f"{len(work.cameras)} streams as they are"
    )
