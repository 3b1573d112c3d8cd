"""A measurement is no service: the broker of the pipeline file and those who listen there hear nothing of it."""

import json
import os

from tests.integration.cli.test_commands import command
from tests.support import models
from tests.support.clips import write_clip
from tests.support.collector import Collector
from tests.support.mosquitto import Mosquitto


def test_a_benchmark_does_not_speak_as_the_device(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Mosquitto(tmp_path / "mosquitto") as broker:
        collector = Collector(broker.port)
        pipeline = {
            "version": 1,
            "device": "gate-01",
            "model": {"onnx": str(models.yolov8(tmp_path / "m.onnx"))},
            "streams": [{"id": "a", "uri": str(write_clip(tmp_path / "c.mp4", count=60)), "loop": True}],
            "mqtt": {"host": "127.0.0.1", "port": broker.port, "tls": False},
            "publish": {"jsonl": str(tmp_path / "out.jsonl"), "mode": "all"},
        }
        (tmp_path / "p.yaml").write_text(json.dumps(pipeline))
        done = command("edge-runtime", "bench", "--pipeline", tmp_path / "p.yaml", "--duration", 1, "--json")
        heard = collector.payloads("")
        collector.close()

    published = json.loads(done.stdout)["pipeline"]["published"]
    assert heard == []
    assert list(published) == ["jsonl"]
    assert published["jsonl"]["delivered"] > 0
    assert not (tmp_path / "out.jsonl").exists()
    assert "gate-01" not in os.listdir(tmp_path / "state/edge-deploy")
