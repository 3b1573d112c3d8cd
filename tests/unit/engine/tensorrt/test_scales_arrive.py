"""What TensorRT is handed, number by number: scales, flags and shapes, read from its side of the interface."""

import struct

import onnx
import pytest

from edge.engine.kind import QdqForm
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.plan import split_plan
from edge.engine.tensorrt.runner import load_engine
from edge.errors import EngineError
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from tests.support import fake_tensorrt
from tests.support.fake_gpu import DESKTOP, build
from tests.support.fake_tensorrt import builder as fake_builder

WEAK, STRONG = ["8.6.1", "10.3.0", "10.16.1.11"], ["11.4.0.106", "rtx-1.7.1.116"]


@pytest.mark.parametrize("version", WEAK)
def test_each_range_is_the_largest_value_of_its_tensor_to_both_sides(forms, handed, version):
    with fake_tensorrt.used(version, build=handed):
        build(forms, route="implicit-ranges")
    network = handed.network
    tensors = [*network._inputs, *(one for layer in network._layers for one in layer._outputs)]
    assert {one.name: one._range for one in tensors if one._range} == {
        name: (-amax, amax) for name, amax in forms.ranges.items()
    }


@pytest.mark.parametrize(("version", "number"), [("8.6.1", 8601), ("10.3.0", 100300), ("10.16.1.11", 101601)])
def test_the_cache_holds_a_127th_of_each_range_behind_the_library_s_own_header(forms, handed, version, number):
    with fake_tensorrt.used(version, build=handed):
        build(forms, route="implicit-cache")
        content = bytes(handed.config.int8_calibrator.read_calibration_cache()).decode()
    header, *lines = content.splitlines()
    assert header == f"TRT-{number}-EntropyCalibration2"
    scales = {name: struct.unpack(">f", bytes.fromhex(bits))[0] for name, bits in (one.split(": ") for one in lines)}
    assert scales == pytest.approx({name: amax / 127 for name, amax in forms.ranges.items()}, rel=1e-6)


def test_a_builder_that_asks_for_images_and_builds_all_the_same_is_refused(forms, monkeypatch):
    def calibrated_anew(fake, logger, network, calibrator):
        calibrator.read_calibration_cache()
        calibrator.get_batch(["images"])
        return True

    monkeypatch.setattr(fake_builder, "scales_of", calibrated_anew)
    with fake_tensorrt.used(), pytest.raises(EngineError, match="did not take the calibration cache"):
        build(forms, route="implicit-cache")


def test_a_builder_that_never_asks_for_the_cache_is_refused(forms, monkeypatch):
    monkeypatch.setattr(fake_builder, "scales_of", lambda *ignored: True)
    with fake_tensorrt.used(), pytest.raises(EngineError, match="did not ask for the calibration cache"):
        build(forms, route="implicit-cache")


def test_a_pair_that_is_no_layer_of_the_network_is_no_silent_float(forms, monkeypatch):
    with fake_tensorrt.used() as fake:
        parse = fake.module.OnnxParser.parse

        def lose_one(self, model, path=None):
            done, network = parse(self, model, path), self._network
            first = next(one for one in network._layers if one.type.name == "QUANTIZE")
            network._layers.remove(first)
            return done

        monkeypatch.setattr(fake.module.OnnxParser, "parse", lose_one)
        with pytest.raises(EngineError, match=r'pairs of 1 tensors did not reach TensorRT.s network: "images'):
            build(forms)


def test_scales_that_no_pair_states_are_named(forms):
    forms.more = {"elsewhere": 1.0}
    with fake_tensorrt.used():
        told = build(forms).report["scales"]
    assert "elsewhere" in told["unused"]
    assert told["given"] - told["consumed"] == len(told["unused"])


def test_tensors_without_a_scale_are_named_where_scales_come_beside_the_model(forms):
    forms.without = (next(name for name in forms.ranges if name != forms.spec.input_name),)
    with fake_tensorrt.used():
        told = build(forms, route="implicit-ranges").report["scales"]
    assert set(forms.without) <= set(told["missing"])
    assert not set(told["missing"]) & set(forms.ranges)


@pytest.mark.parametrize("version", [*WEAK, *STRONG])
@pytest.mark.parametrize(
    ("precision", "flags"), [("fp32", set()), ("fp16", {"FP16", "TF32"}), ("int8", {"FP16", "INT8", "TF32"})]
)
def test_flags_are_those_of_the_precision_and_of_none_where_the_file_states_types(
    forms, handed, version, precision, flags
):
    with fake_tensorrt.used(version, build=handed):
        build(forms, precision, device=DESKTOP)
    expected = flags if version in WEAK else flags & {"TF32"}
    assert handed.flags == expected


def test_an_open_batch_is_tuned_for_its_most_frames_and_takes_fewer(forms, handed):
    with fake_tensorrt.used(build=handed):
        build(forms, "fp16", max_batch=5)
    (profile,) = handed.config._profiles
    assert profile._shapes == {forms.spec.input_name: ((1, 3, 96, 96), (5, 3, 96, 96), (5, 3, 96, 96))}


def test_a_plan_says_its_precision_and_a_dla_core_reaches_whoever_loads_it(forms):
    cores = []

    with fake_tensorrt.used(dla_cores=2) as fake:
        runtime = fake.module.Runtime
        load = runtime.deserialize_cuda_engine

        def spy(self, content):
            cores.append(self.DLA_core)
            return load(self, content)

        runtime.deserialize_cuda_engine = spy
        plans = {one: split_plan(build(forms, one, dla_core=1).data) for one in ("int8", "fp16")}
        header, content = plans["fp16"]
        load_engine(import_tensorrt(), content, name="m", dla_core=header.dla_core)
    assert {one: header.precision for one, (header, _) in plans.items()} == {"int8": "int8", "fp16": "fp16"}
    assert set(cores) == {1}  # where the machine has a GPU, a build loads its plan, too


def test_measurements_of_another_gpu_are_never_used(forms, monkeypatch, tmp_path):
    ignored = []
    with fake_tensorrt.used() as fake:
        give = fake.module.IBuilderConfig.set_timing_cache

        def spy(self, cache, ignore_mismatch):
            ignored.append(ignore_mismatch)
            return give(self, cache, ignore_mismatch)

        monkeypatch.setattr(fake.module.IBuilderConfig, "set_timing_cache", spy)
        build(forms, "fp16", cache=tmp_path)
    assert set(ignored) == {False}


@pytest.mark.parametrize("version", [*WEAK, *STRONG])
def test_fp16_is_a_float16_file_where_the_file_states_types_and_a_float32_one_elsewhere(forms, handed, version):
    with fake_tensorrt.used(version, build=handed):
        build(forms, "fp16", device=DESKTOP)
    stored = onnx.load_from_string(handed.network._content).graph.initializer
    has_float16 = any(one.data_type == onnx.TensorProto.FLOAT16 for one in stored)
    assert has_float16 == (version in STRONG)


def test_what_stays_in_float_is_bound_to_float16_and_the_builder_has_to_obey(forms, handed):
    forms.kept = ("Conv_0",)
    with fake_tensorrt.used(build=handed) as fake:
        build(forms, route="implicit-ranges")
    bound = {one.name: one.precision for one in handed.network._layers if one.precision is not None}
    assert "Conv_0" in bound
    assert set(bound.values()) == {fake.module.DataType.HALF}
    assert "OBEY_PRECISION_CONSTRAINTS" in handed.flags


@pytest.fixture
def paired(forms, tmp_path):
    """A model that carries its pairs itself."""
    path = tmp_path / "paired.onnx"
    path.write_bytes(forms.qdq_model(QdqForm()).model)
    return Forms(inspect_model(path))


def test_a_model_with_pairs_of_its_own_has_no_implicit_way(paired):
    with fake_tensorrt.used(), pytest.raises(EngineError, match=r"implicit-cache: .*Q/DQ"):
        build(paired, route="implicit-cache")


def test_a_dla_core_refuses_pairs_of_the_model_s_own(paired):
    with fake_tensorrt.used(dla_cores=1), pytest.raises(EngineError, match="takes scales, and no Q/DQ pairs"):
        build(paired, dla_core=0)


def test_pairs_of_the_model_s_own_are_all_counted(paired):
    with fake_tensorrt.used():
        told = build(paired).report["scales"]
    assert told["given"] == told["consumed"] >= 10
