"""Accounts of single layers against sums worked by hand, and what is fused with them."""

import dataclasses

import numpy as np
import pytest

from edge.errors import ModelError
from edge.model.account import account_of_model
from edge.model.graph import load_graph
from edge.types import Precision
from tests.support.models import Net
from tests.support.values import model_spec

SIDE = 16


@pytest.fixture
def net():
    return Net(SIDE)


@pytest.fixture
def account(net, tmp_path):
    """Ends the net in `last`, through a Transpose so that nothing about the layer before is special, and counts it."""

    def count(last, *, rank=4, batch=1, float_type=Precision.FP16):
        net.op("Transpose", last, name="out", perm=[0, *range(rank - 1, 0, -1)])
        path = net.save(tmp_path / "net.onnx", {"out": ("a", "b", "c")[: rank - 1]})
        found = account_of_model(load_graph(path), model_spec(side=SIDE), batch=batch, float_type=float_type)
        assert found.uncounted == ()
        assert found.layers[-1].op_type == "Transpose"
        return found.layers[:-1]

    return count


def only(layers):
    assert len(layers) == 1
    return layers[0]


def test_a_standard_convolution(net, account):
    layer = only(account(net.conv(net.image, 3, 8, kernel=3)))

    assert layer.operations == 2 * SIDE * SIDE * 8 * 3 * 9
    assert layer.parameters == 8 * 3 * 9 + 8
    assert layer.weight_bytes == 2 * (8 * 3 * 9 + 8)
    assert layer.read_bytes == 3 * SIDE * SIDE  # the frame, in uint8
    assert layer.written_bytes == 2 * 8 * SIDE * SIDE
    assert layer.intensity == 110592 / (448 + 768 + 4096)


def test_four_bytes_a_value_in_fp32_but_the_frame(net, account):
    layer = only(account(net.conv(net.image, 3, 8, kernel=3), float_type=Precision.FP32))

    assert (layer.weight_bytes, layer.read_bytes, layer.written_bytes) == (4 * 224, 768, 4 * 2048)
    assert layer.precision is Precision.FP32


def test_a_batch_multiplies_all_but_the_weights(net, account):
    layer = only(account(net.conv(net.image, 3, 8, kernel=3), batch=4))

    assert layer.operations == 4 * 110592
    assert (layer.weight_bytes, layer.read_bytes, layer.written_bytes) == (448, 4 * 768, 4 * 4096)


def test_a_stride_takes_three_quarters_of_the_output(net, account):
    layer = only(account(net.conv(net.image, 3, 8, kernel=3, stride=2)))

    assert layer.operations == 110592 / 4
    assert (layer.read_bytes, layer.written_bytes) == (768, 4096 / 4)


def test_groups_divide_the_work(net, account):
    first, second = account(net.conv(net.conv(net.image, 3, 8), 8, 8, kernel=3, group=4))

    assert second.operations == 2 * SIDE * SIDE * 8 * 2 * 9
    assert second.parameters == 8 * 2 * 9 + 8
    assert (second.read_bytes, second.written_bytes) == (first.written_bytes, 4096)
    assert not second.shape.is_depthwise


def test_a_depthwise_convolution(net, account):
    _, second = account(net.conv(net.conv(net.image, 3, 8), 8, 8, kernel=5, group=8))

    assert second.operations == 2 * SIDE * SIDE * 8 * 25
    assert second.weight_bytes == 2 * (8 * 25 + 8)
    assert second.shape.is_depthwise
    assert not dataclasses.replace(second.shape, groups=1, channels_in=1).is_depthwise
    assert second.intensity == second.shape.intensity(1, Precision.FP16)


def test_dilation_reaches_further_at_no_cost(net, account):
    weight = net.const(np.ones((8, 3, 3, 3)))
    layer = only(account(net.op("Conv", net.image, weight, dilations=[2, 2], pads=[2] * 4)))

    assert layer.operations == 110592
    assert layer.weight_bytes == 2 * 8 * 27  # no bias
    assert (layer.read_bytes, layer.written_bytes) == (768, 4096)


def test_a_transposed_convolution(net, account):
    weight = net.const(np.ones((3, 5, 2, 2)))
    layer = only(account(net.op("ConvTranspose", net.image, weight, strides=[2, 2])))

    assert layer.operations == 2 * SIDE * SIDE * 3 * 5 * 4
    assert layer.parameters == 60
    assert layer.written_bytes == 2 * 5 * (2 * SIDE) ** 2


def test_a_fully_connected_layer_behind_a_pool(net, account):
    flat = net.op("Flatten", net.op("GlobalAveragePool", net.conv(net.image, 3, 8)), axis=1)
    conv, pool, gemm = account(net.op("Gemm", flat, net.const(np.ones((7, 8))), net.const(np.ones(7)), transB=1),
                               rank=2, batch=3)  # fmt: skip

    assert (pool.operations, pool.read_bytes, pool.written_bytes) == (3 * 2048, conv.written_bytes, 2 * 3 * 8)
    assert gemm.operations == 2 * 3 * 8 * 7
    assert (gemm.weight_bytes, gemm.read_bytes, gemm.written_bytes) == (2 * 63, 2 * 3 * 8, 2 * 3 * 7)
    assert gemm.intensity == gemm.shape.intensity(3, Precision.FP16)


def test_a_product_of_two_activations_reads_both(net, account):
    _, left, right, product = account(_product(net))

    assert left.written_bytes == right.written_bytes == 2 * 8 * SIDE * SIDE
    assert product.operations == 2 * 8 * SIDE * SIDE * SIDE
    assert (product.parameters, product.weight_bytes) == (0, 0)
    assert product.read_bytes == left.written_bytes + right.written_bytes


def _product(net):
    both = net.conv(net.image, 3, 8)
    return net.op("MatMul", net.op("Softmax", both), net.op("Transpose", both, perm=[0, 1, 3, 2]))


def test_pools_and_sizes(net, account):
    pooled = net.op("MaxPool", net.conv(net.image, 3, 8), kernel_shape=[2, 2], strides=[2, 2])
    grown = net.op("Resize", pooled, "", net.const([1, 1, 2, 2]), mode="nearest")
    _, pool, nearest, linear = account(net.op("Resize", grown, "", net.const([1, 1, 2, 2]), mode="linear"))

    assert (pool.operations, pool.read_bytes, pool.written_bytes) == (4 * 8 * 64, 4096, 1024)
    assert (nearest.operations, nearest.read_bytes, nearest.written_bytes) == (0, 1024, 4096)
    assert linear.operations == 8 * 8 * 1024  # four products and four sums for each of its values


def test_a_layer_has_the_name_of_its_work_and_names_the_operators_inside_of_it(net, account):
    made = net.op("Conv", net.image, net.const(np.ones((8, 3, 1, 1))), name="first")
    made = net.op("Mul", made, net.op("Sigmoid", made))
    (layer,) = account(made)

    assert layer.name == "first"
    assert layer.fused == ("Conv", "Sigmoid", "Mul")


def test_bias_normalization_activation_and_residual_are_inside_of_the_convolution(net, account):
    first = net.conv(net.image, 3, 8)
    ones = [net.const(np.ones(8)) for _ in range(4)]
    x = net.op("BatchNormalization", net.op("Conv", first, net.const(np.ones((8, 8, 1, 1)))), *ones)
    before, layer = account(net.op("Add", first, net.silu(net.op("Add", x, net.const(np.ones((8, 1, 1)))))))

    assert layer.fused == ("Conv", "BatchNormalization", "Add", "Sigmoid", "Mul", "Add")
    assert layer.read_bytes == 2 * before.written_bytes - 4096 == 4096  # of one tensor: it is multiplied, then added
    assert layer.written_bytes == 4096
    assert layer.operations == 2 * SIDE * SIDE * 64
    assert (layer.parameters, layer.weight_bytes) == (64 + 4 * 8, 2 * (64 + 4 * 8 + 8))


def test_a_residual_that_comes_from_elsewhere_is_read(net, account):
    other, first = net.conv(net.image, 3, 8), net.conv(net.image, 3, 8)
    _, _, layer = account(net.op("Add", other, net.conv(first, 8, 8)))

    assert layer.fused == ("Conv", "Add")
    assert layer.read_bytes == 2 * 4096


def test_an_activation_that_two_read_is_written_and_what_one_reads_is_not(net, account):
    x = net.conv(net.image, 3, 8)
    relu = net.op("Relu", x)
    layers = account(net.op("Sub", net.op("GlobalMaxPool", x), relu))

    assert [layer.fused for layer in layers] == [("Conv",), ("Relu", "Sub"), ("GlobalMaxPool",)]
    assert layers[1].read_bytes == 4096 + 16


def test_activations_of_several_operators_stay_together(net, account):
    x = net.conv(net.image, 3, 8)
    mish = only(account(net.op("Mul", x, net.op("Tanh", net.op("Softplus", x)))))

    assert mish.fused == ("Conv", "Softplus", "Tanh", "Mul")


def test_an_activation_that_is_met_again_too_late_is_written(net, account):
    x = net.conv(net.image, 3, 8)
    y = x
    for _ in range(4):
        y = net.op("Tanh", y)
    layers = account(net.op("Mul", x, y))

    assert [layer.fused for layer in layers] == [("Conv",), ("Tanh",) * 4 + ("Mul",)]


def test_a_gate_of_whole_channels_does_not_take_the_picture_in(net, account):
    x = net.conv(net.image, 3, 8)
    gate = net.op("Sigmoid", net.conv(net.op("GlobalAveragePool", x), 8, 8))
    layers = account(net.op("Mul", x, gate))

    assert [layer.fused for layer in layers] == [("Conv",), ("GlobalAveragePool",), ("Conv", "Sigmoid"), ("Mul",)]
    assert layers[-1].read_bytes == 4096 + 16


def test_pointwise_operators_behind_a_transpose_run_in_it(net, account):
    turned = net.op("Transpose", net.conv(net.image, 3, 8), perm=[0, 2, 3, 1])
    _, layer = account(net.op("Sigmoid", turned))

    assert layer.fused == ("Transpose", "Sigmoid")
    assert layer.operations == 2048


def test_what_the_model_gives_back_is_written_before_it_is_read_on(net, tmp_path):
    x = net.op("Conv", net.image, net.const(np.ones((8, 3, 1, 1))), name="early")
    net.op("Relu", x, name="out")
    path = net.save(tmp_path / "net.onnx", {"early": (8, SIDE, SIDE), "out": (8, SIDE, SIDE)})
    account = account_of_model(load_graph(path), model_spec(side=SIDE), batch=1, float_type=Precision.FP16)

    assert [layer.fused for layer in account.layers] == [("Conv",), ("Relu",)]
    assert [layer.written_bytes for layer in account.layers] == [4096, 4096]


def test_a_concat_copies_what_it_holds_twice(net, account):
    x = net.conv(net.image, 3, 8)
    join = account(net.op("Concat", x, x, axis=1))[1]

    assert (join.op_type, join.read_bytes, join.written_bytes) == ("Concat", 4096, 4096)


def test_a_concat_copies_the_picture(net, account):
    join = account(net.op("Concat", net.image, net.conv(net.image, 3, 8), axis=1))[-1]

    assert (join.op_type, join.written_bytes) == ("Concat", 2 * 768)


def test_pointwise_operators_in_a_row_are_one_layer_that_works_out_each_value(net, account):
    pooled = net.op("MaxPool", net.conv(net.image, 3, 8), kernel_shape=[1, 1])
    *_, layer = account(net.op("Mul", net.op("Exp", pooled), net.const(np.ones((8, SIDE, SIDE)))))

    assert layer.fused == ("Exp", "Mul")
    assert layer.operations == 2 * 8 * SIDE * SIDE
    assert (layer.read_bytes, layer.weight_bytes, layer.written_bytes, layer.parameters) == (4096, 4096, 4096, 0)


def test_concat_split_and_reshape_move_nothing(net, account):
    one, two = net.conv(net.image, 3, 8), net.conv(net.image, 3, 8)
    left, right = net.ops("Split", net.op("Concat", one, two, axis=1), count=2, axis=1)
    both = net.op("Concat", net.conv(left, 8, 8), right, axis=1)
    layers = account(net.op("Reshape", both, net.ints(1, 16, SIDE * SIDE)), rank=3)

    assert [layer.op_type for layer in layers] == ["Conv"] * 3
    assert layers[2].read_bytes == 4096  # its half
    assert [layer.written_bytes for layer in layers] == [4096] * 3


def test_a_concat_copies_what_lies_in_another_already(net, account):
    one, two = net.conv(net.image, 3, 8), net.conv(net.image, 3, 4)
    first = net.op("GlobalMaxPool", net.op("Concat", one, two, axis=1))
    second = net.op("GlobalMaxPool", net.op("Concat", two, one, two, axis=1))
    layers = account(net.op("Concat", first, second, axis=1))

    joins = [layer for layer in layers if layer.op_type == "Concat"]
    assert [(join.read_bytes, join.written_bytes) for join in joins] == [(2048 + 4096 + 2048,) * 2]
    assert [layer.op_type for layer in layers].index("Concat") == 3  # where it stands in the file


def test_padding_in_front_of_convolutions_is_theirs(net, account):
    padded = net.op("Pad", net.conv(net.image, 3, 8), net.ints(0, 0, 1, 1, 0, 0, 1, 1))
    _, layer = account(net.op("Conv", padded, net.const(np.ones((8, 8, 3, 3)))))

    assert layer.op_type == "Conv"
    assert layer.read_bytes == 2 * 8 * (SIDE + 2) ** 2


def test_slices_with_a_step_move_what_they_take(net, account):
    x = net.conv(net.image, 3, 8)
    _, taken = account(net.op("Slice", x, net.ints(0), net.ints(SIDE), net.ints(2), net.ints(2)))

    assert (taken.op_type, taken.read_bytes, taken.written_bytes, taken.operations) == ("Slice", 2048, 2048, 0)


def test_sizes_that_the_file_does_not_tell_are_named_and_in_no_figure(net, tmp_path):
    x = net.conv(net.image, 3, 8)
    found = net.op("NonZero", net.op("Relu", x), name="where")
    net.op("Transpose", found, name="out", perm=[1, 0])
    path = net.save(tmp_path / "net.onnx", {"out": ()})

    account = account_of_model(load_graph(path), model_spec(side=SIDE), batch=1, float_type=Precision.FP16)

    assert [layer.op_type for layer in account.layers] == ["Conv"]
    assert account.uncounted == ("where", "out")


def test_a_batch_that_the_model_does_not_take_is_refused(tmp_path):
    graph = load_graph(_fixed(tmp_path))

    with pytest.raises(ModelError, match="fixed to 1, got a batch of 8; ask for a batch of 1, or export"):
        account_of_model(graph, model_spec(side=SIDE, batch=1), batch=8, float_type=Precision.FP16)
    with pytest.raises(ModelError, match="at least 1 frame, got 0"):
        account_of_model(graph, model_spec(side=SIDE), batch=0, float_type=Precision.FP16)


def _fixed(folder):
    net = Net(SIDE, batch=1)
    net.op("Relu", net.conv(net.image, 3, 8), name="out")
    return net.save(folder / "fixed.onnx", {"out": (8, SIDE, SIDE)})


def test_sums(net, tmp_path):
    net.op("Relu", net.conv(net.image, 3, 8, kernel=3), name="out")
    path = net.save(tmp_path / "net.onnx", {"out": (8, SIDE, SIDE)})
    account = account_of_model(load_graph(path), model_spec(side=SIDE), batch=2, float_type=Precision.FP16)

    assert (account.operations, account.parameters, account.weight_bytes) == (2 * 110592, 224, 448)
    assert account.moved_bytes == 448 + 2 * (768 + 4096)
    (layer,) = account.layers
    assert (layer.op_type, layer.fused, layer.read_bytes, layer.written_bytes) == ("Conv", ("Conv", "Relu"), 1536, 8192)
    assert layer.intensity == pytest.approx(21.7358, abs=1e-4)
