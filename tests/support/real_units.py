"""Units as plain processes that run the same commands as ours under systemd; run as a program, it is a trial.

`real_units.py ROOT` judges the release on trial and, as OnFailure= says, goes back when it is refused.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))

from edge.device.device import Device  # noqa: E402
from edge.device.health import read_health  # noqa: E402
from edge.device.layout import Layout  # noqa: E402
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, TRIAL_UNIT, UnitState  # noqa: E402
from edge.errors import DeployError  # noqa: E402

COMMAND = (sys.executable, "-c", "from edge.cli.entry import edge_runtime; edge_runtime()")
SOFTWARE_IS_ENDING = "software-is-ending"
"""A file in the root: edge-software.service has not ended yet, so that the next build begins without it."""


class RealUnits:
    """A `Units` for one device in a folder; what runs is noted in `root/unit.json`, for every process that asks."""

    def __init__(self, root: Path) -> None:
        self._root, self._layout = root, Layout(root)
        self._note = root / "unit.json"
        self._service: subprocess.Popen | None = None

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        if unit == BUILD_UNIT:
            ending = self._root / SOFTWARE_IS_ENDING
            if ending.exists():
                ending.unlink()
            else:
                install_software(self._root)
            request = ("--request", str(self._layout.build_request), "--root", str(self._root))
            process = self._spawn([*COMMAND, "build", *request], "build.log")
        else:
            assert unit == TRIAL_UNIT
            process = self._spawn([sys.executable, __file__, str(self._root)], "trial.log")
        if wait and process.wait(timeout_s) != 0:
            raise DeployError("device.systemd", f"{unit}: {(self._root / 'build.log').read_text()[-300:]}")

    def restart(self, unit: str) -> None:
        self.stop()
        invocation = f"{time.monotonic_ns():032x}"
        process = self._spawn(
            [*COMMAND, "run", "--release", str(self._layout.current)],
            "run.log",
            INVOCATION_ID=invocation,
            RUNTIME_DIRECTORY=str(self._layout.health.parent),
            STATE_DIRECTORY=str(self._root / "state"),
        )
        self._service = process
        self._note.write_text(json.dumps({"pid": process.pid, "invocation": invocation}))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            health = read_health(self._layout.health)
            if health is not None and health.invocation == invocation and health.is_ready:
                return
            if process.poll() is not None:
                raise DeployError("device.systemd", f"{unit}: {(self._root / 'run.log').read_text()[-300:]}")
            time.sleep(0.05)
        raise DeployError("device.systemd", f"{unit}: not ready in time")

    def reset_failed(self, unit: str) -> None:
        pass

    def state(self, unit: str) -> UnitState:
        note = json.loads(self._note.read_text()) if self._note.exists() else None
        if unit != RUNTIME_UNIT or note is None:
            return UnitState()
        is_alive = Path(f"/proc/{note['pid']}").exists() and "Z" not in _stat(note["pid"])
        return UnitState(active="active" if is_alive else "failed", sub="running", invocation=note["invocation"])

    def stop(self) -> None:
        if self._note.exists():
            pid = json.loads(self._note.read_text())["pid"]
            try:
                os.kill(pid, signal.SIGTERM)
                deadline = time.monotonic() + 20
                while Path(f"/proc/{pid}").exists() and "Z" not in _stat(pid) and time.monotonic() < deadline:
                    time.sleep(0.02)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self._service is not None:  # a child of this process
            self._service.wait(60)

    def _spawn(self, command: list[str], log: str, **environment: str) -> subprocess.Popen:
        (self._root / "state").mkdir(exist_ok=True)
        self._layout.health.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
        with (self._root / log).open("ab") as file:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, env=environment
            )


def install_software(root: Path) -> None:
    """Do what edge-software.service does, before each build."""
    command = [*COMMAND, "software", "--root", str(root)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, timeout=120, check=True)


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:
        return "Z"


def _judge(root: Path) -> int:
    from edge.runtime.trial.rollback import go_back
    from edge.runtime.trial.trial import run_trial

    device, units = Device(Layout(root)), RealUnits(root)
    code = run_trial(device, units)
    if code:
        go_back(device, units, "trial-failed")
        units.restart(RUNTIME_UNIT)
    return code


if __name__ == "__main__":
    sys.exit(_judge(Path(sys.argv[1])))
