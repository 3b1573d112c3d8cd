"""Which software this process is, and how another process of the same is started. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edge.device.software import LIBRARY
from edge.version import __version__

__all__ = ["FLAGS", "INSTALLED", "installed", "installed_version", "module_command", "running"]

FLAGS = ("-IBXfaulthandler",) if sys.flags.isolated else ()
"""As deaf to its surroundings as this process is; a child does not inherit that."""

INSTALLED = "EDGE_INSTALLED"
"""Set for whoever was handed over to: the version of what provision installed."""

_HOME = Path(__file__).parents[3]  # the folder on Python's path that this package was found in
_MODULE = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def running(home: Path = _HOME) -> str | None:
    """Return the name of the installation that this process is; None: it is what provision installed."""
    is_one = home.name == LIBRARY and len(home.parent.name) == 64 and home.parent.parent.name == "edge-software"
    return home.parent.name if is_one else None


def installed() -> str:
    """Return the folder of the installed edge-deploy that this process stands on, whatever is laid over it."""
    return os.path.realpath(sys.prefix)


def installed_version() -> str | None:
    """Return the version of what provision installed; None: whoever has handed over to this process did not say it."""
    return __version__ if running() is None else os.environ.get(INSTALLED)


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of the very package that runs here."""
    return (sys.executable, *FLAGS, "-c", _MODULE, str(_HOME), module)
