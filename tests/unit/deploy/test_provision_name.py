"""A device gets settings that it can read itself, and keeps those that are not stated."""

import platform
from dataclasses import replace

import pytest

from edge.cli.commands.provision import _pull
from edge.deploy.provision.facts import FACTS_SCRIPT
from edge.deploy.provision.wanted import DEVICE_TOML, Wanted, _settings
from edge.device.facts import decode_settings, name_of_host
from tests.support.wheels import device_facts, facts_told


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gate-01.farm.example", "gate-01"),
        ("Jetson_Orin 3", "jetson-orin-3"),
        ("-" + "a" * 31 + "-b", "a" * 31),
        ("192.168.1.40", "192"),
        ("", "device"),
    ],
)
def test_a_host_name_becomes_a_name_that_a_device_reads(host, name):
    wanted = Wanted(name=None, compatible=("any",), networks=None, keys=[], signers=[])
    (step,) = _settings(wanted, device_facts(name=name_of_host(host)))

    assert decode_settings(step["content"], origin=DEVICE_TOML).name == name


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('name = "gate-40"  # mine\n', "gate-40"),
        ('name = "192.168.1.40"\n', name_of_host(platform.node())),
        (None, name_of_host(platform.node())),
    ],
)
def test_a_device_keeps_the_name_that_it_has_unless_it_is_none(tmp_path, content, name):
    if content is not None:
        (tmp_path / "device.toml").write_text(content)

    assert facts_told(FACTS_SCRIPT.replace(DEVICE_TOML, str(tmp_path / "device.toml"))).name == name


TOML = 'name = "gate-40"\ncompatible = ["jetson-orin"]\nchannels = ["beta"]\n'
PULL = 'repository = "a.b/c"\nchannel = "beta"\nring = "canary"\nauthorities = "registry-ca"\n'


@pytest.mark.parametrize(
    ("asked", "settings", "pull"),
    [
        ({}, TOML, None),
        ({"name": "gate-99"}, TOML.replace("gate-40", "gate-99"), None),
        ({"compatible": ("any",)}, TOML.replace("jetson-orin", "any"), None),
        ({"channels": ("stable",)}, TOML.replace("beta", "stable"), None),
        ({"pull": {"repository": "a.b/other"}}, TOML, PULL.replace("a.b/c", "a.b/other")),
        ({"pull": {"repository": "a.b/c", "ring": "all"}}, TOML, PULL.replace("canary", "all")),
        ({"pull": {"repository": "a.b/c", "authorities": "system"}}, TOML, PULL[: PULL.index("auth")]),
    ],
)
def test_what_is_not_stated_stays_as_it_is_there(tmp_path, asked, settings, pull):
    (tmp_path / "device.toml").write_text(TOML)
    (tmp_path / "pull.toml").write_text(PULL)
    facts = facts_told(FACTS_SCRIPT.replace("/etc/edge-deploy", str(tmp_path)))

    assert files_of(facts, **asked) == (settings, pull)


@pytest.mark.parametrize("there", ["", "name = 7\n", "\x00"])
def test_what_is_neither_stated_nor_there_is_as_usual(there):
    facts = replace(device_facts(name="host"), settings=there, pull=there)

    settings, pull = files_of(facts, usual_name="gate-01", usual_class="jetson-orin", pull={"repository": "a.b/c"})

    assert settings == 'name = "gate-01"\ncompatible = ["jetson-orin"]\nchannels = ["stable"]\n'
    assert pull == 'repository = "a.b/c"\nchannel = "stable"\nring = "all"\n'


def test_a_device_of_another_channel_fetches_from_that_one():
    _, pull = files_of(device_facts(), channels=("beta",), pull={"repository": "a.b/c"})

    assert 'channel = "beta"' in pull


def files_of(facts, **asked):
    """Return device.toml and pull.toml as provision would write them; None: it writes none."""
    wanted = Wanted(**{"name": None, "compatible": (), "networks": None, "keys": [], "signers": [], **asked})
    found = {step["path"]: step["content"] for step in _settings(wanted, facts)}
    return found[DEVICE_TOML], found.get("/etc/edge-deploy/pull.toml")


def test_an_option_that_is_left_out_states_nothing():
    assert _pull("a.b/c", (), None, None, is_alone=None) == {"repository": "a.b/c"}
    assert _pull("a.b/c", ("beta",), "all", None, is_alone=False) == {
        "repository": "a.b/c",
        "channel": "beta",
        "ring": "all",
        "authorities": "system",
    }
