"""Which software this process is, and how another process of the same is started. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["FLAGS", "installed", "module_command", "running_key"]

FLAGS = ("-IBXfaulthandler",) if sys.flags.isolated else ()
"""As deaf to its surroundings as this process is; a child does not inherit that."""

_HOME = Path(__file__).parents[3]  # the folder on Python's path that this package was found in
_MODULE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def running_key(home: Path = _HOME) -> str | None:
    """Return the key of the software that this process is; None: what is installed."""
    return home.parent.name if home.name == "lib" and len(home.parent.name) == 64 else None


def installed() -> str:
    """Return what names the installed edge-deploy that this process stands on, whatever is laid over it."""
    return os.path.realpath(sys.prefix)


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of the very package that runs here."""
    return (sys.executable, *FLAGS, "-c", _MODULE, str(_HOME), module)
