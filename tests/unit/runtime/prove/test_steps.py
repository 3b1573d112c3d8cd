"""What single steps find: on this machine, on files of another one, over stand-ins, and where something is wrong."""

import dataclasses
import functools
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from edge.device.sensors import Sensors, ThermalZone
from edge.engine.kind import ProofForm, ProvingKind, load_kind, quick_kind, usable_kind
from edge.errors import EngineError, MissingDependencyError
from edge.roofline.proof import Verdict
from edge.runtime.prove import child, kit, look
from edge.runtime.prove.kit import NotHereError, held, parts
from edge.runtime.prove.look import facts, nodes
from edge.types import Precision
from tests.support import fake_tensorrt
from tests.support.cuda_driver import stand_in
from tests.support.fake_gpu import fake_board

ROOT = Path(__file__).parents[4]
ORIN = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0"


def by_name(rows):
    return {row.name: row for row in rows}


def test_a_part_that_breaks_is_a_row_and_the_next_is_begun():
    def broken(error):
        yield held("first", True, "")
        raise error

    found = by_name(
        parts(
            ("absent", lambda: broken(NotHereError("no such thing"))),
            ("missing", lambda: broken(MissingDependencyError("no library"))),
            ("wrong", lambda: broken(EngineError("no engine"))),
            ("bug", lambda: broken(ZeroDivisionError("division by zero"))),
        )
    )

    assert {name: row.verdict for name, row in found.items()} == {
        "first": Verdict.PROVEN,
        "absent": Verdict.ABSENT,
        "missing": Verdict.ABSENT,
        "wrong": Verdict.FAILS,
        "bug": Verdict.FAILS,
    }


def test_the_facts_tell_which_machine_of_the_table_it_is(tmp_path, monkeypatch):
    sudo = tmp_path / "sudo"
    sudo.write_text(f'#!/bin/sh\ntouch {tmp_path}/asked\nexec "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setattr(look, "run_as_root", lambda: (str(sudo),))
    files = {
        "proc/device-tree/model": ORIN,
        "proc/meminfo": "MemTotal:        7802188 kB\nMemAvailable:    6000000 kB\nSwapTotal: 3900000 kB\n",
        "sys/class/thermal/thermal_zone0/type": "gpu-thermal",
        "sys/class/thermal/thermal_zone0/temp": "51500",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "1728000",
        "etc/edge-deploy/device.toml": 'name = "gate-01"\ncompatible = ["orin-nano-8gb"]\n',
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
        "var/lib/edge-deploy/x": "",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    found = by_name(facts(tmp_path))

    assert found["machine"].values["key"] == "orin-nano-8gb-super"
    assert "52 C of 1 zones" in found["heat"].detail
    assert "max 1.73 GHz" in found["clocks"].detail
    assert "MemAvailable 5859 MiB" in found["memory"].detail
    assert found["device"].verdict is Verdict.TOLD
    assert found["device"].values["l4t"] == "36.4.3"
    assert (tmp_path / "asked").exists()  # root was: an ordinary user may not read all of a device
    assert found["onnx"].verdict is Verdict.TOLD  # what doctor finds


def test_a_machine_that_is_no_device_has_no_facts_of_one(tmp_path):
    assert by_name(facts(tmp_path))["device"].verdict is Verdict.ABSENT


def test_nodes_of_the_unit_are_opened_and_what_is_refused_is_worse(tmp_path, monkeypatch):
    unit = tmp_path / "unit"
    unit.write_text("[Service]\nDeviceAllow=/dev/nvmap rw\nDeviceAllow=/dev/nvidia0 rw\nDeviceAllow=char-drm rw\n")
    for name in ("nvmap", "nvidia0", "dri/renderD128"):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    opened = os.open

    def refused(path, flags, *more):
        if str(path).endswith("nvidia0"):
            raise PermissionError(1, "Operation not permitted")
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", refused)
    found = by_name(nodes(tmp_path, unit))

    assert found["/dev/nvmap"].verdict is found["/dev/dri/renderD128"].verdict is Verdict.PROVEN
    assert found["/dev/nvidia0"].verdict is Verdict.WORSE
    assert found["argus"].verdict is Verdict.ABSENT


def test_a_unit_that_does_not_start_is_told_with_its_last_line_and_has_folders_of_its_own(tmp_path, monkeypatch):
    said = {"systemd-run": "", "systemctl": "ActiveState=activating\nResult=exit-code", "journalctl": "error: no key"}
    for name, told in said.items():
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}\necho "{told}"\n')
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(look, "_READY_S", 0.0)
    monkeypatch.setattr(look, "why_no_sandbox", lambda: None)
    monkeypatch.setattr(look, "run_as_root", lambda: ())
    monkeypatch.setattr(look, "within_sandbox", functools.partial(look.within_sandbox, unit=kit.UNIT))

    (row,) = look.unit(tmp_path)

    assert row.verdict is Verdict.FAILS
    assert "error: no key" in row.detail
    name = f"edge-prove-{os.getpid()}"
    assert f"_SYSTEMD_UNIT={name}.service" in (tmp_path / "journalctl").read_text()
    asked = (tmp_path / "systemd-run").read_text()
    assert f"RuntimeDirectory={name} " in asked
    assert f"STATE_DIRECTORY=/run/{name} " in asked


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_the_socket_of_csi_cameras_is_asked(tmp_path, kind):
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/nvargus-daemon").touch()
    (tmp_path / "tmp").mkdir()
    assert by_name(nodes(tmp_path))["argus"].verdict is Verdict.WORSE

    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(tmp_path / "tmp/argus_socket"))
        server.listen()
        assert by_name(nodes(tmp_path))["argus"].verdict is Verdict.PROVEN


def test_the_nodes_are_those_of_the_unit_that_is_installed():
    found = by_name(nodes(Path("/nonexistent")))

    assert found["nodes"].verdict is Verdict.ABSENT  # the unit was read, and none of its nodes is there


@pytest.mark.parametrize("decoder", [*child._decoders()])
def test_colours_come_as_they_were_drawn(decoder):
    for path in sorted(kit.BARS.iterdir()):
        (row,) = child._colours(decoder, path)
        assert row.verdict is Verdict.PROVEN, row


def test_colours_by_another_matrix_are_worse(monkeypatch):
    first = child._first

    def as_601(source):
        rgb = first(source).astype(np.float64) / 255
        luma = rgb @ (0.2126, 0.7152, 0.0722)
        blue, red = (rgb[..., 2] - luma) / 1.8556, (rgb[..., 0] - luma) / 1.5748
        wrong = np.stack([luma + 1.402 * red, luma - 0.3441 * blue - 0.7141 * red, luma + 1.772 * blue], axis=-1)
        return (255 * wrong).clip(0, 255).astype(np.uint8)

    monkeypatch.setattr(child, "_first", as_601)
    (row,) = child._colours([*child._decoders()][-1], kit.BARS / "h264-709-limited.mp4")

    assert row.verdict is Verdict.WORSE


def test_a_paste_of_four_bytes_is_within_its_bound():
    (row,) = child._pastes()

    assert row.values["rgba_us"] > 0
    assert row.values["rgb_us"] > 0


def test_a_machine_that_decodes_nothing_says_so(monkeypatch):
    monkeypatch.setattr(child, "_decoders", lambda: iter(()))
    (told, absent) = parts(("video", lambda: child.video(is_brief=False)))

    assert (told.verdict, absent.verdict) == (Verdict.TOLD, Verdict.ABSENT)


def test_without_a_gpu_its_steps_say_what_is_missing(tmp_path):
    if os.path.exists("/dev/nvidia0") or os.path.exists("/dev/nvhost-gpu"):
        pytest.skip("there is a GPU")
    found = [
        *parts(("cuda", lambda: child.cuda(is_brief=False))),
        *parts(("forms", lambda: child.forms(tmp_path))),
        *parts(("dla", lambda: child.dla(tmp_path))),
    ]

    assert [row.verdict for row in found] == [Verdict.ABSENT] * 3


def test_cuda_of_a_gpu_is_asked_whether_or_not_its_library_is_there():
    with stand_in():
        found = by_name(child.cuda(is_brief=True))

    assert found["normalize float32"].verdict is Verdict.PROVEN


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch):
    monkeypatch.setattr(kit, "_GOLDEN", 4)


def two_forms():
    kind = quick_kind(usable_kind())
    return kind, [
        ProofForm(name=one.value, precision=one, options=kind.options_type())
        for one in (Precision.FP32, Precision.INT8)
    ]


@pytest.fixture
def timed(tmp_path, monkeypatch):
    """Prove both, whose batches are made to take as long as is said."""

    def timed(*batch_ms):
        times = iter(batch_ms)
        monkeypatch.setattr(child, "_batch_ms", lambda engine: next(times))
        return by_name(child.forms_of_kind(*two_forms(), tmp_path))

    return timed


def test_forms_are_built_held_against_the_float_model_and_the_fastest_is_named(timed):
    found = timed(8.0, 5.0)

    assert found["fp32"].verdict is found["int8"].verdict is Verdict.PROVEN
    assert found["int8"].values["low_bytes"] > 0
    assert found["form"].values["form"] == "int8"
    assert found["form"].verdict is Verdict.PROVEN


@pytest.mark.slow(reason="builds two engines")
def test_int8_that_is_not_faster_is_worse(timed):
    assert timed(5.0, 8.0)["form"].verdict is Verdict.WORSE


@pytest.mark.slow(reason="builds two engines")
def test_int8_that_finds_something_else_is_not_taken(timed, monkeypatch):
    detected = child.detect_golden
    calls = []

    def less_in_int8(canvases, engine, detector):
        found = detected(canvases, engine, detector)
        calls.append(engine)
        few = slice(0, 1)
        is_last = len(calls) == 3  # the float model, FP32, INT8
        return [dataclasses.replace(one, xyxy=one.xyxy[few], score=one.score[few], class_id=one.class_id[few])
                if is_last else one for one in found]  # fmt: skip

    monkeypatch.setattr(child, "detect_golden", less_in_int8)
    found = timed(5.0, 1.0)
    assert found["int8"].verdict is Verdict.WORSE
    assert found["form"].values["form"] == "fp32"


def test_a_form_that_cannot_be_built_is_a_row_and_none_at_all_fails(tmp_path, monkeypatch):
    kind, forms = two_forms()

    class Refusing:
        options_type = kind.options_type

        def build(self, model, request):
            raise EngineError("no implementation")

    found = by_name(child.forms_of_kind(Refusing(), forms, tmp_path))

    assert found["int8"].verdict is Verdict.WORSE
    assert found["form"].verdict is Verdict.FAILS


def test_forms_that_nobody_has_time_for_are_told(tmp_path, monkeypatch):
    kind, forms = two_forms()
    monkeypatch.setattr(child, "_BEGIN_S", -1.0)

    found = by_name(child.forms_of_kind(kind, forms, tmp_path))

    assert {name: row.verdict for name, row in found.items()} == {
        "fp32": Verdict.WORSE,
        "int8": Verdict.WORSE,
        "form": Verdict.FAILS,
    }


def test_the_forms_of_a_gpu_are_float_and_each_way_to_int8_that_its_library_has():
    gpu = load_kind("tensorrt")
    assert isinstance(gpu, ProvingKind)
    names = {}
    for version in ("8.6.1", "10.3.0", "11.4.0.106"):
        with fake_tensorrt.used(version):
            names[version] = [form.name for form in gpu.forms()]

    assert names["8.6.1"] == ["fp16", "int8 qdq-weak", "int8 implicit-cache", "int8 implicit-ranges"]
    assert set(names["10.3.0"]) - set(names["8.6.1"]) == {"int8 qdq-strong"}
    assert names["11.4.0.106"] == ["fp16", "int8 qdq-strong"]


def test_heat_and_power_are_held_and_told():
    hot = Sensors(
        zones={"gpu": ThermalZone(celsius=91.0)}, throttled_by=("gpu-throttle-alert",), watts={"VDD_IN": 12.0}
    )
    cool = Sensors(zones={"gpu": ThermalZone(celsius=60.0)}, watts={"VDD_IN": 8.0})

    found = by_name(look._of_sensors([hot, cool], fps=100.0))

    assert found["heat under load"].verdict is Verdict.WORSE
    assert found["heat under load"].values["celsius"] == 91.0
    assert found["rail VDD_IN"].values == {"watts": 10.0, "joules": 0.1}
    assert by_name(look._of_sensors([cool], fps=1.0))["heat under load"].verdict is Verdict.PROVEN
    assert {row.verdict for row in look._of_sensors([Sensors()], fps=1.0)} == {Verdict.ABSENT}


@pytest.mark.slow(reason="builds an engine for each way to INT8")
def test_a_board_is_told_which_form_to_take(tmp_path, monkeypatch):
    """The kind of engine of a Jetson, over the stand-ins for its driver and its library, which compute."""
    monkeypatch.setattr(child, "_BATCHES", 1)
    with fake_board():
        found = by_name(parts(("forms", lambda: child.forms(tmp_path))))

    forms = ["fp16", "int8 qdq-weak", "int8 qdq-strong", "int8 implicit-cache", "int8 implicit-ranges"]
    assert list(found) == [*forms, "form"]
    assert found["fp16"].verdict is Verdict.PROVEN
    assert found["int8 qdq-weak"].values["report"]["route"] == "qdq-weak"
    assert found["form"].values["form"] in forms


@pytest.mark.slow(reason="builds an engine for each way to INT8")
def test_forms_that_a_board_does_not_build_are_told_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_BATCHES", 1)

    def no_pairs(network, config):
        is_explicit = any(layer.type.name == "QUANTIZE" for layer in network._layers)
        return "Could not find any implementation for node Conv_3" if is_explicit else None

    with fake_board(build=no_pairs):
        found = by_name(parts(("forms", lambda: child.forms(tmp_path))))

    for name in ("int8 qdq-weak", "int8 qdq-strong"):
        assert found[name].verdict is Verdict.WORSE
        assert "Could not find any implementation for node Conv_3" in found[name].detail
    assert found["form"].values["form"] in ("fp16", "int8 implicit-cache", "int8 implicit-ranges")


def test_a_core_beside_the_gpu_is_asked_where_its_node_is(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_BATCHES", 1)
    with fake_board():
        assert [row.verdict for row in parts(("dla", lambda: child.dla(tmp_path)))] == [Verdict.ABSENT]

        monkeypatch.setattr("edge.engine.tensorrt.kind._DLA_NODE", tmp_path)
        found = by_name(parts(("dla", lambda: child.dla(tmp_path))))
    assert "dla" in found


def test_a_form_whose_tactics_lacked_memory_is_worse(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_BATCHES", 1)
    with fake_board(tactics_mib=(1, 1 << 22)):
        kind = load_kind("tensorrt")
        found = by_name(child.forms_of_kind(kind, [next(iter(kind.forms()))], tmp_path))
    assert found["fp16"].verdict is Verdict.WORSE
    assert found["fp16"].values["report"]["skipped_tactics"] == 1
    assert found["fp16"].values["singly_ms"] > 0
    assert "without a graph" in found["fp16"].detail
