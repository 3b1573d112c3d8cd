"""`edge-runtime run` in a process of its own, and a staged release, built and served as a device does it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from edge.bundle.manifest import decode_manifest
from edge.device.device import Device
from edge.runtime.build.engine import Builder, make_in_workshop
from edge.runtime.build.handover import MADE, adopt
from edge.runtime.build.request import BuildResult
from edge.runtime.pipeline.counters import RunReport
from edge.runtime.serve.engine import open_release
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.service import Service


class Run:
    def __init__(self, folder, model, monkeypatch):
        self.folder = folder
        self._model = model
        self._started = []
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    def write(self, streams, *, broker_port=None, **more):
        publish = {"mode": "all", **({} if broker_port else {"jsonl": "out.jsonl"})}
        content = {"version": 1, "device": "dev", "model": {"onnx": str(self._model)}, "publish": publish}
        if broker_port:
            content["mqtt"] = {"host": "127.0.0.1", "port": broker_port, "tls": False}
        path = self.folder / "p.yaml"
        path.write_text(json.dumps({**content, "streams": streams, **more}))
        return path

    def start(self, path, *options):
        command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(path)]
        command += ["--stats", str(self.folder / "stats.json"), *options]
        with (self.folder / "told.txt").open("w") as told:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True)
        self._started.append(process)
        return process

    def told(self):
        return (self.folder / "told.txt").read_text(encoding="utf-8")

    def end_all(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def finish(self, process, *, expected=0, timeout_s=60):
        process.communicate(timeout=timeout_s)
        told = self.told()
        assert process.returncode == expected, told
        assert "Traceback" not in told
        stats = self.folder / "stats.json"
        return (json.loads(stats.read_text()) if stats.exists() else None), told

    def stop(self, process, **more):
        """Have it end as systemd does, and return what `finish` does."""
        process.terminate()
        return self.finish(process, **more)

    def complete(self, streams, *options, expected=0, **more):
        return self.finish(self.start(self.write(streams, **more), *options), expected=expected)

    def messages(self, schema="edge.detections/1"):
        lines = [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        return [one for one in lines if one["schema"] == schema]

    def numbers(self):
        return [(one["stream"], one["frame"]) for one in self.messages()]


_DEADLINE_S = 120.0


def builder(
    device: Device, worker: str | None = None, *, deadline_s: float = _DEADLINE_S, stop: threading.Event | None = None
) -> Builder:
    """Return a builder, whose worker is a Python program or the real one."""
    more = {} if worker is None else {"worker": (sys.executable, "-c", worker)}
    return Builder(device=device, deadline_s=deadline_s, stop=stop or threading.Event(), **more)


def engine_folders(device: Device) -> list[str]:
    return sorted(os.listdir(device.layout.engines)) if device.layout.engines.exists() else []


def build_for_release(builder: Builder, release: str) -> BuildResult:
    """Build as the builder does, and take that over as edge-deploy does."""
    made, device = make_in_workshop(builder, release), builder.device
    return adopt(device, device.layout.workshop / MADE, made, decode_manifest(device.releases.manifest(release)))


def serve(device: Device, release: str) -> tuple[list[dict[str, Any]], RunReport]:
    """Run a release to the end of its clip; return its messages and the report of the run."""
    pipeline, deployed = open_release(device.layout.release(release))
    parts = build_parts(pipeline, deployed=deployed)
    report = Service(parts).run(threading.Event(), duration_s=60)
    lines = Path(pipeline.config.publish.jsonl).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], report
