"""Whether a machine can serve what a pipeline file states, by its bound alone: nothing is measured or connected to.

Only `max_fps` of live streams counts. What is not stated (other rates, sizes, codecs) takes nothing here: what is found
to be too much is too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edge.capacity.demand import Origin, StreamDemand, Video
from edge.capacity.fit import Estimate, answer_of
from edge.capacity.platform import Platform, jetson_modules, platform_of
from edge.capacity.work import PipelineModel, Work, work_of
from edge.config.pipeline import Pipeline
from edge.config.uris import local_path
from edge.roofline.machines import all_machines

__all__ = ["beyond_all_jetsons", "beyond_bound", "machines_among", "stated_work"]

_LEAST_FPS = 0.01
_SUPER = "-super"


def stated_work(pipeline: Pipeline, model: PipelineModel) -> Work | None:
    """Return what the pipeline states; None where no live stream states a rate."""
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

    Of a module that has one, the faster Super variant: by its class nobody can tell what it was set to.
    """
    known = {machine.key: machine for machine in all_machines()}
    named = [key for key in dict.fromkeys(classes) if key in known]
    return [platform_of(known.get(f"{key}{_SUPER}", known[key])) for key in named]


def beyond_bound(work: Work, platforms: Sequence[Platform]) -> list[str]:
    """Return a sentence for each machine that cannot serve what is stated, with what would fit."""
    answers = (answer_of(work, platform, headroom=0.0) for platform in platforms)
    return [_sentence(work, answer) for answer in answers if answer.is_beyond_bound]


def beyond_all_jetsons(work: Work) -> list[str]:
    """Return a sentence where no Jetson of the table can serve what is stated: that of the best one."""
    answers = [answer_of(work, platform, headroom=0.0) for platform in jetson_modules()]
    known = [answer for answer in answers if answer.loads is not None]
    if not all(answer.is_beyond_bound for answer in known):
        return []
    best = max(known, key=lambda answer: answer.most_fps)
    return [f"no Jetson of the table can; the best of them: {_sentence(work, best)}"]


def _sentence(work: Work, answer: Estimate) -> str:
    assert answer.loads is not None
    assert answer.fit is not None
    most_fps = work.wanted_fps / answer.loads.least_share
    each = f"max_fps {answer.most_fps:.3g} for each" if answer.most_fps >= _LEAST_FPS else "no max_fps"
    return (
        f"{answer.platform.called}: {work.wanted_fps:.4g} fps are stated, and no engine infers more than "
        f"{most_fps:.4g} there ({answer.loads.first_by_bound.name}); at most {each} would fit, or {answer.fit.most} of "
        f"{len(work.cameras)} streams as they are"
    )
