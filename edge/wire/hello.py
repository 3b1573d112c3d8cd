"""The first words of a connection, by which both ends learn whether they understand each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from edge.errors import DeployError
from edge.untrusted import cleaned
from edge.version import __version__
from edge.wire.codec import Most, since
from edge.wire.facts import FactsAnswer
from edge.wire.peer import PROTOCOL, PROVISION, REVISION, UPDATE, Peer

__all__ = ["ClientHello", "DeviceHello", "read_client_hello", "read_device_hello"]

_OURS = f"speaks protocol {PROTOCOL} (version {__version__})"
_LATEST = 10_000
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHello:
    """What speaks here and what it stands on; `current` is the release that serves."""

    facts: FactsAnswer
    current: str | None
    protocol: int = PROTOCOL
    software: str = __version__
    revision: Annotated[int, Most(_LATEST)] = since(1, REVISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """Who asks."""

    protocol: int = PROTOCOL
    software: str = __version__
    revision: Annotated[int, Most(_LATEST)] = since(1, REVISION)


def read_device_hello(values: Mapping[str, object]) -> tuple[DeviceHello, Peer]:
    """Return the hello of a device.

    Raises:
        DeployError: `transfer.version` if it speaks another protocol, `transfer.protocol` if it is no hello.
    """
    if values.get("protocol") != PROTOCOL:
        raise _strange(f"the device {_spoken(values)}, this edge-deploy {_OURS}", UPDATE if _is_newer(values) else None)
    peer = Peer(is_device=True, revision=_revision(values))
    hello = peer.read(DeviceHello, values, where="hello")
    return hello, Peer(is_device=True, revision=peer.revision, software=hello.software)


def read_client_hello(values: Mapping[str, object]) -> Peer:
    """Return the workstation that says hello.

    Raises:
        DeployError: `transfer.version` if it speaks another protocol, `request.value` if it is no hello.
    """
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
