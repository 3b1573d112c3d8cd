"""Changes to the package that make other software of it: a later one, and ones that fail where they are used."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NEXT = {"edge/version.py": (REPOSITORY / "edge/version.py").read_bytes().replace(b'"0.1.0"', b'"0.2.0"')}
# Each breaks where it is used; what cannot even be imported is found out before anything is built.
BREAKS = {
    "edge/runtime/serve/engine.py": (
        b"    device, release = device_of_release(folder)\n",
        b"    raise SystemExit(1)\n",
    ),
    "edge/runtime/build/worker.py": (
        b"def main(",
        b"def main(*_):\n    raise OSError('this worker is broken')\n\n\ndef _(",
    ),
    "edge/runtime/agent/serve.py": (
        b"    layout = Layout(",
        b"    raise ImportError('this agent is broken')\n    layout = Layout(",
    ),
    "edge/runtime/serve/parts.py": (
        b"from __future__ import annotations\n",
        b"raise ImportError('this software is broken')\n",
    ),
}


def broken(name):
    """Return a file of the package that fails where it is used."""
    before, after = BREAKS[name]
    text = (REPOSITORY / name).read_bytes()
    assert text.count(before) == 1, (name, before)
    return text.replace(before, after)
