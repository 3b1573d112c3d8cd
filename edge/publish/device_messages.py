"""Messages of a device about itself: its state, its last switch, its last look at a registry."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from edge.publish.message import Instant, Number, TopicLevel, WireMessage

__all__ = ["DeployMessage", "DeployResult", "DeviceState", "PullMessage", "PullResult", "StateMessage"]

DeviceState = Literal["online", "degraded", "stopping", "offline"]
DeployResult = Literal["committed", "rolled-back", "failed"]
PullResult = Literal[
    "unchanged",
    "kept",
    "changed",
    "committed",
    "detached",
    "rolled-back",
    "refused",
    "failed",
    "unreachable",
    "late",
    "interrupted",
]


class StateMessage(WireMessage, frozen=True, kw_only=True):
    """Whether the device is there; also its Will.

    Ignore an `offline` whose `session` is not that of the last `online`: it is the late Will of a connection that was
    replaced. `epoch` is that of the start, `session` of the connection; null where no connection carries the message
    (JSON Lines).
    """

    where: ClassVar[str] = "state"
    schema: Literal["edge.state/1"] = "edge.state/1"
    state: DeviceState
    epoch: Number | None = None
    session: Number | None = None
    since: Instant | None
    reason: str | None = None


class DeployMessage(WireMessage, frozen=True, kw_only=True):
    """How the last switch to another release ended; `from` is what served before it, null where nothing did.

    `committed`: `release` is proven. `rolled-back`: `release` was left for the reason given. `failed`: nothing is left
    that the device could do alone. `at` is in seconds, by the device's clock.
    """

    where: ClassVar[str] = "deploy"
    schema: Literal["edge.deploy/1"] = "edge.deploy/1"
    release: str | None
    from_: str | None = msgspec.field(name="from")
    result: DeployResult
    reason: str | None
    at: Annotated[str, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")]


class PullMessage(WireMessage, frozen=True, kw_only=True):
    """From where a device fetches its releases, and what its last look came to; of a device that does, or once did.

    All are null where it does so no longer, `release` and `result` before its first look. `result` is as that of a
    push, with `code` and `reason` of what went wrong (docs/push-codes.md), or `kept`: what serves goes on, as nothing
    newer is to be had, for the `reason` given. `at` is of the look that first came to this, `looked_at` of the last one
    to which the registry said what the ring has.
    """

    where: ClassVar[str] = "pull"
    schema: Literal["edge.pull/1"] = "edge.pull/1"
    repository: str | None = None
    channel: TopicLevel | None = None
    ring: TopicLevel | None = None
    release: str | None = None
    result: PullResult | None = None
    code: str | None = None
    reason: str | None = None
    at: Annotated[str | None, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")] = None
    looked_at: Annotated[str | None, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")] = None
