"""What the table leaves in float, told to a builder that picks precisions itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IBuilderConfig, ILayer, INetworkDefinition

__all__ = ["keep_float"]


def keep_float(
    library: TensorRtLibrary, config: IBuilderConfig, network: INetworkDefinition, names: Collection[str]
) -> tuple[str, ...]:
    """Bind layers to float16 that `names` names, and those that read a tensor of such a name; return names of none.

    The parser gives a node's name to the layer that computes it; a node without one is called by its first output.
    """
    trt, wanted, found = library.trt, set(names), set[str]()
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        mine = wanted.intersection((layer.name, *_tensors(layer)))
        if mine:
            layer.precision = trt.float16
            found |= mine
    if names:
        config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return tuple(sorted(wanted - found))


def _tensors(layer: ILayer) -> Iterator[str]:
    """Yield what a layer reads and makes; what is left out has no tensor."""
    tensors = [layer.get_input(index) for index in range(layer.num_inputs)]
    tensors += [layer.get_output(index) for index in range(layer.num_outputs)]
    yield from (tensor.name for tensor in tensors if tensor is not None)
