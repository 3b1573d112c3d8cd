"""What a pipeline file states against the bound of machines, by their names and by what this machine says of itself."""

import re
from pathlib import Path

import pytest

from edge.capacity.fit import answer_of, beyond_all_jetsons, beyond_bound, machines_among, stated_work
from edge.capacity.platform import machine_here
from edge.capacity.work import model_of_pipeline
from edge.config.pipeline import load_pipeline
from edge.runtime.doctor import examine_bound
from tests.support.sysfs import write_tree

MODEL = Path(__file__).parents[3] / "edge/demo/model/traffic.onnx"
NANO = "NVIDIA Jetson Orin Nano Developer Kit\0"
MIB_8GB = "MemTotal:        7802468 kB\n"


def pipeline_of(folder, *streams):
    path = folder / "p.yaml"
    lines = "".join(f"  - {one}\n" for one in streams)
    path.write_text(
        f"version: 1\nmodel: {{onnx: {MODEL}, precision: fp16}}\npublish: {{jsonl: '-'}}\nstreams:\n{lines}"
    )
    return load_pipeline(path)


def rtsp(count, fps):
    return [f"{{id: c{number}, uri: 'rtsp://x/{number}', max_fps: {fps}}}" for number in range(count)]


def work_of_file(folder, *streams):
    pipeline = pipeline_of(folder, *streams)
    return stated_work(pipeline, model_of_pipeline(pipeline))


def test_only_rates_that_are_stated_of_live_streams_count(tmp_path):
    (tmp_path / "c.mp4").touch()
    streams = (
        "{id: a, uri: 'rtsp://x/a', max_fps: 7}", "{id: b, uri: 'rtsp://x/b'}", "{id: c, uri: c.mp4, max_fps: 9}",
        "{id: d, uri: c.mp4, realtime: true, max_fps: 11}",
    )  # fmt: skip

    assert [(one.id, one.wanted_fps) for one in work_of_file(tmp_path, *streams).cameras] == [("a", 7), ("d", 11)]
    assert work_of_file(tmp_path, streams[1]) is None


def test_a_machine_is_told_when_even_its_bound_is_exceeded_and_what_would_fit_does(tmp_path, platform):
    machines = [platform("orin-nano-4gb/7W_CPU"), platform("agx-orin-64gb")]
    work = work_of_file(tmp_path, *rtsp(12, 600))
    (sentence,) = beyond_bound(work, machines)
    fit = float(re.search(r"max_fps ([\d.]+) for each", sentence)[1])
    streams = int(re.search(r"or (\d+) of 12 streams", sentence)[1])

    assert sentence.startswith("orin-nano-4gb/7W_CPU: 7200 fps are stated, and no engine infers more than ")
    assert beyond_bound(work_of_file(tmp_path, *rtsp(12, 0.99 * fit)), machines) == []
    assert len(beyond_bound(work_of_file(tmp_path, *rtsp(12, 1.02 * fit)), machines)) == 1
    assert beyond_bound(work_of_file(tmp_path, *rtsp(streams, 600)), machines) == []
    assert len(beyond_bound(work_of_file(tmp_path, *rtsp(streams + 1, 600)), machines)) == 1


def test_what_is_slower_than_typical_but_within_the_bound_is_not_judged(tmp_path, platform):
    nano = platform("orin-nano-4gb/7W_CPU")
    work = work_of_file(tmp_path, *rtsp(12, 200))

    assert not answer_of(work, nano, headroom=0).is_served
    assert beyond_bound(work, [nano]) == []


def test_no_jetson_at_all(tmp_path):
    assert beyond_all_jetsons(work_of_file(tmp_path, *rtsp(2, 30))) == []
    (sentence,) = beyond_all_jetsons(work_of_file(tmp_path, *rtsp(100, 1000)))
    assert sentence.startswith("no Jetson of the table can; the best of them: agx-orin-64gb: 100000 fps are stated")


def test_device_classes_name_machines_at_the_most_that_they_can_be():
    found = machines_among(["any", "orin-nano-8gb", "rtx-3080", "jetson-orin", "orin-nano-8gb"])

    assert [platform.called for platform in found] == ["orin-nano-8gb-super", "rtx-3080"]


@pytest.mark.parametrize(
    ("files", "called"),
    [
        ({"proc/device-tree/model": NANO, "proc/meminfo": MIB_8GB}, "orin-nano-8gb"),
        ({"proc/device-tree/model": NANO.replace("Kit", "Kit Super"), "proc/meminfo": MIB_8GB}, "orin-nano-8gb-super"),
        ({"proc/meminfo": MIB_8GB}, None),
        ({"proc/device-tree/model": NANO}, None),
        ({"proc/device-tree/model": "Raspberry Pi 5\0", "proc/meminfo": MIB_8GB}, None),
        ({"proc/device-tree/model": NANO, "proc/meminfo": "MemTotal: many kB\n"}, None),
    ],
)
def test_this_machine_by_what_it_says(tmp_path, files, called):
    write_tree(tmp_path, files)
    found = machine_here(tmp_path)

    assert (None if found is None else found.called) == called


@pytest.mark.parametrize(("name", "called"), [("7W", "orin-nano-8gb/7W"), ("MINE", "orin-nano-8gb")])
def test_a_power_mode_that_is_known_counts(tmp_path, name, called):
    conf = f"< POWER_MODEL ID=1 NAME={name} >\n"
    write_tree(tmp_path, {"proc/device-tree/model": NANO, "proc/meminfo": MIB_8GB,
                          "var/lib/nvpmodel/status": "pmode:0001", "etc/nvpmodel.conf": conf})  # fmt: skip

    assert machine_here(tmp_path).called == called


def test_doctor_tells_the_bound_of_this_machine(tmp_path):
    root = tmp_path / "root"
    write_tree(root, {"proc/device-tree/model": NANO, "proc/meminfo": MIB_8GB})
    served = examine_bound(pipeline_of(tmp_path, *rtsp(2, 15)).path, root)
    beyond = examine_bound(pipeline_of(tmp_path, *rtsp(30, 1000)).path, root)

    assert (served.name, served.is_there) == ("bound of p.yaml", True)
    assert served.detail == "30 fps are stated, which is within that of orin-nano-8gb"
    assert (beyond.is_there, beyond.is_needed) == (False, False)
    assert "orin-nano-8gb: 30000 fps are stated, and no engine infers more than" in beyond.detail
    assert examine_bound(pipeline_of(tmp_path, "{id: a, uri: 'rtsp://x/a'}").path, root) is None
    assert examine_bound(pipeline_of(tmp_path, *rtsp(2, 15)).path, tmp_path) is None
