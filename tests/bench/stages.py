"""Interpreter time per frame by stage, with real cameras and a real broker: the servers here, the pipeline in a child.

python -m tests.bench.stages       prints the table alone
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.page import tables
from tests.support.clips import write_clip
from tests.support.models import yolov8
from tests.support.mosquitto import Mosquitto
from tests.support.rtsp import RtspMount, RtspServer

STREAMS, FPS, OBJECTS = 8, 30, 12
# So many cameras in turn, until one is too many; a batch has 64 rows at most.
MORE_STREAMS = (16, 24, 32, 40, 48, 56, 64)
_MET = 0.99  # of the frames that cameras send
WALL_S = 5.0  # for each number of cameras: all of them together take minutes
ROOT = Path(__file__).parents[2]
_TRACKING = {
    "zones": [
        {"id": "left", "polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]], "dwell_s": 30},
        {"id": "lower", "polygon": [[0, 0.5], [1, 0.5], [1, 1], [0, 1]]},
    ],
    "lines": [{"id": "middle", "start": [0, 0.5], "end": [1, 0.5]}],
}


def measure_stages(folder: Path, *, seconds: float) -> dict[str, list[dict]]:
    """Return rows by heading: microseconds of CPU per frame by stage, and what more and more cameras come to.

    `candidates`: the engine gives the cells above the score; `whole output`: all of a YOLOv8 head, 84 x 8400; `RGBA`:
    candidates, of pixels of four bytes, as a Jetson's scaler gives them; `followed`: candidates, with two zones and a
    line. Others are GStreamer's threads.
    """
    clip = write_clip(folder / "stages.h264", count=90, width=640, height=360, gop=30)
    model = yolov8(folder / "stages.onnx", size=640, classes=80)
    mounts = {f"/{i}": RtspMount(str(clip), "h264") for i in range(MORE_STREAMS[-1])}
    options = ("max_inflight_messages 0",)
    with RtspServer(mounts) as cameras, Mosquitto(folder / "broker", options=options) as broker:
        cameras_of = {
            "RTSP": [{"id": f"s{i}", "uri": cameras.url(f"/{i}")} for i in range(MORE_STREAMS[-1])],
            "raw": [
                {"id": f"s{i}", "uri": f"test://?width=640&height=360&fps={FPS}&pattern=black"}
                for i in range(MORE_STREAMS[-1])
            ],
        }
        moving = cameras_of["RTSP"][:STREAMS]
        idle = [{"id": f"s{i}", "uri": "test://?width=640&height=360&fps=1", "stall_s": 20} for i in range(STREAMS)]
        followed = [{**stream, "tracking": _TRACKING} for stream in moving]

        def run(streams: Sequence[dict], output: str = "candidates", *, seconds: float = seconds) -> dict:
            return _run(_pipeline(folder, model, streams, broker.port), output, seconds=seconds)

        def run_shortly(streams: Sequence[dict]) -> dict:
            return run(streams, seconds=min(seconds, WALL_S))

        ways = {
            "candidates": run(moving),
            "whole output": run(moving, "raw"),
            "RGBA": run(moving, "rgba"),
            "followed": run(followed),
            "one frame per second": run(idle),
        }
        walls = {kind: _until_too_many(streams, run_shortly) for kind, streams in cameras_of.items()}
    about = (
        f"{STREAMS} RTSP cameras of {FPS} fps, 640x360, {OBJECTS} objects, us of CPU per frame; budget together: 200"
    )
    return {
        about: [_way(*one) for one in ways.items()],
        **{
            f"More and more {kind} cameras of {FPS} fps": [_wall(*one) for one in wall.items()]
            for kind, wall in walls.items()
        },
    }


def _way(name: str, found: dict) -> dict:
    stages = found["stages_us"]
    return {
        "": name,
        **stages,
        "together": sum(stages.values()),
        "others": found["others_us"],
        "fps": found["fps"],
        "pulling % of a core": 100 * found["pulling_share"],
    }


def _wall(count: int, found: dict) -> dict:
    asked = {"cameras": count, "asked fps": count * FPS, "together us": sum(found["stages_us"].values())}
    kept = ("fps", "dropped_fps", "interpreter_cores", "process_cores", "idle_cores")
    return {**asked, **{name.replace("_", " "): found[name] for name in kept}}


def _until_too_many(streams: Sequence[dict], run: Callable[[Sequence[dict]], dict]) -> dict[int, dict]:
    """Return what was measured for more and more streams; the last ones are those that were too many."""
    found: dict[int, dict] = {}
    for count in MORE_STREAMS:
        found[count] = run(streams[:count])
        if found[count]["fps"] < _MET * count * FPS:
            break
    return found


def _pipeline(folder: Path, model: Path, streams: Sequence[dict], port: int) -> Path:
    path = folder / "stages.yaml"
    content = {
        "version": 1,
        "device": "bench",
        "model": {"onnx": str(model)},
        "streams": streams,
        "batch": {"max_frames": len(streams)},
        "mqtt": {"host": "127.0.0.1", "port": port, "tls": False},
        "publish": {"mode": "all"},
    }
    path.write_text(json.dumps(content))
    return path


def _run(pipeline: Path, output: str, *, seconds: float) -> dict:
    arguments = [str(pipeline), str(seconds), str(OBJECTS), output]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.stages_child", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print("\n".join(tables(measure_stages(Path(temporary), seconds=6.0))))
