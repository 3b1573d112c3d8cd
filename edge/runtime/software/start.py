"""Whether software can be run here at all: each of its modules is imported. Standard library only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from edge.device.software import LIBRARY
from edge.runtime.software.running import FLAGS

__all__ = ["why_no_start"]

_DEADLINE_S = 120.0
_TOLD = 300
_SIGN = b"all are there"
_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import edge
if not edge.__file__.startswith(sys.argv[1] + "/"):
    raise ImportError("there is no package edge in it")
for module in pkgutil.walk_packages(edge.__path__, "edge."):
    importlib.import_module(module.name)
print("all are there")
"""


def why_no_start(folder: Path) -> str | None:
    """Return which module of the software in `folder` cannot be imported here, and why; None: all can."""
    command = [sys.executable, *FLAGS, "-c", _IMPORT_ALL, str(folder / LIBRARY)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it cannot be imported: {error}"[:_TOLD]
    if done.returncode == 0 and _SIGN in done.stdout:
        return None
    told = done.stderr.decode("utf-8", "replace").strip().splitlines()
    why = told[-1] if told else f"it ended with {done.returncode} and said nothing"
    return f"it cannot be imported ({why})"[:_TOLD]
