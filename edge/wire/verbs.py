"""The verbs: by which name each request goes over the wire, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from edge.reports import Collected, Facts
from edge.wire import release as _release
from edge.wire.peer import Nothing
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
    "RING",
    "ROLLBACK",
    "STAGE",
    "STATUS",
    "SWITCH",
    "TRUST",
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


PLAN = Verb("plan", _release.OfferRequest, _release.PlanAnswer)
LOCK = Verb("lock", _release.LockRequest, Nothing)
PUT_MANIFEST = Verb("put-manifest", _release.OfferRequest, _release.PutManifestAnswer)
HAVE = Verb("have", _release.HaveRequest, _release.HaveAnswer)
BLOB = Verb("blob", _release.BlobRequest, Nothing)
STAGE = Verb("stage", _release.StageRequest, _release.ReleaseAnswer)
BUILD = Verb("build", _release.BuildRequest, _release.BuildAnswer)
SWITCH = Verb("switch", _release.SwitchRequest, _release.SwitchAnswer)
STATUS = Verb("status", Nothing, StatusAnswer)
CONFIRM = Verb("confirm", _release.ConfirmRequest, _release.ReleaseAnswer)
ROLLBACK = Verb("rollback", _release.RollbackRequest, _release.RollbackAnswer)
GC = Verb("gc", Nothing, Collected)
LOGS = Verb("logs", LogsRequest, LogsAnswer)
LOOK = Verb("look", _release.LookRequest, _release.LookAnswer)
FACTS = Verb("facts", Nothing, Facts)
PING = Verb("ping", Nothing, Nothing)
TRUST = Verb("trust", _release.TrustRequest, _release.TrustAnswer)
RING = Verb("ring", _release.RingRequest, _release.RingAnswer)

VERBS: Mapping[str, Verb[Any, Any]] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *(PLAN, LOCK, PUT_MANIFEST, HAVE, BLOB, STAGE, BUILD, SWITCH),
            *(STATUS, CONFIRM, ROLLBACK, GC, LOGS, LOOK, FACTS, PING, RING, TRUST),
        )
    }
)
