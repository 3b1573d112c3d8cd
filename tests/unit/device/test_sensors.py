"""What machines say in /sys, held against values worked out by hand."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.device.sensors import Sensors, ThermalZone, read_sensors
from tests.support.sysfs import PC, THERMAL, orin, write_tree


def test_an_orin_says_heat_power_mode_and_over_current(tmp_path):
    write_tree(tmp_path, orin())

    assert read_sensors(tmp_path) == Sensors(
        zones={
            "cpu-thermal": ThermalZone(celsius=48.125, limit_c=99.0),
            "gpu-thermal": ThermalZone(celsius=47.218),
            "cv0-thermal": ThermalZone(celsius=None),
            "tj-thermal": ThermalZone(celsius=48.125),
        },
        throttled_by=(),
        events={"under-voltage": 0, "average-over-current": 15, "instantaneous-over-current": 37},
        watts={"VDD_IN": pytest.approx(6.0576), "VDD_CPU_GPU_CV": pytest.approx(0.8064)},
        mode="2 MAXN_SUPER",
    )


def test_an_alert_is_throttling_and_a_fan_or_a_power_mode_is_none(tmp_path):
    write_tree(tmp_path, orin(gpu_alert="1"))
    assert read_sensors(tmp_path).throttled_by == ("gpu-throttle-alert",)


def test_a_machine_without_alerts_is_throttled_by_what_slows_it_down(tmp_path):
    write_tree(tmp_path, PC)
    found = read_sensors(tmp_path)
    assert (found.throttled_by, found.events, found.mode, found.watts) == ((), {"heat": 9}, None, {})
    write_tree(tmp_path, {f"{THERMAL}/cooling_device0/cur_state": "2"})
    assert read_sensors(tmp_path).throttled_by == ("Processor",)


def test_a_machine_that_says_nothing_is_no_error(tmp_path):
    assert read_sensors(tmp_path) == Sensors()


def test_this_machine_can_be_read():
    assert isinstance(read_sensors(), Sensors)


def test_zones_of_one_name_are_told_apart(tmp_path):
    write_tree(
        tmp_path, {f"{THERMAL}/thermal_zone{i}/{k}": v for i in (0, 1) for k, v in (("type", "x"), ("temp", "1"))}
    )
    assert set(read_sensors(tmp_path).zones) == {"x", "x-1"}


def test_a_sensor_that_hangs_as_a_fifo_is_passed_over(tmp_path):
    write_tree(tmp_path, orin())
    path = tmp_path / THERMAL / "thermal_zone1/temp"
    path.unlink()
    os.mkfifo(path)
    assert read_sensors(tmp_path).zones["gpu-thermal"].celsius is None


@given(st.binary(max_size=40), st.sampled_from(sorted(orin())))
@example(b"VDD_IN\nVDD_SOC", "sys/class/hwmon/hwmon1/in1_label")
def test_whatever_stands_in_a_file_is_no_error(tmp_path_factory, content, name):
    root = tmp_path_factory.mktemp("sys")
    write_tree(root, orin())
    (root / name).write_bytes(content)
    found = read_sensors(root)
    assert all(text.isprintable() for text in (*found.zones, *found.watts, *found.throttled_by, found.mode or ""))
