"""Brokers at the other end of a mobile network or a satellite: the window follows the round trip."""

import threading
import time

import pytest

from tests.support.delaying_proxy import DelayingProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("protocol", ["v5", "v3.1.1"])
@pytest.mark.parametrize("round_trip_s", [0.12, 0.3])
def test_a_far_broker_takes_as_much_as_a_near_one(make_broker, make_publisher, make_collector, protocol, round_trip_s):
    broker = make_broker(options=("max_inflight_messages 1000",)).start()
    collector = make_collector(broker.port)
    with DelayingProxy(broker.port, round_trip_s=round_trip_s) as proxy:
        publisher = make_publisher(proxy.port, protocol=protocol, live_s=60)
        for seq in range(1, 1501):
            publisher.publish(detections(seq))
        assert publisher.flush(15), "ten for each round trip would take 18 s and more"
        publisher.close()

    wait_until(lambda: len(collector.numbers()["east"]) == 1500, what="all of them")
    assert collector.numbers()["east"] == list(range(1, 1501))


def test_who_cannot_keep_up_says_so_and_keeps_live_messages_fresh(make_broker, make_publisher, make_collector, caplog):
    broker = make_broker(options=("max_inflight_messages 20",)).start()  # mosquitto's default: 66 a second from here
    collector = make_collector(broker.port)
    stop, last = threading.Event(), [0]

    def publish():
        while not stop.wait(0.005):
            last[0] += 1
            publisher.publish(detections(last[0]))

    with DelayingProxy(broker.port, round_trip_s=0.3) as proxy:
        publisher = make_publisher(proxy.port, live_s=0.5, lag_s=1.0)
        assert publisher.flush(10)
        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(
            lambda: any(state["state"] == "degraded" for state in collector.payloads("gate-01/state")),
            what="the state says that messages come late",
            timeout_s=30,
        )
        newest, since_s = last[0], time.monotonic()
        live = lambda: [one["seq"] for one in collector.payloads("/detections")]  # noqa: E731
        wait_until(lambda: live()[-1] >= newest, what="a live message that is newer", timeout_s=30)
        fresh_s = time.monotonic() - since_s
        stop.set()
        thread.join()
        (state,) = [state for state in collector.payloads("gate-01/state") if state["state"] == "degraded"]
        assert publisher.flush(60)
        wait_until(
            lambda: collector.payloads("gate-01/state")[-1]["state"] == "online",
            what="the state says that it has caught up",
            timeout_s=30,
        )
        publisher.close()

    assert fresh_s < 10
    assert "publishing" in state["reason"]
    assert "300" in state["reason"] or "round trip" in state["reason"]
    assert "cannot keep up" in caplog.text
    late = [one["seq"] for one in collector.payloads("/replay")]
    assert late == sorted(late)
    assert all(one["replayed"] for one in collector.payloads("/replay"))
    assert live() == sorted(live())
    assert not collector.undeclared("east", last[0])
