"""Runs the steps of a proof, each a process with a time of its own: what crashes or hangs is a row, never the end.

Some run once more inside the sandbox of the service: what works in a shell and fails as a unit shows there. systemd-run
starts them with the properties of the installed edge-runtime.service and of what lies beside it.

What is somebody's own is taken out of the proof: people, addresses, other machines, secrets, serial numbers.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import msgspec

from edge.deadline import Deadline
from edge.engine.kind import DoctorFinding
from edge.reading import read_file, text_of
from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict
from edge.runtime.software.binding import module_command
from edge.untrusted import cleaned
from edge.version import __version__

__all__ = [
    "STEPS",
    "UNIT",
    "StepPlan",
    "examine_as_service",
    "prove",
    "redacted",
    "run_as_root",
    "unit_properties",
    "why_no_sandbox",
    "within_sandbox",
]

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


MOST_S = 600.0
"""For all steps together."""

_CHILD = module_command("edge.runtime.prove.child")
_LAST_LINES, _LINE_BYTES = 4, 300
_TOLD_BYTES = 1 << 20
_LONGEST = 2000
# Each finds one kind; what it finds becomes its name. An address with a scheme goes whole, and before what is in it.
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"\b(rtsps?|https?|mqtts?|ssh|tcp|tls)://[^\s'\"|]+", "ADDRESS"),
        (r"\b[\w.+-]+@[\w-]+(\.[\w-]+)+\b", "ADDRESS"),
        (r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b", "ADDRESS"),
        (r"(?<![\w:])([0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}(?![\w:])", "ADDRESS"),
        (r"(?<![\w:])([0-9a-f]{1,4}:)*[0-9a-f]{0,4}::([0-9a-f]{1,4}:)*[0-9a-f]{1,4}(?![\w:])", "ADDRESS"),
        (r"\b(GPU-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "SERIAL"),
        (r"(?<=/home/)[^/\s'\"]+", "USER"),
        (r"\b(password|passwd|secret|token|api[_-]?key)(\s*[=:]\s*)\S+", "SECRET"),
    )
)
_SERIALS = (
    "proc/device-tree/serial-number",
    "sys/module/tegra_fuse/parameters/tegra_chip_uid",
    "sys/class/dmi/id/product_serial",
    "sys/class/dmi/id/board_serial",
    "sys/class/dmi/id/product_uuid",
    "etc/machine-id",
)
_SHORTEST_SERIAL, _SHORTEST_NAME = 6, 3
_OURS = ("root", "nobody", "edge-deploy", "edge-runtime", "edge-build", "edge-pull", "edge-software")
_FIRST_PERSON = 1000
_LOCAL = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-allrouters")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A step: how long it may take, and whether it runs a second time inside the sandbox of the service."""

    number: int
    name: str
    timeout_s: float
    is_twice: bool = False


STEPS = (
    StepPlan(number=1, name="facts", timeout_s=60, is_twice=True),
    StepPlan(number=2, name="nodes", timeout_s=15, is_twice=True),
    StepPlan(number=3, name="cuda", timeout_s=60, is_twice=True),
    StepPlan(number=4, name="video", timeout_s=100, is_twice=True),
    StepPlan(number=5, name="forms", timeout_s=200),
    StepPlan(number=6, name="beside", timeout_s=150),
    StepPlan(number=7, name="dla", timeout_s=60),
    StepPlan(number=8, name="load", timeout_s=120),
    StepPlan(number=9, name="unit", timeout_s=100),
)

Command = Callable[[str, Path, bool], Sequence[str]]
"""Runs a step of a name, in a folder, inside the sandbox or not."""


def _command(name: str, folder: Path, as_service: bool) -> Sequence[str]:
    return [*_CHILD, name, str(folder), *(["as-service"] if as_service else [])]


def prove(
    *,
    steps: Sequence[StepPlan] = STEPS,
    command: Command = _command,
    most_s: float = MOST_S,
    on_step: Callable[[StepPlan, bool], None] = lambda step, as_service: None,
    unit: Path = UNIT,
) -> Proof:
    """Return what the machine has proven of itself, redacted.

    Steps that are not begun within `most_s` are reported. `on_step` is told of each, and whether it is its second time.
    """
    began_s, deadline = time.monotonic(), Deadline.after(most_s)
    done: list[Step] = []
    why_not = why_no_sandbox(unit)
    with tempfile.TemporaryDirectory(prefix="edge-prove-") as temporary:
        for step in steps:
            on_step(step, False)
            plain = _run(step, command(step.name, Path(temporary), False), deadline)
            done.append(plain)
            if step.is_twice and why_not is None and plain.seconds < step.timeout_s:
                on_step(step, True)
                words = command(step.name, Path(temporary), True)
                options = ("--pipe", "--wait", "--collect", "--quiet", "-p", f"RuntimeMaxSec={step.timeout_s:.0f}")
                again = _run(step, within_sandbox(words, *options, unit=unit), deadline)
                done.append(_differences(plain, again))
    if why_not is not None and any(step.is_twice for step in steps):
        row = Row(name="sandbox", verdict=Verdict.ABSENT, detail=f"no step was done again as the service: {why_not}")
        done.append(Step(number=0, name="sandbox", seconds=0.0, rows=(row,), as_service=True))
    proof = Proof(
        format=FORMAT,
        host=platform.node().partition(".")[0] or "unnamed",
        software=__version__,
        made_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - began_s, 1),
        steps=tuple(done),
    )
    return redacted(proof)


def examine_as_service(*, command: Command = _command, unit: Path = UNIT) -> DoctorFinding | None:
    """Return what works in a shell and not inside the sandbox of the service; None where no service is installed."""
    if not unit.is_file():
        return None
    found, name = prove(steps=STEPS[:2], command=command, unit=unit), "as the service"
    rows = [row for step in found.steps if step.as_service for row in step.rows]
    bad = [row for row in rows if row.verdict in (Verdict.ABSENT, Verdict.FAILS)]
    told = "; ".join(f"{row.name}: {row.detail}" for row in bad) or "everything is as in a shell"
    return DoctorFinding(name=name, is_there=not bad, is_needed=False, detail=told)


def _run(step: StepPlan, command: Sequence[str], deadline: Deadline) -> Step:
    began_s = time.monotonic()
    timeout_s = min(step.timeout_s, deadline.left_s)
    if timeout_s <= 0:
        row = Row(name=step.name, verdict=Verdict.WORSE, detail="not begun: the time for all steps was over")
        return Step(number=step.number, name=step.name, seconds=0.0, rows=(row,))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        ended = _ended(command, out, error, timeout_s)
        rows = [*_rows_in(out)]
        if (how := _how(ended, timeout_s)) is not None:
            said = _last_lines(error)
            rows.append(Row(name=step.name, verdict=Verdict.FAILS, detail=f"{how}; it said last: {said or 'nothing'}"))
        elif not rows:
            rows.append(Row(name=step.name, verdict=Verdict.FAILS, detail="it ended without a word"))
    return Step(number=step.number, name=step.name, seconds=round(time.monotonic() - began_s, 1), rows=tuple(rows))


def _ended(command: Sequence[str], out: IO[bytes], error: IO[bytes], timeout_s: float) -> int | None:
    """Return how the process ended; None: it was ended, after its time. Nothing that it has started is left."""
    try:
        # A session of its own: what it starts ends with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=error, start_new_session=True, cwd="/"
        )
    except OSError as failure:
        error.write(f"{command[0]}: {failure.strerror}\n".encode())
        return 127
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _how(ended: int | None, timeout_s: float) -> str | None:
    if ended is None:
        return f"it has not ended within {timeout_s:.0f} s"
    if ended < 0:
        return f"it died by {signal.Signals(-ended).name}"
    return f"it ended with code {ended}" if ended else None


def _rows_in(out: IO[bytes]) -> Iterator[Row]:
    """Yield the whole rows; the last one may have been cut."""
    out.seek(0)
    for line in out.read(_TOLD_BYTES).split(b"\n")[:-1]:
        try:
            yield msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError:
            yield Row(name="output", verdict=Verdict.FAILS, detail=f"no row: {line[:_LINE_BYTES]!r}")


def _last_lines(error: IO[bytes]) -> str:
    length = error.seek(0, os.SEEK_END)
    error.seek(max(0, length - _LAST_LINES * _LINE_BYTES))
    lines = [line.strip() for line in error.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(line[:_LINE_BYTES] for line in lines[-_LAST_LINES:])


def _differences(plain: Step, again: Step) -> Step:
    """Return the step as the service did it: of what went as before how much that is, and each difference."""
    before = {row.name: row for row in plain.rows}
    worse = [row for row in again.rows if _is_worse(before.get(row.name), row)]
    has_failed = any(row.verdict is Verdict.FAILS for row in worse)
    missing = sorted(before.keys() - {row.name for row in again.rows}) if has_failed else []
    same = len(again.rows) - len(worse)
    rows = [
        Row(name=row.name, verdict=Verdict.FAILS, detail=f"not as the service: {row.detail}", values=row.values)
        for row in worse
    ]
    if missing:
        rows.append(Row(name="not reached", verdict=Verdict.FAILS, detail=", ".join(missing)))
    rows.append(Row(name="as the service", verdict=Verdict.PROVEN if not worse else Verdict.TOLD,
                    detail=f"{same} rows are as in a shell"))  # fmt: skip
    return Step(number=again.number, name=again.name, seconds=again.seconds, rows=tuple(rows), as_service=True)


def _is_worse(before: Row | None, row: Row) -> bool:
    """Return whether something works in a shell, and less or not at all as the service."""
    bad = (Verdict.ABSENT, Verdict.WORSE, Verdict.FAILS)
    if row.verdict not in bad:
        return False
    return before is None or before.verdict not in bad


def redacted(proof: Proof, root: Path = Path("/")) -> Proof:
    """Return the proof without what is somebody's own; the name of its own machine stays."""
    names = [(re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])"), name) for word, name in _words(root, proof.host)]
    patterns = (*_PATTERNS, *names)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text = cleaned(value)[:_LONGEST]
            for pattern, name in patterns:
                text = pattern.sub(name, text)
            return text
        if isinstance(value, dict):
            return {clean(key): clean(inner) for key, inner in value.items()}
        return [clean(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    plain = msgspec.to_builtins(proof.steps)
    return msgspec.structs.replace(proof, steps=msgspec.convert(clean(plain), type=tuple[Step, ...]))


def _words(root: Path, host: str) -> Iterator[tuple[str, str]]:
    """Yield each word that this machine has for people, other machines and itself, the longest first."""
    found = [*((word, "SERIAL") for word in _serials(root)), *((word, "USER") for word in _people())]
    found += [(word, "HOST") for word in _machines(root) if word not in (host, *_LOCAL)]
    yield from sorted(found, key=lambda one: -len(one[0]))


def _serials(root: Path) -> Iterable[str]:
    texts = [text_of(root / path).strip("\0\n ") for path in _SERIALS]
    return {text for text in texts if len(text) >= _SHORTEST_SERIAL}


def _people() -> Iterable[str]:
    """Return the names of accounts of people, and of who is asking."""
    names = {one.pw_name for one in pwd.getpwall() if one.pw_uid >= _FIRST_PERSON}
    names |= {os.environ.get(key, "") for key in ("SUDO_USER", "LOGNAME", "USER")} | {getpass.getuser()}
    return {name for name in names if len(name) >= _SHORTEST_NAME and name not in _OURS}


def _machines(root: Path) -> Iterable[str]:
    """Return the names of machines that this one knows by its files, its own longer ones among them."""
    lines = (line.partition("#")[0].split()[1:] for line in text_of(root / "etc/hosts").splitlines())
    return {name for words in lines for name in words if len(name) >= _SHORTEST_NAME}
