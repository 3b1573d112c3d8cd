"""Runs the worker that builds: whatever becomes of it, it ends within its deadline, and what it was is said."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.deadline import Deadline
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.runtime.build.progress import PROGRESS, read_progress
from edge.runtime.build.worker import DONE, ERROR, Job

__all__ = ["read_json", "run_worker", "stopped"]

_POLL_S = 0.1
_TOLD_BYTES = 4096


def run_worker(
    job: Job,
    *,
    worker: Sequence[str],
    deadline_s: float,
    stop: threading.Event,
    on_progress: Callable[[str], None] = lambda note: None,
) -> Mapping[str, Any]:
    """Let a worker do its job, and return what it says of it; when this returns, no process of it is left.

    Args:
        job: what to do.
        worker: the command, which gets the job as its last argument.
        deadline_s: for all of it.
        stop: ends it at once.
        on_progress: told what the worker says of how far it is, when that changes.

    Raises:
        DeployError: what the worker says; `build.oom`, `build.timeout`, `build.stopped`, `build.failed`.
    """
    folder = Path(job.folder)
    with tempfile.TemporaryFile() as told:
        # A session of its own: a compiler may start processes, which have to end with it.
        process = subprocess.Popen(
            [*worker, job.encode()],
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await(process, deadline_s, stop, _Teller(folder / PROGRESS, on_progress))
        finally:
            _end(process)
        said = _tail(told)
    if stop.is_set():  # systemd tells the worker, too, which may end first
        raise stopped()
    if process.returncode == 0:
        return read_json(folder / DONE)
    if (folder / ERROR).is_file():
        problem = read_json(folder / ERROR)
        raise DeployError(
            str(problem.get("code", "build.failed")),
            str(problem.get("problem", "the build failed")),
            hint=problem.get("hint"),
            evidence=problem.get("evidence") or {},
        )
    raise _death(process.returncode, said)


class _Teller:
    """Tells a note once."""

    def __init__(self, path: Path, on_progress: Callable[[str], None]) -> None:
        self._path = path
        self._on_progress = on_progress
        self._told = ""

    def tell(self) -> None:
        note = read_progress(self._path)
        if note and note != self._told:
            self._told = note
            self._on_progress(note)


def _await(process: subprocess.Popen[bytes], deadline_s: float, stop: threading.Event, teller: _Teller) -> None:
    deadline = Deadline.after(deadline_s)
    while process.poll() is None:
        teller.tell()
        if stop.wait(_POLL_S):
            raise stopped()
        if deadline.is_over:
            raise DeployError(
                "build.timeout",
                f"the build has not ended within {deadline_s:g} s",
                hint="raise build_deadline_s in the device's device.toml, if the model is large",
            )


def stopped() -> DeployError:
    """Return the error of a build that was told to stop."""
    return DeployError("build.stopped", "the build was told to stop; nothing was changed", hint="push it again")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _death(code: int, said: str) -> DeployError:
    if code == -signal.SIGKILL:
        return DeployError(
            "build.oom",
            "the build was killed, as the system does when memory runs out",
            hint="stop other programs on the device, use a smaller batch.max_frames, or add swap",
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return DeployError("build.failed", f"the build ended with {how}: {said}", hint="look at: journalctl -u edge-build")


def _tail(told: Any) -> str:
    length = told.seek(0, os.SEEK_END)
    told.seek(max(0, length - _TOLD_BYTES))
    lines = [line.strip() for line in told.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object that a worker has left.

    Raises:
        DeployError: `build.failed`, if it has not.
    """
    try:
        return json_object(read_file(path))
    except (OSError, ValueError) as error:
        raise DeployError("build.failed", f"{path.name} of the build cannot be read: {error}") from None
