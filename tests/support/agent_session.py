"""A session of the agent that a test asks function by function: a real device and wire, units in memory.

And a client that knows frames and nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from edge.bundle.folder import Bundle
from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.lock import state_lock
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent.session import Conversation, Session
from edge.runtime.trial.trust import Signed
from edge.transport.channel import Channel, Message, PipeChannel
from edge.wire.release import OfferRequest
from tests.support.units import FakeUnits

RESTARTED = [("reset-failed", RUNTIME_UNIT), ("restart", RUNTIME_UNIT)]
RESTARTED_AND_ON_TRIAL = [*RESTARTED, ("start", TRIAL_UNIT)]


def piped() -> tuple[PipeChannel, PipeChannel]:
    """Return both ends of a connection: the agent's, and its client's."""
    to_agent, from_client = os.pipe()
    to_client, from_agent = os.pipe()
    return PipeChannel(to_agent, from_agent), PipeChannel(to_client, from_client)


def hang_up() -> None:
    """Do to this process what the end of an ssh session does to its command; it has to be ready for that."""
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.raise_signal(one)


@contextlib.contextmanager
def hanging_up(layout: Layout) -> Iterator[None]:
    """Hold the state lock of a device whose client's session ends at the moment in which it is taken."""
    hang_up()
    with state_lock(layout):
        yield


class AgentSession(Session):
    """One connection to `device`, whose `client` is the test; `units` tells what was done to them."""

    def __init__(self, device: Device) -> None:
        agent, self.client = piped()
        self.fakes = FakeUnits(RUNTIME_UNIT, BUILD_UNIT, TRIAL_UNIT)
        super().__init__(Conversation(agent, silence_s=30.0), device, self.fakes, origin="test")

    def hold(self) -> AgentSession:
        self.take_lock("mina", "a test")
        return self

    def put(self, bundle: Bundle) -> str:
        """Have this release on offer, as one whose signature was verified; return its name."""
        self.offer = Signed(
            manifest=bundle.manifest, content=bundle.manifest_bytes, signature=bundle.signature, signer="ops"
        )
        return bundle.manifest.release

    def heard(self) -> list[Message]:
        """Return what the client was told since it was asked last."""
        found = []
        with contextlib.suppress(DeployError):
            while True:
                frame = self.client.receive(timeout_s=0)
                assert isinstance(frame, Message)
                found.append(frame)
        return found


def offer_of(bundle: Bundle) -> OfferRequest:
    manifest, signature = (base64.b64encode(one).decode() for one in (bundle.manifest_bytes, bundle.signature))
    return OfferRequest(manifest=manifest, signature=signature)


def receive(device: Device, bundle: Bundle) -> None:
    """Put the blobs of a release into the device's store."""
    for one in bundle.manifest.files:
        device.store.begin(one.sha256, one.length_bytes)
        device.store.write(one.sha256, 0, bundle.path_of(one).read_bytes())
        device.store.finish(one.sha256, one.length_bytes)


def framed(body: bytes) -> bytes:
    """Return the frame of a message whose JSON is `body`."""
    return (len(body) + 1).to_bytes(4, "big") + b"\x00" + body


class RawClient:
    """One connection; `hello` is what the device said first. Closed with the block."""

    def __init__(self, channel: Channel, **hello: object) -> None:
        self.channel = channel
        first = channel.receive()
        assert isinstance(first, Message), first
        self.hello = first.values
        channel.send(Message("hello", {"protocol": 1, "software": "0.1.0", **hello}))
        self._number = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def ask(self, verb: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the values of the answer without its id; DeployError with the code and problem of an `err`."""
        self._number += 1
        self.channel.send(Message(verb, {**(values or {}), "id": self._number}))
        while True:
            frame = self.channel.receive(timeout_s=30)
            assert isinstance(frame, Message), frame
            if frame.verb == "err":
                raise DeployError(frame.values["code"], frame.values["problem"])
            if frame.verb == "ok":
                assert frame.values.pop("id") == self._number
                return frame.values
