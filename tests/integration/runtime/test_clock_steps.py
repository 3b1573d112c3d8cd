"""F-40: the time of day is set, hours forward and back, while a camera is read: a real service whose clock is ours."""

import datetime
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.clips import write_clip
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="further services over real models")]
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
