"""The verbs: by which name each request goes over the wire, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from edge.wire import release as _release
from edge.wire import sending as _sending
from edge.wire.ending import Nothing
from edge.wire.facts import FactsAnswer
from edge.wire.look import LookAnswer, LookRequest
from edge.wire.offering import OfferRequest, PlanAnswer, PutManifestAnswer
from edge.wire.reset import ResetAnswer, ResetRequest
from edge.wire.software import TurnAnswer
from edge.wire.status import LogsAnswer, LogsRequest, StatusAnswer

__all__ = [
    "BLOB",
    "BUILD",
    "CONFIRM",
    "FACTS",
    "GC",
    "HAVE",
    "LOCK",
    "LOGS",
    "LOOK",
    "PING",
    "PLAN",
    "PUT_MANIFEST",
    "RESET",
    "ROLLBACK",
    "STAGE",
    "STATUS",
    "SWITCH",
    "TURN",
    "VERBS",
    "Verb",
]

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Q, A]):
    """One thing that a device can be asked; request and answer are dataclasses."""

    name: str
    request: type[Q]
    answer: type[A]


PLAN = Verb("plan", OfferRequest, PlanAnswer)
LOCK = Verb("lock", _sending.LockRequest, Nothing)
PUT_MANIFEST = Verb("put-manifest", OfferRequest, PutManifestAnswer)
HAVE = Verb("have", _sending.HaveRequest, _sending.HaveAnswer)
BLOB = Verb("blob", _sending.BlobRequest, Nothing)
STAGE = Verb("stage", _release.StageRequest, _release.ReleaseAnswer)
BUILD = Verb("build", _release.BuildRequest, _release.BuildAnswer)
SWITCH = Verb("switch", _release.SwitchRequest, _release.SwitchAnswer)
STATUS = Verb("status", Nothing, StatusAnswer)
CONFIRM = Verb("confirm", _release.ConfirmRequest, _release.ReleaseAnswer)
ROLLBACK = Verb("rollback", _release.RollbackRequest, _release.RollbackAnswer)
RESET = Verb("reset", ResetRequest, ResetAnswer)
GC = Verb("gc", Nothing, _release.CollectedAnswer)
LOGS = Verb("logs", LogsRequest, LogsAnswer)
LOOK = Verb("look", LookRequest, LookAnswer)
FACTS = Verb("facts", Nothing, FactsAnswer)
PING = Verb("ping", Nothing, Nothing)
TURN = Verb("turn", Nothing, TurnAnswer)

VERBS: Mapping[str, Verb[Any, Any]] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *(PLAN, LOCK, PUT_MANIFEST, HAVE, BLOB, STAGE, BUILD, SWITCH),
            *(STATUS, CONFIRM, ROLLBACK, RESET, GC, LOGS, LOOK, FACTS, PING, TURN),
        )
    }
)
"""All of them, by name."""
