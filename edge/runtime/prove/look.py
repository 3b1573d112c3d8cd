"""Steps 1, 2, 6, 8 and 9: the machine and its device nodes, whole pipelines, a service under systemd.

Pipelines run on the clip, alone and beside a build, for what they cost of cores, heat and power. The service has the
properties of the installed unit and a name of its own, starts, and comes back from a hang: what serves here goes on.
"""

from __future__ import annotations

import errno
import grp
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from edge.capacity.platform import machine_here
from edge.device.sensors import Sensors, read_sensors
from edge.engine.kind import DoctorFinding, quick_kind, usable_kind
from edge.engine.kinds import AUTO
from edge.reading import json_object, text_of
from edge.roofline.proof import MACHINE, Row, Verdict
from edge.runtime.doctor import examine
from edge.runtime.prove.kit import CLIP_FPS, UNIT, NotHereError, Rows, held, parts, pipeline, told, watched
from edge.runtime.prove.run import run_as_root, why_no_sandbox, within_sandbox
from edge.runtime.serve.bench import Running, measured_peaks
from edge.runtime.serve.parts import build_parts
from edge.runtime.software.binding import module_command

__all__ = ["beside", "facts", "load", "nodes", "unit"]

_ARGUS = "tmp/argus_socket"
_ARGUS_DAEMON = "usr/sbin/nvargus-daemon"
_GROUPS = ("video", "render")
_CLOCKS = "sys/devices/system/cpu/cpu*/cpufreq/scaling_{}_freq"


def facts(root: Path = Path("/")) -> Rows:
    """Yield what the machine is, and each finding of doctor."""
    yield from parts(
        (MACHINE, lambda: _machine(root)),
        ("device", lambda: _device(root)),
        ("state", lambda: _state(root)),
        ("doctor", lambda: (_of_finding(one) for one in examine() if one.name != MACHINE)),
    )


def _machine(root: Path) -> Rows:
    known = machine_here(root)
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    board = text_of(root / "proc/device-tree/model").strip("\0\n ") or "no board that tells its name"
    key = None if known is None else known.called
    detail = f"{board}, {platform.machine()}, {cores} cores, {memory >> 20} MiB"
    yield told(MACHINE, detail, key=key, cores=cores, memory_bytes=memory)
    yield told("system", f"kernel {platform.release()}, Python {sys.version.split()[0]}, numpy {np.__version__}")
    mine = {*os.getgroups(), os.getegid()}
    there = {one.gr_name: one.gr_gid for one in grp.getgrall() if one.gr_name in _GROUPS}
    names = ", ".join(f"{name}: {'in it' if gid in mine else 'not in it'}" for name, gid in there.items())
    yield told(
        "groups", f"{'root' if os.geteuid() == 0 else 'an ordinary user'}; {names or 'neither video nor render'}"
    )


def _device(root: Path) -> Rows:
    # Root asks where it may: the store of a device is closed to an ordinary user.
    command = [*(run_as_root() or ()), *module_command("edge.cli.edge_runtime"), "facts", "--root", str(root)]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S)
    if asked.returncode:
        yield Row(name="device", verdict=Verdict.ABSENT, detail=f"no facts of a device: {asked.stderr.strip()}")
        return
    said = json_object(asked.stdout)
    yield told("device", ", ".join(f"{key} {value}" for key, value in said.items() if isinstance(value, str)), **said)


def _state(root: Path) -> Rows:
    sensors = read_sensors(root)
    warm = {name: zone.celsius for name, zone in sensors.zones.items() if zone.celsius is not None}
    held_by = ", ".join(sensors.throttled_by) or "nothing"
    hottest = f"hottest {max(warm.values()):.0f} C of {len(warm)} zones" if warm else "no temperature is known"
    yield told("heat", f"{hottest}, held back by {held_by}")
    yield told("power", f"mode {sensors.mode or 'unknown'}; {len(sensors.watts)} rails", watts=dict(sensors.watts))
    clocks = [f"{name} {ghz}" for name in ("min", "cur", "max") if (ghz := _ghz(root, name)) is not None]
    yield told("clocks", f"CPU {', '.join(clocks) or 'tells none'}")
    words = re.findall(r"^(MemAvailable|SwapTotal|SwapFree):\s+(\d+)", text_of(root / "proc/meminfo"), re.M)
    yield told("memory", ", ".join(f"{name} {int(kib) >> 10} MiB" for name, kib in words))


def _ghz(root: Path, name: str) -> str | None:
    found = [text_of(path).strip() for path in root.glob(_CLOCKS.format(name))]
    khz = max((int(one) for one in found if one.isdigit()), default=None)
    return None if khz is None else f"{khz / 1e6:.2f} GHz"


def _of_finding(finding: DoctorFinding) -> Row:
    missing = Verdict.FAILS if finding.is_needed else Verdict.ABSENT
    return Row(name=finding.name, verdict=Verdict.TOLD if finding.is_there else missing, detail=finding.detail)


def nodes(root: Path = Path("/"), unit: Path = UNIT) -> Rows:
    """Yield whether each device node of the service that is here can be opened, and the socket of CSI cameras."""
    yield from parts(("nodes", lambda: _nodes(root, unit)), ("argus", lambda: _argus(root)))


def _nodes(root: Path, unit: Path) -> Rows:
    named = re.findall(r"^DeviceAllow=/(\S+)", text_of(unit), re.M)
    here = [name for name in dict.fromkeys([*named, *_classes(root)]) if (root / name).exists()]
    if not here:
        yield Row(name="nodes", verdict=Verdict.ABSENT, detail="no device node of the service is on this machine")
    for name in here:
        try:
            os.close(os.open(root / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            # A node that has another program's lock, or takes no writer, is there and let us in.
            is_refused = isinstance(error, PermissionError)
            yield held(f"/{name}", not is_refused, f"{error.strerror}", else_=Verdict.WORSE)
        else:
            yield held(f"/{name}", True, "opens")


def _classes(root: Path) -> Iterator[str]:
    """Yield the nodes of the classes that the service may open, those of DRM and of video."""
    for pattern in ("dev/dri/renderD*", "dev/video[0-9]*"):
        yield from sorted(str(path.relative_to(root)) for path in root.glob(pattern))


def _argus(root: Path) -> Rows:
    path = root / _ARGUS
    if not (root / _ARGUS_DAEMON).exists():
        yield Row(name="argus", verdict=Verdict.ABSENT, detail="no daemon for CSI cameras is installed")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        try:
            end.connect(str(path))
        except OSError as error:
            # Refused as a socket of another type, it is there, and we may ask.
            is_there = error.errno == errno.EPROTOTYPE
            yield held("argus", is_there, f"/{_ARGUS}: {error.strerror}", else_=Verdict.WORSE)
        else:
            yield held("argus", True, f"/{_ARGUS}: answers")


_ROLLBACK = "edge-rollback.service"
_READY_S, _AGAIN_S, _WATCHDOG_S = 60.0, 25.0, 10
_LOOK_S = 0.2
_OF_THE_SERVICE = ("Type=notify", "NotifyAccess=main", "Restart=on-failure", "RestartSec=1")


def unit(folder: Path) -> Rows:
    """Yield what systemd does with the service when it starts, hangs and is killed."""
    if (why_not := why_no_sandbox()) is not None:
        raise NotHereError(why_not)
    name = f"edge-prove-{os.getpid()}.service"
    rolled_back = _unit_state(_ROLLBACK)["ActiveEnterTimestampMonotonic"]
    folder.chmod(0o755)  # the service's user reads the pipeline file in it
    path = pipeline(folder, streams=1, engine={"kind": quick_kind(usable_kind()).name}).path
    path.chmod(0o644)
    _systemctl("start", _command(name, folder, path))
    try:
        state = _wait(name, lambda one: one["ActiveState"] in ("active", "failed"), _READY_S)
        is_up = state["ActiveState"] == "active"
        said = "" if is_up else f"; it said last: {_last_line(name)}"
        yield held("start", is_up, f"{state['ActiveState']}, {state['Result']}{said}")
        if not is_up:
            return
        yield _comes_back(name, "kill", "SIGKILL")
        yield _comes_back(name, "watchdog", "SIGSTOP")
        after = _unit_state(_ROLLBACK)["ActiveEnterTimestampMonotonic"]
        yield held("no rollback", after == rolled_back, "the release that serves here was left alone")
    finally:
        _systemctl("stop", ["systemctl", "kill", "--signal=SIGKILL", name], may_fail=True)
        _systemctl("stop", ["systemctl", "stop", name], may_fail=True)
        _systemctl("stop", ["systemctl", "reset-failed", name], may_fail=True)


def _command(name: str, folder: Path, path: Path) -> Sequence[str]:
    own = name.removesuffix(".service")  # a folder beside that of the service which runs here; state goes with it, too
    folders = (f"BindReadOnlyPaths={folder}", f"RuntimeDirectory={own}", f"Environment=STATE_DIRECTORY=/run/{own}")
    more = (*_OF_THE_SERVICE, *folders, f"WatchdogSec={_WATCHDOG_S}", "RuntimeMaxSec=180")
    options = ["--no-block", "--collect", "--quiet", f"--unit={name}", *(part for one in more for part in ("-p", one))]
    run = [*module_command("edge.cli.edge_runtime"), "run", "--pipeline", str(path)]
    return within_sandbox(run, *options)


def _comes_back(name: str, what: str, signal: str) -> Row:
    """Return whether the service is another process, and ready, some time after a signal."""
    before, began_s = _unit_state(name), time.monotonic()
    _systemctl(what, ["systemctl", "kill", "--kill-who=main", f"--signal={signal}", name])
    limit_s = _AGAIN_S + _WATCHDOG_S
    after = _wait(name, lambda one: one["MainPID"] != before["MainPID"] and one["ActiveState"] == "active", limit_s)
    is_back = after["MainPID"] not in ("0", before["MainPID"]) and after["ActiveState"] == "active"
    seconds = time.monotonic() - began_s
    return held(what, is_back, f"{signal}: {after['ActiveState']} {seconds:.0f} s later, {after['NRestarts']} restarts")


def _wait(name: str, is_so: Callable[[Mapping[str, str]], bool], limit_s: float) -> Mapping[str, str]:
    until_s = time.monotonic() + limit_s
    while not is_so(state := _unit_state(name)) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return state


def _unit_state(name: str) -> Mapping[str, str]:
    keys = ("ActiveState", "Result", "MainPID", "NRestarts", "ActiveEnterTimestampMonotonic")
    words = ["systemctl", "show", name, *(f"--property={key}" for key in keys)]
    told = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S).stdout
    pairs = (line.partition("=") for line in told.splitlines())
    return {**dict.fromkeys(keys, ""), **{key: value for key, _, value in pairs}}


def _last_line(name: str) -> str:
    """Return what the service itself has said last."""
    words = [*(run_as_root() or ()), "journalctl", "-q", "-o", "cat", "-n", "1", f"_SYSTEMD_UNIT={name}"]
    asked = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S)
    return asked.stdout.strip()


def _systemctl(what: str, command: Sequence[str], *, may_fail: bool = False) -> None:
    root = () if command[0] != "systemctl" else (run_as_root() or ())
    done = subprocess.run([*root, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_AGAIN_S)
    if done.returncode and not may_fail:
        raise NotHereError(f"systemd refused to {what}: {done.stderr.strip()[-300:]}")


_STREAMS, _BESIDE_STREAMS = 4, 2
_WARM_UP_S, _ALONE_S, _LOAD_S = 3.0, 5.0, 20.0
_MET = 0.95
_NICE = 10  # as edge-build.service has it
_SENSE_S = 0.5
_LATE_MS = 500.0


def beside(folder: Path) -> Rows:
    """Yield what a build takes from a pipeline that serves meanwhile."""
    with closing(Running(pipeline(folder, streams=_BESIDE_STREAMS))) as run:
        run.wait(_WARM_UP_S)
        alone = run.cost_of(_ALONE_S).fps
        done, seconds, fps = _built_beside(run, folder)
    wanted = _BESIDE_STREAMS * CLIP_FPS
    is_met = fps >= _MET * min(alone, wanted)
    detail = f"{alone:.1f} fps before, {fps:.1f} while a build took {seconds:.1f} s"
    yield held("build beside", done == 0, f"it ended with code {done}" if done else "it ended well")
    yield held("served meanwhile", is_met, detail, else_=Verdict.WORSE, before_fps=alone, fps=fps, build_s=seconds)


def _built_beside(run: Running, folder: Path) -> tuple[int, float, float]:
    """Return how a build ended that was begun now, its seconds, and the rate of the pipeline meanwhile.

    The build is begun once more as long as fewer than some seconds of the rate are seen.
    """
    command = ["nice", "-n", str(_NICE), *module_command("edge.runtime.prove.look"), str(folder)]
    began, build_s = run.cost(), list[float]()
    while True:
        started_s = time.monotonic()
        done = subprocess.run(command, stdin=subprocess.DEVNULL)
        build_s.append(time.monotonic() - started_s)
        cost = run.cost().since(began)
        if done.returncode or cost.elapsed_s >= _ALONE_S:
            return done.returncode, round(statistics.median(build_s), 2), cost.fps


def build(folder: Path) -> None:
    parts_ = build_parts(pipeline(folder, streams=1))
    parts_.inference.engine.close()
    parts_.publisher.close()


def load(folder: Path) -> Rows:
    """Yield what the machine reaches at most, and what the pipeline under load does."""
    yield from parts(("peaks", _peaks), ("load", lambda: _load(folder)))


def _peaks() -> Rows:
    for peak in measured_peaks(AUTO):
        if peak.value is not None:
            yield told(peak.name, f"{peak.value:g} {peak.unit} ({peak.detail})", value=peak.value, unit=peak.unit)


def _load(folder: Path) -> Rows:
    with closing(Running(pipeline(folder, streams=_STREAMS))) as run:
        run.wait(_WARM_UP_S)
        with watched(read_sensors, every_s=_SENSE_S) as sensed:
            fps = run.cost_of(_LOAD_S).fps
        report = run.stop()
    wanted = _STREAMS * CLIP_FPS
    content = report.as_json()
    total = report.stages_ms["total"]
    detail = f"{fps:.1f} of {wanted} fps by {report.engine}, {report.precision.value}"
    yield held("rate", fps >= _MET * wanted, detail, else_=Verdict.WORSE, fps=fps, streams=_STREAMS)
    late = f"p50 {total['p50']:.1f} ms, p95 {total['p95']:.1f} ms, p99 {total['p99']:.1f} ms, decoder to result"
    yield held("latency", total["p99"] <= _LATE_MS, late, else_=Verdict.WORSE, **dict(total))
    yield held("counts", report.is_balanced, "decoded = inferred + dropped, and every message has a fate")
    yield told("CPU", f"{content['cpu_ms_per_frame']} ms a frame, of all cores", ms=content["cpu_ms_per_frame"])
    yield from _of_sensors(sensed, fps)


def _of_sensors(sensed: list[Sensors], fps: float) -> Iterator[Row]:
    warm = [zone.celsius for one in sensed for zone in one.zones.values() if zone.celsius is not None]
    held_by = sorted({name for one in sensed for name in one.throttled_by})
    if warm:
        detail = f"at most {max(warm):.0f} C; held back by {', '.join(held_by) or 'nothing'}"
        yield held("heat under load", not held_by, detail, else_=Verdict.WORSE, celsius=max(warm))
    else:
        yield Row(name="heat under load", verdict=Verdict.ABSENT, detail="the machine tells no temperature")
    rails = {name for one in sensed for name in one.watts}
    if not rails:
        yield Row(name="power under load", verdict=Verdict.ABSENT, detail="the machine tells no power")
    for rail in sorted(rails):
        watts = statistics.mean(one.watts[rail] for one in sensed if rail in one.watts)
        joules = round(watts / fps, 4) if fps else None
        yield told(f"rail {rail}", f"{watts:.2f} W, {joules} J a frame", watts=round(watts, 3), joules=joules)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
