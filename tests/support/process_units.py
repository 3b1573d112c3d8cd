"""Units as plain processes with a script: what a builder, a runtime and a trial do to a device, and their failures.

`root/lab.json` holds the script: `build` (ok, fail, die, hang), `trial` (commit, refuse, hang), `restart` (ok, fail),
`build_s`, `trial_s`, `restart_s`, what the trial `waits_for`, and the state of each of the `streams`. Run as a program,
it is one of the processes.
"""

import fcntl
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))

from edge.device.device import Device  # noqa: E402
from edge.device.facts import this_moment  # noqa: E402
from edge.device.health import write_health  # noqa: E402
from edge.device.layout import Layout  # noqa: E402
from edge.device.switch import commit, refuse, roll_back  # noqa: E402
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, TRIAL_UNIT, UnitState  # noqa: E402
from edge.errors import DeployError  # noqa: E402
from edge.runtime.build.handover import ANSWER  # noqa: E402
from edge.runtime.build.request import write_progress  # noqa: E402
from tests.support.device_releases import leave_answer, leave_engine, request_of  # noqa: E402
from tests.support.values import health  # noqa: E402

SCRIPT = {"build": "ok", "build_s": 0.0, "trial": "commit", "trial_s": 0.0, "restart": "ok", "restart_s": 0.0}
SCRIPT |= {"streams": {"gate": "up"}, "waits_for": ""}


class ServingUnits:
    """What units say of themselves whose service is always up."""

    def reset_failed(self, unit: str) -> None:
        pass

    def state(self, unit: str) -> UnitState:
        return UnitState(active="active" if unit == RUNTIME_UNIT else "inactive")


class ProcessUnits(ServingUnits):
    def __init__(self, root: Path) -> None:
        self._root = root

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        command = [sys.executable, __file__, unit, str(self._root)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr, start_new_session=True
        )
        # By its parent, whose end a test waits for: a process that has just begun would be missed.
        (self._root / "pids").mkdir(exist_ok=True)
        (self._root / "pids" / str(process.pid)).touch()
        if wait:
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise DeployError("device.systemd", f"{unit}: no end within {timeout_s:g} s") from None
            if status:
                raise DeployError("device.systemd", f"{unit}: exit code {status}")

    def restart(self, unit: str) -> None:
        threading.Event().wait(script(self._root)["restart_s"])
        serve_now(Device(Layout(self._root)))
        if script(self._root)["restart"] == "fail":
            raise DeployError("device.systemd", f"{unit}: exit code 1")


def script(root: Path) -> dict:
    path = root / "lab.json"
    return {**SCRIPT, **(json.loads(path.read_text()) if path.exists() else {})}


def serve_now(device: Device) -> None:
    # Too old to measure a rate by.
    at_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 60_000_000_000
    streams = {name: (state, 10 * (state == "up")) for name, state in script(device.layout.root)["streams"].items()}
    told = health(streams, release=device.releases.current() or "", at_boottime_ns=at_ns, mqtt_acknowledged=10)
    device.layout.health.parent.mkdir(parents=True, exist_ok=True)
    write_health(device.layout.health, told)


def _build(device: Device, plan: dict) -> int:
    # Whoever starts a unit that is running waits for that run, and gets no other.
    with (device.layout.run / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return 0
        return _build_alone(device, plan)


def _build_alone(device: Device, plan: dict) -> int:
    request = request_of(device)
    (device.layout.workshop / ANSWER).unlink(missing_ok=True)
    threading.Event().wait(plan["build_s"] if plan["build"] != "hang" else 3600)
    if plan["build"] == "die":
        return 137
    if plan["build"] == "ok":
        leave_engine(device, plan=b"engine of " + request.release.encode())
        return 0
    problem = {"code": "smoke.recall", "problem": "recall 0.4 of at least 0.9", "evidence": {"recall": 0.4}}
    leave_answer(device.layout, request, problem=problem)
    return 1


def _trial(device: Device, plan: dict) -> int:
    write_progress(device.layout.trial_progress, plan["waits_for"])
    threading.Event().wait(plan["trial_s"] if plan["trial"] != "hang" else 3600)
    deadline = time.monotonic() + 20
    while device.state().confirm and time.monotonic() < deadline:
        time.sleep(0.05)
    if plan["trial"] == "commit":
        commit(device, moment=this_moment())
        return 0
    refuse(device, "trial.frames: gate gives no frames")
    roll_back(device, "trial.frames: gate gives no frames", moment=this_moment())
    serve_now(device)
    return 1


if __name__ == "__main__":
    unit, root = sys.argv[1], Path(sys.argv[2])
    work = {BUILD_UNIT: _build, TRIAL_UNIT: _trial}[unit]
    sys.exit(work(Device(Layout(root)), script(root)))
