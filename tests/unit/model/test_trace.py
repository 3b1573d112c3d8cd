"""Rows are followed through what moves them."""

import numpy as np
import pytest

from edge.model.editor import resolve
from edge.model.graph import load_graph
from edge.model.trace import WHOLE, Tracer, Untraceable, rows_between
from tests.support.models import Net


@pytest.fixture
def net():
    return Net(8, batch=1)


def _rows(net, path, shape, axis):
    graph = resolve(load_graph(net.save(path / "net.onnx", {"out": shape})), (1, 3, 8, 8))
    return Tracer(graph).rows("out", axis)


def _ways(rows):
    return [(part.count, {(route.operators, route.end, route.first) for route in part.routes}) for part in rows]


def test_concat_split_and_slice_keep_rows_apart(net, tmp_path):
    x = net.conv(net.image, 3, 6)
    first, second = net.ops("Split", x, net.ints(2, 4), count=2, axis=1)
    second = net.op("Slice", net.op("Sigmoid", second), net.ints(-3), net.ints(100), net.ints(1))
    net.op("Concat", second, first, name="out", axis=1)

    assert _ways(_rows(net, tmp_path, (5, 8, 8), 1)) == [
        (3, {(("Sigmoid",), "Conv", 3)}),
        (2, {((), "Conv", 0)}),
    ]


@pytest.mark.parametrize(
    ("change", "ways"),
    [
        (lambda places: places, [(1, "Conv"), (2, "Sigmoid"), (3, "Conv")]),
        (lambda places: places[..., ::-1, :, :, :], [(6, "ScatterND")]),
        (lambda places: places[..., :7, :], [(6, "ScatterND")]),
    ],
    ids=["whole rows", "rows in another order", "rows but for a column"],
)
def test_rows_that_are_written_in_place_are_followed_where_they_are_written_as_a_whole(net, tmp_path, change, ways):
    x = net.conv(net.image, 3, 6)
    places = np.moveaxis(np.indices((1, 2, 8, 8)), 0, -1)
    places[..., 1] += 1
    places = change(places)
    value = net.op("Sigmoid", net.conv(net.image, 3, 2))
    value = net.op("Slice", value, net.ints(0), net.ints(places.shape[3]), net.ints(3))
    net.op("ScatterND", x, net.const(places, np.int64), value, name="out")

    found = _ways(_rows(net, tmp_path, (6, 8, 8), 1))
    assert [(count, *(one[0][0] if one[0] else one[1] for one in route)) for count, route in found] == ways


def test_transpose_and_reshape_carry_the_axis(net, tmp_path):
    x = net.op("Reshape", net.conv(net.image, 3, 6), net.ints(1, 6, 64))
    x = net.op("Transpose", net.op("Exp", x), perm=[0, 2, 1])
    net.op("Reshape", x, net.ints(1, 8, 8, 6), name="out")

    assert _ways(_rows(net, tmp_path, (8, 8, 6), 3)) == [(6, {(("Exp",), "Conv", 0)})]


def test_reshape_that_splits_the_axis_makes_all_of_it_the_origin(net, tmp_path):
    net.op("Reshape", net.op("Tanh", net.conv(net.image, 3, 6)), net.ints(1, 2, 3, 64), name="out")

    assert _ways(_rows(net, tmp_path, (2, 3, 64), 2)) == [(3, {(("Tanh",), "Conv", WHOLE)})]
    assert _ways(_rows(net, tmp_path, (2, 3, 64), 1)) == [(2, {(("Tanh",), "Conv", WHOLE)})]


def test_arithmetic_with_constants_and_between_tensors(net, tmp_path):
    left, right = net.conv(net.image, 3, 4), net.conv(net.image, 3, 4)
    sums = net.op("Add", net.op("Mul", left, net.const(2.0)), right)
    net.op("Concat", sums, net.const(np.zeros((1, 2, 8, 8))), name="out", axis=1)

    assert _ways(_rows(net, tmp_path, (6, 8, 8), 1)) == [
        (4, {(("Add", "Mul"), "Conv", 0), (("Add",), "Conv", 0)}),
        (2, {((), "constant", 0)}),
    ]


def test_gather_picks_rows(net, tmp_path):
    x = net.conv(net.image, 3, 6)
    x = net.op("Concat", net.op("Sigmoid", x), x, axis=1)
    net.op("Gather", x, net.ints(11, 0), name="out", axis=1)

    assert _ways(_rows(net, tmp_path, (2, 8, 8), 1)) == [
        (1, {((), "Conv", 5)}),
        (1, {(("Sigmoid",), "Conv", 0)}),
    ]


def test_values_and_indices_of_topk_are_told_apart(net, tmp_path):
    flat = net.op("Reshape", net.conv(net.image, 3, 2), net.ints(1, 128))
    values, index = net.ops("TopK", flat, net.ints(5), count=2, axis=1)
    index = net.op("Cast", net.op("Mod", index, net.const(4, np.int64)), to=1)
    net.op(
        "Concat", net.op("Unsqueeze", values, net.ints(2)), net.op("Unsqueeze", index, net.ints(2)), name="out", axis=2
    )

    ways = _ways(_rows(net, tmp_path, (5, 2), 2))

    assert [(count, {way[:2] for way in found}) for count, found in ways] == [
        (1, {((), "TopK:0")}),
        (1, {(("Mod",), "TopK:1")}),
    ]


def test_every_other_row_cannot_be_followed(net, tmp_path):
    net.op("Slice", net.conv(net.image, 3, 6), net.ints(0), net.ints(6), net.ints(1), net.ints(2), name="out")

    with pytest.raises(Untraceable, match="in steps of 2"):
        _rows(net, tmp_path, (3, 8, 8), 1)


def test_rows_between_splits_and_shifts(net, tmp_path):
    x = net.conv(net.image, 3, 6)
    net.op("Concat", x, net.op("Sigmoid", x), name="out", axis=1)
    rows = _rows(net, tmp_path, (12, 8, 8), 1)

    assert _ways(rows_between(rows, 4, 9)) == [(2, {((), "Conv", 4)}), (3, {(("Sigmoid",), "Conv", 0)})]


def test_all_of_a_tensor_stays_the_origin_of_each_part(net, tmp_path):
    x = net.op("Reshape", net.conv(net.image, 3, 6), net.ints(1, 3, 128))
    net.op("Slice", x, net.ints(1), net.ints(3), net.ints(1), name="out")

    assert _ways(_rows(net, tmp_path, (2, 128), 1)) == [(2, {((), "Conv", WHOLE)})]
