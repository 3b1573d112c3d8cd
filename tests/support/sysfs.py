"""Machines as their /sys shows them, written out as files; and traces, in which some of these files change.

The Jetson is put together from what owners of Orin modules and NVIDIA's developer guide have published (types of zones,
cooling devices, names and units of files, over-current counters); it was not recorded on a board of ours.
"""

from collections.abc import Mapping
from pathlib import Path

THERMAL, HWMON = "sys/class/thermal", "sys/class/hwmon"


def write_tree(root: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n", encoding="utf-8")


def orin(**changes: str) -> dict[str, str]:
    """Return an Orin at rest; `changes` by the keys of `ORIN_PLACES`."""
    files = {
        f"{THERMAL}/thermal_zone0/type": "cpu-thermal",
        f"{THERMAL}/thermal_zone0/temp": "48125",
        f"{THERMAL}/thermal_zone0/trip_point_0_type": "active",
        f"{THERMAL}/thermal_zone0/trip_point_0_temp": "51000",
        f"{THERMAL}/thermal_zone0/trip_point_1_type": "passive",
        f"{THERMAL}/thermal_zone0/trip_point_1_temp": "99000",
        f"{THERMAL}/thermal_zone0/trip_point_2_type": "critical",
        f"{THERMAL}/thermal_zone0/trip_point_2_temp": "104500",
        f"{THERMAL}/thermal_zone1/type": "gpu-thermal",
        f"{THERMAL}/thermal_zone1/temp": "47218",
        f"{THERMAL}/thermal_zone2/type": "cv0-thermal",
        f"{THERMAL}/thermal_zone2/temp": "-256000",
        f"{THERMAL}/thermal_zone8/type": "tj-thermal",
        f"{THERMAL}/thermal_zone8/temp": "48125",
        f"{THERMAL}/cooling_device0/type": "pwm-fan",
        f"{THERMAL}/cooling_device0/cur_state": "2",
        f"{THERMAL}/cooling_device1/type": "cpufreq-cpu0",
        f"{THERMAL}/cooling_device1/cur_state": "0",
        f"{THERMAL}/cooling_device5/type": "devfreq-17000000.gpu",
        f"{THERMAL}/cooling_device5/cur_state": "3",
        f"{THERMAL}/cooling_device6/type": "cpu-throttle-alert",
        f"{THERMAL}/cooling_device6/cur_state": "0",
        f"{THERMAL}/cooling_device7/type": "gpu-throttle-alert",
        f"{THERMAL}/cooling_device7/cur_state": "0",
        f"{HWMON}/hwmon1/name": "ina3221",
        f"{HWMON}/hwmon1/in1_label": "VDD_IN",
        f"{HWMON}/hwmon1/in1_input": "5048",
        f"{HWMON}/hwmon1/curr1_input": "1200",
        f"{HWMON}/hwmon1/in2_label": "VDD_CPU_GPU_CV",
        f"{HWMON}/hwmon1/in2_input": "5040",
        f"{HWMON}/hwmon1/curr2_input": "160",
        f"{HWMON}/hwmon1/in7_label": "sum of shunt voltages",
        f"{HWMON}/hwmon1/in7_input": "8",
        f"{HWMON}/hwmon3/name": "soctherm_oc",
        f"{HWMON}/hwmon3/oc1_event_cnt": "0",
        f"{HWMON}/hwmon3/oc2_event_cnt": "15",
        f"{HWMON}/hwmon3/oc3_event_cnt": "37",
        "var/lib/nvpmodel/status": "pmode:0002",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >",
    }
    return {**files, **{ORIN_PLACES[key]: value for key, value in changes.items()}}


ORIN_PLACES = {
    "tj": f"{THERMAL}/thermal_zone8/temp",
    "cpu": f"{THERMAL}/thermal_zone0/temp",
    "gpu_alert": f"{THERMAL}/cooling_device7/cur_state",
    "cpu_alert": f"{THERMAL}/cooling_device6/cur_state",
    "oc3": f"{HWMON}/hwmon3/oc3_event_cnt",
}

PC = {
    f"{THERMAL}/thermal_zone0/type": "acpitz",
    f"{THERMAL}/thermal_zone0/temp": "27800",
    f"{THERMAL}/thermal_zone1/type": "x86_pkg_temp",
    f"{THERMAL}/thermal_zone1/temp": "41000",
    f"{THERMAL}/cooling_device0/type": "Processor",
    f"{THERMAL}/cooling_device0/cur_state": "0",
    f"{THERMAL}/cooling_device1/type": "intel_powerclamp",
    f"{THERMAL}/cooling_device1/cur_state": "-1",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "4",
    "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "9",
    "sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count": "9",
}
