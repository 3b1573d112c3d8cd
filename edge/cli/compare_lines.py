"""Result of `edge-deploy compare` as lines: numbers, verdicts, the summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from edge.cli.columns import aligned, shown_width
from edge.evaluate.layers import MOST_ADDED_NOISE, LayerError, LayerVerdict
from edge.quantize.comparison import Comparison

__all__ = [
    "SHOWN_WORST",
    "comparison_summary",
    "comparison_verdict",
    "layer_error_lines",
    "layer_precision",
    "number",
    "percent",
    "verdict_lines",
]

SHOWN_WORST = 10
_UNKNOWN = "-"
_SMALLEST_PERCENT = 0.01
_HEAD = (
    "", "in", "SQNR dB", "input dB", "added", "clipped", "become 0", "MACs", "float ms", "INT8 ms",
    "verdict", "operator", "layer",
)  # fmt: skip
_SPARE = ("become 0", "clipped", "input dB", "operator", "MACs")


def number(value: float | None, form: str) -> str:
    """Return a number as it is shown; what is not known, or no number, is a dash."""
    if value is None or math.isnan(value):
        return _UNKNOWN
    return format(value, form)


def percent(share: float | None) -> str:
    """Return a share in percent, told apart from none at all however small it is."""
    if share is None or math.isnan(share):
        return _UNKNOWN
    value = 100 * share
    if 0 < abs(value) < _SMALLEST_PERCENT:
        return f"{'-' if value < 0 else ''}<{_SMALLEST_PERCENT}%"
    return f"{value:.2f}%" if value else "0"


def layer_precision(error: LayerError) -> str:
    return "INT8" if error.layer.is_int8 else "float"


def verdict_lines() -> Iterator[tuple[str, str]]:
    """The first that is true counts."""
    yield LayerVerdict.FLOAT.value, "the layer stays in float, by the table or because its operands cannot be quantized"
    yield (
        LayerVerdict.COSTS_ACCURACY.value,
        f"it adds more noise than {MOST_ADDED_NOISE:.0%} of the power of its output: try another range, or keep it in "
        "float",
    )
    yield LayerVerdict.UNKNOWN.value, "it has no signal, or the engine does not tell its time alone"
    yield (
        LayerVerdict.PAYS.value,
        "three quarters of its runs in INT8 were faster than three quarters of those in float",
    )
    yield LayerVerdict.SAVES_NO_TIME.value, "none of these: on this machine, it could stay in float at no cost"


def layer_error_lines(found: Comparison, worst: tuple[LayerError, ...]) -> Iterator[str]:
    """Yield a head, and one line for each layer in the order of the model; a star marks the worst."""
    starred = {id(error) for error in worst}
    rows = [_HEAD, *(("*" if id(error) in starred else "", *_cells(error)) for error in found.layers)]
    yield from aligned(rows, texts=3, width=shown_width(), spare=_SPARE, is_named=True)


def _cells(error: LayerError) -> tuple[str, ...]:
    return (
        layer_precision(error),
        number(error.sqnr_db, ".1f"),
        number(error.input_sqnr_db, ".1f"),
        percent(error.added_noise),
        percent(error.clipped_share),
        percent(error.dead_share),
        percent(error.mac_share),
        number(error.float_ms, ".3f"),
        number(error.int8_ms, ".3f"),
        error.verdict.value,
        error.layer.op_type,
        error.layer.name,
    )


def comparison_summary(found: Comparison) -> str:
    """Return one line: the output, how many layers pay, what is saved."""
    verdicts = Counter(error.verdict for error in found.layers)
    counts = ", ".join(f"{verdicts[verdict]} {words}" for verdict, words in _COUNTED if verdicts[verdict])
    return f"Output {number(found.output_sqnr_db, '.1f')} dB. Of {len(found.layers)} layers {counts}. {_times(found)}"


def comparison_verdict(found: Comparison) -> str:
    """Return one line: whether INT8 is worth it, as far as this machine tells, and which layers to look at."""
    costly = [error.layer.name for error in found.layers if error.verdict is LayerVerdict.COSTS_ACCURACY]
    float_ms, int8_ms = _sum_ms(found)
    times = f"INT8 takes {int8_ms / float_ms:.0%} of float's time on this machine" if float_ms else "no times are known"
    if not costly:
        return f"Verdict: no layer costs accuracy; {times}."
    return (
        f"Verdict: {len(costly)} of {len(found.layers)} layers cost accuracy, first {costly[0]}: --keep-float of "
        f"calibrate leaves them in float; {times}."
    )


def _sum_ms(found: Comparison) -> tuple[float, float]:
    return sum(error.float_ms or 0 for error in found.layers), sum(error.int8_ms or 0 for error in found.layers)


_COUNTED = (
    (LayerVerdict.PAYS, "pay"),
    (LayerVerdict.SAVES_NO_TIME, "save no time"),
    (LayerVerdict.COSTS_ACCURACY, "cost accuracy"),
    (LayerVerdict.FLOAT, "stay in float"),
    (LayerVerdict.UNKNOWN, "cannot be judged"),
)


def _times(found: Comparison) -> str:
    timed = [error.times for error in found.layers if error.times is not None]
    if not timed:
        return "The engine tells the time of none of them."
    float_ms, int8_ms = _sum_ms(found)
    which = "They" if len(timed) == len(found.layers) else f"The {len(timed)} whose time is known"
    return f"{which} take {float_ms:.1f} ms per frame in float, {int8_ms:.1f} ms in the INT8 model (this machine)."
