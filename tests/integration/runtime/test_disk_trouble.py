"""A running service whose disk fails: retained state, status page and metrics say so, and when it is over."""

import contextlib
import itertools
import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clips import write_clip
from tests.support.collector import Collector
from tests.support.http_client import ask
from tests.support.mosquitto import Mosquitto
from tests.support.own_disk import OwnDisk
from tests.support.runs import Run
from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="further services over real models")]
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
