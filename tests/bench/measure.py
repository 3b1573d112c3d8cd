"""The measurements, each pipeline in a process of its own so that memory and CPU time are its own."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from edge.demo.cameras import lay_out_cameras
from edge.engine.openvino.engine import OpenVinoEngine
from edge.publish.frames import FramePublisher, Selection
from edge.publish.jsonl import JsonlPublisher
from edge.publish.message import ModelInfo, RunInfo
from edge.types import ClockSource, StageTimes
from tests.support import values


def demo_clips(folder):
    return [camera.path for camera in lay_out_cameras(4, folder)]


def measure_model(model, clips, *, folder, streams, seconds):
    """Return rows by heading: files as fast as possible, live streams at their own pace."""
    print(f"measuring {model.name}", file=sys.stderr)
    live = (*streams, 2 * streams[-1])
    return {
        f"{model.stem}: files, every frame inferred; budget of overhead: 1.15": [
            _bench(model, clips, folder, count=count, seconds=seconds) for count in streams
        ],
        f"{model.stem}: live streams, the newest frame wins": [
            _run_live(model, clips, folder, count=count, seconds=seconds) for count in live
        ],
    }


def _pipeline(model, clips, folder, *, count, realtime):
    path = folder / f"{model.stem}-{count}-{'live' if realtime else 'file'}.yaml"
    streams = [
        {"id": f"s{i}", "uri": str(Path(clips[i % len(clips)]).resolve()), "loop": True, "realtime": realtime}
        for i in range(count)
    ]
    content = {
        "version": 1,
        "model": {"onnx": str(model)},
        "streams": streams,
        "batch": {"max_frames": 8},
        "publish": {"jsonl": str(folder / "bench.jsonl"), "mode": "all"},
    }
    path.write_text(json.dumps(content))
    return path


def _runtime(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "edge.cli.edge_runtime", *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )


def _bench(model, clips, folder, *, count, seconds):
    path = _pipeline(model, clips, folder, count=count, realtime=False)
    result = json.loads(_runtime("bench", "--pipeline", path, "--duration", seconds, "--json").stdout)
    print(f"  {count} files: overhead {result['overhead']}", file=sys.stderr)
    running, stages = result["running"], result["pipeline"]["stages_ms"]
    return {
        "streams": count,
        "decode alone fps": result["decode"]["fps"],
        "engine alone fps": result["engine"]["fps"],
        "pipeline fps": running["fps"],
        "CPU ms per frame": running["cpu_ms_per_frame"],
        "overhead": result["overhead"],
        **{f"{stage} {p} ms": stages[stage][p] for stage in ("infer", "post") for p in ("p50", "p95")},
        "peak MiB": result["pipeline"]["peak_memory_bytes"] >> 20,
    }


def _run_live(model, clips, folder, *, count, seconds):
    path = _pipeline(model, clips, folder, count=count, realtime=True)
    stats = folder / "stats.json"
    _runtime("run", "--pipeline", path, "--duration", seconds, "--stats", stats)
    result = json.loads(stats.read_text())
    print(f"  {count} live: {result['fps']} fps in all", file=sys.stderr)
    fps = [stream["fps"] for stream in result["streams"]]
    decoded = sum(stream["decoded"] for stream in result["streams"])
    dropped = sum(sum(one["dropped"].values()) - one["dropped"].get("stopped", 0) for one in result["streams"])
    return {
        "streams": count,
        "fps per stream": sum(fps) / len(fps),
        "slowest": min(fps),
        "dropped %": 100 * dropped / max(decoded, 1),
        **{f"latency {p} ms": result["stages_ms"]["total"][p] for p in ("p50", "p95", "p99")},
        "CPU cores": result["cpu_seconds"] / result["seconds"],
        "peak MiB": result["peak_memory_bytes"] >> 20,
    }


def engine_ms(spec, *, seconds, **options):
    """Return how long the engine alone takes for a frame, four at once, milliseconds."""
    engine = OpenVinoEngine(spec, max_batch=4, **options)
    engine.canvases[0][:] = np.random.default_rng(0).integers(0, 256, engine.canvases[0].shape, np.uint8)
    engine.start(0, 4)
    engine.wait(0)
    started, frames = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        engine.start(0, 4)
        engine.wait(0)
        frames += 4
    elapsed_ms = (time.perf_counter() - started) * 1e3
    engine.close()
    return elapsed_ms / frames


def publish_call(objects=20, calls=20_000):
    """Return the time of one publish call in the loop, in microseconds, percentiles over `calls`."""
    publisher = JsonlPublisher("/dev/null")
    model = ModelInfo(name="bench", precision="fp32")
    info = RunInfo(1, ["bench"], "bench", [str(index) for index in range(80)], model)
    frames = FramePublisher(publisher, info, Selection("all", heartbeat_s=1))
    result = _frame_result(objects)
    times_us = np.empty(calls)
    for index in range(calls):
        started = time.perf_counter()
        frames.publish(result)
        times_us[index] = (time.perf_counter() - started) * 1e6
        time.sleep(0.0005)  # as frames come: a thousand in two seconds, not back to back
    publisher.close()
    return {f"p{percent}": float(np.percentile(times_us, percent)) for percent in (50, 95, 99)}


def _frame_result(objects):
    random = np.random.default_rng(0)
    found = values.detections(
        random.random((objects, 4), np.float32) * 600,
        score=np.sort(random.random(objects, np.float32))[::-1],
        class_id=random.integers(0, 80, objects),
    )
    header = values.header(size=(1920, 1080), captured_at_ns=time.time_ns(), clock=ClockSource.ARRIVAL)
    times = StageTimes(decode_ns=9_000_000, batch_wait_ns=6_000_000, infer_ns=11_000_000, post_ns=2_000_000)
    return values.result(header, found, times)
