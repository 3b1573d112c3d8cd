"""The units that a push starts and looks at. What needs root is exactly the four lines of our sudoers file."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from edge.errors import DeployError

__all__ = ["BUILD_UNIT", "RUNTIME_UNIT", "SOFTWARE_UNIT", "TRIAL_UNIT", "SystemctlUnits", "UnitState", "Units"]

RUNTIME_UNIT = "edge-runtime.service"
BUILD_UNIT = "edge-build.service"
TRIAL_UNIT = "edge-trial.service"
SOFTWARE_UNIT = "edge-software.service"

_SYSTEMCTL = "/usr/bin/systemctl"
_SUDO = ("/usr/bin/sudo", "-n")
_SHOW_TIMEOUT_S = 10.0
_RESTART_TIMEOUT_S = 240.0  # start and stop timeouts of edge-runtime.service together, and some
_PROPERTIES = ("ActiveState", "SubState", "Result", "InvocationID", "NRestarts", "ExecMainStatus", "ExecStop")
_NEVER = "start_time=[n/a]"  # of a command: it has not run since the unit was started last
# Nobody asks for these, though the command in ExecStop= may have run: the kernel wants memory, a start is refused.
_NOT_ASKED_FOR = ("oom-kill", "start-limit-hit")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """What systemd knows of a unit, in systemd's words.

    Attributes:
        active: `active`, `activating`, `inactive`, `failed` ...
        sub: e.g. `running`, `auto-restart`.
        result: why it ended: `success`, `exit-code`, `watchdog`, `oom-kill`, `timeout` ...
        invocation: another one means that it was started again; "" before the first start.
        restarts: how often systemd has started it again by itself.
        exit_status: of its last main process.
        was_stopped: its last run ended because somebody had asked for that, well or not; needs a command in ExecStop=,
            which systemd runs on request only.
    """

    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    invocation: str = ""
    restarts: int = 0
    exit_status: int = 0
    was_stopped: bool = False

    @property
    def has_failed(self) -> bool:
        """Return whether it has failed by itself; one that had to be killed on its way down has done its work."""
        return self.active == "failed" and not self.was_stopped


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

    def is_active(self, unit: str) -> bool:
        """Return whether a unit is running and ready."""
        ...

    def is_failed(self, unit: str) -> bool:
        """Return whether a unit has failed by itself and systemd has given it up."""
        ...


class SystemctlUnits:
    """Units by `systemctl`; as another user than root by `sudo -n`, which asks nobody and fails instead.

    Args:
        systemctl: the program, for tests; the sudoers file names /usr/bin/systemctl.
        sudo: what goes before it; None: /usr/bin/sudo -n unless we are root.
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
        """Stop and start a unit."""
        self._run([*self._sudo, self._systemctl, "restart", unit], _RESTART_TIMEOUT_S)

    def reset_failed(self, unit: str) -> None:
        """Forget failures."""
        self._run([*self._sudo, self._systemctl, "reset-failed", unit], _SHOW_TIMEOUT_S)

    def state(self, unit: str) -> UnitState:
        """Read a unit's properties; that needs no rights."""
        told = self._run([self._systemctl, "show", f"--property={','.join(_PROPERTIES)}", unit], _SHOW_TIMEOUT_S)
        values = dict(line.partition("=")[::2] for line in told.splitlines())
        return _state_from_properties(values)

    def is_active(self, unit: str) -> bool:
        """Look whether a unit runs."""
        return self.state(unit).active == "active"

    def is_failed(self, unit: str) -> bool:
        """Look whether a unit has failed."""
        return self.state(unit).has_failed

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
        was_stopped="start_time=[" in stop and _NEVER not in stop and values.get("Result") not in _NOT_ASKED_FOR,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _failure(command: list[str], problem: str) -> DeployError:
    return DeployError(
        "device.systemd",
        f"{' '.join(command)}: {problem}",
        hint="look at: journalctl -u edge-runtime -u edge-build -u edge-trial",
    )
