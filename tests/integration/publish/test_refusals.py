"""Brokers that say no: to the password, the certificate, the version, the message, or to too much at once."""

import logging
import shutil

import pytest

from edge.config.credentials import Credential, read_credential
from edge.config.schema import TlsConfig
from tests.integration.publish.conftest import quick_backoff
from tests.support.logged import logged
from tests.support.manifests import make_certificates
from tests.support.wait import next_try_s, wait_connected, wait_until
from tests.support.wire_messages import detections, publish_frames

pytestmark = pytest.mark.slow_but(reason="further brokers, cuts and disks: the first row of each test is quick")

SECRET = "canary-7c1f9a"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"), host="localhost")


@pytest.fixture
def tls_broker(make_broker, certificates):
    return make_broker(tls=certificates).start()


def expect(publisher, *words):
    wait_until(lambda: all(word in publisher.status for word in words), what=f"{words}, not {publisher.status}")
    assert not publisher.is_connected


def test_tls_with_the_right_authority_works(tls_broker, certificates, make_publisher):
    publisher = make_publisher(tls_broker.port, host="localhost", tls=TlsConfig(ca=str(certificates.ca)))
    publish_frames(publisher, range(1, 301), count=20)

    assert publisher.flush(60)
    assert "TLS" in publisher.status


def test_a_wrong_authority_is_refused_by_us(tls_broker, tmp_path, make_publisher):
    other = make_certificates(tmp_path / "other", authority="another")
    publisher = make_publisher(tls_broker.port, host="localhost", tls=TlsConfig(ca=str(other.ca)))

    expect(publisher, "mqtt.tls.ca")


def test_files_that_are_put_right_are_used_without_a_restart(
    make_broker, certificates, tmp_path, make_publisher, monkeypatch, caplog
):
    broker = make_broker(tls=certificates, users={"gate": "right"}).start()
    ca, login = tmp_path / "ca.pem", tmp_path / "broker"
    login.write_text("gate:wrong\n")
    login.chmod(0o600)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    other = make_certificates(tmp_path / "other", authority="another")
    shutil.copy(other.ca, ca)
    publisher = make_publisher(
        broker.port,
        host="localhost",
        tls=TlsConfig(ca=str(ca)),
        credential=lambda: read_credential("broker"),
        backoff=quick_backoff(refused_s=0.2),
    )
    expect(publisher, "mqtt.tls.ca")
    ca.write_text("half of it")
    wait_until(lambda: "login and certificates stay as they were" in caplog.text, what="the unusable file is told")
    assert str(ca) in caplog.text
    shutil.copy(certificates.ca, ca)
    expect(publisher, "mqtt.credential")
    login.write_text("gate:right\n")

    wait_connected(publisher)
    assert caplog.text.count("login and certificates stay as they were") == 1


def test_an_authority_unknown_to_the_system_is_refused_by_us(tls_broker, make_publisher):
    expect(make_publisher(tls_broker.port, host="localhost", tls=True), "certificate is not accepted")


def test_a_wrong_host_name_is_refused_by_us(tls_broker, certificates, make_publisher):
    publisher = make_publisher(tls_broker.port, host="127.0.0.1", tls=TlsConfig(ca=str(certificates.ca)))

    expect(publisher, "127.0.0.1", "mqtt.host")


def test_plain_text_to_a_tls_port_says_so(tls_broker, make_publisher):
    expect(make_publisher(tls_broker.port), "closed the connection at CONNECT", "remove `tls: false`")


def test_a_broker_that_keeps_nothing_and_has_no_word_for_it_is_told_of_with_what_helps(make_broker, make_publisher):
    """MQTT v3.1.1 does not know why mosquitto closes the connection; what is named as the way out is one."""
    broker = make_broker(options=("retain_available false",)).start()

    expect(make_publisher(broker.port, protocol="v3.1.1"), "retain_available", "`protocol: auto`")

    other = make_publisher(broker.port, protocol="auto", client_id="other")
    other.publish(detections(1))
    assert other.flush(60)


def test_tls_to_a_plain_port_says_so(broker, make_publisher):
    expect(make_publisher(broker.port, tls=True), "TLS handshake failed", "tls: false")


def test_an_unknown_host_is_named(make_publisher):
    expect(make_publisher(1883, host="no-such-broker.invalid"), "no such host name", "no-such-broker.invalid")


@pytest.mark.parametrize("host", ["", "a..b", "x" * 64 + ".local", ".local"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_host_that_cannot_be_looked_up_is_named_without_a_traceback(make_publisher, caplog, host, tls):
    publisher = make_publisher(1883, host=host, tls=tls)

    expect(publisher, "mqtt.host", repr(host))
    assert "Traceback" not in caplog.text
    assert "was not understood" not in caplog.text


@pytest.mark.parametrize("protocol", ["v5", "v3.1.1"])
def test_a_wrong_password_is_named_as_a_possible_cause(make_broker, make_publisher, protocol):
    broker = make_broker(users={"gate": "right"}).start()
    publisher = make_publisher(broker.port, protocol=protocol, credential=Credential(user="gate", password=SECRET))

    expect(publisher, "user name or password (mqtt.credential; listen --credential) may be wrong")


def test_f33_a_wrong_password_is_told_once_and_not_tried_at_once(make_broker, make_publisher, caplog):
    caplog.set_level(logging.DEBUG)
    broker = make_broker(users={"gate": "right"}).start()
    wrong = Credential(user="gate", password=SECRET)
    publisher = make_publisher(broker.port, credential=wrong)

    expect(publisher, "mqtt.credential")
    publisher.publish(detections(1))
    assert next_try_s(publisher) > 10
    assert broker.log().count("New client connected") == 0
    assert caplog.text.count("mqtt.credential") == 1


def test_a_missing_user_is_told(make_broker, make_publisher):
    broker = make_broker(users={"gate": "right"}).start()

    expect(make_publisher(broker.port), "(mqtt.credential; listen --credential)")


def test_no_secret_is_ever_logged(make_broker, make_publisher, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    credential = Credential(user="gate", password=SECRET)
    refusing = make_broker(users={"gate": "right"}).start()
    accepting = make_broker().start()
    for broker in (refusing, accepting):
        publisher = make_publisher(broker.port, credential=credential)
        wait_until(lambda: "connected to" in publisher.status, what="an outcome")  # noqa: B023
        publisher.publish(detections(1))
        publisher.close()
        assert SECRET not in repr(publisher) + publisher.status + repr(vars(publisher)) + str(publisher.counts())
    assert "broker-plain-password" in logged(caplog)
    assert SECRET not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("on_v5", ["refuse", "close"])
def test_a_broker_without_v5_is_spoken_to_in_v311(make_fake, make_publisher, on_v5, caplog):
    caplog.set_level(logging.INFO)
    fake = make_fake(on_v5=on_v5)
    publisher = make_publisher(fake.port)
    publisher.publish(detections(1))
    assert publisher.flush(60)
    assert "MQTT v3.1.1" in publisher.status
    wait_until(lambda: "MQTT v3.1.1" in caplog.text, what="the line in the log, which another thread writes")
    assert {publish.topic.rpartition("/")[2] for publish in fake.accepted} == {"info", "state", "detections"}

    fake.drop()
    wait_until(lambda: publisher.counts()["connections"] == 2, what="the reconnect")
    assert [connect[6] for connect in fake.connects][-2:] == [4, 4], "v3.1.1 was not remembered"


@pytest.mark.parametrize("receive_maximum", [1, 2, 10, 1000])
def test_f34_receive_maximum_is_kept_also_after_a_reconnect(make_fake, make_publisher, receive_maximum):
    fake = make_fake(receive_maximum=receive_maximum)
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 31))
    fake.drop()
    assert publisher.flush(60)
    publisher.close()

    assert fake.violations == []
    assert {p.topic.rpartition("/")[2] for p in fake.accepted} == {"info", "state", "detections"}


def test_f34_a_broker_without_retain_and_qos_1_gets_neither(make_fake, make_publisher):
    fake = make_fake(can_retain=False, maximum_qos=0)
    publisher = make_publisher(fake.port)
    publisher.publish(detections(1))
    assert publisher.flush(60)
    wait_until(lambda: len(fake.accepted) == 3, what="all messages")
    publisher.close()

    assert fake.violations == []


def test_f35_a_quota_is_waited_for(make_fake, make_publisher, caplog):
    fake = make_fake()
    refused = []

    def once(publish):
        if publish.topic.endswith("detections") and not refused:
            refused.append(publish)
            return 0x97
        return 0

    fake.behaviour.puback_reason = once
    publisher = make_publisher(fake.port)
    publisher.publish(detections(1))
    assert publisher.flush(60)

    assert len(refused) == 1
    assert [p.topic for p in fake.accepted].count("edge/v1/north/gate-01/streams/east/detections") == 1
    assert "reason=0x97: retrying" in caplog.text
    assert publisher.counts()["dropped"] == 0


def test_f35_a_topic_that_is_not_allowed_is_declared_and_told_once(make_fake, make_publisher, caplog):
    fake = make_fake()
    fake.behaviour.puback_reason = lambda publish: 0x87 if publish.topic.endswith("detections") else 0
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 21))
    assert publisher.flush(60)

    counts = publisher.counts()
    assert (counts["numbered_in_gaps"], counts["numbered_acknowledged"]) == (20, 0)
    assert logged(caplog).count("message-refused") == 1
    assert "access list" in caplog.text


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ("", ("streams/east/detections (0x87), 4 topics in all",)),
        ("streams/east/detections", ("edge/v1/north/gate-01/streams/east/detections (0x87): check its access list",)),
    ],
    ids=["every-topic", "one-topic"],
)
def test_a_topic_that_the_broker_refuses_is_an_alarm_until_it_is_accepted_again(
    make_fake, make_publisher, monkeypatch, refused, told
):
    monkeypatch.setattr("edge.publish.mqtt.session.REFUSED_S", 0.0)
    fake = make_fake()
    fake.behaviour.puback_reason = lambda publish: 0x87 if publish.topic.endswith(refused) else 0
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 21))
    assert publisher.flush(60)
    assert all(fact in publisher.alarm for fact in told), publisher.alarm

    fake.behaviour.puback_reason = lambda publish: 0
    publisher.publish(detections(21))
    assert publisher.flush(60)
    assert publisher.alarm is None


def test_a_topic_of_which_some_messages_are_refused_stays_an_alarm_for_a_while(make_fake, make_publisher):
    fake = make_fake(maximum_packet_size=620)
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 3), count=20)
    assert publisher.flush(60)
    publish_frames(publisher, range(3, 4), count=0)
    assert publisher.flush(60)
    assert "detections (0x95)" in publisher.alarm


def test_f35_no_subscriber_is_no_failure(make_fake, make_publisher):
    fake = make_fake()
    fake.behaviour.puback_reason = lambda publish: 0x10
    publisher = make_publisher(fake.port)
    publisher.publish(detections(1))

    assert publisher.flush(60)
    assert publisher.counts()["numbered_acknowledged"] == 1


@pytest.mark.parametrize("reason", [0x88, 0x9C])
def test_f33_a_busy_broker_is_tried_again_and_told_once(make_fake, make_publisher, caplog, reason):
    fake = make_fake(connack_reason=reason)
    publisher = make_publisher(fake.port)
    wait_until(lambda: len(fake.connects) >= 3, what="several attempts")
    assert not publisher.is_connected
    assert caplog.text.count(f"0x{reason:02X}") == 1
    fake.behaviour.connack_reason = 0
    assert publisher.flush(60)


def test_f36_two_takeovers_in_a_minute_end_the_fight(make_fake, make_publisher, caplog):
    fake = make_fake(disconnect_reason=0x8E)
    publisher = make_publisher(fake.port)
    expect(publisher, "another client uses this client id")
    wait_until(lambda: next_try_s(publisher) > 200, what="the long wait")

    assert len(fake.connects) == 2


def test_two_devices_of_one_name_slow_down(broker, make_publisher):
    publishers = [make_publisher(broker.port) for _ in range(2)]

    wait_until(lambda: any("another client" in p.status for p in publishers), what="the suspicion")


def test_a_broker_of_tiny_packets_loses_nothing_and_is_said(make_fake, make_publisher, monkeypatch):
    """A gap record does not fit into 300 bytes, so that no loss could be declared: messages wait for another limit."""
    monkeypatch.setattr("edge.publish.mqtt.publisher.NO_BROKER_S", 0.0)
    fake = make_fake(maximum_packet_size=300)
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 51))
    expect(publisher, "a limit of 300", "raise the broker's limit")
    assert "a limit of 300" in publisher.alarm
    counts = publisher.counts()
    assert (counts["numbered_waiting"], counts["dropped"]) == (50, 0)
    assert next_try_s(publisher) > 10
    assert fake.accepted == []


def test_a_broker_that_just_takes_a_gap_record_gets_it_and_nothing_that_is_larger(make_fake, make_publisher):
    fake = make_fake(maximum_packet_size=620)
    publisher = make_publisher(fake.port)
    publish_frames(publisher, range(1, 11), count=20)
    assert publisher.flush(60)
    gaps = [one.payload for one in fake.accepted if one.topic.endswith("/gaps")]
    assert gaps
    assert publisher.counts()["numbered_in_gaps"] == 10
    assert fake.violations == []
    assert publisher.counts()["connections"] == 1
