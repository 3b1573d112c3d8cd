"""Bounds before signing: releases that devices would refuse, that lock later ones out, or that none can serve."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from edge.bundle.bounds import MOST_AHEAD_S, ahead, permission_gaps
from edge.bundle.checks import read_time
from edge.bundle.manifest import Manifest
from edge.capacity.fit import beyond_all_jetsons, beyond_bound, machines_among, stated_work
from edge.capacity.work import model_of_pipeline
from edge.config.pipeline import Pipeline
from edge.engine.kinds import AUTO, kinds
from edge.engine.section import read_section
from edge.errors import DeployError
from edge.model.graph import Graph
from edge.model.qdq import qdq_faults

__all__ = ["check_bound", "check_pairs", "check_signable"]


def check_signable(manifest: Manifest, *, now: datetime) -> None:
    """Raise DeployError `bundle.ahead` for times and sequences that devices would have to catch up with.

    `bundle.downgrade` for a permission to go back without its bounds. `now` is this machine's clock.
    """
    if read_time("created_at", manifest.created_at) > now + timedelta(seconds=MOST_AHEAD_S):
        raise DeployError(
            "bundle.ahead",
            f"the release would be made at {manifest.created_at}, more than a day ahead of this machine's clock",
            hint="set the clock, or SOURCE_DATE_EPOCH",
        )
    for error in ahead(manifest, at=now, is_clock_sure=True):
        raise DeployError(
            "bundle.ahead",
            error.problem,
            hint="leave --sequence of bundle out; if a bundle in the output folder has such a sequence, move it away",
        )
    for error in permission_gaps(manifest) if manifest.downgrade_from is not None else ():
        raise DeployError("bundle.downgrade", error.problem, hint=error.hint)


def check_pairs(pipeline: Pipeline, graph: Graph) -> tuple[str, ...]:
    """Return a sentence for each kind of Q/DQ pair in the model that devices with some kind of engine refuse.

    Raises `ConfigError`, naming file, line and key, if the pipeline asks for that very kind.
    """
    faults = [fault.sentence for fault in qdq_faults(graph)]
    section = read_section(pipeline)
    narrow = [name for name, facts in kinds().items() if facts.is_symmetric and section.kind in (AUTO, name)]
    if not faults or not narrow:
        return ()
    if section.kind != AUTO:
        raise pipeline.error(("engine", "kind"), f"{section.kind} does not take the model's pairs: {'; '.join(faults)}")
    return tuple(f"engine {' and '.join(narrow)}: {sentence}" for sentence in faults)


_CODE = "preflight.capacity"
_HINT = "lower max_fps, use int8 or a smaller model, or set overload: {at_start: warn}; see edge-deploy capacity"


def check_bound(pipeline: Pipeline, classes: Sequence[str], *, is_sure: bool = False) -> tuple[str, ...]:
    """Return a sentence for each of `classes` in the table of machines that cannot serve the streams, on any engine.

    Where none is in the table, and not `is_sure`, a load beyond every Jetson is only a warning: it may be for
    another machine. Raises `DeployError` `preflight.capacity`, if a class is such a machine and `overload.at_start` is
    `refuse`; EdgeError if model or table cannot be used.
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
