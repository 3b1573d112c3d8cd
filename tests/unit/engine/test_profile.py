"""Times of layers under their names in the ONNX file, and which layers can be told apart in what an engine runs."""

import dataclasses
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from edge.engine.kind import nodes_of_lone_layers
from edge.engine.openvino import profile
from edge.engine.openvino.profile import OpenVinoLayerProfiler, executed_node_of_layers, names_in_nodes
from edge.model.inspect import inspect_model
from tests.support import models
from tests.support.tables import quantized
from tests.support.values import canvases


def convolutions(path):
    return [node.name for node in onnx.load(path).graph.node if node.op_type == "Conv"]


def times_of(profiler, spec, runs=3):
    for _ in range(runs):
        profiler.run(canvases(spec, rows=1))
    return profiler.times()


def test_every_convolution_is_found_in_float_and_in_int8(tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec, names = inspect_model(path), convolutions(path)
    int8 = dataclasses.replace(spec, is_quantized=True)

    for profiler in (
        OpenVinoLayerProfiler(spec, names),
        OpenVinoLayerProfiler(int8, names, content=quantized(path).model),
    ):
        times = times_of(profiler, spec)

        assert set(times) == set(names)
        assert {seconds.shape for seconds in times.values()} == {(3,)}
        assert all(0 <= seconds.max() < 1 for seconds in times.values())
        assert sum(seconds.sum() for seconds in times.values()) > 0


def test_a_run_too_short_to_be_counted_is_no_reason_to_leave_a_layer_out(tmp_path, monkeypatch):
    """OpenVINO says of a layer that took less than a microsecond that it was not run."""
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    spec, names = inspect_model(path), convolutions(path)
    profiler = OpenVinoLayerProfiler(spec, names)
    profiler.run(canvases(spec, rows=1))
    short = profiler._executed[names[0]]
    executed = profile._executed
    monkeypatch.setattr(profile, "_executed", lambda it: (one for one in executed(it) if one.node_name != short))
    profiler.run(canvases(spec, rows=1))

    times = profiler.times()

    assert set(times) == set(names)
    assert times[names[0]][1] == 0


def test_a_layer_that_is_too_short_to_be_counted_in_every_run_has_times_of_zero(tmp_path, monkeypatch):
    spec = inspect_model(models.yolox(tmp_path / "m.onnx", batch=1))
    names = convolutions(spec.path)
    monkeypatch.setattr(profile, "_executed", lambda _: ())

    times = times_of(OpenVinoLayerProfiler(spec, names), spec)

    assert {name: list(seconds) for name, seconds in times.items()} == {name: [0, 0, 0] for name in names}


def test_an_interruption_lies_in_one_run_alone(tmp_path, monkeypatch):
    """OpenVINO reports the mean of all inferences so far, those that warm up among them."""
    spec = inspect_model(models.yolox(tmp_path / "m.onnx", batch=1))
    layer = convolutions(spec.path)[0]
    profiler = OpenVinoLayerProfiler(spec, [layer])
    took_us = iter([900, 200, 4200, 200, 200])
    so_far_us: list[int] = []

    def reported(_):
        so_far_us.append(next(took_us))
        mean_us = sum(so_far_us) // len(so_far_us)
        info = SimpleNamespace(node_name=profiler._executed[layer], real_time=timedelta(microseconds=mean_us))
        return [info]

    monkeypatch.setattr(profile, "_executed", reported)
    profiler.warm_up(canvases(spec, rows=1))

    times = times_of(profiler, spec, runs=4)[layer]

    assert times * 1e6 == pytest.approx([200, 4200, 200, 200], abs=5)


def test_the_largest_layer_takes_more_time_than_the_smallest(tmp_path):
    spec = inspect_model(models.yolov8(tmp_path / "m.onnx", size=320, batch=1))
    names = convolutions(spec.path)
    first, depthwise = names[0], names[7]  # 3 to 8 channels, 3x3, at 160x160, and 1 to 1 at 10x10: 500 times the work

    times = times_of(OpenVinoLayerProfiler(spec, names), spec, runs=9)

    assert np.median(times[first]) > 5 * np.median(times[depthwise])


def test_nodes_without_names_are_called_after_their_outputs(tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=1)
    model = onnx.load(path)
    outputs = [node.output[0] for node in model.graph.node if node.op_type == "Conv"]
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, path)
    spec = inspect_model(path)

    assert set(times_of(OpenVinoLayerProfiler(spec, outputs), spec)) == set(outputs)


def test_a_fixed_batch_is_told_for_one_frame(tmp_path):
    path = models.yolox(tmp_path / "m.onnx", batch=4, size=192)
    spec, names = inspect_model(path), convolutions(path)
    profiler = OpenVinoLayerProfiler(spec, names)

    profiler.run(canvases(spec, rows=4))

    info = {one.node_name: one.real_time.total_seconds() for one in profiler._request.get_profiling_info()}
    assert profiler.times()[names[0]][0] == pytest.approx(info[profiler._executed[names[0]]] / 4)


def test_what_is_not_one_node_of_its_own_is_left_out():
    origins = {
        "a/fused": "a/fused,a,a/act",
        "b+c": "b,c",
        "d/1": "d",
        "d/2": "d,sum",
        "long/e": "long/e",
        "x": "with,comma,more",
        "f/WithoutBiases": "f/WithoutBiases,f/act",
    }

    found = executed_node_of_layers(origins, ["a", "b", "c", "d", "e", "with,comma", "f", "gone"])

    assert found == {"a": "a/fused", "with,comma": "x", "f": "f/WithoutBiases"}


def test_a_layer_that_is_not_there_has_no_time(tmp_path):
    spec = inspect_model(models.yolox(tmp_path / "m.onnx", batch=1))

    assert times_of(OpenVinoLayerProfiler(spec, ["nonsense"]), spec) == {}


def test_names_are_found_whole_whatever_is_in_them():
    origins = {"one": "a,b/WithoutBiases,c", "two": "ab,x,y", "none": ""}

    assert names_in_nodes(origins, ["a", "b", "x,y", "y", "bc"]) == {
        "one": {"a", "b"}, "two": {"x,y", "y"}, "none": frozenset(),
    }  # fmt: skip


def test_a_layer_is_alone_where_none_of_its_nodes_is_another_ones_too():
    layers_of = {
        "x": {"a"},
        "y": {"a"},
        "both": {"b", "c"},
        "rest of b": {"b"},
        "none": set(),
        "z": {"d"},
    }

    assert nodes_of_lone_layers(layers_of) == {"a": ["x", "y"], "d": ["z"]}
