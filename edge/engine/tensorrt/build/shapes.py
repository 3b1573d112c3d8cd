"""The shapes that a plan is for: the deployed batch, whether the ONNX file fixes its own or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.errors import EngineError
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, INetworkDefinition

__all__ = ["set_shapes"]


def set_shapes(
    builder: Builder,
    config: IBuilderConfig,
    network: INetworkDefinition,
    spec: ModelSpec,
    *,
    max_batch: int,
    is_fixed: bool = False,
) -> int | None:
    """State the shapes of the network's input, and return the batch that every inference has; None: 1 to `max_batch`.

    Args:
        builder: of the network.
        config: of the build; gets an optimisation profile where the input is dynamic.
        network: with one input.
        spec: what the model is.
        max_batch: most rows at once; a model of a fixed batch takes its own instead.
        is_fixed: make a dynamic batch `max_batch`, always, as a DLA core wants it.

    Raises:
        EngineError: if the input is not what `spec` says.
    """
    tensor, size = network.get_input(0), spec.preprocess.size
    if tensor.name != spec.input_name or network.num_inputs != 1:
        raise EngineError(f'{spec.name}: expected the one input "{spec.input_name}", TensorRT found "{tensor.name}"')
    shape = tuple(tensor.shape)
    batch = shape[0] if shape[0] > 0 else None
    rest = (3, size.height, size.width)
    if len(shape) != 4 or any(found not in (-1, wanted) for found, wanted in zip(shape[1:], rest, strict=True)):
        raise EngineError(
            f'{spec.name}: "{tensor.name}" is (B, {rest[0]}, {rest[1]}, {rest[2]}), TensorRT found {shape}'
        )
    if is_fixed and batch is None:
        batch = max_batch
        tensor.shape = (batch, *rest)
    elif -1 in shape:
        least, most = (batch or 1, *rest), (batch or max_batch, *rest)
        profile = builder.create_optimization_profile()
        profile.set_shape(tensor.name, least, most, most)
        config.add_optimization_profile(profile)
    return batch
