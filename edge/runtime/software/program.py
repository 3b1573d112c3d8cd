"""The program of software that a release has brought: where it is, and what whoever is handed over to is told.

Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge.runtime.software.running import INSTALLED
from edge.version import __version__

if TYPE_CHECKING:
    from edge.device.layout import Layout
    from edge.device.software import Installation

__all__ = ["HANDED", "environment_of", "program_of", "value_of"]

HANDED = "EDGE_SOFTWARE"
"""Set for whoever was handed over to: software that has lost a part of itself does not ask for itself again."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def program_of(layout: Layout, wanted: Installation) -> str | None:
    """Return the program of an installation that is here, and that nobody but edge-software could have written."""
    from edge.device.software import LIBRARY, PROGRAM

    folder = layout.software / wanted.name
    try:
        states = [os.lstat(layout.software), os.lstat(folder)]
    except OSError:
        return None
    owner = states[0].st_uid
    is_of_owner = all(stat.S_ISDIR(one.st_mode) and one.st_uid == owner for one in states)
    if not is_of_owner or any(one.st_mode & _OTHERS_WRITE for one in states):
        return None
    if os.geteuid() == 0 and owner != 0:
        return None
    program = folder / PROGRAM
    return str(program) if program.is_file() and (folder / LIBRARY).is_dir() else None


def environment_of(program: str) -> dict[str, str]:
    """Return what whoever is handed over to finds in its environment."""
    name = os.path.basename(os.path.dirname(program))
    return {**os.environ, HANDED: name, INSTALLED: __version__}


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """Return what follows an option of a command line; None: it is not given."""
    for index, word in enumerate(arguments):
        if word == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
