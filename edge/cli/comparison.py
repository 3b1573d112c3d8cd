"""Result of `edge-deploy compare` as lines, and as one HTML file: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import click
import numpy as np

from edge.calibrate.histogram import Histogram
from edge.cli.output import aligned, echo_lines, echo_parts, shown_width
from edge.cli.page import definitions, html_table, whole_page
from edge.cli.svg import Frame, circle, line, missing, rect, text, ticks
from edge.evaluate.layers import MOST_ADDED_NOISE, LayerError, LayerVerdict, Quantization, worst_layers
from edge.quantize.comparison import Comparison

__all__ = [
    "comparison_page",
    "comparison_summary",
    "echo_comparison",
    "layer_error_lines",
    "number",
    "percent",
    "rebinned",
    "verdict_lines",
]

_SHOWN_WORST = 10
_UNKNOWN = "-"
_SMALLEST_PERCENT = 0.01
_BARS = 110  # of a histogram
_PREFIXES = ((9, "G"), (6, "M"), (3, "k"), (0, ""))
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


def echo_comparison(found: Comparison) -> None:
    worst = worst_layers(found.layers, count=_SHOWN_WORST)
    echo_lines(layer_error_lines(found, worst))
    click.echo(f"* the {len(worst)} layers that add most noise; all layers in the order of the model", err=True)
    click.echo()
    echo_parts([[comparison_summary(found), _verdict(found)]])


def layer_error_lines(found: Comparison, worst: tuple[LayerError, ...]) -> Iterator[str]:
    """Yield a head, and one line for each layer in the order of the model; a star marks the worst."""
    starred = {id(error) for error in worst}
    rows = [
        ("*" if id(error) in starred else "", *_figures(error), error.layer.op_type, error.layer.name)
        for error in found.layers
    ]
    yield from aligned([_HEAD, *rows], texts=3, width=shown_width(), spare=_SPARE, is_named=True)


def _figures(error: LayerError) -> tuple[str, ...]:
    return (
        "INT8" if error.layer.is_int8 else "float",
        number(error.sqnr_db, ".1f"),
        number(error.input_sqnr_db, ".1f"),
        percent(error.added_noise),
        percent(error.clipped_share),
        percent(error.dead_share),
        percent(error.mac_share),
        number(error.float_ms, ".3f"),
        number(error.int8_ms, ".3f"),
        error.verdict.value,
    )


def comparison_summary(found: Comparison) -> str:
    """Return one line: the output, how many layers pay, what is saved."""
    verdicts = Counter(error.verdict for error in found.layers)
    counts = ", ".join(f"{verdicts[verdict]} {words}" for verdict, words in _COUNTED if verdicts[verdict])
    return f"Output {number(found.output_sqnr_db, '.1f')} dB. Of {len(found.layers)} layers {counts}. {_times(found)}"


def _verdict(found: Comparison) -> str:
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


_LIGHT = {"float": "#b0632c", "int8": "#2a6fc9", "count": "#6b7a8f", "range": "#c22f3d", "dead": "#c22f3d66",
          "worst": "#fdf0e6"}  # fmt: skip
_DARK = {"float": "#e3995f", "int8": "#6ba6f2", "count": "#8c9bb0", "range": "#f2727d", "dead": "#f2727d80",
         "worst": "#33281f"}  # fmt: skip
_STYLE = """
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.4rem; }
.line { fill: none; stroke: var(--int8); opacity: .45; }
.int8 { fill: var(--int8); } .float { fill: var(--float); } .count { fill: var(--count); }
.missing text { fill: var(--range); }
circle.float { fill: var(--ground); stroke: var(--float); stroke-width: 2; } .range { fill: var(--range); }
.dead { fill: var(--dead); }
.key.int8 { background: var(--int8); } .key.float { background: var(--float); } .key.range { background: var(--range); }
.key.dead { background: var(--dead); } .key.ring { background: none; border: 2px solid var(--float); border-radius: 50%;
  box-sizing: border-box; }
tr.worst { background: var(--worst); }
tr.kept td { color: var(--quiet); }
"""
_COLUMNS = (
    ("#", "text"), ("layer", "text name"), ("operator", "text"), ("runs in", "text"), ("SQNR dB", ""),
    ("of its input dB", ""), ("noise added", ""), ("clipped", ""), ("become 0", ""), ("MACs", ""), ("float ms", ""),
    ("INT8 ms", ""), ("verdict", "text"),
)  # fmt: skip


def comparison_page(found: Comparison) -> str:
    """Escape names of layers and files."""
    worst = worst_layers(found.layers, count=_SHOWN_WORST)
    title = f"INT8 against float: {found.spec.name}"
    sections = (_head(title, found), _error_plot(found, worst), _time_plot(found), _histograms(found, worst),
                _table(found, worst), _reading(found))  # fmt: skip
    return whole_page(title, "".join(sections), light=_LIGHT, dark=_DARK, style=_STYLE)


def _head(title: str, found: Comparison) -> str:
    facts = (
        ("Model", f"{found.spec.path} (sha256 {found.spec.sha256[:12]})"),
        ("Table", str(found.table)),
        ("Images", str(found.images)),
        ("Engine", f"{found.engine}; times of this machine, on one thread"),
        ("Output", f"{number(found.output_sqnr_db, '.1f')} dB signal to quantization noise"),
    )
    return f"<h1>{html.escape(title)}</h1><p>{html.escape(comparison_summary(found))}</p>{definitions(facts)}"


def _error_plot(found: Comparison, worst: Sequence[LayerError]) -> str:
    known = [error.sqnr_db for error in found.layers if math.isfinite(error.sqnr_db)]
    frame = _frame_of_layers(found, low=min([0.0, *known]), high=max([1.0, *known]))
    parts = (_values(frame, "dB"), _order(frame), _path(found, frame), _marked(found, worst, frame))
    return (
        "<h2>Signal to quantization noise along the model</h2>"
        '<p class="note">Of the output of each layer, everything in front of it in INT8 as well. Higher is better; '
        f"numbers are the ranks of the {len(worst)} layers that add most noise.</p>"
        '<p class="note"><span class="key int8 dot"></span>in INT8<span class="key ring"></span>kept in float</p>'
        f'<div class="wide">{frame.picture("SQNR of each layer in dB", *parts)}</div>\n'
    )


def _time_plot(found: Comparison) -> str:
    times = [time for error in found.layers for time in (error.float_ms, error.int8_ms) if time is not None]
    frame = _frame_of_layers(found, low=0, high=max(times, default=1.0) or 1.0)
    parts = (_values(frame, "ms"), _order(frame), _pairs(found, frame))
    return (
        "<h2>Time of each layer</h2>"
        f'<p class="note">Median milliseconds for one frame, with what {html.escape(found.engine)} fused into the '
        "layer, on one thread of this machine. A Jetson has other kernels: there, measure again. A cross: the engine "
        "does not tell the time of this layer alone.</p>"
        '<p class="note"><span class="key float"></span>float model<span class="key int8"></span>INT8 model</p>'
        f'<div class="wide">{frame.picture("Time of each layer in float and in INT8", *parts)}</div>\n'
    )


def _frame_of_layers(found: Comparison, *, low: float, high: float) -> Frame:
    return Frame(width=1040, height=300, x_high=len(found.layers), y_low=low * 1.08, y_high=high * 1.08)


def _values(frame: Frame, unit: str) -> Iterator[str]:
    for value in ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        yield line("grid", frame.left, y, frame.end, y)
        yield text(frame.left - 6, y + 4, f"{value:g}", anchor="end")
    yield text(frame.left - 6, frame.height - 8, unit, anchor="end")


def _order(frame: Frame) -> Iterator[str]:
    for value in ticks(1, frame.x_high, most=12):
        if value == int(value):
            yield text(frame.x(value - 0.5), frame.floor + 16, f"{value:g}", anchor="middle")
    yield text(frame.end, frame.height - 4, "layers, in the order of the model", anchor="end")


def _path(found: Comparison, frame: Frame) -> Iterator[str]:
    """Yield a line that stops where there is no value."""
    path, is_down = [], False
    for position, error in enumerate(found.layers):
        is_known = math.isfinite(error.sqnr_db)
        if is_known:
            path.append(f"{'L' if is_down else 'M'}{frame.x(position + 0.5):.1f} {frame.y(error.sqnr_db):.1f}")
        is_down = is_known
    yield f'<path class="line" d="{" ".join(path)}"/>'


def _marked(found: Comparison, worst: Sequence[LayerError], frame: Frame) -> Iterator[str]:
    place = {error.layer.name: str(rank) for rank, error in enumerate(worst, start=1)}
    for position, error in enumerate(found.layers):
        name, x = error.layer.name, frame.x(position + 0.5)
        label = f"{position + 1}. {name}: {number(error.sqnr_db, '.1f')} dB, {error.verdict.value}"
        if not math.isfinite(error.sqnr_db):
            yield missing(x, frame.floor - 6, label)
            continue
        y = frame.y(error.sqnr_db)
        yield circle("int8" if error.layer.is_int8 else "float", x, y, 4, label)
        if name in place:
            yield text(x, y - 8, place[name], anchor="middle", style="mark")


def _pairs(found: Comparison, frame: Frame) -> Iterator[str]:
    """Yield two bars for each layer, a cross where a time is not known."""
    thickness = min(12.0, (frame.x(1) - frame.x(0)) * 0.4)
    for position, error in enumerate(found.layers):
        label = (
            f"{position + 1}. {error.layer.name}: float {number(error.float_ms, '.3f')} ms, "
            f"INT8 {number(error.int8_ms, '.3f')} ms"
        )
        for style, shift, time in (("float", -thickness, error.float_ms), ("int8", 0.0, error.int8_ms)):
            x = frame.x(position + 0.5) + shift
            if time is None:
                yield missing(x + thickness / 2, frame.floor - 4, label)
            else:
                yield rect(style, x, frame.y(time), thickness * 0.9, frame.floor - frame.y(time), label)


def _histograms(found: Comparison, worst: Sequence[LayerError]) -> str:
    figures = "".join(
        _figure(rank, error, found.inputs[error.layer.input_]) for rank, error in enumerate(worst, start=1)
    )
    if not figures:
        return ""
    return (
        f"<h2>What the {len(worst)} worst layers read</h2>"
        '<p class="note">Counts of |x| in the float model, on a logarithmic scale. Values beyond the range are '
        "clipped; below half a step they become 0.</p>"
        '<p class="note"><span class="key range"></span>range<span class="key dead"></span>half a step, becomes 0</p>'
        f'<div class="grid2">{figures}</div>\n'
    )


def _figure(rank: int, error: LayerError, histogram: Histogram) -> str:
    quantization = error.layer.quantization
    if quantization is None:
        return ""
    x_most = 1.04 * max(histogram.amax, quantization.range_)
    counts = rebinned(histogram, _BARS, x_most)
    frame = Frame(width=340, height=170, x_high=x_most, y_low=0, y_high=max(1.0, math.log10(max([1, *counts]) * 2)))
    parts = (_decades(frame), _columns(counts, frame), _bands(quantization, frame), _magnitudes(frame))
    plot = frame.picture(f"|x| of {error.layer.input_}", *parts)
    caption = (
        f"reads {error.layer.input_}: largest {histogram.amax:.4g}, range {quantization.range_:.4g}, "
        f"step {quantization.step:.3g}; {percent(error.clipped_share)} clipped, {percent(error.dead_share)} become 0"
    )
    title = f"{rank}. {error.layer.name}"
    return f"<figure><h3>{html.escape(title)}</h3>{plot}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _decades(frame: Frame) -> Iterator[str]:
    last = int(frame.y_high - math.log10(2))
    for exponent in range(0, last + 1, max(1, math.ceil(last / 4))):
        y = frame.y(exponent + math.log10(2))
        yield line("grid", frame.left, y, frame.end, y)
        power, prefix = next(entry for entry in _PREFIXES if entry[0] <= exponent)
        yield text(frame.left - 6, y + 4, f"{10 ** (exponent - power)}{prefix}", anchor="end")


def _columns(counts: Sequence[int], frame: Frame) -> Iterator[str]:
    """Yield bars as high as the logarithm of their counts."""
    wide = (frame.x(frame.x_high) - frame.x(0)) / max(1, len(counts))
    for position, count in enumerate(counts):
        if count:
            top = frame.y(math.log10(2 * count))  # a single value is seen, too
            yield rect("count", frame.x(0) + position * wide, top, max(wide - 0.6, 0.6), frame.floor - top)


def _bands(quantization: Quantization, frame: Frame) -> Iterator[str]:
    ends = (("dead", 0.0, quantization.step / 2), ("range", quantization.range_, quantization.range_))
    for style, start, end in ends:
        width = max(frame.x(end) - frame.x(start), 2.0)
        yield rect(style, frame.x(start), frame.top, width, frame.floor - frame.top)


def _magnitudes(frame: Frame) -> Iterator[str]:
    for value in ticks(0, frame.x_high, most=5):
        yield text(frame.x(value), frame.floor + 16, f"{value:g}", anchor="middle")


def rebinned(histogram: Histogram, bars: int, x_most: float) -> list[int]:
    """Return the counts of a histogram in `bars` equal parts of [0, x_most]; a bin goes where its middle lies."""
    middles = (np.arange(len(histogram.counts)) + 0.5) * histogram.bin_width
    where = np.minimum(middles / x_most * bars, bars - 1).astype(np.intp)
    return [int(count) for count in np.bincount(where, weights=histogram.counts, minlength=bars)]


def _table(found: Comparison, worst: Sequence[LayerError]) -> str:
    styles = ["worst" if error in worst else "" if error.layer.is_int8 else "kept" for error in found.layers]
    rows = [
        (f"{position}", error.layer.name, error.layer.op_type, *_figures(error))
        for position, error in enumerate(found.layers, start=1)
    ]
    return (
        "<h2>All layers</h2>"
        f'<p class="note">In the order of the model; the {len(worst)} that add most noise are shaded.</p>'
        f'<div class="wide">{html_table(_COLUMNS, rows, styles=styles)}</div>\n'
    )


def _reading(found: Comparison) -> str:
    return (
        "<h2>How to read it</h2>"
        "<p>SQNR is 10 log10(sum x² / sum (x - x_int8)²) over all images, where x is a tensor of the float model. "
        "A layer makes more or less of the noise that comes in, in float just so; the noise that it adds by its own "
        "rounding is measured against the same layer in float on the same input, in shares of the power of its output. "
        "Clipped and become 0 are shares of the values that it reads, "
        f"the latter of those that are not 0.</p>{definitions(verdict_lines())}"
    )
