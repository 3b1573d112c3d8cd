"""A device that says whatever it is told to, as bytes, to a real client: no agent, no process, no clock.

One answers as the recorded device did: `wire_protocol_1.jsonl` is what client and agent of protocol 1 said to each
other before there were revisions, byte for byte. It was recorded at commit 4db2e51, by that commit's own client and
agent, so that nothing of the code under test has made it: a line a frame, the JSON as it went over the wire, blobs in
base64.
"""

import base64
import io
import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from edge.bundle.manifest import BundledFile, Manifest, decode_manifest
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


_PATH = Path(__file__).with_name("wire_protocol_1.jsonl")


@dataclass(frozen=True)
class Said:
    """A frame: in which story and connection, by whom ("client", "agent"), and its body; `values` None: a blob."""

    story: str
    connection: int
    who: str
    body: bytes
    values: dict[str, Any] | None

    @property
    def verb(self) -> str:
        return "blob bytes" if self.values is None else self.values["verb"]

    @property
    def frame(self) -> bytes:
        return (len(self.body) + 1).to_bytes(4, "big") + bytes([self.values is None]) + self.body


@cache
def transcript() -> tuple[Said, ...]:
    return tuple(_said(json.loads(line)) for line in _PATH.read_text().splitlines()[1:])


def allowed_signers() -> str:
    """Return whom the recorded device trusts."""
    return str(json.loads(_PATH.read_text().splitlines()[0])["allowed_signers"])


def exchanges() -> list[tuple[str, Said]]:
    """Return each frame of the agent with the verb that it answers ("hello" for the first one)."""
    asked: dict[tuple[int, object], str] = {}
    answered = []
    for said in transcript():
        if said.values is None:
            continue
        if said.who == "client":
            asked[said.connection, said.values.get("id")] = said.verb
        else:
            verb = said.verb if said.verb == "hello" else asked[said.connection, said.values["id"]]
            answered.append((verb, said))
    return answered


def _said(line: dict[str, Any]) -> Said:
    is_blob = "blob" in line
    body = base64.b64decode(line["blob"]) if is_blob else line["json"].encode()
    return Said(line["story"], line["connection"], line["from"], body, None if is_blob else json.loads(line["json"]))


@dataclass(frozen=True)
class RecordedBundle:
    """What was pushed in a story, put together from its own frames; the files lie in `folder`."""

    manifest: Manifest
    manifest_bytes: bytes
    signature: bytes
    folder: Path

    def opened(self, file: BundledFile) -> BinaryIO:
        return (self.folder / file.sha256).open("rb")


def recorded_bundle(story: str, folder: Path) -> RecordedBundle:
    frames = [said for said in transcript() if said.story == story and said.who == "client"]
    offer = _values(next(said for said in frames if said.verb == "plan"))
    content = base64.b64decode(offer["manifest"])
    asked = ""
    for said in frames:
        if said.verb == "blob":
            asked = _values(said)["sha256"]
        elif said.values is None:
            (folder / asked).write_bytes(said.body)
    return RecordedBundle(decode_manifest(content), content, base64.b64decode(offer["signature"]), folder)


def recorded_device(story: str, **others: Any) -> ScriptedDevice:
    """Return a device that answers as the recorded one did, the last answer of a kind again and again.

    `others` are, by verb (`_` for `-`), what gives the bodies of other answers, from the values of a request.
    """
    hello = next(said for said in transcript() if said.who == "agent" and said.story == story)
    answers: dict[str, list[list[str]]] = {}
    for asked, said in exchanges():
        if said.story == story and asked != "hello":
            of_verb = answers.setdefault(asked, [[]])
            if of_verb[-1] and '"verb":"progress"' not in of_verb[-1][-1]:
                of_verb.append([])
            of_verb[-1].append(said.body.decode().replace(f'"id":{_values(said)["id"]}', '"id":NUMBER', 1))

    def answer(verb: str, values: dict[str, Any]) -> Iterator[str]:
        other = others.get(verb.replace("-", "_"))
        if other is not None:
            return iter(other(values))
        left = answers[verb]
        bodies = left.pop(0) if len(left) > 1 else left[0]
        return iter([one.replace("NUMBER", str(values["id"]), 1) for one in bodies])

    return ScriptedDevice(hello.body.decode(), answer)


def progress_for_ever(values: dict[str, Any]) -> Iterator[str]:
    for done in itertools.count():
        yield body("progress", values["id"], {"phase": "x", "done": done, "total": None, "note": "soon"})


def status_of(story: str, **state: Any) -> dict[str, Any]:
    """Return the values of the story's last answer to `status`, with another state."""
    said = [one for verb, one in exchanges() if verb == "status" and one.story == story][-1]
    values = json.loads(json.dumps(_values(said)))
    values["state"] |= state
    return {name: value for name, value in values.items() if name not in ("verb", "id")}


def _values(said: Said) -> dict[str, Any]:
    assert said.values is not None
    return said.values
