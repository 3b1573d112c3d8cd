"""Which software answers a command: what the release in question is bound to, or what is installed.

The first thing that a process of `edge-runtime` does, so nothing is imported for it that is not there anyway.
Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.reading import json_object, read_file
from edge.runtime.software.running import FLAGS, installed, running_key

__all__ = ["hand_over", "laid_over", "program_for"]

_FILES = {"beside": "beside", "program": "edge-runtime", "proven": "proven"}  # as in edge.device.software
_MOST_BYTES = 4096


def hand_over(arguments: Sequence[str]) -> None:
    """Become the software that a command is for; return where that is this one, or where that one is not here.

    Who judges, brings back or installs is always what is installed (`trial`, `rollback`, `recover`, `adopt`,
    `software`). So is whatever root types on a device: root runs nothing that another user has unpacked.
    """
    if running_key() is not None:
        return
    program = program_for(arguments)
    if program is not None:
        os.execv(sys.executable, [sys.executable, *FLAGS, program, *arguments])


def program_for(arguments: Sequence[str]) -> str | None:
    """Return what Python is to run for a command line; None: what is installed."""
    command = next((word for word in arguments if not word.startswith("-")), None)
    link = None
    if command == "run" and (release := _value(arguments, "--release")):
        link = os.path.join(os.path.realpath(release), "software")
    elif command == "build" and (request := _value(arguments, "--request")):
        link = _of_request(request)
    elif command in ("agent", "pull"):
        link = os.path.join(_value(arguments, "--root") or "/", "var/lib/edge-software", _FILES["proven"])
    return None if link is None else _program(link)


def laid_over(folder: str) -> str | None:
    """Return over which installed edge-deploy the software in `folder` is laid; None: there is none."""
    try:
        return read_file(Path(folder, _FILES["beside"]), most_bytes=_MOST_BYTES).decode()
    except (OSError, ValueError):
        return None


def _program(link: str) -> str | None:
    """Return the program of the software that a link leads to; what provision has installed since runs in its place."""
    try:
        folder = os.path.realpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    except OSError:
        return None
    program = os.path.join(folder, _FILES["program"])
    if laid_over(folder) != installed() or not os.path.isfile(program):
        return None
    return program if os.geteuid() != 0 or os.stat(folder).st_uid == 0 else None


def _of_request(path: str) -> str | None:
    try:
        release = json_object(read_file(Path(path), most_bytes=_MOST_BYTES))["release"]
    except (OSError, ValueError, KeyError):
        return None  # whoever reads it next says what is wrong with it
    is_name = isinstance(release, str) and release.isalnum()
    return os.path.join(os.path.dirname(path), "releases", release, "software") if is_name else None


def _value(arguments: Sequence[str], option: str) -> str | None:
    for index, word in enumerate(arguments):
        if word == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
