"""Preprocessing inside a graph, before its first convolution: it may scale pixels, or swap the channels.

Then the file takes other pixels than its family does. That is found by the values for a black picture, and for one of
each colour, so that it does not matter how an exporter wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.model.graph import Graph
from edge.types import ColourOrder, Preprocess

__all__ = ["UnclearPixels", "pixels_taken"]

# fmt: off
_LINEAR = frozenset((
    "Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Reshape", "Slice", "Split", "Squeeze", "Sub",
    "Transpose", "Unsqueeze",
))
# fmt: on
_MOST_NODES = 32  # of what a file that is not ours makes us compute; none makes more than the picture has
_BRIGHT = 255.0
_NOTHING = 1e-4  # of a factor, which float32 may lose
_FACTOR_OF_BYTES, _FACTORS_OF_SHARES = 0.08, (0.5, 300.0)  # what pixels of 0 to 255, of 0 to 1, are multiplied by
_OFFSET_OF_SHARES = 2.0  # what is taken off pixels of 0 to 1 is less, in their unit

Array = NDArray[Any]


class UnclearPixels(Exception):  # noqa: N818 - a finding, not a failure
    """No picture can be given so that the graph makes of it what its first convolution has learnt from."""


def pixels_taken(graph: Graph, usual: Preprocess) -> tuple[Preprocess, tuple[str, ...]]:
    """Return how pixels become the input of this file, and a sentence for all that is not the `usual` of its family.

    `graph`: with its shapes worked out. Raises `UnclearPixels` if it mixes the channels, or scales them strangely.
    """
    name = graph.inputs[0].name
    shape = graph.shape(name)
    if shape is None or not any(node.op_type in _LINEAR for node in graph.consumers(name)):
        return usual, ()
    black = np.zeros(shape, np.float32)
    pictures = [black]
    for channel in range(3):
        pictures.append(black.copy())
        pictures[-1][:, channel] = _BRIGHT
    with np.errstate(all="ignore"):  # a strange constant is told by what comes of it
        first, *others = (_ends(graph, name, picture) for picture in pictures)
        found = {_read(first[end], [other[end] for other in others], usual) for end in first}
    if len(found) != 1:
        raise UnclearPixels("it uses the picture in several ways, which take different pixels")
    return found.pop()


def _ends(graph: Graph, name: str, picture: Array) -> Mapping[str, Array]:
    """Return what the arithmetic behind the input gives to the nodes that it ends at."""
    values: dict[str, Array] = {name: picture}
    ends: dict[str, Array] = {}
    for node in graph.nodes:
        varying = [one for one in node.inputs if graph.is_varying(one)]
        if not varying or node.op_type == "Shape" or not all(one in values for one in varying):
            continue
        made = _made(graph, tuple(filter(None, node.outputs)), node.inputs, values) if node.op_type in _LINEAR else None
        if made is None or len(values) > _MOST_NODES:
            ends.update({one: values[one] for one in varying})
        else:
            values.update(made)
    return ends


def _made(
    graph: Graph, outputs: tuple[str, ...], inputs: tuple[str, ...], values: Mapping[str, Array]
) -> Mapping[str, Array] | None:
    """Return what a node makes of `values`, the picture first; None where that is larger, or cannot be told."""
    operands = {one: values[one] if one in values else graph.constant(one) for one in inputs if one}
    most = next(iter(values.values())).size
    is_small = all(math.prod(graph.shape(one) or (most + 1,)) <= most for one in outputs)
    if not is_small or any(value is None for value in operands.values()):
        return None
    made = {one: value for one in outputs if (value := graph.evaluate(one, operands)) is not None}
    return made if len(made) == len(outputs) else None


def _read(black: Array, colours: Sequence[Array], usual: Preprocess) -> tuple[Preprocess, tuple[str, ...]]:
    """Return as `pixels_taken`, by what is made of a black picture, and of a red, a green and a blue one."""
    if black.ndim != 4 or black.shape[1] % 3:
        raise UnclearPixels(f"it makes {black.shape} of the picture")
    offsets, *bright = (one.mean(axis=(0, 2, 3), dtype=np.float64) for one in (black, *colours))
    factors = np.abs((np.stack(bright) - offsets) / _BRIGHT)
    source, place, factor = factors.argmax(axis=0), np.arange(len(offsets)) % 3, factors.max(axis=0)
    is_turned = bool((source == 2 - place).all())
    is_mixed = not is_turned and bool((source != place).any())
    if is_mixed or not np.isfinite(factors).all() or ((factors > _NOTHING * factor).sum(axis=0) != 1).any():
        raise UnclearPixels("it mixes the channels of the picture")
    taken, sentences = usual, []
    if is_turned:
        is_rgb = usual.colour_order is ColourOrder.RGB
        taken = replace(taken, colour_order=ColourOrder.BGR if is_rgb else ColourOrder.RGB)
        sentences.append(f"the graph turns the channels round: it takes {taken.colour_order.value.upper()}")
    if offsets.any() or not np.allclose(factor, 1, rtol=_NOTHING):
        taken = replace(taken, scale=1.0 if _takes_bytes(factor, np.abs(offsets)) else 1 / _BRIGHT)
        sentences.append(f"the graph scales its pixels: it takes 0 to {round(taken.scale * _BRIGHT)}")
    return taken, tuple(sentences)


def _takes_bytes(factor: Array, offset: Array) -> bool:
    """Return whether pixels are 0 to 255, not 0 to 1, so that values of common size come of them."""
    if (offset / factor).max() > _OFFSET_OF_SHARES or factor.max() <= _FACTOR_OF_BYTES:
        return True
    least, most = _FACTORS_OF_SHARES
    if least <= factor.min() and factor.max() <= most:
        return False
    raise UnclearPixels(f"it multiplies pixels by {factor.max():.3g}, which suits neither 0 to 255 nor 0 to 1")
