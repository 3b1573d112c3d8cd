"""Runs a pipeline around an engine that costs nothing, and tells what each stage of the rest took of the CPU.

Each thread's own CPU time, by the kernel; inside the threads of pullers and inference, by the clock of the thread.
"""

import collections
import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

from edge.config.pipeline import load_pipeline
from edge.engine.section import read_model
from edge.media.gstreamer import build
from edge.media.gstreamer.binding import read_sections
from edge.runtime.pipeline.loop import Inference
from edge.runtime.serve import parts as runtime_parts
from edge.runtime.serve.engine import Running
from edge.runtime.serve.service import Service
from edge.types import CandidateRows, Precision

WARM_UP_S = 3.0
START_S = 20.0  # until each stream has given a frame
INFER_S = 0.008


class StandIn:
    """An engine whose output is there after a while, and lies in memory of its own for each canvas."""

    name = "stand-in"

    def __init__(self, spec, *, max_batch, objects, is_raw):
        self.preprocess, self.max_batch = spec.preprocess, max_batch
        size = spec.preprocess.size
        self.canvases = tuple(np.full((max_batch, size.height, size.width, 3), 114, np.uint8) for _ in range(2))
        frame = _head(objects)
        self._raw = [np.repeat(frame[None], max_batch, axis=0) for _ in range(2)] if is_raw else None
        cells = np.flatnonzero(frame[4:].max(axis=0) > 0.25)
        self._cells, self._values = cells, np.ascontiguousarray(frame[:, cells].T)
        self._started = {}

    def start(self, index, count):
        self._started[index] = count, time.monotonic() + INFER_S

    def wait(self, index):
        count, due_s = self._started[index]
        time.sleep(max(0.0, due_s - time.monotonic()))
        if self._raw is not None:
            return self._raw[index][:count]
        return CandidateRows(
            row=np.repeat(np.arange(count), len(self._cells)),
            cell=np.tile(self._cells, count),
            values=np.tile(self._values, (count, 1)),
            score_threshold=0.25,
        )

    def close(self):
        pass


def _head(objects):
    """A YOLOv8 output, float32 (84, 8400), of as many objects, each found by three cells."""
    random = np.random.default_rng(0)
    head = random.uniform(0, 0.1, (84, 8400)).astype(np.float32)
    cells = random.choice(8400, 3 * objects, replace=False)
    for number in range(objects):
        mine = cells[3 * number : 3 * number + 3]
        centre = [80 + 120 * (number % 4) + random.uniform(0, 40), 180 + 100 * (number // 4)]
        head[:4, mine] = np.array([*centre, 60, 80])[:, None] + random.normal(0, 1, (4, 3))
        head[4 + number % 5, mine] = random.uniform(0.6, 0.9, 3)
    return head


class Spent:
    """CPU time of functions, by the clock of the thread that calls them."""

    def __init__(self):
        self.ns = collections.Counter()

    def of(self, stage, function):
        def timed(*args, **kwargs):
            begun = time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self.ns[stage] += time.thread_time_ns() - begun

        return timed


def _thread_ns():
    """CPU time of each thread by its name; of those that Python has not made, together."""
    names = {thread.native_id: thread.name.split("-s")[0] for thread in threading.enumerate()}
    found = collections.Counter()
    for task in Path("/proc/self/task").iterdir():
        try:
            ran_ns = int((task / "schedstat").read_text().split()[0])
        except OSError:  # ended meanwhile
            continue
        found[names.get(int(task.name), "others")] += ran_ns
    return found


@dataclasses.dataclass(frozen=True)
class Noted:
    """How it stands at a time; nanoseconds of the CPU since the start."""

    at_ns: int
    frames: int
    dropped: int
    process_ns: int
    idle_ns: int
    threads_ns: collections.Counter
    spent_ns: collections.Counter


def _noted(parts, spent):
    streams = [parts.counters.of_stream(source.stream) for source in parts.sources]
    dropped = [*(one.dropped for one in streams), *(source.counts().dropped for source in parts.sources)]
    idle_ticks = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[4])
    return Noted(
        at_ns=time.monotonic_ns(),
        frames=sum(one.inferred for one in streams),
        dropped=sum(sum(reasons.values()) for reasons in dropped),
        process_ns=time.process_time_ns(),
        idle_ns=idle_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"),
        threads_ns=_thread_ns(),
        spent_ns=spent.ns.copy(),
    )


class _Timed:
    """Stands before an object, with some of its methods timed."""

    def __init__(self, inner, **timed):
        self._inner = inner
        self.__dict__.update(timed)

    def __getattr__(self, name):
        return getattr(self._inner, name)


def _timed_parts(parts, spent):
    inference, batcher = parts.inference, parts.batcher
    for name, stage in (("join", "batcher"), ("reserve", "batcher"), ("fill", "copy"), ("take", "take")):
        setattr(batcher, name, spent.of(stage, getattr(batcher, name)))
    batcher._canvases.copy = spent.of("copy alone", batcher._canvases.copy)
    engine = _Timed(
        inference.engine,
        start=spent.of("engine", inference.engine.start),
        wait=spent.of("engine", inference.engine.wait),
    )
    parts.counters.inferred = spent.of("counters", parts.counters.inferred)
    timed = Inference(
        engine=engine,
        detector=_Timed(inference.detector, detect=spent.of("detect", inference.detector.detect)),
        filters=inference.filters,
        on_results=spent.of("publish", inference.on_results),
        onlookers=inference.onlookers,
    )
    return {**{name: getattr(parts, name) for name in parts.__slots__}, "inference": timed}


def main(path, seconds, objects, output):
    pipeline = load_pipeline(Path(path))
    spent = Spent()

    def stand_in(pipeline, spec, _deployed):
        engine = StandIn(spec, max_batch=len(pipeline.config.streams), objects=objects, is_raw=output == "raw")
        return Running(engine=engine, kind="stand-in", precision=Precision.FP32, asked=Precision.FP32)

    runtime_parts.start_engine = stand_in
    if output == "rgba":
        build.read_sections = _rgba_sections
    read_model(pipeline)
    made = runtime_parts.build_parts(pipeline)
    parts = type(made)(**_timed_parts(made, spent))
    stop = threading.Event()
    noted = []

    def watch():
        stop.wait(WARM_UP_S)
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s and not stop.is_set() and not _has_all(parts):
            stop.wait(0.1)
        noted.append(_noted(parts, spent))
        stop.wait(seconds)
        noted.append(_noted(parts, spent))
        stop.set()

    threading.Thread(target=watch, name="watch", daemon=True).start()
    Service(parts).run(stop)
    print(json.dumps(_account(*noted)))


def _rgba_sections(name):
    """Sections of a launch text that end in RGBA, as a Jetson's do."""
    sections = read_sections(name)
    return {
        name: text.replace("video/x-raw,format=RGB ", "video/x-raw,format=RGBA ") for name, text in sections.items()
    }


def _has_all(parts):
    return all(parts.counters.of_stream(source.stream).inferred for source in parts.sources)


def _account(before, after):
    elapsed_ns, frames = after.at_ns - before.at_ns, after.frames - before.frames
    threads, inside = after.threads_ns - before.threads_ns, after.spent_ns - before.spent_ns
    pull = threads["pull"] - inside["batcher"] - inside["copy"]
    of_infer = inside["detect"] + inside["counters"] + inside["publish"] + inside["take"]
    stages_ns = {
        "pulling": pull,
        "batcher": inside["batcher"] + inside["copy"] - inside["copy alone"] + inside["take"],
        "copy": inside["copy alone"],
        "detections": inside["detect"],
        "results": threads["infer"] - inside["engine"] - of_infer + inside["counters"],
        "publish call": inside["publish"],
        "MQTT": threads["mqtt-publisher"],
        "service": threads["MainThread"],
    }
    return {
        "fps": frames * 1e9 / elapsed_ns,
        "dropped_fps": (after.dropped - before.dropped) * 1e9 / elapsed_ns,
        "stages_us": {name: ns / 1e3 / frames for name, ns in stages_ns.items()},
        "others_us": threads["others"] / 1e3 / frames,
        "pulling_share": pull / elapsed_ns,
        # Copying gives the interpreter up.
        "interpreter_cores": (sum(stages_ns.values()) - stages_ns["copy"]) / elapsed_ns,
        "process_cores": (after.process_ns - before.process_ns) / elapsed_ns,
        "idle_cores": (after.idle_ns - before.idle_ns) / elapsed_ns,
    }


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
