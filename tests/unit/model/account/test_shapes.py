"""How the intensity of a convolution follows from its shape, whatever the shape; and a fully connected layer's."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.model.account import ConvShape
from edge.types import Precision

_precisions = st.sampled_from(Precision)
_batches = st.integers(1, 64)


@st.composite
def shapes(draw):
    unit = draw(st.integers(1, 64))
    side = draw(st.integers(1, 80))
    kernel = draw(st.integers(1, 7))
    channels = 4 * unit
    return ConvShape(
        kernel=(kernel, kernel), channels_in=channels, channels_out=channels, groups=1, size_in=(side, side),
        size_out=(side, side),
    )  # fmt: skip


def _with(shape, **changes):
    return dataclasses.replace(shape, **changes)


@given(shapes(), _batches, _precisions)
def test_it_rises_with_the_size_of_the_kernel(shape, batch, precision):
    larger = _with(shape, kernel=(shape.kernel[0] + 2, shape.kernel[1] + 2))

    assert larger.intensity(batch, precision) > shape.intensity(batch, precision)


@given(shapes(), _batches, _precisions)
def test_it_rises_with_the_channels(shape, batch, precision):
    wider = _with(shape, channels_in=2 * shape.channels_in, channels_out=2 * shape.channels_out)

    assert wider.intensity(batch, precision) > shape.intensity(batch, precision)


@given(shapes(), _batches, _precisions)
def test_it_rises_with_the_size_of_the_output(shape, batch, precision):
    size = (2 * shape.size_out[0], 2 * shape.size_out[1])
    larger = _with(shape, size_in=size, size_out=size)

    assert larger.intensity(batch, precision) > shape.intensity(batch, precision)


@given(shapes(), _batches, _precisions)
def test_it_falls_with_groups_down_to_the_depthwise(shape, batch, precision):
    groups = [1, 2, 4, shape.channels_in]
    found = [_with(shape, groups=count).intensity(batch, precision) for count in groups]

    assert found == sorted(found, reverse=True)
    assert found[0] > found[1]
    assert _with(shape, groups=shape.channels_in).is_depthwise
    assert not _with(shape, channels_in=1).is_depthwise


@given(st.integers(256, 4096), st.integers(256, 4096))
def test_a_fully_connected_layer_reads_each_weight_for_one_product_and_rises_with_the_batch(read, made):
    point = (1, 1)
    layer = ConvShape(kernel=point, channels_in=read, channels_out=made, groups=1, size_in=point, size_out=point)

    assert layer.intensity(1, Precision.INT8) == pytest.approx(2.0, rel=0.03)  # two operations a byte of weights
    assert layer.intensity(1, Precision.FP16) == pytest.approx(1.0, rel=0.03)
    found = [layer.intensity(batch, Precision.INT8) for batch in (1, 2, 8, 64)]
    assert found == sorted(found)
    assert found[1] == pytest.approx(2 * found[0], rel=0.03)
