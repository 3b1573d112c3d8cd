"""Layers of real models in real OpenVINO, against ONNX Runtime and shares counted in its tensors."""

import dataclasses

import numpy as np
import onnx
import pytest

from edge.engine.kind import usable_kind
from edge.errors import CalibrationError
from edge.evaluate.layers import LayerVerdict, worst_layers
from edge.model.graph import load_graph
from edge.model.qdq import insert_qdq
from edge.quantize.comparison import TIMED_RUNS, ComparisonOptions, compare_model
from tests.support import models
from tests.support.tables import calibrated, run, run_node


@pytest.fixture
def model(tmp_path):
    return calibrated(tmp_path, models.yolov8(tmp_path / "m.onnx", batch=1))


def compare(model, table, **options):
    given = ComparisonOptions(model=model.spec.path, table=table, images=model.images, **options)
    return compare_model(given, usable_kind())


def by_name(found):
    return {error.layer.name: error for error in found.layers}


def sqnr_db(exact, rounded):
    exact, rounded = exact.astype(np.float64), rounded.astype(np.float64)
    return 10 * np.log10((exact**2).sum() / ((exact - rounded) ** 2).sum())


def test_sqnr_of_every_layer_equals_the_independent_reference(model):
    found = compare(model, model.table_with())

    ranges = {name: tensor.amax for name, tensor in model.table.tensors.items()}
    quantized = insert_qdq(model.spec.path, model.spec, ranges=ranges, keep_float=()).model
    names = [error.layer.output for error in found.layers] + [model.spec.output_name]
    runs = [run(quantized, {"images": image[None]}, names) for image in model.feed["images"]]
    expected = {n: sqnr_db(model.tensors[n], np.concatenate([one[n] for one in runs])) for n in names}
    for error in found.layers:
        # Sums that end near the middle of two steps may fall to either side.
        assert error.sqnr_db == pytest.approx(expected[error.layer.output], abs=1.0), error.layer.name
    assert found.output_sqnr_db == pytest.approx(expected[model.spec.output_name], abs=1.0)


def test_noise_of_its_own_is_against_the_layer_in_float_on_what_it_reads_in_int8(model):
    found = compare(model, model.table_with())

    nodes = {node.name: node for node in onnx.load(model.spec.path).graph.node}
    ranges = {name: tensor.amax for name, tensor in model.table.tensors.items()}
    quantized = insert_qdq(model.spec.path, model.spec, ranges=ranges, keep_float=()).model
    graph = load_graph(model.spec.path)
    for error in found.layers[1:4]:
        node, layer = nodes[error.layer.name], error.layer
        stored = {name: graph.initializer(name) for name in node.input[1:]}
        exact, rounded = [], []
        for image in model.feed["images"]:
            one = run(quantized, {"images": image[None]}, [layer.input_, layer.output])
            exact += run_node(node, {layer.input_: one[layer.input_], **stored})
            rounded.append(one[layer.output])
        expected = sqnr_db(np.concatenate(exact), np.concatenate(rounded))
        assert error.own_sqnr_db == pytest.approx(expected, abs=0.5), layer.name


def test_the_layer_behind_a_bad_range_is_not_blamed_for_its_noise(model):
    name, tensor = read_by_one(model)
    following = [n.name for n in load_graph(model.spec.path).nodes if n.op_type == "Conv"][2]
    found = by_name(compare(model, model.table_with(ranges={tensor: model.amax(tensor) / 10})))

    assert found[following].sqnr_db < 10
    assert found[name].added_noise > 0.05 > 0.01 > found[following].added_noise


def test_all_layers_are_there_in_the_order_of_the_model_with_cost_and_time(model):
    found = compare(model, model.table_with())

    convolutions = [node for node in load_graph(model.spec.path).nodes if node.op_type == "Conv"]
    assert [error.layer.name for error in found.layers] == [node.name for node in convolutions]
    assert sum(error.mac_share for error in found.layers) == pytest.approx(1)
    assert found.layers[0].layer.macs == 48 * 48 * 8 * 3 * 9  # 96 pixels in steps of 2, 3 to 8 channels, 3x3
    assert all(error.times is not None and len(error.times.int8_s) == TIMED_RUNS for error in found.layers)


def test_the_first_layer_reads_pixels_without_noise(model):
    first = compare(model, model.table_with()).layers[0]

    assert first.input_sqnr_db == np.inf
    assert first.added_noise > 0
    assert first.as_json()["input_sqnr_db"] is None


def read_by_one(model):
    """Return a convolution and its activation, which no other one reads."""
    return next((n.name, n.inputs[0]) for n in load_graph(model.spec.path).nodes[3:] if n.op_type == "Conv")


def test_a_range_ten_times_too_small_is_seen_as_clipping_in_the_worst_layer(model):
    name, tensor = read_by_one(model)
    amax = model.amax(tensor) / 10
    found = compare(model, model.table_with(ranges={tensor: amax}))

    expected = float(np.mean(np.abs(model.tensors[tensor]) > amax))
    assert expected > 0.01
    assert by_name(found)[name].clipped_share == pytest.approx(expected, rel=1e-3)
    others = [error.clipped_share for other, error in by_name(found).items() if other != name]
    assert max(others) < 0.01  # the largest value itself, in another rounding
    assert worst_layers(found.layers, count=1)[0].layer.name == name
    assert by_name(found)[name].verdict is LayerVerdict.COSTS_ACCURACY


def test_a_range_a_hundred_times_too_large_is_seen_as_dead_values(model):
    name, tensor = read_by_one(model)
    amax = model.amax(tensor) * 100
    found = compare(model, model.table_with(ranges={tensor: amax}))

    sizes = np.abs(model.tensors[tensor][model.tensors[tensor] != 0])
    expected = float(np.mean(sizes < amax / 127 / 2))
    assert expected > 0.5
    assert by_name(found)[name].dead_share == pytest.approx(expected, abs=2e-3)
    assert by_name(found)[name].clipped_share == 0
    assert worst_layers(found.layers, count=1)[0].layer.name == name


def test_layers_kept_in_float_are_marked(model):
    name, _ = read_by_one(model)
    found = by_name(compare(model, model.table_with(keep_float=(name,))))

    assert {other for other, error in found.items() if error.verdict is LayerVerdict.FLOAT} == {name}
    assert found[name].clipped_share is None
    assert found[name].as_json()["precision"] == "float"
    assert np.isfinite(found[name].sqnr_db)  # it reads what is in INT8


class Joined(models.Net):
    """Levels that are a Concat of features and their sigmoids."""

    def levels(self):
        return [
            self.conv(self.op("Concat", x, self.op("Sigmoid", x), name=f"joined{i}", axis=1), 2 * models.CHANNELS, 8)
            for i, x in enumerate(super().levels())
        ]


def test_the_range_is_the_one_that_the_group_shares_not_the_tables_own(tmp_path):
    net = Joined(96, batch=1)
    net.op("Transpose", models.yolox_head(net, 3), perm=[0, 2, 1], name="output")
    model = calibrated(tmp_path, net.save(tmp_path / "m.onnx", {"output": (net.cells(), 8)}))
    true = model.amax("joined0")

    found = compare(model, model.table_with(ranges={"joined0": true / 50}))

    layer = next(error for error in found.layers if error.layer.input_ == "joined0")
    assert layer.layer.quantization.range_ == pytest.approx(true)
    assert layer.clipped_share == 0


def test_only_as_many_images_as_asked_for_are_taken_and_every_step_is_told(model):
    steps = []
    options = ComparisonOptions(model=model.spec.path, table=model.table_with(), images=model.images, limit=2)

    found = compare_model(options, usable_kind(), on_step=lambda: steps.append(1))

    assert found.images == 2
    assert len(steps) == 2 + TIMED_RUNS


def test_a_fixed_batch_with_images_left_over_is_the_same_as_one_by_one(tmp_path):
    (tmp_path / "one").mkdir(), (tmp_path / "two").mkdir()
    one = calibrated(tmp_path / "one", models.yolov8(tmp_path / "one" / "m.onnx", batch=1))
    two = dataclasses.replace(one, spec=dataclasses.replace(one.spec, path=models.yolov8(tmp_path / "m.onnx", batch=2)))

    alone = compare(one, one.table_with())
    together = compare(two, two.table_with(model=None))

    for first, second in zip(alone.layers, together.layers, strict=True):
        assert second.sqnr_db == pytest.approx(first.sqnr_db, abs=1.0)
        assert second.layer.macs == first.layer.macs


def test_a_table_of_another_model_is_refused(model, tmp_path):
    other = models.yolov8(tmp_path / "other.onnx", batch=1, seed=5)
    options = ComparisonOptions(model=other, table=model.table_with(), images=model.images)

    with pytest.raises(CalibrationError, match="model m "):
        compare_model(options, usable_kind())


def test_a_table_with_an_unusable_range_is_refused(model):
    _, tensor = read_by_one(model)

    with pytest.raises(CalibrationError, match="the scale is 0"):
        compare(model, model.table_with(ranges={tensor: 0.0}))


def test_a_model_that_is_quantized_already_is_refused(model):
    ranges = {name: tensor.amax for name, tensor in model.table.tensors.items()}
    made = insert_qdq(model.spec.path, model.spec, ranges=ranges, keep_float=())
    path = model.folder / "q.onnx"
    path.write_bytes(made.model)
    options = ComparisonOptions(model=path, table=model.table_with(model=None), images=model.images)

    with pytest.raises(CalibrationError, match="Q/DQ"):
        compare_model(options, usable_kind())


def test_a_limit_of_nothing_is_refused(model):
    with pytest.raises(ValueError, match="limit is a number of images, got 0"):
        ComparisonOptions(model=model.spec.path, table=model.images, images=model.images, limit=0)
