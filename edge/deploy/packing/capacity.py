"""Whether devices of a class can serve a pipeline at all: the bound of a machine, by what the pipeline file states."""

from __future__ import annotations

from collections.abc import Sequence

from edge.capacity.stated import beyond_all_jetsons, beyond_bound, machines_among, stated_work
from edge.capacity.work import model_of_pipeline
from edge.config.pipeline import Pipeline
from edge.errors import DeployError

__all__ = ["check_bound"]

_CODE = "preflight.capacity"
_HINT = "lower max_fps, use int8 or a smaller model, or set overload: {at_start: warn}; see edge-deploy capacity"


def check_bound(pipeline: Pipeline, classes: Sequence[str], *, is_sure: bool = False) -> tuple[str, ...]:
    """Return a sentence for each machine that cannot serve what the streams state, whatever engine runs there.

    Args:
        pipeline: what is to run; its `overload.at_start` says what that means.
        classes: of devices; those that are names of the table of machines are judged.
        is_sure: only these. Otherwise, where none is one, it is told when it is beyond every Jetson of the table; that
            is never refused, since it may be for something else.

    Raises:
        DeployError: `preflight.capacity`, if a class is such a machine and `overload.at_start` is `refuse`.
        EdgeError: if model or table cannot be used.
    """
    policy = pipeline.config.overload.at_start
    platforms = machines_among(classes)
    if policy == "ignore" or (is_sure and not platforms):
        return ()
    work = stated_work(pipeline, model_of_pipeline(pipeline))
    if work is None:
        return ()
    found = beyond_bound(work, platforms) if platforms else beyond_all_jetsons(work)
    if found and platforms and policy == "refuse":
        raise DeployError(_CODE, f"the streams ask for more than can be served: {'; '.join(found)}", hint=_HINT)
    return tuple(found)
