"""An `ssh` for tests, behind which is a device that puts control characters into each text that it says.

Run as `lying_ssh.py HOW ARGUMENT...`: HOW is "texts" (the agent's recorded answers, every text spoiled), "errors" (each
request is refused so), "stderr" (the connection fails and says so) or "banner" (what comes is no frame).
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.command_line import EVIL
from tests.support.scripted_device import exchanges


def _spoiled(value: object) -> object:
    if isinstance(value, dict):
        return {key: _spoiled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_spoiled(inner) for inner in value]
    return value + EVIL if isinstance(value, str) else value


def _say(values: dict[str, object]) -> None:
    body = json.dumps(values).encode()
    sys.stdout.buffer.write((len(body) + 1).to_bytes(4, "big") + b"\0" + body)
    sys.stdout.buffer.flush()


def _agent(how: str) -> None:
    largest = {}
    for asked, said in exchanges():
        is_larger = said.verb in ("hello", "ok") and len(said.body) > len(largest.get(asked, said).body)
        if is_larger or asked not in largest:
            largest[asked] = said
    _say({**_spoiled(largest["hello"].values), "verb": "hello"})
    while head := sys.stdin.buffer.read(5):
        body = sys.stdin.buffer.read(int.from_bytes(head[:4], "big") - 1)
        request = json.loads(body) if head[4] == 0 else {"verb": "hello"}
        if request["verb"] == "hello":
            continue
        if how == "errors" or request["verb"] not in largest:
            refusal = {"code": "device.disk" + EVIL, "problem": EVIL, "hint": EVIL, "evidence": {EVIL: [EVIL]}}
            _say({"verb": "err", "id": request["id"], **refusal})
            continue
        note = {"phase": EVIL, "done": 1, "total": 2, "note": EVIL}
        _say({"verb": "progress", "id": request["id"], **note})
        _say({**_spoiled(largest[request["verb"]].values), "verb": "ok", "id": request["id"]})


def main(how: str, arguments: list[str]) -> int:
    """Be what the arguments ask for."""
    if how == "stderr":
        sys.stderr.write(f"Welcome {EVIL}\nPermission denied {EVIL}\n")
        return 255
    if how == "banner":
        sys.stdout.write(f"Welcome to gate 1 {EVIL}\n" * 30)
        return 0
    if "agent" in arguments:
        _agent(how)
        return 0
    # An administrator's shell: refused, or answered with something that is none of the agreed answers.
    sys.stdout.write(f"architecture={EVIL}\nend=yes\n{EVIL}\n")
    sys.stderr.write(f"cannot do that {EVIL}\n")
    return 1 if how == "errors" else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stderr.reconfigure(encoding="utf-8")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
