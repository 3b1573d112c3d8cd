"""Derived peaks against what is published, and every power mode against nvpmodel's files, both transcribed here."""

import pytest

from edge.errors import ConfigError
from edge.roofline.machines import all_machines, find_machine, machine_table
from edge.types import Precision

WITHIN = 0.01

# machine: SMs, GPU INT8 dense and sparse TOPS, FP16 dense TFLOPS, DLA dense and sparse TOPS, advertised TOPS, GB/s
PUBLISHED = {
    "agx-orin-64gb": (16, 85, 170, 42.6, 52.5, 105, 275, 204.8),
    "agx-orin-industrial": (16, 78, 156, 39, 46, 92, 248, 204.8),
    "agx-orin-32gb": (14, 53.3, 106.7, 26.7, 46, 92, 200, 204.8),
    "orin-nx-16gb": (8, 30.1, 60.2, 15.0, 20, 40, 100, 102.4),
    "orin-nx-16gb-super": (8, 38.4, 76.9, 19.2, 40, 80, 157, 102.4),
    "orin-nx-8gb": (8, 25.1, 50.1, 12.5, 10, 20, 70, 102.4),
    "orin-nx-8gb-super": (8, 38.4, 76.9, 19.2, 20, 40, 117, 102.4),
    "orin-nano-8gb": (8, 20, 40, 10, 0, 0, 40, 68),
    "orin-nano-8gb-super": (8, 33, 67, 17, 0, 0, 67, 102),
    "orin-nano-4gb": (4, 10, 20, 5, 0, 0, 20, 34),
    "orin-nano-4gb-super": (4, 16.7, 33.4, 8.4, 0, 0, 34, 51),
}
# Published in whole numbers that are no nearer than this: 32 tensor cores at 625 MHz make 20.5 (41.0) and 10.2, sold as
# 20 (40) and 10; at 1020 MHz they make 33.4 and 16.7, written 33 and 17; 16 make 33.4, sold as 34.
ROUNDED = {
    "orin-nano-8gb": 0.025,
    "orin-nano-4gb": 0.025,
    "orin-nano-8gb-super": 0.018,
    "orin-nano-4gb-super": 0.018,
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_every_orin_module_has_the_peaks_that_are_published(key):
    machine, within = find_machine(key), ROUNDED.get(key, WITHIN)
    sm_count, dense, sparse, fp16, dla, dla_sparse, total, gb_per_s = PUBLISHED[key]

    assert machine.sm_count == sm_count
    assert machine.peak(Precision.INT8) == pytest.approx(dense * 1e12, rel=within)
    assert machine.unit_peak("tensor", "int8", is_sparse=True) == pytest.approx(sparse * 1e12, rel=within)
    assert machine.peak(Precision.FP16) == pytest.approx(fp16 * 1e12, rel=within)
    assert machine.dla_peak() == pytest.approx(dla * 1e12, rel=WITHIN)
    assert machine.dla_peak(is_sparse=True) == pytest.approx(dla_sparse * 1e12, rel=WITHIN)
    assert machine.bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=WITHIN)
    assert machine.facts.advertised.tops == total
    both = machine.unit_peak("tensor", "int8", is_sparse=True) + machine.dla_peak(is_sparse=True)
    assert both == pytest.approx(total * 1e12, rel=within)


def test_every_orin_of_the_table_is_checked():
    orins = {machine.key for machine in all_machines() if machine.facts.architecture == "orin"}

    assert orins == set(PUBLISHED)


def test_fp32_of_agx_orin_and_its_ridges():
    orin = find_machine("agx-orin-64gb")

    assert orin.peak(Precision.FP32) == pytest.approx(5.3e12, rel=WITHIN)
    assert orin.ridge(Precision.INT8) == pytest.approx(416, rel=WITHIN)
    for key, ridge in (("orin-nx-16gb", 294), ("orin-nx-16gb-super", 375), ("orin-nano-8gb-super", 327),
                       ("orin-nano-8gb", 300), ("orin-nano-4gb", 300)):  # fmt: skip
        assert find_machine(key).ridge(Precision.INT8) == pytest.approx(ridge, rel=WITHIN)


def test_a100_from_108_units_at_1410_mhz():
    a100 = find_machine("a100-40gb")

    assert (a100.sm_count, a100.gpu_hz) == (108, 1.41e9)
    for unit, precision, tera in (("vector", "fp64", 9.7), ("vector", "fp32", 19.5), ("vector", "fp16", 78),
                                  ("tensor", "fp16", 312), ("tensor", "int8", 624)):  # fmt: skip
        assert a100.unit_peak(unit, precision) == pytest.approx(tera * 1e12, rel=WITHIN)
    assert a100.unit_peak("tensor", "int8", is_sparse=True) == pytest.approx(1248e12, rel=WITHIN)
    assert a100.unit_peak("vector", "fp16", is_sparse=True) == a100.unit_peak("vector", "fp16")
    assert a100.bytes_per_s == pytest.approx(1555e9, rel=WITHIN)


def test_consumer_cards():
    assert find_machine("rtx-3080").ridge(Precision.FP32) == pytest.approx(39.2, rel=WITHIN)
    assert find_machine("rtx-3080").peak(Precision.INT8) == pytest.approx(238e12, rel=WITHIN)
    assert find_machine("rtx-4090").peak(Precision.FP32) == pytest.approx(82.6e12, rel=WITHIN)
    assert find_machine("rtx-4090").bytes_per_s == pytest.approx(1008e9, rel=WITHIN)


def test_what_is_not_known_of_thor_is_left_out():
    thor = find_machine("agx-thor-t5000")

    assert thor.peak(Precision.INT8) is thor.peak(Precision.FP16) is thor.ridge(Precision.INT8) is None
    assert thor.bytes_per_s == pytest.approx(273e9, rel=WITHIN)
    assert thor.facts.decoder.fps_1080p == {"h264": 1434, "h265": 1293, "av1": 794}


# nvpmodel's files: mode, watts, CPUs and their MHz, TPCs, GPU MHz, memory MHz, DLA MHz; None: at most. A star: default.
MODES = {
    "agx-orin-64gb": """
        MAXN     -  12 -      8 -   -    -
        MODE_15W 15 4  1113.6 3 408 2133 614.4/614.4
        MODE_30W 30 8  1728   4 612 -    1369.6/1369.6 *
        MODE_50W 50 12 1497.6 8 816 -    1369.6/1369.6""",
    "agx-orin-32gb": """
        MAXN     -  8 -      7 -   -    -
        MODE_15W 15 4 1113.6 3 408 2133 614.4/614.4
        MODE_30W 30 8 1728   4 612 -    1369.6/1369.6 *
        MODE_40W 40 8 1497.6 7 816 -    1228.8/1228.8""",
    "orin-nx-16gb": """
        MAXN -  8 -      4 -   -    -
        10W  10 4 1190.4 2 612 2133 153.6/115
        15W  15 4 1651.2 2 612 -    614.4/614.4 *
        25W  25 8 1497.6 4 408 -    614.4/614.4""",
    "orin-nx-16gb-super": """
        MAXN_SUPER -  8 -      4 -    -    -
        10W        10 4 1190.4 2 612  2133 153.6/115
        15W        15 4 1420.8 2 612  -    614.4/115
        25W        25 8 1497.6 4 408  -    614.4/614.4
        40W        40 8 1497.6 4 1173 -    908.8/908.8 *""",
    "orin-nx-8gb": """
        MAXN -  6 -      4 -   -    -
        10W  10 4 1190.4 2 612 2133 153.6
        15W  15 4 1420.8 2 612 -    614.4 *
        20W  20 6 1497.6 4 408 -    614.4""",
    "orin-nx-8gb-super": """
        MAXN_SUPER -  6 -      4 -    -    -
        10W        10 4 1190.4 2 612  2133 153.6
        15W        15 4 1420.8 2 612  -    614.4
        20W        20 6 1497.6 4 408  -    614.4
        40W        40 6 1984   4 1173 -    1203.2 *""",
    "orin-nano-8gb": """
        15W 15 6 -   4 -   -    - *
        7W  7  4 960 2 408 2133 -""",
    "orin-nano-8gb-super": """
        15W        15 6 1497.6 4 612 2133 -
        25W        25 6 1344   4 918 3199 - *
        MAXN_SUPER -  6 -      4 -   -    -""",
    "orin-nano-4gb": """
        10W    10 6 -     2 -   -    - *
        7W_AI  7  4 806.4 2 408 2133 -
        7W_CPU 7  4 960   2 306 2133 -""",
    "orin-nano-4gb-super": """
        10W        10 6 1497.6 2 612  2133 -
        25W        25 6 1728   2 1020 3199 - *
        MAXN_SUPER -  6 -      2 -    -    -""",
}


def modes():
    for key, text in MODES.items():
        for line in text.strip().splitlines():
            yield pytest.param(key, line.split(), id=f"{key}/{line.split()[0]}")


def number(text):
    return None if text == "-" else float(text)


@pytest.mark.parametrize(("key", "row"), list(modes()))
def test_every_power_mode_is_that_of_nvpmodel(key, row):
    name, watts, cpus, _, tpcs, gpu_mhz, memory_mhz, dla_mhz, *_ = row
    machine = find_machine(f"{key}/{name}")
    mode, uncapped = machine.mode, find_machine(key)

    assert (mode.watts, mode.cpu_cores) == (number(watts), int(cpus))
    assert machine.sm_count == 2 * int(tpcs)
    assert machine.gpu_hz == (uncapped.gpu_hz if gpu_mhz == "-" else float(gpu_mhz) * 1e6)
    assert mode.memory_mhz == number(memory_mhz)
    assert mode.dla_mhz == (None if dla_mhz == "-" else tuple(map(float, dla_mhz.split("/"))))
    assert machine.peak(Precision.INT8) <= uncapped.peak(Precision.INT8)
    assert machine.bytes_per_s <= uncapped.bytes_per_s


def test_no_mode_is_left_out_or_made_up():
    of_table = {machine.key: list(machine.facts.modes) for machine in all_machines() if machine.facts.modes}

    assert of_table == {key: [line.split()[0] for line in text.strip().splitlines()] for key, text in MODES.items()}


def test_int8_at_power_modes_as_worked_out_in_the_notes():
    for name, tera in (
        ("agx-orin-64gb/50W", 53.5), ("agx-orin-64gb/30W", 20.1), ("agx-orin-64gb/15W", 10.0),
        ("agx-orin-32gb/40W", 46.8), ("orin-nx-16gb/25W", 13.4), ("orin-nx-16gb/15W", 10.0),
        ("orin-nano-8gb-super/25W", 30.1), ("orin-nano-8gb-super/15W", 20.1), ("orin-nano-8gb/7W", 6.7),
    ):  # fmt: skip
        assert find_machine(name).peak(Precision.INT8) == pytest.approx(tera * 1e12, rel=WITHIN)
    assert find_machine("agx-orin-64gb/MODE_15W").bytes_per_s == pytest.approx(136.5e9, rel=WITHIN)
    assert find_machine("orin-nx-16gb/10W").dla_peak() == pytest.approx((153.6 + 115) / 1600 * 26.25e12, rel=WITHIN)


def test_decoders():
    streams = {machine.key: machine.facts.decoder.streams["h265"]["1080p30"] for machine in all_machines()
               if machine.facts.decoder is not None and machine.facts.decoder.streams}  # fmt: skip

    assert streams == {
        "agx-orin-64gb": 22, "agx-orin-industrial": 22, "agx-orin-32gb": 18, "orin-nx-16gb": 18, "orin-nx-8gb": 18,
        "orin-nano-8gb": 11, "orin-nano-4gb": 11,
    }  # fmt: skip
    assert not any(
        "h264" in (machine.facts.decoder.streams if machine.facts.decoder else {}) for machine in all_machines()
    )


def test_json_holds_what_is_known_and_nothing_for_the_rest():
    nx, industrial = find_machine("orin-nx-16gb/10W").as_json(), find_machine("agx-orin-industrial").as_json()

    assert (nx["watts"], nx["memory_gb"], nx["cpu_cores"]) == (10, 16, 4)
    assert nx["dla_int8_per_s"] == pytest.approx((153.6 + 115) / 1600 * 26.25e12)
    assert nx["decoder"]["streams"]["h265"] == {"8k30": 1, "4k60": 2, "4k30": 4, "1080p60": 9, "1080p30": 18}
    assert (industrial["watts"], industrial["memory_gb"], industrial["cpu_cores"]) == (None, None, None)
    assert find_machine("orin-nx-16gb").as_json()["cpu_cores"] == 8
    assert find_machine("rtx-4090").as_json()["decoder"] is None


def test_a_machine_is_found_as_people_write_it_and_a_stranger_is_told_its_neighbours():
    assert find_machine(" AGX-Orin-64GB/30w ").called == "agx-orin-64gb/MODE_30W"
    assert find_machine("orin-nano-8gb-super/25W").title == "Jetson Orin Nano 8 GB, Super, 25W"
    with pytest.raises(ConfigError, match=r"'orin-nano': there is none of that name \(nearest: orin-nano-8gb, "):
        find_machine("orin-nano")
    with pytest.raises(ConfigError, match="has no power mode '9w'; expected one of 15W, 7W"):
        find_machine("orin-nano-8gb/9W")
    with pytest.raises(ConfigError, match="none of its modes is known"):
        find_machine("rtx-4090/250W")
    with pytest.raises(ConfigError, match=r"'zzz': .*; edge-deploy roofline --list"):
        find_machine("zzz")


def test_every_figure_has_a_source_that_is_explained():
    table = machine_table()
    used = {architecture.source for architecture in table.architectures.values()} | {table.dla.source}
    for facts in table.machines.values():
        parts = (facts.gpu, facts.memory, facts.cpu, facts.dla, facts.decoder, facts.advertised)
        used |= {part.source for part in parts if part is not None}
        used |= {facts.modes_source} if facts.modes else set()

    assert used == set(table.sources)
    assert {facts.architecture for facts in table.machines.values()} == set(table.architectures)
