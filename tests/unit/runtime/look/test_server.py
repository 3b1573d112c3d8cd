"""Health over HTTP: before the first account, while it runs, and when the loop is stuck."""

import dataclasses
import threading

import numpy as np
import pytest

from edge.config.schema import HttpConfig
from edge.device.sensors import Sensors
from edge.publish.message import ModelInfo
from edge.publish.messages import InfoMessage
from edge.runtime.look import server as looking
from edge.runtime.look.pictures import Pictures
from edge.runtime.look.server import HeatWatch, Shown, StatusServer
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.rows import Batch, Row
from edge.runtime.serve.streams import StreamStates
from edge.types import ImageSize, Letterbox
from tests.support.http_client import ask
from tests.support.service_parts import FIRST, UP, Kept, account
from tests.support.values import detections, header, result
from tests.support.wait import wait_until

SQUARE = ImageSize(width=64, height=64)
WHOLE = Letterbox(source=SQUARE, fitted=SQUARE, canvas=SQUARE, pad_left=0, pad_top=0)


@pytest.fixture
def served(tmp_path):
    """A status server that has not heard of a run yet, its states, and where it answers."""
    states = StreamStates([FIRST], Kept(), device="dev")
    info = InfoMessage(
        device="dev",
        software="edge-deploy 0",
        epoch=1,
        started_at="2026-11-20T10:15:02.113402Z",
        model=ModelInfo(name="m", precision="fp32"),
        labels=[],
        streams=["s0"],
    )
    shown = Shown(info=info, counters=FrameCounters(), states=states, pictures=Pictures(labels=[]))
    path = tmp_path / "http.sock"
    heat = HeatWatch(states.alarm, read=Sensors, every_s=60)
    server = StatusServer(shown, HttpConfig(), socket_path=path, heat=heat)
    server.start()
    wait_until(path.exists, what="it listens")
    yield server, states, path
    server.close()


def test_it_is_not_ready_before_the_engine_has_run(served):
    server, _, path = served
    assert ask(path, "/readyz")[0] == ask(path, "/status.json")[0] == 503
    server.tick(account((UP, 0, 0)))
    assert ask(path, "/readyz")[::2] == (200, b"ready\n")
    assert ask(path, "/status.json")[0] == 200


def test_a_camera_that_is_away_is_told_and_is_no_reason_to_start_again(served):
    server, states, path = served
    states.fail(FIRST, "gone")
    server.tick(account((UP, 0, 0)))
    assert ask(path, "/readyz")[::2] == (200, b"degraded: down: s0\n")


def test_it_is_alive_as_long_as_the_loop_turns(served, monkeypatch):
    server, _, path = served
    server.tick(account((UP, 0, 0)))
    assert ask(path, "/livez")[0] == 200
    monkeypatch.setattr(looking, "_STUCK_S", 0.0)
    server.tick(account((UP, 0, 0)))  # it has not turned since
    assert ask(path, "/livez")[0] == 503


def test_the_first_question_gets_a_picture_of_the_next_frame(served):
    server, states, path = served
    states.change(dataclasses.replace(states.statuses()[FIRST], state=UP))
    row = Row(header=header("s0", size=SQUARE), letterbox=WHOLE)
    over = threading.Event()

    def infer():
        while not over.wait(0.05):
            for _ in server._shown.pictures.wants(Batch(index=0, rows=(row,), closed_at_ns=0)):
                server._shown.pictures.see(row, np.zeros((64, 64, 3), np.uint8), result(row.header, detections()))

    loop = threading.Thread(target=infer)
    loop.start()
    status, _, body = ask(path, "/pictures/s0.jpg")
    over.set()
    loop.join()
    assert (status, body[:3]) == (200, b"\xff\xd8\xff")


def test_a_camera_without_frames_has_no_picture_and_is_not_waited_for(served):
    server, states, path = served
    states.fail(FIRST, "gone")
    asked = []
    server._shown.pictures.ask = asked.append
    status, headers, _ = ask(path, "/pictures/s0.jpg")
    assert (status, headers["retry-after"], asked) == (503, "1", [FIRST])


PATHS = ["/metrics", "/livez", "/readyz", "/", "/status.json", "/pictures/STREAM.jpg"]


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/pictures/b.jpg", ["s0"]),
        ("/pictures/..%2f..jpg", PATHS),
        ("/pictures/s0.jpg/x", PATHS),
        ("/pictures/", PATHS),
        ("/x", PATHS),
    ],
)
def test_what_is_not_there_is_not_found_and_the_answer_names_what_is(served, path, there):
    server, _, where = served
    server.tick(account((UP, 0, 0)))
    status, _, body = ask(where, path)
    assert (status, body.decode().strip().partition(" there are ")[2].split(", ")) == (404, there)
