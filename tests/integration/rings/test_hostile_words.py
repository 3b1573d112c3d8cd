"""What a device, or who runs the registry, says reaches a terminal as text, whichever command of rings asks."""

import json

import pytest
from paho.mqtt import publish as paho

from edge.deploy.rings.desk import Withdrawal
from tests.support.command_line import COLUMNS, EVIL, harm_of, on_terminal
from tests.support.field_fleet import AT

pytestmark = pytest.mark.slow_but(reason="a registry and a broker, over processes: the first row of each test is quick")

COMMANDS = {
    "fleet": "fleet PIPELINE",
    "fleet json": "fleet PIPELINE --json",
    "listen": "listen FILE --count 3",
    "listen json": "listen FILE --json --count 3",
    "stopped": "promote RELEASE all PIPELINE COMMON --when HALF",
    "waiting": "promote RELEASE all PIPELINE COMMON --when ALL --every 0.1 --within 1s",
    "elsewhere": "promote RELEASE all PIPELINE COMMON --when ALL --every 0.1 --within 1s --known-as a.b/c",
}
WHERE = [
    EVIL,
    "registry.example/farms/gates; rm -rf ~",
    "registry.example/$(reboot)",
    "https://registry.example/farms/gates",
    "registry.example/farms/gates:tag",
]


@pytest.fixture
def new(new):
    return new.manifest.release


@pytest.fixture
def type_it(typist, desk, new):
    """Type a line in which some words stand for others."""
    known = {
        "FILE": [typist.pipeline[1]],
        "PIPELINE": typist.pipeline,
        "RELEASE": [f"{typist.where}:{new}"],
        "COMMON": typist.common,
        "HALF": ["50% of canary, at most 10% failed"],
        "ALL": ["100% of canary, at most 0% failed"],
    }
    desk.desk.name_members("stable-canary", frozenset({"north/gate-01", "north/gate-02"}))
    desk.promoter.promote(desk.desk.release(new), "canary")
    return lambda line: on_terminal(*(one for word in line.split() for one in known.get(word, [word])))


@pytest.fixture
def say(broker):
    """Have a device say anything at all, whatever its fields are to be."""

    def say(topic, *, site="north", **values):
        values = {"schema": f"edge.{topic}/1", "device": "gate-01", "reason": EVIL, "at": AT, "since": AT, **values}
        content = json.dumps(values)
        paho.single(f"edge/v1/{site}/gate-01/{topic}", content, 1, retain=True, hostname=broker.host, port=broker.port)

    return say


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_hands_on_what_a_device_says_to_a_terminal(type_it, say, typist, new, name):
    ours = {"repository": typist.where, "channel": "stable", "ring": "canary"}
    for site in ("north", f"n\u202e{'w' * 300}"):
        said = {"release": new, "site": site}
        say("state", state="degraded", since=EVIL, site=site)
        outcome = "rolled-back" if name in ("stopped", "fleet", "listen") else "committed"
        say("deploy", **said, **{"from": EVIL}, result=outcome, at=EVIL)
        say("pull", **ours, **said, result="refused", code=f"registry.{EVIL}", at=EVIL)

    _, told = type_it(COMMANDS[name])

    assert harm_of(told) == []
    assert name != "fleet" or max(map(len, told.splitlines())) <= COLUMNS
    assert "gate-01" in told or name in ("stopped", "waiting", "elsewhere")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["elsewhere", "listen"])
def test_what_is_no_repository_is_not_shown_as_one(type_it, say, name, where):
    say("state", state="online")
    say("pull", repository=where, channel="stable", ring="canary", release=None, result=None, code=None)
    say("deploy", release=None, **{"from": None}, result="committed")

    _, told = type_it(COMMANDS[name])

    assert harm_of(told) == []
    assert where not in told


def test_who_writes_into_the_registry_writes_nothing_onto_a_terminal(type_it, desk, new):
    desk.desk.withdraw(Withdrawal(new, EVIL, EVIL, EVIL))

    code, told = type_it("promote RELEASE all COMMON")

    assert (code, harm_of(told)) == (11, [])
