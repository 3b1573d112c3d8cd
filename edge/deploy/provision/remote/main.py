"""Reads one JSON request from standard input, checks, applies or undoes its steps, writes one JSON answer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from edge.deploy.provision.remote.brought import Brought
from edge.deploy.provision.remote.contents import open_file_in, put, read
from edge.deploy.provision.remote.files import Directory, File, Lines
from edge.deploy.provision.remote.folders import open_parent
from edge.deploy.provision.remote.software import Software
from edge.deploy.provision.remote.system import Accounts, Enabled
from edge.deploy.provision.remote.tools import Conflict, Record, run

__all__ = ["main", "make", "unmake"]

RECORD = "/etc/edge-deploy/provisioned.json"
KINDS = {kind.__name__: kind for kind in (Directory, File, Lines, Accounts, Software, Enabled, Brought)}


def make(request: Record) -> Record:
    """Check all steps first; then, unless it is a plan or anything is in the way, apply those that are needed."""
    notes = _read_record()
    steps = [KINDS[values["kind"]](values, notes.get(values["id"], {}).get("record")) for values in request["steps"]]
    changes, conflicts, needed = [], [], []
    for step in steps:
        try:
            lines = step.check()
        except Conflict as conflict:
            conflicts.append(str(conflict))
            continue
        changes += lines
        needed += [step] if lines else []
    if request["is_plan"] or conflicts:
        return _answer(changes, conflicts=conflicts)
    for done, step in enumerate(needed):
        try:
            made = step.apply()
        except (Conflict, OSError) as error:
            with contextlib.suppress(Conflict, OSError):  # of what was done before; the first failure is what is told
                _tell_the_system(changes)
            _lay_over(changes)
            return _failed(f"{error}; {done} of {len(needed)} steps were done, and run it again when this is mended")
        notes[step.values["id"]] = {"values": _brief(step.values), "record": made}
        _write_record(notes)
    _tell_the_system(changes)
    return _answer(changes, is_applied=True, told=[words for step in needed for words in step.told])


def unmake(request: Record) -> Record:
    """Take back what the record says, last step first."""
    notes = _read_record()
    is_real = not request["is_plan"]
    kept: dict[str, Record] = {}
    changes: list[str] = []
    gone = {RECORD}
    for key, note in reversed(list(notes.items())):
        step = KINDS[note["values"]["kind"]](note["values"], note["record"])
        if step.path == os.path.dirname(RECORD) and is_real and not kept:
            with open_parent(RECORD) as (folder, name):
                os.unlink(name, dir_fd=folder.fd)
        line = step.undo(is_real=is_real, purge=request["purge"], gone=gone)
        changes += [line] if line else []
        if line.startswith("keep "):
            kept[key] = note
    if is_real and kept:
        _write_record({key: note for key, note in notes.items() if key in kept})
    if is_real:
        _tell_the_system(changes)
    return _answer(changes, is_applied=is_real)


def _tell_the_system(changes: list[str]) -> None:
    if any("/etc/systemd/" in line for line in changes):
        run(["systemctl", "daemon-reload"])
    if any("/etc/udev/" in line for line in changes):
        # A container has no udevd; rules count from the next boot at the latest.
        subprocess.run(["udevadm", "control", "--reload"], capture_output=True, check=False)


def _lay_over(changes: list[str]) -> None:
    """Have what releases bring laid over what may be installed now, where a provision ends before it has come to that.

    The service would else begin with nothing of it; the next provision asks again, and waits.
    """
    if any(line.startswith("switch ") for line in changes):
        again = ["systemctl", "restart", "--no-block", "edge-software.service"]
        subprocess.run(again, capture_output=True, check=False)


def _failed(why: str) -> Record:
    return {**_answer([]), "failed": why}


def _answer(
    changes: list[str], *, conflicts: Sequence[str] = (), is_applied: bool = False, told: Sequence[str] = ()
) -> Record:
    return {
        "changes": changes,
        "conflicts": list(conflicts),
        "failed": "",
        "applied": is_applied,
        "told": list(told),
    }


def _write_record(notes: Record) -> None:
    with contextlib.suppress(FileNotFoundError), open_parent(RECORD) as (folder, name):
        put(folder, name, json.dumps(notes, indent=1).encode(), mode=0o644, ids=(0, 0))


def _brief(values: Record) -> Record:
    return {
        name: value for name, value in values.items() if name not in ("content", "content_base64", "entries", "wheels")
    }


def _read_record() -> Record:
    try:
        with open_parent(RECORD) as (folder, name):
            folder.require_roots()
            with open_file_in(folder, name) as fd:
                notes: Record = {} if fd is None else json.loads(read(fd))
                return notes
    except FileNotFoundError:
        return {}


def main() -> None:
    """Answer the request on standard input."""
    os.umask(0o022)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        answer = unmake(request) if request["is_undo"] else make(request)
    except (Conflict, OSError) as error:
        answer = _failed(str(error))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
