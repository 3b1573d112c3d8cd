"""What a plan and a gate say, in words for a person."""

from __future__ import annotations

from edge.bundle.manifest import Manifest
from edge.wire.offering import PlanAnswer, PlannedEngine
from edge.wire.release import Golden
from edge.wire.status import StatusAnswer

__all__ = ["golden_words", "plan_words", "silent_words"]


def plan_words(plan: PlanAnswer, manifest: Manifest) -> str:
    """Return what a push would do by the device's answer to `plan`: from what to what, bytes, files, engine."""
    here = f"{plan.current} serves" if plan.current else "nothing serves"
    if plan.is_unchanged:
        return f"{here}, which is this release"
    whole = sum({file.sha256: file.length_bytes for file in manifest.files}.values())
    digests = len({file.sha256 for file in manifest.files})
    sent = f"{len(plan.missing)} of {digests} files to send, {plan.bytes} of {whole} bytes"
    told = "" if plan.software is None else f"; {plan.software}"
    return f"{here}; {sent}; {_engine_words(plan.engine)}{told}"


def golden_words(key: str | None, golden: Golden) -> str:
    """Return what the gate on the device has found with the engine `key`."""
    return (
        f"engine {(key or '')[:12]} finds {golden.found} of {golden.expected} sure detections of the float "
        f"model, {golden.extra} others, scores differ by {golden.score_error:.3f}"
    )


def silent_words(status: StatusAnswer) -> list[str]:
    """Return one sentence for each stream that gives no frames, by the device's answer to `status`.

    A trial does not blame the release for a stream that was silent before or is new; a person has to know of it.
    """
    streams = {} if status.health is None else status.health.streams
    return [
        f"stream {name} gives no frames ({one.state}); it is new or gave none before, so the release is not blamed"
        for name, one in sorted(streams.items())
        if one.state in ("connecting", "down") or not one.inferred
    ]


def _engine_words(engine: PlannedEngine) -> str:
    if not engine.build:
        return f"engine {(engine.key or '')[:12]} is there"
    took = "" if engine.last_build_s is None else f"; the last one took {engine.last_build_s:.0f} s"
    return f"the engine will be built{f', because {engine.why}' if engine.why else ''}{took}"
