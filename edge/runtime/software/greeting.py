"""Whether software runs here at all, and whether it can be the agent: it is started, and has to answer.

Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from edge.device.layout import Layout
from edge.device.software import LIBRARY, PROGRAM
from edge.runtime.software.running import FLAGS

__all__ = ["why_no_agent", "why_no_start"]

_DEADLINE_S = 60.0
_TOLD = 300
_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import edge
for module in pkgutil.walk_packages(edge.__path__, "edge."):
    importlib.import_module(module.name)
print("all are there")
"""


def why_no_start(layout: Layout, key: str) -> str | None:
    """Return which module of the software `key` cannot be imported here, and why; None: all can."""
    command = [sys.executable, *FLAGS, "-c", _IMPORT_ALL, str(layout.software / key / LIBRARY)]
    return _complaint(command, "it cannot be imported", sign=b"all are there")


def why_no_agent(layout: Layout, key: str) -> str | None:
    """Return why the software `key` cannot be the agent of this device; None: it can.

    Its agent greets whoever is there, before anything is asked for; its pull has to start.
    """
    program = [sys.executable, *FLAGS, str(layout.software / key / PROGRAM)]
    greets = [*program, "agent", "--root", str(layout.root)]
    return _complaint(greets, "its agent does not greet", sign=b'"hello"') or _complaint(
        [*program, "pull", "--help"], "its pull does not start", sign=b"pull"
    )


def _complaint(command: Sequence[str], what: str, *, sign: bytes) -> str | None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{what}: {error}"[:_TOLD]
    if done.returncode == 0 and sign in done.stdout:
        return None
    told = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{what} ({told[-1] if told else f'it ended with {done.returncode} and said nothing'})"[:_TOLD]
