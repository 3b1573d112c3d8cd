"""A command inside the sandbox of the service: what works in a shell and fails as a unit shows here.

systemd-run starts it with the properties of the installed edge-runtime.service and of what lies beside it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge.reading import read_file

__all__ = ["UNIT", "run_as_root", "unit_properties", "why_no_sandbox", "within_sandbox"]

UNIT = Path("/etc/systemd/system/edge-runtime.service")
_RUN = "systemd-run"
_SUDO_S = 10.0
# How a unit begins, ends and reports, and the folders that belong to the unit of that name: they would be removed.
_OF_THE_UNIT = (
    *("Type", "NotifyAccess", "Exec", "Watchdog", "Timeout", "Kill", "Restart", "StateDirectory"),
    *("RuntimeDirectory", "LoadCredential", "SetCredential", "SyslogIdentifier", "LogRateLimit"),
)


def why_no_sandbox(unit: Path = UNIT) -> str | None:
    """Return why nothing can be run as the service here; None: it can."""
    if not unit.is_file():
        return f"{unit.name} is not installed: edge-deploy provision"
    if shutil.which(_RUN) is None or not Path("/run/systemd/system").is_dir():
        return "systemd does not run this machine"
    if run_as_root() is None:
        return "it takes root, or sudo without a password"
    return None


@functools.cache
def run_as_root() -> tuple[str, ...] | None:
    """Return what stands before a command that root is to run; None: this user may not."""
    if os.geteuid() == 0:
        return ()
    try:
        asked = subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SUDO_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ("sudo", "-n") if asked.returncode == 0 else None


def within_sandbox(command: Sequence[str], *options: str, unit: Path = UNIT) -> list[str]:
    """Return the command that runs another one, of what the service's user may read, as the service of the file `unit`
    would; what it writes comes out as its own.
    """
    given = [part for one in unit_properties(unit) for part in ("-p", one)]
    talk = ("--pipe", "--wait", "--collect", "--quiet")
    return [*(run_as_root() or ()), _RUN, *(options or talk), *given, "--", *command]


def unit_properties(unit: Path = UNIT) -> list[str]:
    """Return what the [Service] section says of the sandbox, and those of the drop-ins, in order."""
    drop_ins = sorted(unit.with_name(f"{unit.name}.d").glob("*.conf"))
    return [line for path in (unit, *drop_ins) for line in _service_lines(path)]


def _service_lines(path: Path) -> Iterator[str]:
    section = ""
    text = read_file(path, follows_links=True).decode("utf-8", "replace").replace("\\\n", " ")
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith(("#", ";", *_OF_THE_UNIT)):
            yield line
