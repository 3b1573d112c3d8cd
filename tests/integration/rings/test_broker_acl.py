"""The access list of docs/fleet.md at a real mosquitto: a device's login speaks for that device only."""

import re
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from paho.mqtt import client as paho

from edge.config.credentials import Credential
from edge.deploy.rings.hearing import Hearing
from edge.publish.messages import PullMessage, StateMessage
from tests.support import models
from tests.support.command_line import command
from tests.support.mosquitto import Mosquitto
from tests.support.wait import wait_until

REPOSITORY = "registry.example/farms/gates"


@pytest.fixture(params=["gate-01", "north/gate-01"], ids=["one site", "several"])
def user(request):
    """As a device's login is named where there is one site, and where there are several."""
    return request.param


@pytest.fixture
def broker(tmp_path, user):
    page = (Path(__file__).parents[3] / "docs/fleet.md").read_text()
    found = re.search(r"((?:    (?:user|topic|pattern) .*\n)+)", page)[1]
    (several,) = re.findall(r"For several sites name the users SITE/DEVICE, and write `(.*?)`", page)
    lines = [line.strip() for line in found.splitlines()]
    if "/" in user:
        lines[-1] = f"pattern readwrite {several}"
    tmp_path.joinpath("acl").write_text("\n".join(lines) + "\n")
    tmp_path.joinpath("acl").chmod(0o644)
    users = {"watcher": "w", user: "1", user.replace("01", "02"): "2"}
    with Mosquitto(tmp_path / "broker", users=users, options=(f"acl_file {tmp_path / 'acl'}",)) as running:
        yield running


def say(broker, user, places):
    """Publish, as one user, that devices are there; return once the broker has acknowledged all."""
    speaker = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    speaker.username_pw_set(user, user[-1])
    speaker.connect(broker.host, broker.port)
    speaker.loop_start()
    for site, name in places:
        for one in (
            StateMessage(device=name, state="online", epoch=1, session=1, since=None),
            PullMessage(device=name, repository=REPOSITORY, channel="stable", ring="canary"),
        ):
            told = speaker.publish(f"edge/v1/{site}/{name}/{one.topic}", one.encode(), qos=1, retain=True)
            with suppress(ValueError):
                told.wait_for_publish(timeout=60)
    speaker.disconnect()
    speaker.loop_stop()


def test_one_login_with_a_hundred_and_fifty_phantoms_moves_nothing(broker, mqtt, user):
    phantoms = [("north", f"phantom-{number}") for number in range(75)]
    namesakes = [(f"south-{number}", "gate-01") for number in range(75)]
    with Hearing(mqtt, credential=Credential(user="watcher", password="w"), base_dir=None) as hearing:
        say(broker, user, [("north", "gate-02"), *phantoms, *namesakes, ("north", "gate-01")])
        wait_until(lambda: "north/gate-01" in hearing.heard(), what="its own words")
        hearing.wait_complete()

        assert list(hearing.devices(REPOSITORY, "stable")) == ["north/gate-01"]


def test_a_device_hears_no_other_device(broker, mqtt, user):
    say(broker, user.replace("01", "02"), [("north", "gate-02")])
    with Hearing(mqtt, credential=Credential(user=user, password="1"), base_dir=None) as hearing:
        say(broker, user, [("north", "gate-01")])
        hearing.wait_complete()

        assert "north/gate-02" not in hearing.heard()


@pytest.mark.slow(reason="listens for five seconds")
def test_a_login_that_may_not_read_is_not_told_that_all_is_well(broker, user, tmp_path, monkeypatch):
    say(broker, user.replace("01", "02"), [("north", "gate-02")])
    (tmp_path / "own").write_text(f"{user}:1")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    there = f"mqtt: {{host: {broker.host}, port: {broker.port}, tls: false, site: north}}"
    what = f"version: 1\nmodel: {{onnx: {models.yolov8(tmp_path / 'm.onnx')}, precision: fp16}}"
    (tmp_path / "p.yaml").write_text(f"{what}\nstreams: [{{id: a, uri: rtsp://a/1}}]\n{there}\n")
    words = (tmp_path / "p.yaml", "--credential", "own")

    listened = command("edge-deploy", "listen", *words, "--gaps", "--duration", "5", expected=3)
    fleet = command("edge-deploy", "fleet", "--pipeline", *words)

    assert all("this login may not read" in told.stderr for told in (listened, fleet))


@pytest.mark.slow(reason="the page's line listens for five seconds")
def test_the_page_s_line_removes_what_the_broker_keeps_of_an_old_name_alone(tmp_path):
    page = (Path(__file__).parents[3] / "docs/fleet.md").read_text()
    words = shlex.split(re.search(r"    (mosquitto_sub .*--remove-retained.*)", page)[1].replace("SITE", "north"))
    with Mosquitto(tmp_path / "broker", users={"ops": "s"}) as broker:
        say(broker, "ops", [("north", "gate-01"), ("north", "gate-99")])
        words[words.index("-h") + 1] = broker.host
        subprocess.run([*words, "-p", str(broker.port), "-u", "ops", "-P", "s"], timeout=30, capture_output=True)
        kept = subprocess.run(
            [*words[:3], "-t", "edge/v1/#", "-W", "1", "-F", "%t", "-p", str(broker.port), "-u", "ops", "-P", "s"],
            timeout=30, capture_output=True, text=True,
        )  # fmt: skip
    assert {topic.split("/")[3] for topic in kept.stdout.split()} == {"gate-99"}
