"""What a conversation has come to, told from its frames by who only passes them on. Standard library only."""

from __future__ import annotations

from typing import Any

from edge.errors import DeployError
from edge.runtime.software.turns import ANY, PLAN
from edge.transport.frames import Message, read_frame

__all__ = ["Account", "FrameTap"]

_OF_A_PUSH = frozenset(("plan", "lock", "put-manifest", "have", "blob", "stage", "build", "switch", "gc"))
_OF_OTHERS = frozenset(("look", "logs"))  # what the service shows, and the journal: an agent cannot help it
_OFFERS = frozenset(("plan", "put-manifest"))
_HEAD_BYTES = 4
_MOST_FRAME_BYTES = 2 << 20
_MOST_VERB = 40


class FrameTap:
    """Takes bytes as they pass, and gives the messages among them; of blobs nothing is kept."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.is_broken = False

    def take(self, content: bytes) -> list[Message]:
        """Return the messages that are whole with this; none once something else than frames has come."""
        found: list[Message] = []
        if self.is_broken:
            return found
        self._held += content
        while len(self._held) >= _HEAD_BYTES:
            end = _HEAD_BYTES + int.from_bytes(self._held[:_HEAD_BYTES], "big")
            if end > _MOST_FRAME_BYTES:
                self._give_up()
            if len(self._held) < end or self.is_broken:
                break
            frame = bytes(self._held[:end])
            del self._held[:end]
            found += self._message(frame)
        return found

    def _message(self, frame: bytes) -> list[Message]:
        rest = memoryview(frame)

        def read_exactly(count: int) -> bytes:
            nonlocal rest
            part, rest = bytes(rest[:count]), rest[count:]
            if len(part) < count:
                raise DeployError("transfer.protocol", "a frame that is shorter than it says")
            return part

        try:
            one = read_frame(read_exactly)
        except DeployError:
            self._give_up()
            return []
        return [one] if isinstance(one, Message) else []

    def _give_up(self) -> None:
        self.is_broken = True
        self._held.clear()


class Account:
    """What was asked in a conversation, and how it was answered; both sides are heard, and none is believed.

    Well ends: something was asked, and all of it answered `ok`; whoever offered a release had it switched to; the
    client was the first to leave, and the agent ended after it by itself, without an error.
    """

    def __init__(self) -> None:
        self.is_left = False  # by the client, before the agent has ended
        self._is_answered = self._is_offered = self._is_taken = False
        self._asked: Message | None = None
        self._last: str | None = None
        self._failed: str | None = None

    def heard(self, message: Message) -> None:
        """Take what the client says."""
        if message.verb in ("hello", "ping"):
            return
        self._asked, self._last = message, message.verb[:_MOST_VERB]
        self._is_offered |= message.verb in _OFFERS

    def answered(self, message: Message) -> None:
        """Take what the agent says."""
        asked = self._asked
        if asked is None or message.values.get("id") != asked.values.get("id"):
            if message.verb == "err":
                self._failed = self._failed or ANY
        elif message.verb == "err":
            self._asked = None
            if asked.verb not in _OF_OTHERS:
                self._failed = self._failed or asked.verb
        elif message.verb == "ok":
            self._asked = None
            self._is_answered = True
            self._is_taken |= _takes(asked.verb, asked.values)

    @property
    def is_taken(self) -> bool:
        """Whether the agent has said that it has switched, or will."""
        return self._is_taken

    @property
    def goes_on_alone(self) -> str | None:
        """Return the request that an agent finishes without its client; None: there is none."""
        asked = self._asked
        if asked is not None and asked.verb in ("switch", "rollback"):
            return asked.verb
        is_detached = asked is None and self._is_taken and self._last == "build"
        return "build" if is_detached or (asked is not None and _takes(asked.verb, asked.values)) else None

    def owed(self, status: int) -> str | None:
        """Return what was not done well, `status` being how the agent ended; None: all was."""
        failed = self._failed or (None if self._asked is None else self._asked.verb)
        if failed == ANY or (failed is None and (status != 0 or not self.is_left)):
            failed = self._last or PLAN  # where the agent ended it before anything was asked, it may have been a push
        if failed is None and not self._is_answered:
            failed = self._last or ANY
        if failed is None and self._is_offered and not self._is_taken:
            failed = PLAN
        return PLAN if failed in _OF_A_PUSH else failed


def _takes(verb: str, values: dict[str, Any]) -> bool:
    return verb == "switch" or (verb == "build" and values.get("detach") is True)
