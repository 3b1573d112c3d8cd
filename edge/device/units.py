"""The units that a push starts and looks at, and what a service tells systemd of itself (sd_notify).

What needs root is exactly the four lines of our sudoers file. Without a listener sd_notify sends nothing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from edge.errors import DeployError
from edge.reports import UnitState
from edge.untrusted import cleaned

__all__ = [
    "BUILD_UNIT",
    "FAILURE",
    "LACKING",
    "LACKING_STATUS",
    "RUNTIME_UNIT",
    "SOFTWARE_UNIT",
    "TRIAL_UNIT",
    "Notifier",
    "SystemctlUnits",
    "Units",
    "unit_folder",
]

FAILURE = "error: "
"""How the status of a service begins that has ended because of it."""


_SEND_TIMEOUT_S = 1.0  # systemd's socket has room for many; a full one must not hold up the service
RUNTIME_UNIT = "edge-runtime.service"
BUILD_UNIT = "edge-build.service"
TRIAL_UNIT = "edge-trial.service"
SOFTWARE_UNIT = "edge-software.service"

_SYSTEMCTL = "/usr/bin/systemctl"
_SUDO = ("/usr/bin/sudo", "-n")
_SHOW_TIMEOUT_S = 10.0
_RESTART_TIMEOUT_S = 240.0  # start and stop timeouts of edge-runtime.service together, and some
_PROPERTIES = (
    "ActiveState",
    "SubState",
    "Result",
    "InvocationID",
    "NRestarts",
    "ExecMainStatus",
    "ExecStop",
    "StatusText",
)
_FAILURE_CHARACTERS = 400
_NEVER = "start_time=[n/a]"  # of a command: it has not run since the unit was started last
# These come unasked, though the command in ExecStop= may have run: the kernel wants memory, a start is refused.
_NOT_ASKED_FOR = ("oom-kill", "start-limit-hit")


LACKING_STATUS = 69
"""Exit status of a service that the device gives no secret or library that it needs (EX_UNAVAILABLE)."""

_LACKING_CODE = "trial.lacking"
LACKING = f"{_LACKING_CODE}: the device lacks what the release needs"
"""Begins the reason of a way back that is no fault of the release, which is not marked bad then."""


class Notifier:
    """Speaks to `$NOTIFY_SOCKET`, a path or an abstract name that starts with `@`; never raises.

    Source: sd_notify(3) for the words, sd_watchdog_enabled(3) for `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._watchdog_usec = _watchdog_usec(environ)

    @property
    def watchdog_s(self) -> float | None:
        """Within which time systemd wants to hear `WATCHDOG=1` again, in seconds; None: it does not watch us."""
        return self._watchdog_usec / 1e6 if self._watchdog_usec and self._address else None

    def tell(self, *assignments: str) -> bool:
        """Send `NAME=value` lines; return whether they were received."""
        if not self._address:
            return False
        content = "\n".join(one.replace("\n", " ") for one in assignments).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_SEND_TIMEOUT_S)
                sender.sendto(content, self._address)
        except (OSError, ValueError):  # the socket is gone, full, or no name for one: the service goes on
            return False
        return True


def _watchdog_usec(environ: Mapping[str, str]) -> int:
    """Return 0 where the watchdog is off, or meant for another process (we were started by the one it is for)."""
    is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    given = environ.get("WATCHDOG_USEC", "")
    return int(given) if is_for_us and given.isascii() and given.isdigit() else 0


def unit_folder(variable: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that systemd gives a unit in `$STATE_DIRECTORY` or `$RUNTIME_DIRECTORY`; None: it gave none.

    Of several, which are separated by colons, the first (systemd.exec(5)).
    """
    first = environ.get(variable, "").split(":")[0]
    return Path(first) if first else None


class Units(Protocol):
    """Starts, restarts and looks at units by name, with a deadline; DeployError `device.systemd` where that fails."""

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        """Start a unit; with `wait`, a oneshot unit has ended well when this returns."""
        ...

    def restart(self, unit: str) -> None:
        """Stop a unit if it runs, and start it; returns once it is ready."""
        ...

    def reset_failed(self, unit: str) -> None:
        """Forget that a unit has failed, and how often it was started."""
        ...

    def state(self, unit: str) -> UnitState:
        """Return what systemd knows of a unit; of an unknown one, that it is inactive."""
        ...


class SystemctlUnits:
    """Units by `systemctl`; as another user than root by `sudo -n` (`sudo`), which fails instead of asking.

    The sudoers file names /usr/bin/systemctl; another program is for tests.
    """

    def __init__(self, systemctl: str = _SYSTEMCTL, sudo: Sequence[str] | None = None) -> None:
        self._systemctl = systemctl
        self._sudo = tuple((() if os.geteuid() == 0 else _SUDO) if sudo is None else sudo)

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        """Start a unit. `systemctl start` waits by itself; without `wait` it is left to go on alone."""
        command = [*self._sudo, self._systemctl, "start", unit]
        if wait:
            self._run(command, timeout_s)
            return
        # Not --no-block: the sudoers file allows exact lines only.
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise _failure(command, str(error)) from error
        threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie

    def restart(self, unit: str) -> None:
        self._run([*self._sudo, self._systemctl, "restart", unit], _RESTART_TIMEOUT_S)

    def reset_failed(self, unit: str) -> None:
        self._run([*self._sudo, self._systemctl, "reset-failed", unit], _SHOW_TIMEOUT_S)

    def state(self, unit: str) -> UnitState:
        """Needs no rights."""
        told = self._run([self._systemctl, "show", f"--property={','.join(_PROPERTIES)}", unit], _SHOW_TIMEOUT_S)
        values = dict(line.partition("=")[::2] for line in told.splitlines())
        return _state_from_properties(values)

    def _run(self, command: list[str], timeout_s: float) -> str:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise _failure(command, f"no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise _failure(command, str(error)) from error
        if done.returncode != 0:
            raise _failure(command, f"exit code {done.returncode}: {done.stderr.strip()[:500]}")
        return done.stdout


def _state_from_properties(values: Mapping[str, str]) -> UnitState:
    stop = values.get("ExecStop", "")
    return UnitState(
        active=values.get("ActiveState", "inactive"),
        sub=values.get("SubState", "dead"),
        result=values.get("Result", "success"),
        invocation=values.get("InvocationID", ""),
        restarts=_number(values.get("NRestarts", "")),
        exit_status=_number(values.get("ExecMainStatus", "")),
        failure=_failure_of(values.get("StatusText", "")),
        was_stopped="start_time=[" in stop and _NEVER not in stop and values.get("Result") not in _NOT_ASKED_FOR,
    )


def _failure_of(status: str) -> str | None:
    text = cleaned(status)[:_FAILURE_CHARACTERS]
    return text.removeprefix(FAILURE) if text.startswith(FAILURE) else None


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _failure(command: list[str], problem: str) -> DeployError:
    return DeployError(
        "device.systemd",
        f"{' '.join(command)}: {problem}",
        hint="look at: journalctl -u edge-runtime -u edge-build -u edge-trial",
    )
