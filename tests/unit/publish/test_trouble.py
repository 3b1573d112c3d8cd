import socket
import ssl

import pytest

from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.trouble import (
    V5,
    V311,
    BrokerBackoff,
    ProtocolChoice,
    Trouble,
    trouble_from_error,
    trouble_from_reason,
)

PLAIN = Endpoint(host="broker.example", port=1883, client_id="edge-gate-01")
TLS = Endpoint(host="broker.example", port=8883, client_id="edge-gate-01", tls=ssl.create_default_context())


def highest(low, high):
    return high


def unverified(code, message):
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message, error.reason = code, message, "CERTIFICATE_VERIFY_FAILED"
    return error


@pytest.mark.parametrize(
    ("error", "endpoint", "kind", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), PLAIN, Trouble.UNREACHABLE, "broker.example"),
        (ConnectionRefusedError(111, "Connection refused"), PLAIN, Trouble.UNREACHABLE, "is the broker running"),
        (TimeoutError(), PLAIN, Trouble.UNREACHABLE, "no answer"),
        (ConnectionResetError(104, "reset"), TLS, Trouble.TLS, "(`tls: false`; listen --no-tls)"),
        (ValueError("Invalid host."), PLAIN, Trouble.REFUSED, "correct mqtt.host"),
        (OSError(113, "No route to host"), PLAIN, Trouble.UNREACHABLE, "No route to host"),
        (unverified(10, "certificate has expired"), TLS, Trouble.TLS, "set this machine's clock"),
        (unverified(20, "unable to get local issuer certificate"), TLS, Trouble.TLS, "(mqtt.tls.ca; --ca)"),
    ],
)
def test_an_error_says_what_to_do(error, endpoint, kind, words):
    trouble = trouble_from_error(error, endpoint)

    assert trouble.kind is kind
    assert words in str(trouble)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (0x84, Trouble.VERSION),
        (0x86, Trouble.REFUSED),
        (0x87, Trouble.REFUSED),
        (0x88, Trouble.LOST),
        (0x8E, Trouble.TAKEN_OVER),
        (0x9A, Trouble.NO_RETAIN),
        (0x9C, Trouble.LOST),
    ],
)
def test_a_reason_code_has_a_kind(reason, kind):
    assert trouble_from_reason(reason, "name").kind is kind


@pytest.mark.parametrize("reason", [0x86, 0x87])
def test_a_refused_login_says_that_the_password_may_be_wrong(reason):
    trouble = trouble_from_reason(reason, "name", is_login=True)

    assert trouble.kind is Trouble.REFUSED
    assert "user name or password (mqtt.credential; listen --credential) may be wrong" in str(trouble)


def test_without_a_login_a_refusal_asks_for_a_user():
    assert "the broker wants a user (mqtt.credential; listen --credential)" in str(trouble_from_reason(0x87, "name"))


def test_waits_double_up_to_half_a_minute():
    backoff = BrokerBackoff(uniform=highest)
    waits = [backoff.delay_s(Trouble.LOST, lived_s=0, now_s=0) for _ in range(8)]

    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_waits_are_spread_over_the_whole_range():
    backoff = BrokerBackoff(uniform=lambda low, high: low)

    assert {backoff.delay_s(Trouble.LOST, lived_s=0, now_s=0) for _ in range(8)} == {0.5}


def test_a_connection_that_held_ends_the_series():
    backoff = BrokerBackoff(uniform=highest)
    for _ in range(6):
        backoff.delay_s(Trouble.LOST, lived_s=0, now_s=0)

    assert backoff.delay_s(Trouble.LOST, lived_s=20, now_s=0) == 30, "a short life must not end it"
    assert backoff.delay_s(Trouble.LOST, lived_s=60, now_s=0) == 1


@pytest.mark.parametrize("kind", [Trouble.SILENT, Trouble.UNANSWERED])
def test_who_says_nothing_is_asked_again_soon_however_often_that_was(kind):
    backoff = BrokerBackoff(uniform=highest)

    assert [backoff.delay_s(kind, lived_s=0, now_s=0) for _ in range(5)] == [1, 2, 4, 4, 4]


@pytest.mark.parametrize(("uniform", "wait_s"), [(lambda low, high: low, 1), (highest, 2)], ids=["least", "most"])
def test_one_that_cannot_be_reached_is_asked_every_other_second_and_then_not_waited_for_longer(uniform, wait_s):
    backoff = BrokerBackoff(uniform=uniform)

    assert {backoff.delay_s(Trouble.UNREACHABLE, lived_s=0, now_s=0) for _ in range(100)} == {wait_s}
    assert backoff.delay_s(Trouble.LOST, lived_s=1, now_s=0) <= 1


ASKED_OTHERWISE = [Trouble.VERSION, Trouble.NO_RETAIN, Trouble.NO_QOS_1]


@pytest.mark.parametrize("kind", ASKED_OTHERWISE)
def test_what_can_be_asked_for_in_another_way_is_at_once(kind):
    assert BrokerBackoff().delay_s(kind, lived_s=0, now_s=0, is_adapted=True) == 0


@pytest.mark.parametrize("kind", [Trouble.REFUSED, *ASKED_OTHERWISE])
def test_a_refusal_is_tried_soon_then_each_five_minutes_and_soon_again_once_it_is_over(kind):
    backoff = BrokerBackoff(uniform=lambda low, high: (low + high) / 2)

    def refused(times):
        return [backoff.delay_s(kind, lived_s=0, now_s=0) for _ in range(times)]

    assert refused(7) == [15, 30, 60, 120, 240, 300, 300]
    backoff.delay_s(Trouble.LOST, lived_s=60, now_s=0)
    assert refused(2) == [15, 30]


@pytest.mark.parametrize("kind", [kind for kind in Trouble if kind not in ASKED_OTHERWISE])
def test_no_other_end_of_a_connection_is_without_a_pause(kind):
    assert BrokerBackoff(uniform=lambda low, high: low).delay_s(kind, lived_s=0, now_s=0, is_adapted=True) >= 0.5


def test_the_second_takeover_within_a_minute_waits_for_a_person():
    backoff = BrokerBackoff()

    assert backoff.delay_s(Trouble.TAKEN_OVER, lived_s=9, now_s=0) <= 1
    assert backoff.delay_s(Trouble.TAKEN_OVER, lived_s=9, now_s=61) <= 2
    assert backoff.delay_s(Trouble.TAKEN_OVER, lived_s=9, now_s=100) >= 270


def test_a_broker_without_v5_is_believed():
    choice = ProtocolChoice("auto")
    choice.failed(Trouble.VERSION)
    choice.accepted()
    for _ in range(5):
        choice.failed(Trouble.CLOSED)
        assert choice.version == V311


def test_a_broker_that_closes_twice_is_asked_in_turns():
    choice = ProtocolChoice("auto")
    versions = []
    for _ in range(6):
        versions.append(choice.version)
        choice.failed(Trouble.CLOSED)

    assert versions == [V5, V5, V311, V311, V5, V5]


def test_a_broker_that_has_accepted_v5_is_only_restarting():
    choice = ProtocolChoice("auto")
    choice.accepted()
    for _ in range(5):
        choice.failed(Trouble.CLOSED)

    assert choice.version == V5


@pytest.mark.parametrize(("protocol", "version"), [("v5", V5), ("v3.1.1", V311)])
def test_a_stated_version_stays(protocol, version):
    choice = ProtocolChoice(protocol)
    choice.failed(Trouble.VERSION)

    assert choice.version == version
