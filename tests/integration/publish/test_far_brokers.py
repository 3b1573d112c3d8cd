"""Brokers at the other end of a mobile network or a satellite: the window follows the round trip."""

import threading
import time

import pytest

from tests.support.tcp_proxy import DelayingProxy
from tests.support.wait import QuietWatch, wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow(reason="a broker a second away, by the clock")


@pytest.mark.parametrize("protocol", ["v5", "v3.1.1"])
@pytest.mark.parametrize("round_trip_s", [0.12, 0.3])
def test_a_far_broker_takes_as_much_as_a_near_one(make_broker, make_publisher, make_collector, protocol, round_trip_s):
    broker = make_broker(options=("max_inflight_messages 1000",)).start()
    collector = make_collector(broker.port)
    with DelayingProxy(broker.port, round_trip_s=round_trip_s) as proxy:
        publisher = make_publisher(proxy.port, protocol=protocol, live_s=60)
        publish_frames(publisher, range(1, 1501))
        watch = QuietWatch()
        assert publisher.flush(60)
        assert watch.seconds() < 15, "ten for each round trip would take 18 s and more"
        largest = publisher.counts()["largest_window"]
        publisher.close()

    wait_until(lambda: len(collector.numbers()["east"]) == 1500, what="all of them")
    assert collector.numbers()["east"] == list(range(1, 1501))
    assert largest > 100


def test_who_cannot_keep_up_says_so_and_keeps_live_messages_fresh(
    make_broker, connected, make_collector, caplog, monkeypatch
):
    monkeypatch.setattr("edge.publish.mqtt.window._LOOK_S", 0.5)
    broker = make_broker(options=("max_inflight_messages 20",)).start()  # mosquitto's default: 66 a second from here
    collector = make_collector(broker.port)
    stop, last = threading.Event(), [0]

    def publish():
        began_s = time.monotonic()
        while not stop.wait(0.005):
            while last[0] < 200 * (time.monotonic() - began_s):
                last[0] += 1
                publisher.publish(detections(last[0]))

    with DelayingProxy(broker.port, round_trip_s=0.3) as proxy:
        publisher = connected(proxy.port, live_s=0.5)
        thread = threading.Thread(target=publish)
        thread.start()
        wait_until(
            lambda: any(state["state"] == "degraded" for state in collector.payloads("gate-01/state")),
            what="the state says that messages come late",
        )
        newest, watch = last[0], QuietWatch()
        live = lambda: [one["seq"] for one in collector.payloads("/detections")]  # noqa: E731
        wait_until(lambda: live()[-1] >= newest, what="a live message that is newer")
        fresh_s, overtaken = watch.seconds(), collector.undeclared("east", newest)
        stop.set()
        thread.join()
        (state,) = [state for state in collector.payloads("gate-01/state") if state["state"] == "degraded"]
        assert publisher.flush(60)
        wait_until(
            lambda: collector.payloads("gate-01/state")[-1]["state"] == "online",
            what="the state says that it has caught up",
        )
        publisher.close()

    assert fresh_s < 10
    assert overtaken, "a live message does not wait for those before it"
    assert "publishing" in state["reason"]
    assert "300" in state["reason"] or "round trip" in state["reason"]
    assert "cannot keep up" in caplog.text
    late = [one["seq"] for one in collector.payloads("/replay")]
    assert late == sorted(late)
    assert all(one["replayed"] for one in collector.payloads("/replay"))
    assert live() == sorted(live())
    assert not collector.undeclared("east", last[0])
