"""Signs of life, of a real service with a real engine, heard on a real socket in the place of systemd."""

import subprocess
import sys
import threading

import pytest

from edge.device.health import read_health
from edge.device.layout import Layout
from edge.device.units import Notifier
from edge.engine.openvino.engine import OpenVinoEngine
from edge.errors import ConfigError, SourceError
from edge.media.camera import Camera
from edge.media.probe import CameraBackoff
from edge.runtime.serve import serve
from edge.runtime.serve.serve import Heartbeat, health_path
from edge.runtime.serve.service import Service
from edge.types import StreamId
from tests.support.logged import logged
from tests.support.service_parts import PICTURE, Breakage, RecordedSource, Stall, live, parts_of, recorded
from tests.support.systemd import NotifySocket
from tests.support.wait import wait_until

WATCHDOG_S = 0.3


class WedgedEngine:
    """A real engine whose call does not return any more once `wedged` is set, until `freed` is."""

    def __init__(self, engine):
        self._engine = engine
        self.wedged, self.freed, self.is_stuck = threading.Event(), threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def wait(self, index):
        if self.wedged.is_set():
            self.is_stuck.set()
            assert self.freed.wait(60)
        return self._engine.wait(index)


class HangingSource(RecordedSource):
    """Gives three frames; its `where` does not return until it is let go."""

    def __init__(self, where, spec):
        super().__init__(StreamId("east"), [*[PICTURE] * 3, Stall(float("inf"))], preprocess=spec.preprocess)
        self.hangs, self.let_go = threading.Event(), threading.Event()
        self._where = where
        self._reads = 0

    def open(self):
        self._hang("open")
        super().open()

    def read(self, timeout_s):
        self._reads += 1
        if self._reads > 3:
            self._hang("read")
        if self._where == "close" and self._reads > 3:
            raise SourceError("it broke")
        return super().read(timeout_s)

    def close(self):
        self._hang("close")
        super().close()

    def _hang(self, where):
        if where == self._where:
            self.hangs.set()
            assert self.let_go.wait(60)


class Running:
    """A service with one stream, and others where they are given, in a thread, and what it says."""

    def __init__(self, spec, folder, make_source, *, release="", hanging_s=20, others=()):
        self.engine = WedgedEngine(OpenVinoEngine(spec, max_batch=1, threads=1))
        self.parts = parts_of(spec, self.engine, [make_source, *others], folder / "out.jsonl")
        self.source = self.parts.sources[0]
        self.systemd = NotifySocket(folder / "notify", watchdog_s=WATCHDOG_S)
        self.health = folder / "run/health.json"
        self.health.parent.mkdir()
        self.heartbeat = Heartbeat(Notifier(self.systemd.environ), path=self.health, release=release)
        self.ticks = 0
        self._stop = threading.Event()
        self._service = Service(self.parts, hanging_s=hanging_s)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self.engine.freed.set()
        self._stop.set()
        self._thread.join(60)
        self.systemd.close()

    def beats(self):
        return self.systemd.count("WATCHDOG=1")

    def _run(self):
        self.heartbeat.ready()
        self._service.run(self._stop, on_tick=self._tick, tick_s=self.heartbeat.every_s)
        self.heartbeat.stopping()

    def _tick(self, report):
        self.heartbeat.tick(report)
        self.ticks += 1


def endless(spec):
    return lambda on_status: camera(lambda: live(spec, "east", fps=50), on_status)


def camera(make_source, on_status):
    return Camera(
        StreamId("east"),
        make_source,
        is_live=True,
        is_endless=True,
        stall_s=30,
        backoff=CameraBackoff(),
        on_status=on_status,
    )


def silent_after_one_frame(spec):
    images = [PICTURE, Stall(float("inf"))]
    return lambda on_status: camera(lambda: recorded(spec, "east", images, fps=50, is_live=True), on_status)


def away(spec):
    gone = [Breakage(SourceError("no route to the camera"))]
    return lambda on_status: camera(lambda: recorded(spec, "east", gone, is_live=True), on_status)


def test_f27_a_wedged_engine_call_starves_the_watchdog_and_nothing_else_feeds_it(spec, tmp_path):
    with Running(spec, tmp_path, endless(spec)) as running:
        wait_until(lambda: running.beats() >= 3, what="the watchdog is fed while batches complete")
        running.engine.wedged.set()
        assert running.engine.is_stuck.wait(15)
        before, ticks = running.beats(), running.ticks

        wait_until(lambda: running.ticks >= ticks + 10, what="the service's own thread goes on ticking")

        # Ten ticks are three times the watchdog's time. One beat may have been on its way.
        assert running.beats() <= before + 1


def test_f28_all_cameras_down_keep_the_watchdog_fed(spec, tmp_path):
    with Running(spec, tmp_path, away(spec)) as running:
        wait_until(lambda: running.beats() >= 10, what="ten beats without a single frame")

        health = read_health(running.health)
        assert health.batches == 0
        assert health.streams["east"].state == "down"


def test_a_camera_that_is_silent_for_longer_than_the_watchdog_waits_keeps_it_fed(spec, tmp_path):
    with Running(spec, tmp_path, silent_after_one_frame(spec)) as running:
        wait_until(lambda: running.parts.counters.of_stream(StreamId("east")).inferred == 1, what="the only frame")
        before = running.beats()

        wait_until(lambda: running.beats() > before + 10, what="ten beats in silence")


@pytest.mark.parametrize("where", ["open", "read", "close"])
def test_a_thread_that_hangs_in_a_camera_starves_the_watchdog_by_name(spec, tmp_path, caplog, where):
    source = HangingSource(where, spec)
    with Running(spec, tmp_path, lambda on_status: source, hanging_s=0.2) as running:
        assert source.hangs.wait(15)
        wait_until(lambda: "names=pull-east" in caplog.text, what="it is named")
        before, ticks = running.beats(), running.ticks
        wait_until(lambda: running.ticks >= ticks + 10, what="the service's own thread goes on ticking")
        after = running.beats()
        source.let_go.set()

    assert after <= before + 1  # ten ticks are three times the watchdog's time; one beat may have been on its way


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "beside another"])
def test_a_camera_whose_teardown_hangs_has_the_service_restarted_only_where_it_is_alone(
    spec, tmp_path, caplog, monkeypatch, is_alone
):
    monkeypatch.setattr("edge.media.camera.TEARDOWN_S", 0.05)
    released = threading.Event()

    class Hanging(RecordedSource):
        def close(self):
            assert released.wait(60)

    def broken():
        return Hanging(StreamId("east"), [Breakage(SourceError("gone"))], preprocess=spec.preprocess, is_live=True)

    others = [] if is_alone else [live(spec, "west", fps=50)]
    with Running(spec, tmp_path, lambda on_status: camera(broken, on_status), others=others) as running:
        wait_until(lambda: running.source.is_left_out, what="two that hang")
        wait_until(lambda: running.ticks > 3, what="a look")
        before, ticks = running.beats(), running.ticks
        wait_until(lambda: running.ticks >= ticks + 10, what="the service's own thread goes on ticking")
        after = running.beats()
        released.set()

    assert ("names=teardown east" in caplog.text) == is_alone
    assert (after <= before + 1) == is_alone


def test_each_trouble_with_the_health_file_is_logged_once(spec, tmp_path, caplog):
    def warnings():
        return logged(caplog).count("health-not-written")

    with Running(spec, tmp_path, endless(spec)) as running:
        for times in (1, 2):
            running.health.parent.rename(tmp_path / f"away-{times}")
            wait_until(lambda times=times: warnings() == times, what="a warning")
            ticks = running.ticks
            wait_until(lambda ticks=ticks: running.ticks > ticks + 2, what="further tries")
            running.health.parent.mkdir()
            wait_until(running.health.is_file, what="the file is written again")

    assert warnings() == 2


def test_health_grows_with_what_was_inferred(spec, tmp_path):
    with Running(spec, tmp_path, endless(spec), release="abc") as running:
        wait_until(lambda: running.health.exists(), what="the file is there")
        first = read_health(running.health)
        wait_until(lambda: read_health(running.health).batches > first.batches + 3, what="more batches")

        health = read_health(running.health)
        assert (health.release, health.is_ready, health.mqtt_connected) == ("abc", True, None)
        assert health.at_boottime_ns > first.at_boottime_ns
        assert health.streams["east"].inferred > first.streams["east"].inferred
        assert 0 < health.infer_p95_ms <= health.age_p95_ms
        assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


def test_ready_comes_first_and_stopping_last(spec, tmp_path):
    with Running(spec, tmp_path, endless(spec)) as running:
        wait_until(lambda: running.beats() >= 1, what="a beat")
        lines = running.systemd.lines
    wait_until(lambda: "STOPPING=1" in lines, what="stopping")

    assert lines[0] == "READY=1"
    assert lines[-2:] == ["STOPPING=1", "STATUS=stopping"]
    assert any(line.startswith("STATUS=1/1 streams, ") for line in lines)


def test_where_the_health_file_goes(tmp_path, monkeypatch):
    layout = Layout(tmp_path)
    layout.health.parent.mkdir(parents=True)
    monkeypatch.setattr(serve, "Layout", lambda: layout)

    assert health_path(tmp_path / "x.json", {"RUNTIME_DIRECTORY": "/run/a"}) == tmp_path / "x.json"
    assert str(health_path(None, {"RUNTIME_DIRECTORY": "/run/a:/run/b"})) == "/run/a/health.json"
    assert health_path(None, {}) is None  # the folder of the device's service is not that of a run by hand


def test_a_run_by_hand_of_root_is_refused_beside_the_service_and_holds_nothing(tmp_path, monkeypatch):
    layout = Layout(tmp_path)
    layout.health.parent.mkdir(parents=True)
    monkeypatch.setattr(serve, "Layout", lambda: layout)
    for name in ("RUNTIME_DIRECTORY", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    hold = f"import sys, fcntl; f = open({str(layout.health.parent / '.edge-runtime.lock')!r}, 'r+'); "
    hold += "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print(1, flush=True); sys.stdin.read()"

    with serve.alone():
        other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdout.readline() == b"1\n"
    with pytest.raises(ConfigError, match="another edge-runtime"), serve.alone():
        pass
    other.communicate()
