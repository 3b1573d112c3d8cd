"""`edge-runtime run` with `mqtt.home_assistant`: what a broker holds for Home Assistant after each start."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.support import models
from tests.support.clips import write_clip
from tests.support.collector import Collector
from tests.support.mosquitto import Mosquitto
from tests.support.runs import Run
from tests.support.wait import wait_until

pytestmark = pytest.mark.integration
YARD = {"id": "yard", "polygon": [[0, 0], [1, 0], [1, 1], [0, 1]]}


def run(folder, port, model, streams, *, home_assistant):
    content = {
        "version": 1,
        "device": "dev",
        "model": {"onnx": str(model)},
        "mqtt": {"host": "127.0.0.1", "port": port, "site": "north", "tls": False, "home_assistant": home_assistant},
        "streams": streams,
    }
    (folder / "p.yaml").write_text(json.dumps(content))
    subprocess.run(
        [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(folder / "p.yaml")],
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
    )


def held(port):
    """Return the entities of which the broker holds a configuration."""
    collector = Collector(port)
    try:
        # Retained messages come in one go, and the device's own state is always among them.
        wait_until(lambda: any(one.topic.endswith("dev/state") for one in collector.messages), what="what is retained")
        wait_until(lambda: any(one.topic.endswith("dev/info") for one in collector.messages), what="the birth message")
        return {
            message.topic.split("/")[-2]
            for message in collector.messages
            if message.topic.startswith("homeassistant/") and message.payload
        }
    finally:
        collector.close()


def test_entities_are_those_of_the_last_pipeline(tmp_path):
    model, clip = models.yolov8(tmp_path / "tiny.onnx"), write_clip(tmp_path / "clip.mp4", count=10)
    east = {"id": "east", "uri": str(clip), "tracking": {"zones": [YARD]}}
    west = {"id": "west", "uri": str(clip)}
    with Mosquitto(tmp_path / "mosquitto") as broker:
        run(tmp_path, broker.port, model, [east, west], home_assistant=True)
        objects = {"running", "east_camera", "east_objects", "east_zone_yard", "east_occupied_yard", "east_events"}
        wait_until(lambda: held(broker.port) == objects | {"west_camera", "west_objects"}, what="all entities")

        run(tmp_path, broker.port, model, [west], home_assistant=True)
        wait_until(
            lambda: held(broker.port) == {"running", "west_camera", "west_objects"}, what="entities of east are gone"
        )

        run(tmp_path, broker.port, model, [west], home_assistant=False)
        wait_until(lambda: held(broker.port) == set(), what="all are gone")


def test_a_reload_is_seen_by_home_assistant_too(tmp_path, monkeypatch):
    clip = write_clip(tmp_path / "clip.mp4", count=30)
    east = {"id": "east", "uri": str(clip), "loop": True, "realtime": True}
    followed = {**east, "tracking": {"zones": [YARD]}}
    serving = Run(tmp_path, models.yolov8(tmp_path / "tiny.onnx"), monkeypatch)
    with Mosquitto(tmp_path / "mosquitto") as broker:
        mqtt = {"host": "127.0.0.1", "port": broker.port, "site": "north", "tls": False, "home_assistant": True}
        process = serving.start(serving.write([east], mqtt=mqtt))
        try:
            wait_until(
                lambda: held(broker.port) == {"running", "east_camera", "east_objects"}, what="the camera", timeout_s=60
            )
            serving.write([followed], mqtt=mqtt)
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: "east_zone_yard" in held(broker.port), what="the zone", timeout_s=60)
            serving.write([east], mqtt=mqtt)
            process.send_signal(signal.SIGHUP)
            wait_until(
                lambda: held(broker.port) == {"running", "east_camera", "east_objects"}, what="no zone", timeout_s=60
            )
            process.send_signal(signal.SIGTERM)
            serving.finish(process)
        finally:
            serving.end_all()
    assert "homeassistant" not in (tmp_path / "out.jsonl").read_text()
