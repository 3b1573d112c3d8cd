"""A measurement is no service: the broker of the pipeline file and those who listen there hear nothing of it."""

import json
import os

import pytest

from tests.support.command_line import command

pytestmark = pytest.mark.slow(reason="further services over real models")


def test_a_benchmark_does_not_speak_as_the_device(run, clip, tmp_path, broker, subscribe):
    collector = subscribe(broker.port)
    publish = {"jsonl": str(tmp_path / "out.jsonl"), "mode": "all"}
    path = run.write([{"id": "a", "uri": str(clip), "loop": True}], broker_port=broker.port, publish=publish)

    done = command("edge-runtime", "bench", "--pipeline", path, "--duration", 1, "--json")

    published = json.loads(done.stdout)["pipeline"]["published"]
    assert collector.payloads("") == []
    assert list(published) == ["jsonl"]
    assert published["jsonl"]["delivered"] > 0
    assert not (tmp_path / "out.jsonl").exists()
    assert "dev" not in os.listdir(tmp_path / "state/edge-deploy")
