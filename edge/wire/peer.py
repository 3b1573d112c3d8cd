"""The other end of a connection: its protocol revision (the hellos), how its words are read, how a request ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from edge.codec import Misfit, Most, decode, newer_than, since
from edge.errors import EXIT_CODE_OF, DeployError
from edge.reports import Facts
from edge.untrusted import cleaned
from edge.version import __version__

__all__ = [
    "PROTOCOL",
    "PROVISION",
    "REVISION",
    "UPDATE",
    "ClientHello",
    "DeviceHello",
    "Nothing",
    "Peer",
    "Problem",
    "Progress",
    "error_of",
    "problem_of",
    "read_client_hello",
    "read_device_hello",
]

_CODE, _TEXT = 100, 16_000
PROTOCOL = 1
"""Peers of different numbers do not understand each other."""

REVISION = 5
"""Revision of the fields; 0 is the first one, which did not say so. Add one with each release that adds fields."""

PROVISION = "run: edge-deploy provision, with the same edge-deploy that pushes"
UPDATE = "update edge-deploy on the workstation: pip install --upgrade edge-deploy"

T = TypeVar("T")
_OURS = f"speaks protocol {PROTOCOL} (version {__version__})"
_LATEST = 10_000
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Nothing:
    """A request that says no more than its verb, or an answer that says no more than "done"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a request is: `done` of `total` bytes or seconds; `note` is for people."""

    phase: str
    done: Annotated[float, Most(2**63)]
    total: Annotated[float, Most(2**63)] | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A `DeployError` on its way; `evidence` is plain JSON."""

    code: Annotated[str, Most(_CODE)]
    problem: Annotated[str, Most(_TEXT)]
    hint: Annotated[str, Most(_TEXT)] | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


def problem_of(error: DeployError) -> Problem:
    """Return the error as it goes over the wire; too long a text is cut, evidence that JSON cannot carry is spelled."""
    evidence = json.loads(json.dumps(error.evidence, default=str))
    hint = None if error.hint is None else error.hint[:_TEXT]
    return Problem(code=error.code[:_CODE], problem=error.problem[:_TEXT], hint=hint, evidence=evidence)


def error_of(problem: Problem) -> DeployError:
    """Return the error that a device has sent; one that only a newer version knows is `device.unknown`."""
    error = DeployError(problem.code, problem.problem, hint=problem.hint, evidence=problem.evidence)
    if problem.code.partition(".")[0] not in EXIT_CODE_OF:
        error.evidence["code"], error.code = problem.code, "device.unknown"
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A peer; `is_device` False: a workstation."""

    is_device: bool
    revision: int = REVISION
    software: str = ""

    def read(self, kind: type[T], values: object, *, where: str) -> T:
        """Return the `kind`; else DeployError `transfer.protocol` of a device, `request.value` of a workstation."""
        try:
            return decode(kind, values, where=where, revision=self.revision, ours=REVISION)
        except Misfit as misfit:
            raise self._unreadable(misfit) from None

    def _unreadable(self, misfit: Misfit) -> DeployError:
        evidence = {"field": misfit.where, "expected": misfit.expected, "got": misfit.got}
        if self.is_device:
            hint = UPDATE if self.revision > REVISION else PROVISION
            problem = f"the device's answer cannot be read: {misfit}"
            return DeployError("transfer.protocol", problem, hint=hint, evidence=evidence)
        return DeployError("request.value", str(misfit), evidence=evidence)

    def check_knows(self, request: Any, *, verb: str) -> None:
        """Pass if the peer knows all that the request asks for; DeployError `transfer.version`."""
        unknown = newer_than(request, self.revision)
        if unknown:
            raise DeployError(
                "transfer.version",
                f"the device's software{f' ({self.software})' if self.software else ''} is too old for "
                f"{', '.join(unknown)} of {verb!r}",
                hint=PROVISION,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHello:
    """The speaking software and its machine; `current` is the release that serves."""

    facts: Facts
    current: str | None
    protocol: int = PROTOCOL
    software: str = __version__
    revision: Annotated[int, Most(_LATEST)] = since(1, REVISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """The hello of a client."""

    protocol: int = PROTOCOL
    software: str = __version__
    revision: Annotated[int, Most(_LATEST)] = since(1, REVISION)


def read_device_hello(values: Mapping[str, object]) -> tuple[DeviceHello, Peer]:
    """Return the hello; DeployError `transfer.version` for another protocol, `transfer.protocol` if it is none."""
    if values.get("protocol") != PROTOCOL:
        raise _strange(f"the device {_spoken(values)}, this edge-deploy {_OURS}", UPDATE if _is_newer(values) else None)
    peer = Peer(is_device=True, revision=_revision(values))
    hello = peer.read(DeviceHello, values, where="hello")
    return hello, Peer(is_device=True, revision=peer.revision, software=hello.software)


def read_client_hello(values: Mapping[str, object]) -> Peer:
    """Return the workstation; DeployError `transfer.version` for another protocol, `request.value` for no hello."""
    if values.get("protocol") != PROTOCOL:
        raise _strange(f"the device {_OURS}, the client {_spoken(values)}", None if _is_newer(values) else UPDATE)
    peer = Peer(is_device=False, revision=_revision(values))
    peer.read(ClientHello, values, where="hello")
    return peer


def _revision(values: Mapping[str, object]) -> int:
    # Before the rest is read, because how it is read depends on it; what is no revision is found out then.
    said = values.get("revision", 0)
    return said if isinstance(said, int) and 0 <= said <= _LATEST else REVISION


def _is_newer(values: Mapping[str, object]) -> bool:
    said = values.get("protocol")
    return isinstance(said, int) and said > PROTOCOL


def _spoken(values: Mapping[str, object]) -> str:
    protocol, software = (cleaned(str(values.get(name, "none")))[:_SHOWN] for name in ("protocol", "software"))
    return f"speaks protocol {protocol} (version {software})"


def _strange(problem: str, hint: str | None) -> DeployError:
    return DeployError("transfer.version", problem, hint=hint or PROVISION)
