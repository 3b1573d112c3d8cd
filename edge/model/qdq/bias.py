"""What rounding its weights adds to each output channel of a convolution on average, to be taken off its bias.

The mean of a channel that is computed with rounded weights W' is off by the sum of (W' - W) times the means of what
the layer reads: as large as what rounding does to single values, but the same everywhere, so that it adds up from layer
to layer. Padding is left out of account: at the border a little too much is taken off.

Source: Nagel et al., Data-Free Quantization through Weight Equalization and Bias Correction (2019), section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.errors import ModelError
from edge.model.graph import Graph, Node
from edge.model.qdq.placement import called, place

__all__ = ["corrected_tensors", "mean_shift"]


def corrected_tensors(graph: Graph) -> tuple[str, ...]:
    """Return the tensors whose means say how to correct biases, in the order of the file, whatever stays in float."""
    return tuple(dict.fromkeys(node.inputs[0] for node in place(graph).quantized if node.op_type == "Conv"))


def mean_shift(node: Node, errors: NDArray[np.float32], means: Sequence[float]) -> NDArray[np.float32]:
    """Return what rounding adds to the mean of each output channel, float32 (channels,).

    Args:
        node: a Conv.
        errors: what rounding adds to its weight, float32 (out, in / group, ...).
        means: of the channels that `node` reads.

    Raises:
        ModelError: if `means` are of another number of channels.
    """
    groups = int(node.attributes.get("group", 1))
    out, each = errors.shape[:2]
    if len(means) != groups * each:
        raise ModelError(
            f'{called(node)} reads {groups * each} channels, "{node.inputs[0]}" has {len(means)} means',
            hint="calibrate again, or remove the means from the table",
        )
    added = errors.astype(np.float64).reshape(out, each, -1).sum(axis=2)
    read = np.asarray(means, np.float64).reshape(groups, each).repeat(out // groups, axis=0)
    return np.asarray((added * read).sum(axis=1), np.float32)
