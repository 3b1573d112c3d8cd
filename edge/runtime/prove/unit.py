"""Step 9: a service under systemd, with the properties of the installed unit: it starts, and comes back from a hang.

It runs under a name of its own, with the engine that is ready in seconds: what serves here goes on.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edge.engine.kind import quick_kind, usable_kind
from edge.roofline.proof import Row
from edge.runtime.prove.kit import NotHereError, Rows, held, pipeline
from edge.runtime.sandbox import run_as_root, why_no_sandbox, within_sandbox
from edge.runtime.software.binding import module_command

__all__ = ["unit"]

_ROLLBACK = "edge-rollback.service"
_READY_S, _AGAIN_S, _WATCHDOG_S = 60.0, 25.0, 10
_LOOK_S = 0.2
_OF_THE_SERVICE = ("Type=notify", "NotifyAccess=main", "Restart=on-failure", "RestartSec=1")


def unit(folder: Path) -> Rows:
    """Yield what systemd does with the service when it starts, hangs and is killed."""
    if (why_not := why_no_sandbox()) is not None:
        raise NotHereError(why_not)
    name = f"edge-prove-{os.getpid()}.service"
    rolled_back = _state(_ROLLBACK)["ActiveEnterTimestampMonotonic"]
    folder.chmod(0o755)  # the service's user reads the pipeline file in it
    path = pipeline(folder, streams=1, engine={"kind": quick_kind(usable_kind()).name}).path
    path.chmod(0o644)
    _systemctl("start", _command(name, folder, path))
    try:
        state = _wait(name, lambda one: one["ActiveState"] in ("active", "failed"), _READY_S)
        yield held("start", state["ActiveState"] == "active", f"{state['ActiveState']}, {state['Result']}")
        if state["ActiveState"] != "active":
            return
        yield _comes_back(name, "kill", "SIGKILL")
        yield _comes_back(name, "watchdog", "SIGSTOP")
        after = _state(_ROLLBACK)["ActiveEnterTimestampMonotonic"]
        yield held("no rollback", after == rolled_back, "the release that serves here was left alone")
    finally:
        _systemctl("stop", ["systemctl", "kill", "--signal=SIGKILL", name], may_fail=True)
        _systemctl("stop", ["systemctl", "stop", name], may_fail=True)
        _systemctl("stop", ["systemctl", "reset-failed", name], may_fail=True)


def _command(name: str, folder: Path, path: Path) -> Sequence[str]:
    more = (*_OF_THE_SERVICE, f"WatchdogSec={_WATCHDOG_S}", f"BindReadOnlyPaths={folder}", "RuntimeMaxSec=180")
    options = ["--no-block", "--collect", "--quiet", f"--unit={name}", *(part for one in more for part in ("-p", one))]
    run = [*module_command("edge.cli.edge_runtime"), "run", "--pipeline", str(path)]
    return within_sandbox(run, *options)


def _comes_back(name: str, what: str, signal: str) -> Row:
    """Return whether the service is another process, and ready, some time after a signal."""
    before, began_s = _state(name), time.monotonic()
    _systemctl(what, ["systemctl", "kill", "--kill-who=main", f"--signal={signal}", name])
    limit_s = _AGAIN_S + _WATCHDOG_S
    after = _wait(name, lambda one: one["MainPID"] != before["MainPID"] and one["ActiveState"] == "active", limit_s)
    is_back = after["MainPID"] not in ("0", before["MainPID"]) and after["ActiveState"] == "active"
    seconds = time.monotonic() - began_s
    return held(what, is_back, f"{signal}: {after['ActiveState']} {seconds:.0f} s later, {after['NRestarts']} restarts")


def _wait(name: str, is_so: Callable[[Mapping[str, str]], bool], limit_s: float) -> Mapping[str, str]:
    until_s = time.monotonic() + limit_s
    while not is_so(state := _state(name)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return state


def _state(name: str) -> Mapping[str, str]:
    keys = ("ActiveState", "Result", "MainPID", "NRestarts", "ActiveEnterTimestampMonotonic")
    words = ["systemctl", "show", name, *(f"--property={key}" for key in keys)]
    told = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S).stdout
    pairs = (line.partition("=") for line in told.splitlines())
    return {**dict.fromkeys(keys, ""), **{key: value for key, _, value in pairs}}


def _systemctl(what: str, command: Sequence[str], *, may_fail: bool = False) -> None:
    root = () if command[0] != "systemctl" else (run_as_root() or ())
    done = subprocess.run([*root, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S)
    if done.returncode and not may_fail:
        raise NotHereError(f"systemd refused to {what}: {done.stderr.strip()[-300:]}")
