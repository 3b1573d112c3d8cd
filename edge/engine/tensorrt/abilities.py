"""What the installed TensorRT can do, read off its own surface: 8.5 to 11 and TensorRT for RTX all differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Abilities", "abilities_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a library offers.

    Attributes:
        has_calibrators: classes that calibrate, and read and write a calibration cache (until 10.x).
        has_dynamic_ranges: the range of a tensor can be set (until 10.x).
        has_precision_flags: INT8 and FP16 are flags of a build, and the builder picks where (until 10.x).
        has_strong_typing: a network computes in the types that the ONNX states (since 10; always since 11).
        has_explicit_batch_flag: a network is made with a flag for what all of them are since 10.
        takes_int8_weights: an int8 weight may stand behind a DequantizeLinear alone. TensorRT 8 wants a pair behind a
            float weight; nothing on its surface says so, but what came with 10.0, as that did, is there: int64.
        has_execute_v3: `execute_async_v3` with addresses by tensor name.
        has_tactic_memory_limit: device memory of the search for tactics can be limited.
        has_optimization_level: how long the builder searches can be set (since 8.6).
        has_progress_monitor: a build tells how far it is (since 10).
        has_node_of_error: a parser's error names the node (since 10).
        has_chosen_capability: a build for a GPU that is not in this machine (TensorRT for RTX).
    """

    has_calibrators: bool
    has_dynamic_ranges: bool
    has_precision_flags: bool
    has_strong_typing: bool
    has_explicit_batch_flag: bool
    takes_int8_weights: bool
    has_execute_v3: bool
    has_tactic_memory_limit: bool
    has_optimization_level: bool
    has_progress_monitor: bool
    has_node_of_error: bool
    has_chosen_capability: bool

    @property
    def is_always_strongly_typed(self) -> bool:
        """Whether there is no other typing than what the ONNX states."""
        return self.has_strong_typing and not self.has_precision_flags


def abilities_of(trt: Any) -> Abilities:
    """Return what the module `trt` offers."""
    flags, networks = trt.BuilderFlag, trt.NetworkDefinitionCreationFlag
    return Abilities(
        has_calibrators=hasattr(trt, "IInt8EntropyCalibrator2"),
        has_dynamic_ranges=hasattr(trt.ITensor, "set_dynamic_range"),
        has_precision_flags=hasattr(flags, "INT8") and hasattr(flags, "FP16"),
        has_strong_typing=hasattr(networks, "STRONGLY_TYPED"),
        has_explicit_batch_flag=hasattr(networks, "EXPLICIT_BATCH"),
        takes_int8_weights=hasattr(trt, "int64"),
        has_execute_v3=hasattr(trt.IExecutionContext, "execute_async_v3"),
        has_tactic_memory_limit=hasattr(trt.MemoryPoolType, "TACTIC_DRAM"),
        has_optimization_level=hasattr(trt.IBuilderConfig, "builder_optimization_level"),
        has_progress_monitor=hasattr(trt, "IProgressMonitor"),
        has_node_of_error=hasattr(trt.ParserError, "node_name"),
        has_chosen_capability=hasattr(trt.IBuilderConfig, "set_compute_capability"),
    )
