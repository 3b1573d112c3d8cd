"""What each layer takes in float and in INT8, on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import EngineKind
from edge.errors import EngineError
from edge.evaluate.layers import ComparedLayer, LayerTimes
from edge.quantize.forms import Forms

__all__ = ["TIMED_RUNS", "Times", "times_of"]

TIMED_RUNS = 24  # of either model, in turn, so that a machine that slows down slows both
_WARM_UPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times by layer, of those that are known alone; `why_none` says why engines of this kind tell none at all."""

    by_layer: Mapping[str, LayerTimes]
    why_none: str | None = None


def times_of(
    kind: EngineKind,
    forms: Forms,
    quantized: bytes,
    layers: Sequence[ComparedLayer],
    *,
    canvases: Sequence[NDArray[np.uint8]],
    on_run: Callable[[], None],
) -> Times:
    """Return what layers take.

    Args:
        kind: of the engines.
        forms: of the float model.
        quantized: the same in INT8.
        layers: to be timed.
        canvases: uint8 (batch of the model or 1, H, W, 3) each, to run in turn.
        on_run: called after each of TIMED_RUNS.

    Raises:
        EngineError: if an inference failed.
    """
    names, in_int8 = [layer.name for layer in layers], dataclasses.replace(forms.spec, is_quantized=True)
    with contextlib.ExitStack() as opened:
        try:
            exact = opened.enter_context(
                contextlib.closing(kind.profiler(forms.spec, names, content=forms.float_model()))
            )
            rounded = opened.enter_context(contextlib.closing(kind.profiler(in_int8, names, content=quantized)))
        except EngineError as error:
            return Times(by_layer={}, why_none=error.problem)
        for _ in range(_WARM_UPS):
            exact.warm_up(canvases[0])
            rounded.warm_up(canvases[0])
        for run in range(TIMED_RUNS):
            exact.run(canvases[run % len(canvases)])
            rounded.run(canvases[run % len(canvases)])
            on_run()
        float_s, int8_s = exact.times(), rounded.times()
    both = float_s.keys() & int8_s.keys()
    return Times(by_layer={name: LayerTimes(float_s=float_s[name], int8_s=int8_s[name]) for name in both})
