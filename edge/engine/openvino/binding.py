"""The only module that imports openvino, and only when it is used; its telemetry is off."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any

from edge.errors import EngineError, MissingDependencyError
from edge.types import Precision

__all__ = ["core", "import_openvino", "name_and_version", "require_precision"]

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
