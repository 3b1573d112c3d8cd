"""Steps 6 and 8: the whole pipeline on the clip, alone and beside a build; what it costs of cores, heat and power."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from edge.device.sensors import Sensors, read_sensors
from edge.engine.kinds import AUTO
from edge.roofline.proof import Row, Verdict
from edge.runtime.prove.kit import CLIP_FPS, Rows, held, parts, pipeline, told, watched
from edge.runtime.serve.bench import Running, measured_peaks
from edge.runtime.serve.parts import build_parts
from edge.runtime.software.binding import module_command

__all__ = ["beside", "load"]

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
    command = ["nice", "-n", str(_NICE), *module_command("edge.runtime.prove.load"), str(folder)]
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
    import sys

    build(Path(sys.argv[1]))
