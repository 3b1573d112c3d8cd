"""What a release needs is asked before its first byte: each thing that is missing has a refusal of its own."""

import dataclasses

import pytest

from edge.device.facts import gather_facts
from edge.device.settings import read_settings
from edge.device.units import TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent.preflight import Need, check_engine, check_preflight, free_for_release

MIB = 1024 * 1024
NEED = Need(
    blob_bytes=100 * MIB,
    engine_bytes=300 * MIB,
    inodes=250,
    build_memory_bytes=900 * MIB,
    spare_memory_bytes=100 * MIB,
)


@pytest.fixture
def facts(root):
    """Those of a device that has just what `NEED` asks for."""
    return dataclasses.replace(
        gather_facts(root.layout),
        disk_bytes=1000 * MIB,
        disk_free_bytes=400 * MIB,
        inodes_free=250,
        memory_available_bytes=1000 * MIB,
        is_one_file_system=True,
    )


def codes(root, facts):
    found = []
    for check in check_preflight(NEED, facts, root.layout):
        try:
            check()
        except DeployError as error:
            found.append(error.code)
    return found


def test_a_device_that_has_just_enough_of_everything_takes_it(root, facts):
    assert codes(root, facts) == []


@pytest.mark.parametrize(
    ("lacks", "code"),
    [
        ({"disk_free_bytes": 400 * MIB - 1}, "preflight.space"),
        ({"inodes_free": 249}, "preflight.inodes"),
        ({"memory_available_bytes": 1000 * MIB - 1}, "preflight.memory"),
        ({"is_one_file_system": False}, "preflight.filesystem"),
    ],
)
def test_what_is_missing_is_named(root, facts, lacks, code):
    assert codes(root, dataclasses.replace(facts, **lacks)) == [code]


def test_a_unit_that_was_not_installed_is_named(root, facts):
    (root.root / "etc/systemd/system" / TRIAL_UNIT).unlink()
    assert codes(root, facts) == ["preflight.units"]


def test_what_is_in_reserve_is_not_free(root, facts):
    layout = root.layout
    layout.device_toml.write_text('name = "a"\ncompatible = ["lab"]\nreserve_bytes = 0\nreserve_share = 0.25\n')
    assert free_for_release(facts, read_settings(layout.device_toml)) == 150 * MIB


def test_an_engine_that_cannot_run_here_is_refused_and_one_that_can_is_not(root):
    check_engine(root.bundle().manifest)

    with pytest.raises(DeployError, match="abacus") as caught:
        check_engine(root.bundle("two", engine={"kind": "abacus"}).manifest)
    assert caught.value.code == "preflight.engine"
