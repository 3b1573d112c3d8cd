"""A running service in trouble: its disk fails, the time of day is set (F-40), cameras are dead.

A disk: retained state, status page and metrics say so, and when it is over. A clock: hours forward and back. A camera
that is dead is not silent: it stands on stderr, which is the journal of a device, without any -v.
"""

import contextlib
import datetime
import itertools
import json
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clips import write_clip
from tests.support.http_client import ask
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.own_disk import OwnDisk
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.runs import Run
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(reason="further services over real models")
MEANS = "messages are in memory only, which a power cut takes: "


@pytest.fixture
def disk(tmp_path):
    with contextlib.closing(OwnDisk(tmp_path / "disk", tmp_path / "image")) as made:
        yield made


class Device:
    """A service as systemd starts it, its StateDirectory on a disk of its own."""

    def __init__(self, run, disk, broker, clip):
        self.run, self.disk, self.broker, self.clip = run, disk, broker, clip
        self.page = run.folder / "run/http.sock"

    def start(self):
        streams = [
            {"id": "east", "uri": str(self.clip), "loop": True, "realtime": True},
            {"id": "gone", "uri": "gone.mp4"},
        ]
        mqtt = {"host": "127.0.0.1", "port": self.broker.port, "tls": False, "spool": {"free_mib": 0}}
        (self.run.folder / "gone.mp4").write_bytes(b"")
        path = self.run.write(streams, mqtt=mqtt)
        self.run.start(path, "--health", str(self.page.with_name("health.json")))
        wait_until(lambda: self.state() is not None, what="it runs")

    def state(self):
        """What the status page says."""
        try:
            status, _, body = ask(self.page, "/status.json")
        except OSError:
            return None
        said = json.loads(body) if status == 200 else {}
        return (said["state"], said["reason"]) if said else None

    def metric(self, name):
        _, _, body = ask(self.page, "/metrics")
        families = text_string_to_metric_families(body.decode())
        return next(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.fixture
def device(tmp_path, model, disk, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", str(disk.folder))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    run = Run(tmp_path, model, monkeypatch)
    with Mosquitto(tmp_path / "mosquitto") as broker:
        yield Device(run, disk, broker, write_clip(tmp_path / "clip.mp4", count=60))
        disk.thaw()
        run.end_all()


@pytest.fixture
def collector(device):
    made = Collector(device.broker.port)
    yield made
    made.close()


def told(collector):
    """Return all states of the device, in their order."""
    return [(one["state"], one["reason"]) for one in collector.payloads("/dev/state")]


@pytest.mark.parametrize(
    ("breaks", "mends", "what"),
    [("freeze", "thaw", "the disk has not answered for 3 s"), ("fill", "unfill", "database or disk is full")],
)
def test_a_disk_that_fails_degrades_the_device_and_one_that_works_again_does_not(
    device, disk, collector, breaks, mends, what
):
    device.start()
    before = ("degraded", "down: gone")
    wait_until(lambda: told(collector)[-1:] == [before], what="the broken camera is told")
    device.broker.stop()
    getattr(disk, breaks)()
    degraded = ("degraded", f"down: gone; {MEANS}{what}")
    wait_until(lambda: device.state() == degraded, what="the status page says so")
    assert device.metric("edge_spool_works") == 0
    device.broker.start()
    wait_until(lambda: told(collector)[-1:] == [degraded], what="the state says so")

    getattr(disk, mends)()
    wait_until(lambda: told(collector)[-1] == before, what="the state says that it is over", timeout_s=90)
    wait_until(lambda: device.state() == before, what="the status page agrees")
    wait_until(lambda: device.metric("edge_spool_works") == 1, what="the metrics agree")
    states = [state for state, _ in itertools.groupby(told(collector))]
    assert states[-2:] == [degraded, before]
    assert states.count(degraded) == 1, "told once"


HOUR_S = 3600
OFF = "clock of the camera is off, arrival is used stream=east off_s=-3600"
SOURCE = Path(__file__).parents[2] / "support" / "set_clock.cpp"


class SetClock:
    """What a process that is started under it takes for the time of day; its monotonic clock goes on."""

    def __init__(self, folder, monkeypatch):
        self._file, library = folder / "clock", folder / "set_clock.so"
        self.set(0)
        command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-o", library, SOURCE, "-ldl"]
        subprocess.run(command, check=True)
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("EDGE_TEST_CLOCK", str(self._file))

    def set(self, offset_s):
        self._file.with_suffix(".new").write_text(f"{offset_s}\n")
        self._file.with_suffix(".new").rename(self._file)


def offset_s(message):
    """How far a message's capture time is from now, in seconds."""
    captured = datetime.datetime.fromisoformat(message["captured_at"].replace("Z", "+00:00"))
    return captured.timestamp() - time.time()


def test_f40_the_clock_is_set_by_hours_and_every_frame_is_accounted_for(run, broker, subscribe, tmp_path, monkeypatch):
    require_gstreamer("rtspsrc", "avdec_h264", server=True)
    mount = RtspMount(str(write_clip(tmp_path / "a.h264", count=240, gop=15)), "h264")
    collector = subscribe(broker.port)
    with RtspServer({"/a": mount}) as camera:
        clock = SetClock(tmp_path, monkeypatch)
        path = run.write([{"id": "east", "uri": camera.url("/a"), "max_age_ms": 5000}], broker_port=broker.port)
        process = run.start(path)
        monkeypatch.delenv("LD_PRELOAD")
        for step_s in (0, HOUR_S, -HOUR_S):
            clock.set(step_s)
            known = len(collector.payloads("/detections"))
            wait_until(
                lambda known=known, step_s=step_s: [
                    one for one in collector.payloads("/detections")[known:] if abs(offset_s(one) - step_s) < 60
                ][20:],
                what=f"frames of a clock that is {step_s} s off",
            )
            if step_s == HOUR_S:
                wait_until(lambda: OFF in run.told(), what="the camera's next report")
        stats, told = run.stop(process)

    assert {one["state"] for one in collector.payloads("/streams/east/state")} == {"connecting", "up", "down"}
    assert [one["reason"] for one in collector.payloads("/streams/east/state") if one["state"] == "down"] == ["stopped"]
    assert collector.payloads("/gaps") == []
    assert collector.undeclared("east", max(collector.numbers()["east"])) == set()
    assert stats["balanced"]
    assert "stale" not in stats["streams"][0]["dropped"]
    assert told.count("clock of the camera is off") == 1


NETWORK = "see that the camera is on, and that this machine knows its name and reaches its port"
PASSWORD = "it wants a login: store the camera's user:password under the name of the stream's credential"


@pytest.mark.parametrize("decoder", ["software", "pyav"])
def test_each_dead_camera_is_named_once_with_its_address_and_what_to_do(run, tmp_path, decoder):
    require_gstreamer("rtspsrc", "rtph264depay", "avdec_h264", server=True)
    clip = str(write_clip(tmp_path / "a.h264", count=240, gop=15))
    locked = RtspServer({"/a": RtspMount(clip, "h264", login=("user", "secret"))})
    with locked, RtspServer({"/b": RtspMount(clip, "h264")}) as server:
        expected = {
            "refused": ("rtsp://127.0.0.1:9/a", NETWORK),
            "unknown-host": ("rtsp://no-such-host.invalid/a", NETWORK),
            "no-login": (locked.url("/a"), PASSWORD),
            "no-path": (server.url("/none"), "correct the path in the stream's address"),
        }
        streams = [{"id": name, "uri": address, "decoder": decoder} for name, (address, _) in expected.items()]
        if decoder == "software":
            expected["missing"] = ("/dev/video77", "see which cameras this machine has")
            streams.append({"id": "missing", "uri": "v4l2:///dev/video77"})
        process = run.start(run.write([*streams, {"id": "killed", "uri": server.url("/b"), "decoder": decoder}]))

        def lines(name):
            return [one for one in run.told().splitlines() if f" stream={name} " in one]

        wait_until(lambda: all(lines(name) for name in expected), what="a line for each camera")
        messages = tmp_path / "out.jsonl"
        wait_until(lambda: "edge.detections/1" in messages.read_text(), what="frames of the one that lives")
        server.kill()
        wait_until(lambda: lines("killed"), what="a line for the one that was killed")
        server.start()
        wait_until(lambda: len(lines("killed")) == 2, what="a line for its return")
        _, told = run.stop(process, expected=3)

    for name, (address, remedy) in expected.items():
        first, *others = lines(name)
        assert first.startswith("WARNING")
        assert f" stream down stream={name} address={address} " in first
        assert f"; {remedy}" in first
        assert not [one for one in others if one.startswith("WARNING")], others
    assert f" stream down stream=killed address={server.url('/b')} " in lines("killed")[0]
    assert "stream up stream=killed" in lines("killed")[1]
    assert "secret" not in told
