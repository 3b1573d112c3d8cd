"""Units without systemd: a fake of the protocol, and a `systemctl` that is a program of its own, over the same file."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from edge.device.units import RUNTIME_UNIT
from edge.errors import DeployError
from edge.reports import UnitState

PROGRAM = """\
#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
arguments = sys.argv[1:]
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
units = json.loads((folder / "units.json").read_text())
if arguments[0] == "show":
    known = units.get(arguments[2], {{"ActiveState": "inactive", "SubState": "dead"}})
    wanted = arguments[1].partition("=")[2].split(",")
    print("\\n".join(f"{{name}}={{known[name]}}" for name in wanted if name in known))
elif arguments[1] not in units:
    sys.exit(f"Failed to {{arguments[0]}} {{arguments[1]}}: Unit {{arguments[1]}} not found.")
else:
    unit = units[arguments[1]]
    if arguments[0] in ("start", "restart"):
        fails = unit.get("fails")
        unit.update(ActiveState="failed" if fails else "active", SubState="failed" if fails else "running")
        unit["InvocationID"] = format(int(unit.get("InvocationID") or "0", 16) + 1, "032x")
    elif unit["ActiveState"] == "failed":
        unit.update(ActiveState="inactive", SubState="dead")
    (folder / "units.json").write_text(json.dumps(units))
    if arguments[0] != "reset-failed" and unit.get("fails"):
        sys.exit("Job failed.")
"""


class FakeSystemctl:
    """A folder with a `systemctl` in it; `calls` are the command lines that it was given."""

    def __init__(self, folder: Path, *units: str, failing: tuple[str, ...] = ()) -> None:
        self.path = folder / "systemctl"
        self._folder = folder
        self.path.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(0o755)
        known = {
            name: {"ActiveState": "inactive", "SubState": "dead", "NRestarts": "0", "fails": name in failing}
            for name in (*units, *failing)
        }
        (folder / "units.json").write_text(json.dumps(known))

    @property
    def calls(self) -> list[list[str]]:
        path = self._folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class FakeUnits:
    """The protocol in memory. `on_start` is what a unit does when it is started; it may raise DeployError."""

    def __init__(self, *units: str, failing: tuple[str, ...] = ()) -> None:
        self.states = {name: UnitState() for name in (*units, *failing)}
        self.calls: list[tuple[str, str]] = []
        self.on_start: dict[str, Callable[[], None]] = {}
        self._failing = failing
        self._starts = 0

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        self._begin("start", unit)

    def restart(self, unit: str) -> None:
        self._begin("restart", unit)

    def reset_failed(self, unit: str) -> None:
        self.calls.append(("reset-failed", unit))
        self._known(unit)
        if self.states[unit].active == "failed":
            self.states[unit] = UnitState(invocation=self.states[unit].invocation)

    def state(self, unit: str) -> UnitState:
        return self.states.get(unit, UnitState())

    def _begin(self, verb: str, unit: str) -> None:
        self.calls.append((verb, unit))
        self._known(unit)
        self._starts += 1
        invocation = f"{self._starts:032x}"
        if unit in self._failing:
            self.states[unit] = UnitState(active="failed", sub="failed", result="exit-code", invocation=invocation)
            raise DeployError("device.systemd", f"{verb} {unit}: Job failed.")
        self.states[unit] = UnitState(active="active", sub="running", invocation=invocation)
        self.on_start.get(unit, lambda: None)()

    def _known(self, unit: str) -> None:
        if unit not in self.states:
            raise DeployError("device.systemd", f"{unit} not found")


def failed_units(exit_status: int = 1) -> FakeUnits:
    """Return units whose runtime has ended with this status."""
    units = FakeUnits(RUNTIME_UNIT)
    units.states[RUNTIME_UNIT] = UnitState(active="failed", sub="failed", result="exit-code", exit_status=exit_status)
    return units
