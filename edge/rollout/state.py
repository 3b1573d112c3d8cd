"""What is kept of a rollout, so that any workstation goes on where another has ended: `edge.rollout/1`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from edge.rollout.rules import Rules

__all__ = ["RingState", "RolloutPhase", "RolloutState", "RolloutStep", "decode_rollout", "encode_rollout"]

_MOST_STEPS = 200
_Digest = Annotated[str, msgspec.Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
_Release = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}$")]
_Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,32}$")]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
RolloutPhase = Literal["running", "stopped", "done"]


class RingState(msgspec.Struct, frozen=True, kw_only=True):
    """One ring.

    Attributes:
        name: as devices have it in their settings.
        known: how many devices the broker knew of it at the start.
        before: digest of what its tag named before; None: nothing.
        began_at: when it got the release; None: not yet.
        reached_at: since when enough have committed it, without a break; None: they have not.
    """

    name: _Word
    known: Annotated[int, msgspec.Meta(ge=0)]
    before: _Digest | None = None
    began_at: _Time | None = None
    reached_at: _Time | None = None


class RolloutStep(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, by whom, when."""

    at: _Time
    by: str
    what: str


class RolloutState(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout of one release over the rings of its channel; at most one of a channel is `running`.

    Attributes:
        serial: one more with each change; who changes it has seen the one before.
        claim: random; by it a writer knows its own.
        release, digest: what is rolled out, and the artifact that holds it.
        sequence: of the release, in its channel.
        rings: in the order in which they get it.
        silent: since when who says nothing, `site/device`; kept because no broker tells it.
        why: of a stop.
        steps: the latest, oldest first.
    """

    format: Literal["edge.rollout/1"] = "edge.rollout/1"
    serial: Annotated[int, msgspec.Meta(ge=1)]
    claim: str
    channel: _Word
    release: _Release
    digest: _Digest
    sequence: int
    phase: RolloutPhase = "running"
    why: str | None = None
    rules: Rules
    rings: Annotated[tuple[RingState, ...], msgspec.Meta(min_length=1)]
    silent: Mapping[str, _Time] = msgspec.field(default_factory=dict)
    steps: tuple[RolloutStep, ...] = ()

    def __post_init__(self) -> None:
        names = [ring.name for ring in self.rings]
        if len(set(names)) != len(names):
            raise ValueError(f"rings: expected each once, got {', '.join(names)}")
        begun = [ring.began_at is not None for ring in self.rings]
        if begun != sorted(begun, reverse=True) or not begun[0]:
            raise ValueError("rings: expected the first to have begun, and none before the one that comes earlier")

    @property
    def begun(self) -> tuple[RingState, ...]:
        """The rings that have got the release."""
        return tuple(ring for ring in self.rings if ring.began_at is not None)

    @property
    def current(self) -> RingState:
        """The ring that got it last."""
        return self.begun[-1]

    @property
    def following(self) -> RingState | None:
        """The ring that gets it next; None: all have it."""
        rest = self.rings[len(self.begun) :]
        return rest[0] if rest else None

    def changed(self, *, at: datetime, by: str, what: str | None, claim: str, **values: object) -> RolloutState:
        """Return what comes after this, with `values` in place of its own; `what` None: no step worth a line."""
        steps = self.steps if what is None else (*self.steps, RolloutStep(at=at, by=by, what=what))[-_MOST_STEPS:]
        return msgspec.structs.replace(self, serial=self.serial + 1, claim=claim, steps=steps, **values)

    def with_ring(self, changed: RingState) -> tuple[RingState, ...]:
        """Return the rings with one in place of that of its name."""
        return tuple(changed if ring.name == changed.name else ring for ring in self.rings)


def encode_rollout(state: RolloutState) -> bytes:
    """Return the JSON text."""
    return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"


def decode_rollout(content: bytes) -> RolloutState:
    """Return what a text says; ValueError if it is no such text."""
    try:
        return msgspec.json.decode(content, type=RolloutState)
    except (msgspec.DecodeError, RecursionError) as error:  # nested deeper than anything of ours
        raise ValueError(str(error)) from None
