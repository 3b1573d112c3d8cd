"""Where a broker is and who we are there."""

import ssl

import pytest

from edge.config.credentials import Credential
from edge.config.pipeline import mqtt_from_options
from edge.config.schema import MqttConfig, TlsConfig
from edge.errors import ConfigError
from edge.publish.mqtt.endpoint import endpoint_from_config, topic_root
from tests.support.manifests import make_certificates

SECRET = "canary-7c1f"


def endpoint(credential=None, base_dir=None, **keys):
    config = MqttConfig(host="broker.local", **keys)
    return endpoint_from_config(config, client_id="edge-gate-01", credential=credential, base_dir=base_dir)


def test_tls_is_the_default_and_checks_name_and_authority():
    made = endpoint()

    assert made.port == 8883
    assert made.tls.check_hostname
    assert made.tls.verify_mode is ssl.CERT_REQUIRED


def test_plain_text_has_to_be_asked_for():
    assert (endpoint(tls=False).port, endpoint(tls=False).tls) == (1883, None)


def test_a_stated_client_id_and_port_are_used():
    made = endpoint(client_id="mine", port=4711)

    assert (made.client_id, made.port) == ("mine", 4711)


def test_a_secret_is_never_printed():
    made = endpoint(credential=Credential(user="gate", password=SECRET), tls=False)

    assert SECRET not in repr(made) + str(made)


def test_a_missing_password_is_said_at_once():
    with pytest.raises(ConfigError, match=r"mqtt\.credential"):
        endpoint_from_config(MqttConfig(host="broker.local", credential="gate"), client_id="x")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (TlsConfig(ca="absent.pem"), "mqtt.tls.ca: .*absent.pem: No such file"),
        (TlsConfig(ca="empty.pem"), r"mqtt.tls.ca: .*empty.pem: expected certificates \(PEM\): .*authority"),
        (TlsConfig(ca="server.key"), r"mqtt.tls.ca: .*server.key: expected certificates \(PEM\): .*authority"),
        (TlsConfig(certificate="empty.pem"), "mqtt.tls.certificate: .*empty.pem: expected PEM, certificate and key"),
        (TlsConfig(key="key.pem"), "a key needs its certificate"),
    ],
)
def test_an_unusable_file_is_named(tmp_path, files, words):
    make_certificates(tmp_path)
    (tmp_path / "empty.pem").touch()

    with pytest.raises(ConfigError, match=words):
        endpoint(tls=files, base_dir=tmp_path)


@pytest.mark.parametrize("prefix", ["", "a//b", "/a", "a/", "a/+", "#", "$SYS/a", "a\0", "a\n"])
def test_a_prefix_has_to_be_a_topic(prefix):
    with pytest.raises(ConfigError, match="prefix"):
        mqtt_from_options({"host": "x", "prefix": prefix})


def test_the_topic_root_has_prefix_and_site():
    assert topic_root(MqttConfig(host="x", site="north")) == "edge/v1/north"
