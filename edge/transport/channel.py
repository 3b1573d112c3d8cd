"""What a push and an agent see of the connection between them."""

from __future__ import annotations

from typing import Protocol

from edge.transport.frames import Frame

__all__ = ["Channel"]


class Channel(Protocol):
    """A connection that carries whole frames in order, both ways, until one side closes it."""

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        """Send a frame.

        Raises:
            DeployError: `transfer.*`, if the other side is gone or does not take it in time.
        """
        ...

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        """Return the next frame.

        Raises:
            DeployError: `transfer.closed` at the end, `transfer.timeout`, or `transfer.protocol`.
        """
        ...

    def close(self) -> None:
        """End the connection; the other side reads its end. May be called twice."""
        ...
