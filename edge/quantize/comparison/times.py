"""What each layer takes in float and in INT8, on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import EngineKind
from edge.evaluate.layers import Layer, LayerTimes
from edge.quantize.forms import Forms

__all__ = ["TIMED_RUNS", "times_of"]

TIMED_RUNS = 24  # of either model, in turn, so that a machine that slows down slows both
_WARM_UPS = 4


def times_of(
    kind: EngineKind,
    forms: Forms,
    quantized: bytes,
    layers: Sequence[Layer],
    *,
    canvases: Sequence[NDArray[np.uint8]],
    on_run: Callable[[], None],
) -> dict[str, LayerTimes]:
    """Return the times of layers by name; of those that the engine does not tell alone, none.

    Args:
        kind: of the engines.
        forms: of the float model.
        quantized: the same in INT8.
        layers: to be timed.
        canvases: uint8 (batch of the model or 1, H, W, 3) each, to run in turn.
        on_run: called after each of TIMED_RUNS.
    """
    names, spec = [layer.name for layer in layers], forms.spec
    exact = kind.profiler(spec, names, content=forms.float_model())
    rounded = kind.profiler(dataclasses.replace(spec, is_quantized=True), names, content=quantized)
    for _ in range(_WARM_UPS):
        exact.warm_up(canvases[0])
        rounded.warm_up(canvases[0])
    for run in range(TIMED_RUNS):
        exact.run(canvases[run % len(canvases)])
        rounded.run(canvases[run % len(canvases)])
        on_run()
    float_s, int8_s = exact.times(), rounded.times()
    return {name: LayerTimes(float_s=float_s[name], int8_s=int8_s[name]) for name in float_s.keys() & int8_s.keys()}
