"""A real Home Assistant finds cameras, counts, zones and lines, believes what they say, and forgets what goes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import cv2
import msgspec
import numpy as np
import pytest

from edge.config.schema import MqttConfig, PublishConfig, StreamConfig
from edge.publish.discovery import KEPT_FILE, announcements
from edge.publish.message import RetainedBytes
from edge.publish.messages import LineCounts, StreamStateMessage
from edge.publish.mqtt.publisher import MqttPublisher
from tests.support.ports import free_port
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, counts, crossing, event, occupancy

PYTHON = Path(__file__).parents[3] / ".cache" / "home-assistant" / "bin" / "python"
DRIVER = Path(__file__).parents[2] / "support/home_assistant_driver.py"


def lacking() -> str:
    """Why there is none; empty when there is one."""
    return "" if PYTHON.exists() else f"Home Assistant is not in {PYTHON.parents[1]}; run: bash .ci/setup rest"


class HomeAssistant:
    """Started by `with`; `folder` holds its configuration."""

    def __init__(self, folder: Path, *, broker_port: int) -> None:
        (folder / ".storage").mkdir(parents=True)
        home = {"name": "test", "latitude": 0, "longitude": 0, "elevation": 0, "time_zone": "UTC"}
        http = {"server_host": "127.0.0.1", "server_port": free_port()}
        (folder / "configuration.yaml").write_text(json.dumps({"homeassistant": home, "http": http}))
        data = {"broker": "127.0.0.1", "port": broker_port, "discovery": True, "discovery_prefix": "homeassistant"}
        entry = {
            "entry_id": "mqtt",
            "version": 1,
            "domain": "mqtt",
            "title": "mqtt",
            "data": data,
            "options": {},
            "pref_disable_new_entities": False,
            "pref_disable_polling": False,
            "source": "user",
            "unique_id": None,
            "disabled_by": None,
        }
        entries = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": [entry]}}
        (folder / ".storage" / "core.config_entries").write_text(json.dumps(entries))
        self._folder = folder
        self._process: subprocess.Popen | None = None

    def states(self) -> dict[str, dict]:
        """Return the entities that came by MQTT, by their unique ids."""
        self._process.stdin.write("states\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return {one["unique_id"]: one for one in found if one["unique_id"] is not None}

    def log(self) -> str:
        return (self._folder / "ha.log").read_text()

    def complaints(self) -> list[str]:
        """Return what it says is wrong with what came by MQTT (libraries of its other parts are not installed)."""
        lines = [line for line in self.log().splitlines() if " ERROR " in line or " WARNING " in line]
        return [line for line in lines if "components.mqtt" in line or "helpers.template" in line]

    def __enter__(self) -> HomeAssistant:
        self._process = subprocess.Popen(
            [str(PYTHON), str(DRIVER), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while (line := self._process.stdout.readline()) and line != "READY\n":
            pass
        assert line, f"Home Assistant did not start; see {self._folder}/ha.log"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


pytestmark = pytest.mark.slow(reason="asks a Home Assistant, which only make test-rest installs")
SINCE = "2026-11-20T10:15:02.113402Z"
SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]
EAST = {
    "id": "east",
    "uri": "rtsp://camera/main",
    "classes": ["car", 'say "hi" }}'],
    "tracking": {
        "zones": [{"id": "yard", "polygon": SQUARE, "classes": ["car"]}, {"id": "lawn", "polygon": SQUARE}],
        "lines": [{"id": "gate", "start": [0, 0], "end": [1, 1]}],
    },
}
LOBBY = {"id": "lobby", "uri": "rtsp://camera/main"}
NODE = "edge_north_gate-01"


class Device:
    """What publishes, of a pipeline with these streams."""

    def __init__(self, broker, folder, *streams, home_assistant=True, **publish):
        config = MqttConfig(host="127.0.0.1", port=broker.port, site="north", tls=False, home_assistant=home_assistant)
        self.streams = [msgspec.convert(stream, StreamConfig) for stream in streams]
        self.publisher = MqttPublisher(config, info=birth())
        for message in announcements(config, birth(), self.streams, publish=PublishConfig(**publish), state_dir=folder):
            self.publisher.publish(message)

    def say(self, *messages):
        for message in messages:
            self.publisher.publish(message)
        assert self.publisher.flush(60)

    def up(self, *streams):
        self.say(*(StreamStateMessage(device="gate-01", stream=one, state="up", since=SINCE) for one in streams))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.publisher.close()


@pytest.fixture
def home(tmp_path, broker):
    if missing := lacking():
        pytest.skip(missing)
    with HomeAssistant(tmp_path / "home-assistant", broker_port=broker.port) as started:
        yield started


def values(home):
    return {unique_id.removeprefix(f"{NODE}_"): one["state"] for unique_id, one in home.states().items()}


def last_event(home):
    return home.states()[f"{NODE}_east_events"]["attributes"]


def wait_for(home, expected, *, timeout_s=60):
    def has_come():
        found = values(home)
        return {name: found.get(name) for name in expected} == expected

    try:
        wait_until(has_come, what="Home Assistant knows", timeout_s=timeout_s)
    except AssertionError:
        assert values(home) == expected, home.log()


def test_home_assistant_shows_cameras_counts_zones_and_lines(home, broker, tmp_path):
    with Device(broker, tmp_path / "state", EAST, LOBBY) as device:
        device.up("east", "lobby")
        crossed = LineCounts(forward={"car": 3, "person": 1}, backward={"car": 2})
        device.say(occupancy(objects={"car": 2, "person": 1}, zones={"yard": {"car": 1}}, lines={"gate": crossed}))
        device.say(counts(stream="lobby", objects={"person": 3}, total=3))
        wait_for(
            home,
            {
                "running": "on",
                "east_camera": "on",
                "lobby_camera": "on",
                "lobby_objects": "3",
                "east_objects": "3",
                "east_objects_car": "2",
                "east_objects_say-hi": "0",
                "east_zone_yard_car": "1",
                "east_zone_lawn": "0",
                "east_line_gate_forward": "4",
                "east_line_gate_backward": "2",
            },
        )
        states = home.states()
        assert {one["device"] for one in states.values()} == {"gate-01", "gate-01 east", "gate-01 lobby"}
        assert (states[f"{NODE}_east_occupied_yard"]["state"], states[f"{NODE}_east_zone_yard"]["state"]) == ("on", "1")

        device.say(
            StreamStateMessage(device="gate-01", stream="lobby", state="degraded", since=SINCE, reason="overload")
        )
        device.say(counts(stream="lobby", objects={"person": 4}, total=4))
        wait_for(home, {"lobby_camera": "on", "lobby_objects": "4"})

        device.say(event(1), crossing(2))
        wait_until(lambda: last_event(home).get("event_type") == "cross", what="the event has come")
        assert last_event(home)["line"] == "gate"

        down = StreamStateMessage(device="gate-01", stream="east", state="down", since=SINCE, reason="no frame for 3 s")
        device.say(down)
        wait_for(home, {"east_camera": "off", "east_objects": "unavailable", "lobby_camera": "on", "running": "on"})
    wait_for(home, {"running": "off", "lobby_camera": "unavailable", "east_objects": "unavailable"})
    assert home.complaints() == []


def test_home_assistant_shows_the_picture_of_a_camera(home, broker, tmp_path):
    def shown():
        return home.states().get(f"{NODE}_lobby_picture", {})

    first, second = (cv2.imencode(".jpg", np.full((48, 64, 3), level, np.uint8))[1].tobytes() for level in (40, 200))
    with Device(broker, tmp_path / "state", LOBBY, pictures_s=5) as device:
        device.up("lobby")
        for jpeg in (first, second):
            device.say(RetainedBytes("streams/lobby/picture", jpeg, 60))
            wait_until(
                lambda jpeg=jpeg: shown().get("picture") == hashlib.sha256(jpeg).hexdigest(),
                what="Home Assistant shows it",
            )
        assert shown()["device"] == "gate-01 lobby"
    with Device(broker, tmp_path / "state", LOBBY) as device:
        wait_until(lambda: not shown(), what="the camera is gone")
    assert home.complaints() == []


def test_what_is_removed_from_the_pipeline_vanishes(home, broker, tmp_path):
    folder = tmp_path / "state"
    with Device(broker, folder, EAST, LOBBY) as device:
        device.up("east", "lobby")
        device.say(occupancy(zones={"yard": {}, "lawn": {}}))
        wait_for(home, {"east_zone_lawn": "0", "lobby_camera": "on"})

    only_yard = EAST | {"tracking": {"zones": EAST["tracking"]["zones"][:1]}}
    with Device(broker, folder, only_yard) as device:
        device.up("east")
        device.say(occupancy(zones={"yard": {"car": 1}}, lines={}))
        wait_for(home, {"east_camera": "on", "east_zone_yard_car": "1"})
        assert {name for name in values(home) if "lawn" in name or "gate" in name or "lobby" in name} == set()

    with Device(broker, folder, only_yard, home_assistant=False) as device:
        device.up("east")
        wait_until(lambda: values(home) == {}, what="Home Assistant has forgotten all")


def test_it_says_nothing_unless_it_is_asked_to(broker, tmp_path):
    config = MqttConfig(host="127.0.0.1", port=broker.port, tls=False)
    streams = [msgspec.convert(EAST, StreamConfig)]

    assert announcements(config, birth(), streams, publish=PublishConfig(), state_dir=tmp_path) == []
    assert not (tmp_path / KEPT_FILE).exists()
