"""The last step of every build: TensorRT serializes, or says to its logger why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.engine.tensorrt.build.failure import build_failure
from edge.engine.tensorrt.log import MessageLog

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import Builder, IBuilderConfig, INetworkDefinition

__all__ = ["serialized"]


def serialized(
    builder: Builder, network: INetworkDefinition, config: IBuilderConfig, log: MessageLog, name: str
) -> bytes:
    """Return what TensorRT serializes; `name` names the model in errors.

    Raises:
        EngineError: with TensorRT's reasons, if it builds nothing.
    """
    built = builder.build_serialized_network(network, config)
    if built is None:
        raise build_failure(name, log)
    return bytes(built)
