"""Measures a pipeline on this machine: engine alone, decode alone, and the whole, in turn.

What this machine reaches at most, as the kind of engine that runs here measures it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from edge.config.pipeline import Pipeline
from edge.engine.kind import Peak, PeakingKind, load_kind
from edge.engine.kinds import choose_kind
from edge.errors import EngineError, SourceError
from edge.protocols import Engine, FrameSource
from edge.runtime.pipeline.counters import RunReport
from edge.runtime.serve.engine import warm_up
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.service import Service

__all__ = ["Running", "bench", "decode_alone", "measured_peaks"]

_READ_TIMEOUT_S = 0.2
_NAME = "bench"  # of the device, whose state and numbers are not those of the service here
_WARM_UP_S = 2.0  # opening a stream costs as much as a hundred frames: it is done before anything is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Frames done in some time, and the CPU time of the whole process meanwhile."""

    frames: int
    elapsed_s: float
    cpu_s: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            frames=self.frames + other.frames,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            cpu_s=self.cpu_s + other.cpu_s,
        )

    @classmethod
    def until_now(cls, frames: int) -> Cost:
        """Return a mark: what comes later costs what is `since` it."""
        return cls(frames=frames, elapsed_s=time.monotonic(), cpu_s=time.process_time())

    def since(self, mark: Cost) -> Cost:
        return Cost(
            frames=self.frames - mark.frames,
            elapsed_s=self.elapsed_s - mark.elapsed_s,
            cpu_s=self.cpu_s - mark.cpu_s,
        )

    @property
    def cpu_ms_per_frame(self) -> float:
        """CPU milliseconds, all cores together."""
        return self.cpu_s * 1e3 / self.frames if self.frames else 0.0

    @property
    def fps(self) -> float:
        return round(self.frames / self.elapsed_s, 2)

    def as_json(self) -> dict[str, float]:
        return {"fps": self.fps, "cpu_ms_per_frame": round(self.cpu_ms_per_frame, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The measurements. `overhead` is CPU per frame of the running pipeline / (decode alone + engine alone).

    `running` is the pipeline once it is warm; `whole` is the account of the same run from its start.
    """

    engine: Cost
    decode: Cost
    running: Cost
    whole: RunReport

    @property
    def overhead(self) -> float:
        """1.0 means that batching, detection and publishing cost nothing."""
        parts_ms = self.engine.cpu_ms_per_frame + self.decode.cpu_ms_per_frame
        return self.running.cpu_ms_per_frame / parts_ms if parts_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine.as_json(),
            "decode": self.decode.as_json(),
            "running": self.running.as_json(),
            "pipeline": self.whole.as_json(),
            "overhead": round(self.overhead, 3),
        }


def bench(pipeline: Pipeline, *, duration_s: float) -> BenchReport:
    """Each part is measured for `duration_s`. Raises `EdgeError` if the pipeline cannot be built or run."""
    pipeline = _unheard(pipeline)
    # Half before and half after: a machine that warms up or slows down meanwhile does not move the ratio.
    before = _parts_alone(pipeline, duration_s / 2)
    running, whole = _whole(pipeline, duration_s)
    after = _parts_alone(pipeline, duration_s / 2)
    return BenchReport(engine=before[0] + after[0], decode=before[1] + after[1], running=running, whole=whole)


def _unheard(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline under another name and without its outputs: who listens to the device is not to hear this.

    Messages are made, numbered and written all the same, to where nothing reads them.
    """
    publish = msgspec.structs.replace(pipeline.config.publish, jsonl=os.devnull)
    config = msgspec.structs.replace(pipeline.config, device=_NAME, mqtt=None, publish=publish)
    return replace(pipeline, config=config)


class Running:
    """A pipeline that runs in a thread of this process, to be closed."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._parts = build_parts(pipeline)
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        self._reports: list[RunReport] = []
        self._thread = threading.Thread(target=self._run, name="served")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._reports.append(Service(self._parts).run(self._stop))
        except BaseException as error:  # the border of a thread: raised again where a cost is asked for
            self._failed.append(error)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def cost(self) -> Cost:
        """Return a mark, as `Cost.until_now`; what ended the pipeline is raised."""
        if self._failed:
            raise self._failed[0]
        counters = self._parts.counters
        return Cost.until_now(sum(counters.of_stream(source.stream).inferred for source in self._parts.sources))

    def cost_of(self, seconds: float) -> Cost:
        """Return what the next seconds cost."""
        began = self.cost()
        self.wait(seconds)
        return self.cost().since(began)

    def stop(self) -> RunReport:
        """Return the account of the whole run; what ended the pipeline is raised."""
        self.close()
        self.cost()
        return self._reports[0]

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def _whole(pipeline: Pipeline, duration_s: float) -> tuple[Cost, RunReport]:
    with closing(Running(pipeline)) as run:
        run.wait(_WARM_UP_S)
        cost = run.cost_of(duration_s)
        if not run.is_alive:
            raise SourceError(f"the streams ended before {_WARM_UP_S + duration_s:g} s", hint="set loop: true")
        return cost, run.stop()


def _parts_alone(pipeline: Pipeline, duration_s: float) -> tuple[Cost, Cost]:
    parts = build_parts(pipeline)
    try:
        return _engine_alone(parts.inference.engine, duration_s), decode_alone(parts.sources, duration_s)
    finally:
        parts.inference.engine.close()
        parts.publisher.close()


def _engine_alone(engine: Engine, duration_s: float) -> Cost:
    for canvas in engine.canvases:
        canvas[:] = np.random.default_rng(0).integers(0, 256, canvas.shape, np.uint8)

    warm_up(engine)
    frames, start = 0, Cost.until_now(0)
    while time.monotonic() - start.elapsed_s < duration_s:
        engine.start(0, engine.max_batch)
        engine.wait(0)
        frames += engine.max_batch
    return Cost.until_now(frames).since(start)


def decode_alone(sources: Sequence[FrameSource], duration_s: float) -> Cost:
    """Return what reading all sources at once costs, once they are warm."""
    stop, counts = threading.Event(), [0] * len(sources)

    def read(index: int) -> None:
        source = sources[index]
        source.open()
        try:
            while not stop.is_set():
                counts[index] += source.read(_READ_TIMEOUT_S) is not None
        except SourceError:  # a file that ends early: what it gave is counted
            return
        finally:
            source.close()

    threads = [threading.Thread(target=read, args=(index,), daemon=True) for index in range(len(sources))]
    for thread in threads:
        thread.start()
    stop.wait(_WARM_UP_S)
    start = Cost.until_now(sum(counts))
    stop.wait(duration_s)
    cost = Cost.until_now(sum(counts)).since(start)
    stop.set()
    for thread in threads:
        thread.join()
    return cost


def measured_peaks(kind: str) -> Iterator[Peak]:
    """Yield the peaks, each as it is measured; `kind` as in a pipeline file.
    Raises `ConfigError` if there is no such kind; `EngineError` if it does not run here, or measures nothing.
    """
    facts = choose_kind(kind).facts
    if (why_not := facts.why_not()) is not None:
        raise EngineError(f"engine {facts.name}: {why_not}", hint="--engine auto takes one that runs here")
    working = load_kind(facts.name)
    if not isinstance(working, PeakingKind):
        raise EngineError(f"engine {facts.name} measures no peaks", hint="--engine auto takes the best one here")
    yield from working.peaks()
