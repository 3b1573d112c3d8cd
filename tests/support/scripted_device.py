"""A device that says whatever it is told to, as bytes, to a real client: no agent, no process, no clock."""

import io
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from edge.errors import DeployError
from edge.transport.channel import Frame, Message, read_frame

Answers = Callable[[str, dict[str, Any]], Iterator[str]]
"""Bodies of the frames that answer a request: its verb and its values, among them `id`."""


class ScriptedDevice:
    """A `Channel` to it; `asked` are the verbs that came. `answers` may go on for ever: made when read."""

    def __init__(self, hello: str, answers: Answers) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self._said: deque[Iterator[str]] = deque([iter([hello])])
        self._is_closed = threading.Event()

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        if isinstance(frame, Message) and frame.verb != "hello":
            self.asked.append(frame.verb)
            self._said.append(self._answers(frame.verb, frame.values))

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        while self._said and not self._is_closed.is_set():
            for body in self._said[0]:
                content = body.encode("utf-8", "surrogatepass")
                return read_frame(io.BytesIO((len(content) + 1).to_bytes(4, "big") + b"\0" + content).read)
            self._said.popleft()
        self._is_closed.wait(timeout_s)
        raise DeployError("transfer.timeout", f"the other side has said nothing for {timeout_s:g} s")

    def close(self) -> None:
        self._is_closed.set()


def body(verb: str, number: object, values: dict[str, Any]) -> str:
    """Return the JSON of a frame, NaN and Infinity as Python spells them."""
    return json.dumps({"verb": verb, "id": number, **values})
