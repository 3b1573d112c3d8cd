"""What all devices of a real broker say of themselves."""

import pytest

from edge.config.schema import MqttConfig
from edge.deploy.rings.hearing import Hearing
from edge.errors import PublishError
from edge.publish.messages import DeployMessage, PullMessage, StateMessage
from tests.support.field_fleet import AT, FieldFleet
from tests.support.mosquitto import Mosquitto
from tests.support.ports import free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(reason="a broker and a registry, over processes")

FROM = "registry.example/farms/gates"


@pytest.fixture
def field(broker):
    return FieldFleet(broker.port, FROM)


def test_what_the_broker_has_kept_is_known_what_comes_is_heard_and_what_it_forgets_is_no_longer_there(
    field, hearing, broker
):
    field.there("gate-01", "gate-02", ring="canary")
    FieldFleet(broker.port, FROM, site="south").there("gate-01", ring="all")
    field.switched("gate-01", release="0123456789ab")
    hearing.wait_complete()

    switched = DeployMessage(
        device="gate-01", release="0123456789ab", from_=None, result="committed", reason=None, at=AT
    )
    known = {name: (one.ring, one.is_there, one.deploy) for name, one in hearing.devices(FROM, "stable").items()}
    assert known == {
        "north/gate-01": ("canary", True, switched),
        "north/gate-02": ("canary", True, None),
        "south/gate-01": ("all", True, None),
    }
    field.away("gate-02")
    field.looked("gate-01", ring="canary", result="refused", code="preflight.disk", reason="no room")
    wait_until(lambda: not hearing.heard()["north/gate-02"].is_there, what="gate-02 is away")
    wait_until(lambda: hearing.heard()["north/gate-01"].pull.result == "refused", what="the look is heard")
    pulled = hearing.heard()["north/gate-01"].pull
    assert (pulled.release, pulled.code, pulled.reason, pulled.at) == (None, "preflight.disk", "no room", AT)
    field.forgotten("gate-01")
    wait_until(lambda: [*hearing.devices(FROM, "stable")] == ["north/gate-02", "south/gate-01"], what="it is forgotten")


def test_devices_of_another_repository_or_channel_or_of_none_are_not_ours(field, hearing, broker):
    FieldFleet(broker.port, "registry.example/farms/barns").there("barn-01", ring="canary")
    FieldFleet(broker.port, FROM, channel="beta").there("beta-01", ring="canary")
    field.say([StateMessage(device="pushed-01", state="online", epoch=1, session=1, since=None)])
    field.say([PullMessage(device="former-01")])
    field.say([PullMessage(device="ringless-01", repository=FROM, channel="stable")])
    field.there("gate-01", ring="canary")
    hearing.wait_complete()

    assert list(hearing.devices(FROM, "stable")) == ["north/gate-01"]
    assert list(hearing.devices(FROM, "beta")) == ["north/beta-01"]


def test_who_speaks_for_another_device_is_not_believed(field, hearing, broker):
    field.there("gate-01", "gate-02", ring="canary")
    said = DeployMessage(device="gate-02", release="0123456789ab", from_=None, result="failed", reason=None, at=AT)
    field._send([("edge/v1/north/gate-01/deploy", said.encode()), ("edge/v1/north/gate-02/pull", b"{nonsense")])
    hearing.wait_complete()

    assert {one.deploy for one in hearing.devices(FROM, "stable").values()} == {None}


@pytest.mark.parametrize("number", [1, 900], ids=["earlier", "of a board that was replaced"])
def test_the_late_will_of_a_connection_that_was_replaced_does_not_count(field, hearing, number):
    field.there("gate-01", ring="canary")
    field.back("gate-01")  # its second session
    hearing.wait_complete()
    field.say(
        [StateMessage(device="gate-01", state="offline", epoch=number, session=number, since=None, reason="late")]
    )
    field.there("gate-02", ring="canary")
    wait_until(lambda: len(hearing.devices(FROM, "stable")) == 2, what="what came later is heard")

    assert hearing.heard()["north/gate-01"].is_there


def test_nothing_is_taken_for_complete_while_the_broker_is_away(field, hearing, broker):
    field.there("gate-01", ring="canary")
    hearing.wait_complete()
    broker.kill()
    wait_until(lambda: not hearing.is_complete, what="the loss is seen")
    broker.start()  # without its memory
    field.there("gate-02", ring="canary")
    wait_until(lambda: hearing.is_complete, what="it is heard again")

    assert list(hearing.devices(FROM, "stable")) == ["north/gate-02"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_has_ended_is_not_taken_for_a_quiet_broker(field, mqtt, broker):
    def say(text):
        if text.startswith("connected"):
            raise BrokenPipeError  # whoever read stderr has gone

    field.there("gate-01", ring="canary")
    with Hearing(mqtt, credential=None, base_dir=None, say=say) as hearing:
        hearing.wait_complete()
        broker.kill()
        broker.start()
        wait_until(lambda: not hearing._thread.is_alive(), what="the listener ends")
        with pytest.raises(PublishError, match="listening to the broker has ended"):
            hearing.wait_complete()


def test_a_reason_of_any_length_is_heard_as_a_line(field, hearing):
    field.there("gate-01", ring="canary")
    field.switched("gate-01", release="0123456789ab", result="rolled-back", reason="x" * 1_000_000)
    field.looked("gate-01", ring="canary", result="refused", code="y" * 1_000, reason="z" * 1_000)
    hearing.wait_complete()

    (one,) = hearing.devices(FROM, "stable").values()
    assert one.deploy.reason == "x" * 200
    assert (one.pull.code, one.pull.reason) == ("y" * 200, "z" * 200)


def test_two_thousand_devices_are_all_heard_from_a_broker_as_it_is_shipped(tmp_path):
    # mosquitto keeps 1000 messages waiting for a client unless told otherwise.
    with Mosquitto(tmp_path / "usual", options=("max_queued_messages 1000",), is_verbose=False) as usual:
        field = FieldFleet(usual.port, FROM)
        names = [f"gate-{number:04d}" for number in range(2000)]
        field.there(*names, ring="canary")
        field.switched(*names, release="0123456789ab")
        mqtt = MqttConfig(host=usual.host, port=usual.port, site="north", tls=False)
        with Hearing(mqtt, credential=None, base_dir=None) as hearing:
            hearing.wait_complete()
            found = hearing.devices(FROM, "stable")

    assert list(found) == [f"north/{name}" for name in names]
    assert all(one.is_there and one.deploy is not None for one in found.values())


def test_a_broker_that_is_not_there_is_told():
    mqtt = MqttConfig(host="127.0.0.1", port=free_port(), site="north", tls=False)
    with pytest.raises(PublishError, match="nothing listens"):
        Hearing(mqtt, credential=None, base_dir=None).__enter__()
