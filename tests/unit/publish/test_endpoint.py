"""Where a broker is and who we are there; and when one that was away counts as returned, on a clock of the test."""

import socket
import ssl

import pytest

from edge.config.credentials import Credential
from edge.config.pipeline import mqtt_from_options
from edge.config.schema import MqttConfig, TlsConfig
from edge.errors import ConfigError
from edge.publish.mqtt.endpoint import Endpoint, endpoint_from_config, line_to, topic_root, waits_for_return
from tests.support.ports import free_port
from tests.support.wait import wait_until

SECRET = "canary-7c1f"
BROKER = Endpoint(host="broker.example", port=1883, client_id="edge-gate-01")


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
        (TlsConfig(ca="empty.pem"), "mqtt.tls.ca: .*empty.pem: expected PEM"),
        (TlsConfig(certificate="empty.pem"), "mqtt.tls.certificate: .*empty.pem"),
        (TlsConfig(key="key.pem"), "a key needs its certificate"),
    ],
)
def test_an_unusable_file_is_named(tmp_path, files, words):
    (tmp_path / "empty.pem").touch()

    with pytest.raises(ConfigError, match=words):
        endpoint(tls=files, base_dir=tmp_path)


@pytest.mark.parametrize("prefix", ["", "a//b", "/a", "a/", "a/+", "#", "$SYS/a", "a\0", "a\n"])
def test_a_prefix_has_to_be_a_topic(prefix):
    with pytest.raises(ConfigError, match="prefix"):
        mqtt_from_options({"host": "x", "prefix": prefix})


def test_the_topic_root_has_prefix_and_site():
    assert topic_root(MqttConfig(host="x", site="north")) == "edge/v1/north"


class Line:
    """A connection that breaks at a time."""

    def __init__(self, world, ends_at_s):
        self.is_closed = False
        self._world, self._ends_at_s = world, ends_at_s

    def recv(self, count, flags):
        if self._world.now_s < self._ends_at_s:
            raise BlockingIOError
        return b""

    def close(self):
        self.is_closed = True


class World:
    """A clock, and who listens when: what `answers` says from its second on. Connections break at `ends_at_s`."""

    def __init__(self, answers, *, ends_at_s=1e9):
        self.now_s = 0.0
        self.looks, self.lines = [], []
        self._answers, self._ends_at_s = answers, ends_at_s

    def line_to(self, endpoint):
        assert endpoint is BROKER
        self.looks.append(self.now_s)
        if not self._answers[max(at for at in self._answers if at <= self.now_s)]:
            return None
        self.lines.append(Line(self, self._ends_at_s))
        return self.lines[-1]

    def first_return(self, *, is_away=False, has_served=False, until_s=60.0, uniform=lambda low, high: high):
        options = {"line_to": self.line_to, "uniform": uniform, "now_s": lambda: self.now_s}
        for wait_s in waits_for_return(BROKER, until_s, is_away=is_away, has_served=has_served, **options):
            assert 0 < wait_s <= 0.25
            self.now_s += 0.25
        return self.now_s if self.now_s < until_s else None


@pytest.mark.parametrize("uniform", [lambda low, high: low, lambda low, high: high], ids=["least", "most"])
def test_who_was_away_and_listens_again_has_come_within_five_seconds(uniform):
    for back_at_s in (0.25, 3.0, 7.5, 20.25):
        came_s = World({0: False, back_at_s: True}).first_return(is_away=True, uniform=uniform)
        assert came_s is not None
        assert back_at_s <= came_s <= back_at_s + 4


def test_one_that_listens_all_the_time_tells_nothing():
    world = World({0: True})
    assert world.first_return() is None
    assert all(line.is_closed for line in world.lines)


def test_one_that_goes_and_comes_while_it_is_waited_for():
    assert World({0: True, 4: False, 9: True}).first_return() == pytest.approx(11, abs=2)


@pytest.mark.parametrize("has_served", [False, True])
def test_a_restart_is_seen_by_the_look_at_the_moment_of_the_loss(has_served):
    assert World({0: False, 0.25: True}).first_return(has_served=has_served) <= 4


@pytest.mark.parametrize("ends_at_s", [0.0, 0.25, 5.0])
def test_one_that_has_served_and_is_back_before_it_is_asked_again_is_told_by_the_line_that_broke(ends_at_s):
    world = World({0: True}, ends_at_s=ends_at_s)

    assert ends_at_s < world.first_return(has_served=True) <= ends_at_s + 4
    assert all(line.is_closed for line in world.lines)


def test_one_that_has_served_and_whose_line_holds_tells_nothing():
    world = World({0: True})

    assert world.first_return(has_served=True) is None
    assert all(line.is_closed for line in world.lines)


def test_a_line_breaks_with_whoever_listened_and_not_before():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        here = Endpoint(host="127.0.0.1", port=server.getsockname()[1], client_id="x")
        waits = waits_for_return(here, 60.0, is_away=False, has_served=True)
        assert next(waits)
        taken, _ = server.accept()
        assert next(waits)
        taken.close()
        wait_until(lambda: next(waits, None) is None, what="the end, and that it listens again")
    gone = Endpoint(host="127.0.0.1", port=free_port(), client_id="x")
    assert line_to(gone) is None


def test_who_is_known_to_be_away_is_not_asked_at_once_and_then_every_other_second():
    world = World({0: False})
    world.first_return(is_away=True, until_s=20.0)
    assert world.looks == [2.0 * n for n in range(1, 10)]
