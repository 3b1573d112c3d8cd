"""What who fetches releases may ask for: what brings a release here, and nothing that a person decides."""

from __future__ import annotations

from typing import Any

from edge.errors import DeployError
from edge.wire import verbs
from edge.wire.sending import LockRequest
from edge.wire.verbs import Verb

__all__ = ["check_pull_may"]

_OF_A_PULL = frozenset(
    verb.name
    for verb in (
        *(verbs.PLAN, verbs.LOCK, verbs.PUT_MANIFEST, verbs.HAVE, verbs.BLOB, verbs.STAGE, verbs.BUILD),
        *(verbs.SWITCH, verbs.STATUS, verbs.GC, verbs.PING, verbs.TURN),
    )
)


def check_pull_may(verb: Verb[Any, Any], request: object) -> None:
    """Raise DeployError `request.forbidden` unless a pull needs it: no way back, no reset, no word of other programs.

    The lock in a trial is for a person who wants to go back, too.
    """
    what = verb.name
    if what in _OF_A_PULL:
        if not isinstance(request, LockRequest) or not request.in_trial:
            return
        what = f"{what} in a trial"
    raise DeployError(
        "request.forbidden",
        f"{what}: who fetches releases may not ask for it",
        hint="ask as the user edge-deploy: over SSH, or on the device by sudo edge-runtime rollback",
    )
