"""A client that knows frames and nothing else: whatever it is told to ask goes over the wire as it is."""

from __future__ import annotations

from typing import Any

from edge.errors import DeployError
from edge.transport.channel import Channel, Message


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
