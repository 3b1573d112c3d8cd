"""Health over HTTP: before the first account, while it runs, and when the loop is stuck."""

import pytest

from edge.config.schema import HttpConfig
from edge.device.sensors import Sensors
from edge.publish.message import ModelInfo
from edge.publish.messages import InfoMessage
from edge.runtime.look import server as looking
from edge.runtime.look.pictures import Pictures
from edge.runtime.look.server import HeatWatch, Shown, StatusServer
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.serve.streams import StreamStates
from tests.support.accounts import FIRST, UP, account
from tests.support.http_client import ask
from tests.support.kept import Kept
from tests.support.wait import wait_until


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


@pytest.mark.parametrize("path", ["/pictures/b.jpg", "/pictures/..%2f..jpg", "/pictures/s0.jpg/x", "/pictures/", "/x"])
def test_what_is_not_there_is_not_found(served, path):
    server, _, where = served
    server.tick(account((UP, 0, 0)))
    assert ask(where, path)[0] == 404
