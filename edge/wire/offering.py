"""`plan` and `put-manifest`: a release is offered, and the device says what it thinks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from edge.wire.codec import Most, since
from edge.wire.ending import Problem
from edge.wire.status import LastSwitch

__all__ = ["OfferRequest", "PlanAnswer", "PlannedEngine", "PutManifestAnswer"]

_BASE64 = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """A manifest and the signature over it, both in base64; `retry_bad`: also if it has failed there before."""

    manifest: Annotated[str, Most(_BASE64)]
    signature: Annotated[str, Most(_BASE64)]
    retry_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEngine:
    """Whether an engine has to be built and why; `last_build_s` is how long the last build took, seconds."""

    key: str | None
    build: bool
    why: str = ""
    last_build_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """What a push would do: `missing` is by SHA-256 what would be sent of each file, `bytes` their sum.

    `software` is what of it would be run by another edge-deploy than now, in words; None: nothing.
    """

    release: str
    current: str | None
    phase: str
    last: LastSwitch | None
    is_unchanged: bool
    missing: Mapping[str, Annotated[int, Most(2**53)]]
    bytes: int
    engine: PlannedEngine
    refusals: tuple[Problem, ...]
    software: str | None = since(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutManifestAnswer:
    """The release that is taken, and by which name the device knows its signer."""

    release: str
    signer: str
