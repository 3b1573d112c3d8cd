"""What devices leave behind when their test process dies is found by its owner's absence and taken away."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.lab.network import Cable
from tests.support.wait import wait_until


def write_owner(folder: Path, cable: Cable) -> None:
    owner = {"pid": os.getpid(), "started": _started(os.getpid()), "cable": cable.number}
    (folder / "owner.json").write_text(json.dumps(owner))


def sweep(devices: Path) -> list[str]:
    """Take away the devices whose owner is gone; return their names."""
    swept = []
    for folder in sorted(devices.glob("*")) if devices.is_dir() else []:
        try:
            owner = json.loads((folder / "owner.json").read_text())
        except (OSError, ValueError):
            continue  # being made at this moment, or half removed
        if _started(owner["pid"]) != owner["started"]:
            take_away(folder, Cable(owner["cable"]))
            swept.append(folder.name)
    return swept


def take_away(folder: Path, cable: Cable) -> None:
    """Power off, unmount, unplug, remove; whatever of it is still there."""
    power_off(folder)
    for mount in ("root", "var"):
        if os.path.ismount(folder / mount):
            subprocess.run(["umount", "--lazy", str(folder / mount)], check=True, capture_output=True, timeout=60)
    cable.cut()
    for group in _cgroups(cable):
        for inner, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # a process may still be on its way out
                os.rmdir(inner)
    shutil.rmtree(folder, ignore_errors=True)


def _cgroups(cable: Cable) -> list[Path]:
    places = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    return [place / f"edge-lab-{cable.number}" for place in places if (place / f"edge-lab-{cable.number}").is_dir()]


def power_off(folder: Path) -> None:
    """Kill PID 1 of the device, and so everything in it; nothing is told, nothing is synced."""
    for pid in (init_pid(folder), _process_pid(folder)):
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            wait_until(lambda pid=pid: _is_gone(pid), what=f"process {pid} of the device ends", timeout_s=30)


def init_pid(folder: Path) -> int | None:
    process = _process_pid(folder)
    if process is None:
        return None
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _process_pid(folder: Path) -> int | None:
    try:
        pid = int((folder / "process.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(folder).encode() in command else None


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _started(pid: int) -> str | None:
    """Return when a process began, which tells it from another one with the same number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
