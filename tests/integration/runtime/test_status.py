"""A running service asked over HTTP while it works: its figures balance in every answer, and it ends in time."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http_client import ask, connect
from tests.support.ports import free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_the_figures_balance_in_every_answer_and_grow", reason="further services over real models"
)
STREAMS = ("east", "west")


@pytest.fixture
def service(run, clip, broker):
    """A service with two cameras and a broker: process, port and socket file."""
    port = free_port()
    east, west = ({"id": name, "uri": str(clip), "loop": True, "realtime": True} for name in STREAMS)
    path = run.write([{**east, "max_fps": 10}, west], broker_port=broker.port, http={"port": port})
    (run.folder / "run").mkdir()
    process = run.start(path, "--health", str(run.folder / "run/health.json"), "--log", "json")
    wait_until(lambda: is_ready(port), what="it is ready")
    return process, port, run.folder / "run/http.sock"


def is_ready(port):
    try:
        return ask(port, "/readyz")[0] == 200
    except OSError:
        return False


def figures(where):
    status, _, body = ask(where, "/metrics")
    assert status == 200
    return [sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples]


def total(samples, name, **labels):
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def assert_balanced(samples):
    for stream in STREAMS:
        decoded, flying, became = (
            total(samples, name, stream=stream)
            for name in ("edge_frames_decoded_total", "edge_frames_in_flight", "edge_frames_total")
        )
        assert decoded == became + flying
        assert 0 <= flying <= 20
    settled = sum(total(samples, f"edge_numbered_{name}") for name in ("acknowledged_total", "spooled", "in_gaps"))
    assert total(samples, "edge_numbered_total") == settled
    parts = sum(total(samples, f"edge_messages_{name}") for name in ("delivered_total", "dropped_total", "waiting"))
    assert total(samples, "edge_messages_accepted_total") == parts


def test_the_figures_balance_in_every_answer_and_grow(service):
    _process, port, socket_file = service
    seen = []

    def has_grown():
        samples = figures(port if len(seen) % 2 else socket_file)
        assert_balanced(samples)
        seen.append(total(samples, "edge_frames_total", outcome="inferred"))
        return seen[-1] > 100

    wait_until(has_grown, what="a hundred frames are inferred")
    assert seen == sorted(seen)
    assert total(figures(port), "edge_frames_total", stream="east", outcome="dropped_max_fps") > 0
    assert ask(port, "/livez")[0] == 200
    assert ask(port, "/")[0] == 404  # pictures are not for every user of the machine


def test_a_service_that_somebody_holds_on_to_ends_and_its_account_balances(service, run):
    process, port, _ = service
    held = [connect(port) for _ in range(100)]
    stats, told = run.stop(process)
    events = [json.loads(line)["event"] for line in told.splitlines()]
    assert {"engine-chosen", "stream-state", "broker"} <= set(events)
    for one in held:
        one.close()
    assert stats["balanced"]
