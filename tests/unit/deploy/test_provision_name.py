"""A device gets a name that it can read itself: its own of before, or one after its host name."""

import platform

import pytest

from edge.deploy.provision.facts import FACTS_SCRIPT
from edge.deploy.provision.wanted import DEVICE_TOML, Wanted, _settings
from edge.device.facts import decode_settings, name_of_host
from tests.support.little_wheels import device_facts, facts_told


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
    wanted = Wanted(name=None, compatible=("any",), is_setting_stated=False, networks=None, keys=[], signers=[])
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
