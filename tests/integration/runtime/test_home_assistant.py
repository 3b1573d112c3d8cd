"""`edge-runtime run` with `mqtt.home_assistant`: what a broker holds for Home Assistant after each start."""

import signal

import pytest

from tests.support.clips import write_clip
from tests.support.mosquitto import Collector
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(reason="asks a Home Assistant, which only make test-rest installs")
YARD = {"id": "yard", "polygon": [[0, 0], [1, 0], [1, 1], [0, 1]]}


def mqtt(broker, *, home_assistant=True):
    where = {"host": "127.0.0.1", "port": broker.port, "site": "north", "tls": False}
    return {"mqtt": {**where, "home_assistant": home_assistant}}


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


def test_entities_are_those_of_the_last_pipeline(run, broker, tmp_path):
    short = write_clip(tmp_path / "clip.mp4", count=10)
    east = {"id": "east", "uri": str(short), "tracking": {"zones": [YARD]}}
    west = {"id": "west", "uri": str(short)}

    run.complete([east, west], **mqtt(broker))
    objects = {"running", "east_camera", "east_objects", "east_zone_yard", "east_occupied_yard", "east_events"}
    wait_until(lambda: held(broker.port) == objects | {"west_camera", "west_objects"}, what="all entities")

    run.complete([west], **mqtt(broker))
    wait_until(
        lambda: held(broker.port) == {"running", "west_camera", "west_objects"}, what="entities of east are gone"
    )

    run.complete([west], **mqtt(broker, home_assistant=False))
    wait_until(lambda: held(broker.port) == set(), what="all are gone")


def test_a_reload_is_seen_by_home_assistant_too(run, broker, clip, tmp_path):
    east = {"id": "east", "uri": str(clip), "loop": True, "realtime": True}
    process = run.start(run.write([east], **mqtt(broker)))
    wait_until(lambda: held(broker.port) == {"running", "east_camera", "east_objects"}, what="the camera")
    run.write([{**east, "tracking": {"zones": [YARD]}}], **mqtt(broker))
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: "east_zone_yard" in held(broker.port), what="the zone")
    run.write([east], **mqtt(broker))
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: held(broker.port) == {"running", "east_camera", "east_objects"}, what="no zone")
    run.stop(process)
    assert "homeassistant" not in (tmp_path / "out.jsonl").read_text()
