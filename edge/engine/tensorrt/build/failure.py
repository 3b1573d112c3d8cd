"""What a build that failed tells the user: TensorRT's own reasons, and what to do about those that are known."""

from __future__ import annotations

from edge.engine.tensorrt.log import LogSeverity, MessageLog, is_out_of_memory
from edge.errors import EngineError

__all__ = ["build_failure"]

_OUT_OF_MEMORY = "lower engine.workspace_mib or batch.max_frames, stop what else uses the GPU, or add swap"


def build_failure(what: str, log: MessageLog) -> EngineError:
    """Return the error of a build that `what` names, after TensorRT gave no plan."""
    if is_out_of_memory(log.texts(at_most=LogSeverity.WARNING)):
        return EngineError(f"{what}: memory ran out while TensorRT built: {log.reason()}", hint=_OUT_OF_MEMORY)
    return EngineError(
        f"{what}: TensorRT built nothing: {log.reason()}", hint="`edge-deploy doctor` names known-bad combinations"
    )
