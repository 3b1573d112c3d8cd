"""What a device measures, from files as they look on real devices."""

import json
import os
import platform
import sys

import pytest

from edge.codec import encode
from edge.device.durable import Durable
from edge.device.facts import DeviceSettings, decode_settings, gather_facts, read_settings
from edge.device.layout import Layout
from edge.device.state import Counters, raise_counters
from edge.errors import DeployError
from tests.support.raised import code_of

TOML = """# written by a person
name = "gate-01"
compatible = ["jetson-orin", "jetson-orin-nano"]  # both

reserve_bytes = 2147483648
reserve_share = 0.1
"""
# First line of /etc/nv_tegra_release on JetPack 6.2.
TEGRA = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"
DPKG = """Package: libnvinfer-bin
Status: install ok installed
Version: 10.3.0.30-1+cuda12.5

Package: libnvinfer10
Status: {status}
Architecture: arm64
Version: {version}
"""
MEMINFO = (
    "MemTotal:        7802352 kB\nMemFree:          123456 kB\nMemAvailable:    4012345 kB\nHugePages_Total:       0\n"
)


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    for folder in (layout.etc, layout.var, tmp_path / "proc", tmp_path / "var/lib/dpkg"):
        folder.mkdir(parents=True, exist_ok=True)
    layout.device_toml.write_text(TOML)
    (tmp_path / "proc/meminfo").write_text(MEMINFO)
    return layout


def test_a_jetson_is_described(layout):
    (layout.root / "etc/nv_tegra_release").write_text(TEGRA)
    status = DPKG.format(status="install ok installed", version="10.3.0.30-1+cuda12.5")
    (layout.root / "var/lib/dpkg/status").write_text(status)
    raise_counters(layout, Durable(), Counters(newest_created_at="2026-11-01T00:00:00Z"))
    facts = gather_facts(layout)
    assert (facts.name, facts.compatible) == ("gate-01", ("jetson-orin", "jetson-orin-nano"))
    assert (facts.l4t, facts.jetpack, facts.tensorrt) == ("36.4.3", "6", "10.3.0")
    assert (facts.memory_bytes, facts.memory_available_bytes) == (7802352 * 1024, 4012345 * 1024)
    assert (facts.architecture, facts.python) == (platform.machine(), platform.python_version())
    assert facts.is_one_file_system
    assert facts.clock_floor == "2026-11-01T00:00:00Z"
    disk = os.statvfs(layout.var)
    assert facts.disk_bytes == disk.f_blocks * disk.f_frsize
    assert 0 < facts.disk_free_bytes <= facts.disk_bytes
    assert facts.inodes_free > 0
    assert json.loads(json.dumps(encode(facts)))["compatible"] == ["jetson-orin", "jetson-orin-nano"]


def test_a_machine_that_is_no_jetson_has_neither_l4t_nor_tensorrt(layout):
    facts = gather_facts(layout)
    assert (facts.l4t, facts.jetpack, facts.tensorrt, facts.clock_floor) == (None, None, None, None)


@pytest.mark.parametrize(
    ("status", "version", "expected"),
    [
        ("install ok installed", "8.6.2.3-1+cuda12.2", "8.6.2"),
        ("install ok installed", "1:10.13.3.9-1+cuda13.0", "10.13.3"),
        ("deinstall ok config-files", "10.3.0.30-1", None),
    ],
)
def test_the_version_of_tensorrt_comes_from_the_package_that_is_installed(layout, status, version, expected):
    (layout.root / "var/lib/dpkg/status").write_text(DPKG.format(status=status, version=version))
    assert gather_facts(layout).tensorrt == expected


def test_a_tensorrt_that_no_package_owns_is_found_by_its_file(layout):
    folder = layout.root / "usr/lib/aarch64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvinfer.so.10.3.0").touch()
    (folder / "libnvinfer.so.10").symlink_to("libnvinfer.so.10.3.0")
    assert gather_facts(layout).tensorrt == "10.3.0"


def test_folders_on_another_file_system_are_noticed(layout):
    if os.stat("/dev/shm").st_dev == os.stat(layout.var).st_dev:
        pytest.skip("no second file system: /dev/shm is on the same one")
    layout.engines.symlink_to("/dev/shm")
    assert not gather_facts(layout).is_one_file_system


def test_settings_have_defaults_and_read_like_toml(layout):
    settings = read_settings(layout.device_toml)
    expected = DeviceSettings(
        name="gate-01",
        compatible=("jetson-orin", "jetson-orin-nano"),
        reserve_bytes=2 * 1024**3,
        reserve_share=0.1,
    )
    assert settings == expected
    if sys.version_info >= (3, 11):
        import tomllib

        values = tomllib.loads(TOML)
        assert (values["name"], tuple(values["compatible"])) == (settings.name, settings.compatible)
        assert (values["reserve_bytes"], values["reserve_share"]) == (settings.reserve_bytes, settings.reserve_share)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"device\.toml: name: expected a text"),
        ('name = "gate-01"\n', "compatible"),
        ('name = "Gate 01"\ncompatible = ["any"]\n', "name: expected a-z"),
        ('name = "gate-01"\ncompatible = []\n', "at least one device class"),
        ('name = "gate-01"\nnam = 1\n', r"device\.toml:2: unknown key 'nam'; known: name"),
        ('name = "gate-01"\nname = "gate-02"\n', ":2: name is stated twice"),
        (
            'name = "gate-01"\ncompatible = ["any"]\nchannels = ["main", "Beta"]\n',
            "channels: expected a-z.* got 'Beta'",
        ),
        ("name = gate-01\n", ":1: expected a number, a text"),
        ('name = 5\ncompatible = ["any"]\n', ":1: name: expected a text .* got 5"),
        ('name = "a" b\n', ":1: expected nothing after the value"),
        ("[device]\n", r":1: expected key = value, got '\[device\]'"),
        ('name = "a"\ncompatible = [1]\n', r":2: compatible\[0\]: expected a text"),
        ('name = "a"\ncompatible = ["any"]\nreserve_bytes = true\n', ":3: reserve_bytes: expected a whole number"),
        ('name = "a"\ncompatible = ["any"]\nreserve_share = 1.5\n', "reserve_share: expected 0 to 1"),
        ('name = "a"\ncompatible = ["any"]\nreserve_share = NaN\n', "reserve_share: expected a finite number"),
        ('name = "a"\ncompatible = ["any"]\nreserve_bytes = -5\n', "reserve_bytes: expected 0 to .* got -5"),
        ('name = "a"\ncompatible = ["any"]\nreserve_memory_bytes = -1\n', "reserve_memory_bytes: expected 0 to"),
        ('name = "a"\ncompatible = ["any"]\nbuild_deadline_s = 0\n', "build_deadline_s: expected 1 to 604800, got 0"),
        (f'name = "a"\ncompatible = ["any"]\ngolden_deadline_s = 1{"0" * 400}\n', "golden_deadline_s: expected"),
    ],
)
def test_wrong_settings_are_refused_with_line_and_reason(text, says):
    with pytest.raises(DeployError, match=says) as failure:
        decode_settings(text, origin="/etc/edge-deploy/device.toml")
    assert failure.value.code == "device.settings"


def test_a_device_takes_proven_releases_only_unless_its_settings_say_otherwise():
    device = 'name = "gate-01"\ncompatible = ["any"]\n'
    assert decode_settings(device, origin="x").allow_unproven is False
    assert decode_settings(device + "allow_unproven = true  # a bench\n", origin="x").allow_unproven is True
    with pytest.raises(DeployError, match=r"allow_unproven: expected .* got 1"):
        decode_settings(device + "allow_unproven = 1\n", origin="x")


def test_settings_may_be_linked_and_begin_with_a_mark_of_their_encoding(layout, tmp_path):
    (tmp_path / "kept.toml").write_text('name = "gate-07"\ncompatible = ["any"]\n', encoding="utf-8-sig")
    layout.device_toml.unlink()
    layout.device_toml.symlink_to(tmp_path / "kept.toml")

    assert read_settings(layout.device_toml).name == "gate-07"


def test_a_folder_in_place_of_settings_is_an_error_of_the_disk(layout):
    layout.device_toml.unlink()
    layout.device_toml.mkdir()

    assert code_of(read_settings, layout.device_toml) == "device.file"


def test_missing_and_binary_settings_are_refused(layout):
    layout.device_toml.write_bytes(b"\xff\xfe")
    with pytest.raises(DeployError, match="expected UTF-8"):
        read_settings(layout.device_toml)
    layout.device_toml.unlink()
    with pytest.raises(DeployError, match="no such file"):
        gather_facts(layout)
