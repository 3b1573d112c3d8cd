"""The only module that imports openvino, and only when it is used; its telemetry is off.

How OpenVINO computes INT8 on this CPU is asked of a convolution, not of the CPU's name.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from typing import Any

import numpy as np

from edge.errors import EngineError, MissingDependencyError
from edge.types import Precision

__all__ = ["core", "import_openvino", "is_int8_in_float", "name_and_version", "require_precision", "why_int8_in_float"]

_making = threading.Lock()


def import_openvino() -> Any:
    """Raises `MissingDependencyError` if it is not installed."""
    # As it comes, its import starts a thread and a process that report to a server of Google's under a number that it
    # keeps in ~/intel, unless somebody has refused. It does without that package where there is none.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # an import of it fails then
    try:
        import openvino
        import openvino.opset13
        import openvino.preprocess
    except ImportError as error:
        raise MissingDependencyError(
            f"OpenVINO is not importable: {error}", hint="pip install --upgrade openvino"
        ) from error
    return openvino


def core() -> Any:
    """Return the process's one `ov.Core`, which is kept for good.

    With its first model a core gives the thread an alternate stack for signals, and takes it away at its end, putting
    back the one before. Of two cores that end in the order in which they began, the second puts back the first's, which
    is gone by then: the next signal that somebody handles, SIGTERM or Ctrl-C, ends the process by a segmentation fault.
    Raises `MissingDependencyError` if openvino is not installed.
    """
    with _making:
        return _core()


@functools.cache
def _core() -> Any:
    return import_openvino().Core()


def name_and_version() -> str:
    """Return e.g. `openvino 2026.4.1`."""
    return f"openvino {import_openvino().__version__.split('-')[0]}"


def require_precision(precision: Precision) -> None:
    """Raises `EngineError` for arithmetic that this CPU does not have."""
    capabilities = _capabilities() if precision is Precision.FP16 else ["FP16"]
    if "FP16" not in capabilities:
        raise EngineError(f"precision fp16: this CPU computes {', '.join(capabilities)}", hint="use fp32 or int8")


def _capabilities() -> list[str]:
    return sorted(core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


_log = logging.getLogger(__name__)
_finding_out = threading.Lock()

_CHANNELS, _SIZE, _KERNEL = 64, 8, 3
_HIGHEST_ACTIVATION, _HIGHEST_WEIGHT = 255, 127


def is_int8_in_float() -> bool:
    """Return whether a model that is compiled now is to have its INT8 in float; the log says so once in a process.

    A search compiles hundreds, some side by side, a comparison two: what runs them on this machine is the same for all.
    """
    with _finding_out:
        return _is_int8_in_float()


@functools.cache
def _is_int8_in_float() -> bool:
    why = why_int8_in_float()
    if why is not None:
        _log.warning("int8 is computed in float, at its speed reason=%s", why)
    return why is not None


@functools.cache
def why_int8_in_float() -> str | None:
    """Return why the levels of INT8 are better computed in float here; None: OpenVINO computes INT8, and exactly.

    A convolution of the largest uint8 by the largest int8 is compiled and run (40 ms, once). docs/adr/0006.
    """
    ov = import_openvino()
    compiled = core().compile_model(_convolution(ov), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    kinds = {_word(op, "layerType"): _word(op, "primitiveType") for op in compiled.get_runtime_model().get_ops()}
    if not kinds.get("Convolution", "").lower().endswith("i8"):
        return "OpenVINO has no INT8 convolutions for this CPU"
    (result,) = compiled([np.full((1, _CHANNELS, _SIZE, _SIZE), _HIGHEST_ACTIVATION, np.float32)]).values()
    expected = _CHANNELS * _KERNEL * _KERNEL * _HIGHEST_ACTIVATION * _HIGHEST_WEIGHT
    # x86-64 without VNNI adds products in pairs, in 16 bits, where these do not fit.
    return "INT8 sums saturate here (no VNNI)" if np.abs(result - expected).max() > 0.001 * expected else None


def _convolution(ov: Any) -> Any:
    opset = ov.opset13
    images = opset.parameter([1, _CHANNELS, _SIZE, _SIZE], np.float32)
    low, high = np.float32(0), np.float32(_HIGHEST_ACTIVATION)
    levels = opset.fake_quantize(images, low, high, low, high, _HIGHEST_ACTIVATION + 1)
    stored = opset.constant(np.full((_CHANNELS, _CHANNELS, _KERNEL, _KERNEL), _HIGHEST_WEIGHT, np.int8))
    weights = opset.multiply(opset.convert(stored, "f32"), np.ones((_CHANNELS, 1, 1, 1), np.float32))
    sums = opset.convolution(levels, weights, [1, 1], [0, 0], [0, 0], [1, 1])
    return ov.Model([sums], [images], "int8")


def _word(op: Any, name: str) -> str:
    """Return what the compiled model says of a node: https://docs.openvino.ai, `ov::ExecGraphInfo`."""
    told = op.get_rt_info()
    return str(told[name].astype(str)) if name in told else ""
