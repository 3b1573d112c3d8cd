"""What the table leaves in float, told to a builder that picks precisions itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import Library

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IBuilderConfig, INetworkDefinition

__all__ = ["keep_float"]


def keep_float(
    library: Library, config: IBuilderConfig, network: INetworkDefinition, names: Collection[str]
) -> tuple[str, ...]:
    """Bind layers to float16 that `names` names, by itself or by one of its outputs; return the names that none has.

    The parser gives a node's name to the layer that computes it.
    """
    trt, left = library.trt, set(names)
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        outputs = [tensor.name for index in range(layer.num_outputs) if (tensor := layer.get_output(index)) is not None]
        mine = left.intersection((layer.name, *outputs)) | set(names).intersection((layer.name, *outputs))
        if mine:
            layer.precision = trt.float16
            left -= mine
    if names:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return tuple(sorted(left))
