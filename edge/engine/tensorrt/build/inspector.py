"""A plan that was just built, looked into by TensorRT's inspector; that takes a driver, and is left out without one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.account import PlanAccount, plan_account_of
from edge.engine.tensorrt.device import read_device
from edge.errors import EngineError

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import ILogger

__all__ = ["inspected"]

_log = logging.getLogger(__name__)


def inspected(library: TensorRtLibrary, logger: ILogger, content: bytes, dla_core: int | None) -> PlanAccount | None:
    """Return which layers of `content`, what TensorRT serialized, compute in which precision; None where nobody tells.

    A runtime without a driver crashes when it is used, so the driver is asked first.
    """
    try:
        read_device()
    except EngineError as error:
        _log.info("the plan is not inspected reason=%s", error.problem)
        return None
    trt = library.trt
    runtime = trt.Runtime(logger)
    if dla_core is not None:
        runtime.DLA_core = dla_core  # else core 0 is used, whatever the plan was built for
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None:
        return None  # which the gate, that loads it next, tells with its reason
    inspector = engine.create_engine_inspector()
    return plan_account_of(str(inspector.get_engine_information(trt.LayerInformationFormat.JSON)))
