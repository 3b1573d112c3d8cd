"""What a plan and a gate say, in words for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge.bundle.manifest import Manifest

__all__ = ["engine_words", "golden_words", "plan_words", "silent_words"]


def plan_words(plan: Mapping[str, Any], manifest: Manifest) -> str:
    """Return what a push would do by the device's answer to `plan`: from what to what, bytes, files, engine."""
    here = f"{plan['current']} serves" if plan["current"] else "nothing serves"
    if plan["is_unchanged"]:
        return f"{here}, which is this release"
    whole = sum({file.sha256: file.length_bytes for file in manifest.files}.values())
    digests = len({file.sha256 for file in manifest.files})
    sent = f"{len(plan['missing'])} of {digests} files to send, {plan['bytes']} of {whole} bytes"
    return f"{here}; {sent}; {_engine_words(plan['engine'])}"


def engine_words(built: Mapping[str, Any]) -> str:
    """Return what runs on the device and why, by its answer to `build`; empty of an agent that does not say."""
    return str(built.get("engine") or "")


def golden_words(built: Mapping[str, Any]) -> str:
    """Return what the gate on the device has found, by the device's answer to `build`."""
    golden = built["golden"]
    return (
        f"engine {str(built['key'])[:12]} finds {golden['found']} of {golden['expected']} sure detections of the float "
        f"model, {golden['extra']} others, scores differ by {golden['score_error']:.3f}"
    )


def silent_words(status: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each stream that gives no frames, by the device's answer to `status`.

    A trial does not blame the release for a stream that was silent before or is new; a person has to know of it.
    """
    streams = (status.get("health") or {}).get("streams") or {}
    return [
        f"stream {name} gives no frames ({one['state']}); it is new or gave none before, so the release is not blamed"
        for name, one in sorted(streams.items())
        if one["state"] in ("connecting", "down") or not one["inferred"]
    ]


def _engine_words(engine: Mapping[str, Any]) -> str:
    if not engine["build"]:
        return f"engine {str(engine['key'])[:12]} is there"
    # An agent of an earlier version says less.
    last_s, why = engine.get("last_build_s"), engine.get("why")
    took = "" if last_s is None else f"; the last one took {last_s:.0f} s"
    return f"the engine will be built{f', because {why}' if why else ''}{took}"
