"""Changes to the package that make other software of it: a later one, and ones that fail where they are used."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NEXT = {"edge/version.py": (REPOSITORY / "edge/version.py").read_bytes().replace(b'"0.1.0"', b'"0.2.0"')}
# Each breaks where it is used; what cannot even be imported is found out before anything is built.
BREAKS = {
    "edge/runtime/serve/release.py": (
        b"    device, release = device_of_release(folder)\n",
        b"    raise SystemExit(1)\n",
    ),
    "edge/runtime/build/worker.py": (
        b"def main(",
        b"def main(*_):\n    raise OSError('this worker is broken')\n\n\ndef _(",
    ),
    "edge/runtime/agent/entry.py": (
        b"    layout = Layout(",
        b"    raise ImportError('this agent is broken')\n    layout = Layout(",
    ),
    "edge/runtime/serve/parts.py": (
        b"from __future__ import annotations\n",
        b"raise ImportError('this software is broken')\n",
    ),
}

# Of an agent that can be imported, and greets: what no trial sees.
AGENTS = {
    "dies": (
        "serve.py",
        b"            while not talk.is_gone:\n",
        b"            raise SystemExit(3)\n            while True:\n",
    ),
    "never-greets": ("serve.py", b"        talk.hello(greeting(device))\n", b"        raise SystemExit(3)\n"),
    "refuses-every-hello": (
        "serve.py",
        b"        talk.meet(talk.next_request())\n",
        b"        talk.next_request()\n        raise DeployError('transfer.version', 'who are you')\n",
    ),
    "leaves-after-an-answer": (
        "serve.py",
        b"                _answer(session, request)\n",
        b"                _answer(session, request)\n                break\n",
    ),
    "hangs": (
        "serve.py",
        b"            while not talk.is_gone:\n",
        b"            __import__('threading').Event().wait()\n            while True:\n",
    ),
    "hangs-with-the-lock": (
        "session.py",
        b"    session.take_lock(request.who, request.why)\n",
        b"    session.take_lock(request.who, request.why)\n    __import__('threading').Event().wait()\n",
    ),
    "refuses-all": (
        "offer.py",
        b"    offer = _read_offer(session, request)\n    release = offer.manifest.release\n",
        b"    raise DeployError('preflight.device', 'this agent takes nothing')\n",
    ),
    "calls-all-unchanged": (
        "offer.py",
        b"is_unchanged=is_current and state.phase is Phase.IDLE",
        b"is_unchanged=True",
    ),
    "takes-nothing-in": ("receive.py", b"    store = session.device.store\n", b"    raise OSError('no store')\n"),
    "cannot-say-how-it-stands": (
        "watch.py",
        b"    device = session.device\n    bad = ",
        b"    raise OSError('no')\n    bad = ",
    ),
}
# Of a pull. What it leaves as its record is written by what it is laid over, and each is another.
_FALSE = (
    b"    reference = str(client.reference)\n    left_s",
    b"    reference = str(client.reference)\n    return _false(client, last, reference)\n    left_s",
)
_FALSELY = b"""

def _false(client, last, reference):
    record = replace(last, problem=str(time.time()), %s)
    return Pulled(outcome=_nothing(last.release, reference), record=record)
"""
PULLS = {
    "raises": (b"    reference = str(client.reference)\n    left_s", b"    raise OSError('broken')\n    left_s", b""),
    "ends-without-a-word": (
        b"    reference = str(client.reference)\n    left_s",
        b"    __import__('os')._exit(0)\n    left_s",
        b"",
    ),
    "finds-nothing-new": (*_FALSE, _FALSELY % b"result='unchanged'"),
    "says-that-it-was-judged": (
        *_FALSE,
        _FALSELY % b"settled=replace(last.settled, digest=client.digest_of(client.reference.tag))",
    ),
    "wants-to-be-left-alone": (*_FALSE, _FALSELY % b"not_before_s=time.time() + 24 * 3600"),
}
_PULL = "edge/runtime/pull/pull.py"
_UNITS = (
    b"units or SystemctlUnits()",
    b"units or __import__('tests.support.process_units', fromlist=['_']).ProcessUnits(layout.root)",
)


def broken(name):
    """Return a file of the package that fails where it is used."""
    return _changed(name, *BREAKS[name])


def later_agent(how=None):
    """Return the changes that make a later edge-deploy, whose agent may be broken in a way that no trial sees."""
    if how is None:
        return NEXT
    name, before, after = AGENTS[how]
    return {**NEXT, f"edge/runtime/agent/{name}": _changed(f"edge/runtime/agent/{name}", before, after)}


def later_pull(how):
    """Return the changes that make a later edge-deploy whose pull is broken in a way that no trial sees."""
    before, after, more = PULLS[how]
    return {**NEXT, _PULL: _changed(_PULL, before, after) + more}


def lab_agent(how=None):
    """Return the changes that make a later edge-deploy whose agent has the units of a lab, and is broken in one way."""
    entry = "edge/runtime/agent/entry.py"
    changes = later_agent(how)
    path = f"import sys\nsys.path.append({str(REPOSITORY)!r})\n".encode()
    return {**changes, entry: _changed(entry, *_UNITS).replace(b"import sys\n", path, 1)}


def lab_pull(how=None):
    """Return the changes that make a later edge-deploy that pulls with agents of a lab, broken in one way."""
    entry = "edge/runtime/pull/entry.py"
    agent = f"[sys.executable, {str(REPOSITORY / 'tests/support/turn_agent.py')!r}, str(root), '--for-pull']"
    local = b'LocalChannel([*LOCAL_AGENT, "--root", str(root)])'
    changes = {} if how is None else later_pull(how)
    return {**changes, **lab_agent(), entry: _changed(entry, local, f"LocalChannel({agent})".encode())}


def _changed(name, before, after):
    text = (REPOSITORY / name).read_bytes()
    assert text.count(before) == 1, (name, before)
    return text.replace(before, after)
