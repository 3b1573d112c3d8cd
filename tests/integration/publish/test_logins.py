"""How a broker knows us: client id, certificate, user with a colon; of the device, `listen` and the client alike."""

import pytest

from edge.client import Client
from edge.config.credentials import Credential
from edge.config.schema import TlsConfig
from edge.errors import ConfigError
from tests.support.command_line import command
from tests.support.manifests import make_certificates
from tests.support.wait import wait_until

LOGIN = Credential(user="tenant:gate", password="p:w")


def typed(*words, expected=0):
    """Type `edge-deploy listen` for a moment, and return what it said."""
    return command("edge-deploy", "listen", "--duration", "0.2", *words, expected=expected).stderr


def by_device(make_publisher, port, home):
    make_publisher(port, credential=LOGIN, client_id="thing-1")


def by_listen(make_publisher, port, home):
    place = home / "edge-deploy" / "credentials"
    place.mkdir(parents=True)
    (place / "broker").touch(mode=0o600)
    (place / "broker").write_text("tenant\\:gate:p:w\n")
    words = ("--host", "127.0.0.1", "--port", port, "--no-tls", "--credential", "broker", "--client-id", "thing-1")
    assert "listening to" in typed(*words)


def by_client(make_publisher, port, home):
    Client("127.0.0.1", port=port, tls=False, user="tenant:gate", password="p:w", client_id="thing-1").close()


@pytest.mark.parametrize("connect", [by_device, by_listen, by_client])
def test_a_user_with_a_colon_and_a_client_id_arrive(make_fake, make_publisher, tmp_path, monkeypatch, connect):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fake = make_fake()
    connect(make_publisher, fake.port, tmp_path)
    wait_until(lambda: fake.connects, what="a CONNECT")

    (packet, *_) = fake.connects
    for text in (b"thing-1", b"tenant:gate", b"p:w"):
        assert len(text).to_bytes(2, "big") + text in packet


@pytest.fixture
def strict(make_broker, tmp_path):
    """A broker that takes who has a certificate of its authority, by the name that stands there."""
    files = make_certificates(tmp_path / "tls", host="localhost")
    return make_broker(tls=files, options=("require_certificate true", "use_identity_as_username true")).start(), files


def test_who_shows_its_certificate_is_taken_in(strict, make_publisher):
    broker, files = strict
    own = TlsConfig(ca=str(files.ca), certificate=str(files.certificate), key=str(files.key))
    publisher = make_publisher(broker.port, host="localhost", tls=own)
    assert publisher.flush(60)
    words = ("--host", "localhost", "--port", broker.port, "--ca", files.ca)
    assert "listening to" in typed(*words, "--certificate", files.certificate, "--key", files.key, "--site", "north")
    options = {"port": broker.port, "tls": files.ca, "certificate": files.certificate, "key": files.key}
    Client("localhost", **options).close()

    assert broker.log().count("u'localhost'") == 3


def test_who_shows_none_is_told_what_the_broker_may_want(strict, make_publisher):
    broker, files = strict
    publisher = make_publisher(broker.port, host="localhost", tls=TlsConfig(ca=str(files.ca)))

    wait_until(lambda: "mqtt.tls.certificate" in publisher.status, what=lambda: publisher.status)


def test_a_certificate_without_tls_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="certificate: is of no use without TLS"):
        Client("localhost", tls=False, certificate=tmp_path / "me.pem")


@pytest.mark.parametrize("host", ["wss://gate:hush@broker.local/mqtt", "ws://broker.local:8080"])
def test_websocket_is_refused_clearly_and_no_password_told(host):
    with pytest.raises(ConfigError, match="WebSocket is not spoken") as refused:
        Client(host)
    said = typed("--host", host, expected=None)
    assert "WebSocket is not spoken" in said
    assert "hush" not in said + str(refused.value)
