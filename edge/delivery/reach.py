"""A device that is reached, lost, and reached again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import chain, repeat

from edge.deadline import NEVER, Deadline
from edge.delivery.link import Interrupted, Link, is_lost
from edge.errors import DeployError
from edge.transport.channel import Channel

__all__ = ["Reach"]

_PAUSES_S = (0.2, 0.5, 1.0, 2.0)
_LAST_PAUSE_S = 5.0


class Reach:
    """The one link to a device at a time; owns it."""

    def __init__(self, connect: Callable[[], Channel], stop: threading.Event, deadline: Deadline = NEVER) -> None:
        self._connect, self._stop, self._deadline = connect, stop, deadline
        self._link: Link | None = None
        self._sent_before = 0
        self.count = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs over all links."""
        return self._sent_before + (0 if self._link is None else self._link.bytes_sent)

    def link(self) -> Link:
        """Return the link, opened if there is none; DeployError `transfer.*`."""
        if self._link is None:
            self._link = Link(self._connect(), self._stop, self._deadline)
            self.count += 1
        return self._link

    def close(self) -> None:
        """End the link."""
        if self._link is not None:
            self._sent_before += self._link.bytes_sent
            self._link.close()
            self._link = None

    def again(self, lost: DeployError, *, until: Deadline) -> None:
        """Open another link after `lost`, trying until `until`, and never longer than all may take.

        Raises:
            DeployError: the last one, if it is too late or of no use; Interrupted.
        """
        self.close()
        for pause_s in chain(_PAUSES_S, repeat(_LAST_PAUSE_S)):
            left_s = min(until.left_s, self._deadline.left_s)
            if left_s <= 0:
                raise lost
            if self._stop.wait(min(pause_s, left_s)):
                raise Interrupted
            try:
                self.link()
                return
            except DeployError as error:
                if not is_lost(error):
                    raise
                lost = error
