"""A device that answers as the recorded one did (`tests.support.transcript`), save what a test puts in its place."""

import base64
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edge.bundle.manifest import BundledFile, Manifest, decode_manifest
from tests.support.scripted_device import ScriptedDevice, body
from tests.support.transcript import Said, exchanges, transcript


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
    """Return the bundle of a story."""
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
    """Yield progress without end."""
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
