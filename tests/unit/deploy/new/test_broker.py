"""How a broker is typed."""

import pytest

from edge.config.credentials import Credential
from edge.config.schema import TlsConfig
from edge.deploy.new.places import broker_from_text, try_broker
from edge.errors import ConfigError
from tests.support.mosquitto import Behaviour, FakeBroker


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker.local", ("broker.local", None, True)),
        ("broker.local:8884", ("broker.local", 8884, True)),
        ("mqtts://broker.local/", ("broker.local", None, True)),
        ("mqtt://10.0.0.2", ("10.0.0.2", None, False)),
        ("[::1]:1883", ("::1", 1883, True)),
    ],
)
def test_plain_text_is_asked_for(text, expected):
    config, login = broker_from_text(text, site="north", ca=None)

    assert (config.host, config.port, config.tls) == expected
    assert (config.site, login) == ("north", None)


def test_a_login_and_an_authority_which_is_a_mistake_without_tls():
    config, login = broker_from_text("me:p%40ss@b", site=None, ca="ca.pem")

    assert (config.tls, config.site) == (TlsConfig(ca="ca.pem"), "default")
    assert login == Credential(user="me", password="p@ss")
    with pytest.raises(ConfigError, match="--ca: is of no use without TLS"):
        broker_from_text("mqtt://b", site=None, ca="ca.pem")


@pytest.mark.parametrize(
    "text", ["", "http://s3cret", "me:12/s3cret@b", "b:0", "b:s3cret", "mqtt://", "b/s3cret", "b?s3cret", "ws://b"]
)
def test_all_else_is_refused_and_not_told(text):
    with pytest.raises(ConfigError, match="--broker: expected HOST") as refused:
        broker_from_text(text, site=None, ca=None)

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("refusal", ["refuse", "close"])
def test_a_broker_that_speaks_the_older_protocol_alone_is_reached(refusal, tmp_path):
    with FakeBroker(Behaviour(on_v5=refusal)) as broker:
        config, _ = broker_from_text(f"mqtt://127.0.0.1:{broker.port}", ca=None, site="north")
        address = try_broker(config, login=None, base_dir=tmp_path, within_s=20.0)

    assert f"127.0.0.1:{broker.port}" in address
    assert broker.connects[-1][6] == 4  # MQTT v3.1.1
