"""What client and agent of protocol 1 said to each other before there were revisions, byte for byte.

`wire_protocol_1.jsonl` was recorded at commit 4db2e51, by that commit's own client and agent, so that nothing of the
code under test has made it: a line a frame, the JSON as it went over the wire, blobs in base64.
"""

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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
        """The bytes on the wire."""
        return (len(self.body) + 1).to_bytes(4, "big") + bytes([self.values is None]) + self.body


@cache
def transcript() -> tuple[Said, ...]:
    """Return all frames in their order."""
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
