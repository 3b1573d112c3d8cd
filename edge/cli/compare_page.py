"""Result of `edge-deploy compare` as one HTML file: no script, nothing from elsewhere, light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edge.calibrate.histogram import Histogram
from edge.cli.compare_lines import SHOWN_WORST, comparison_summary, layer_precision, number, percent, verdict_lines
from edge.cli.page import definitions, html_table, svg, svg_line, svg_text, whole_page
from edge.evaluate.layers import LayerError, Quantization, worst_layers
from edge.quantize.comparison import Comparison

__all__ = ["comparison_page"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 34
_WIDE, _HIGH = 1040, 300  # of a figure with all layers
_PREFIXES = ((9, "G"), (6, "M"), (3, "k"), (0, ""))
_CROSS = "\N{MULTIPLICATION SIGN}"
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layer in a plot: `label` is shown when it is pointed at; a value that is None is not drawn."""

    label: str
    values: tuple[float | None, ...]
    style: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Part of the x axis of a histogram that is drawn in, from `start` to `end`."""

    start: float
    end: float
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where values lie in the picture: x from 0 to `x_most`, y from `y_least` to `y_most`."""

    width: int
    height: int
    x_most: float
    y_least: float
    y_most: float

    def x(self, value: float) -> float:
        return _LEFT + (self.width - _LEFT - _RIGHT) * value / self.x_most

    def y(self, value: float) -> float:
        share = (value - self.y_least) / (self.y_most - self.y_least)
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * share

    @property
    def floor(self) -> float:
        return self.height - _BOTTOM


def points_svg(points: Sequence[Point], *, title: str, unit: str) -> str:
    """Return the first value of each point, in their order, joined by a line that stops where there is none."""
    known = [point.values[0] for point in points if point.values[0] is not None]
    low, high = min([0.0, *known]), max([1.0, *known])
    frame = _Frame(width=_WIDE, height=_HIGH, x_most=len(points), y_least=low * 1.08, y_most=high * 1.08)
    return _svg(
        frame, title, "".join((*_axis(frame, unit), *_order(frame), *_line(points, frame), *_dots(points, frame)))
    )


def bars_svg(points: Sequence[Point], *, title: str, unit: str) -> str:
    """Return two bars for each point, of the styles `float` and `int8`; a cross where a value is not known."""
    high = max([value for point in points for value in point.values if value is not None], default=1.0) or 1.0
    frame = _Frame(width=_WIDE, height=_HIGH, x_most=len(points), y_least=0, y_most=high * 1.08)
    return _svg(frame, title, "".join((*_axis(frame, unit), *_order(frame), *_pairs(points, frame))))


def histogram_svg(counts: Sequence[int], *, x_most: float, bands: Sequence[Band], title: str) -> str:
    """Return bars over [0, x_most], as high as the logarithm of their counts, with `bands` over them."""
    decades = max(1.0, math.log10(max([1, *counts]) * 2))
    frame = _Frame(width=340, height=170, x_most=x_most, y_least=0, y_most=decades)
    parts = [*_decades(frame), *_columns(counts, frame), *_svg_bands(bands, frame), *_values(frame)]
    return _svg(frame, title, "".join(parts))


def _svg(frame: _Frame, title: str, content: str) -> str:
    floor = svg_line("axis", _LEFT, frame.floor, frame.width - _RIGHT, frame.floor)
    return svg(frame.width, frame.height, title, content + floor)


def _axis(frame: _Frame, unit: str) -> Iterator[str]:
    for value in _ticks(frame.y_least, frame.y_most):
        y = frame.y(value)
        yield svg_line("grid", _LEFT, y, frame.width - _RIGHT, y)
        yield svg_text(_LEFT - 6, y + 4, f"{value:g}", anchor="end")
    yield svg_text(_LEFT - 6, frame.height - 8, unit, anchor="end")


def _order(frame: _Frame) -> Iterator[str]:
    for value in _ticks(1, frame.x_most, most=12):
        if value == int(value):
            yield svg_text(frame.x(value - 0.5), frame.floor + 16, f"{value:g}", anchor="middle")
    yield svg_text(frame.width - _RIGHT, frame.height - 4, "layers, in the order of the model", anchor="end")


def _line(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    path, is_down = [], False
    for position, point in enumerate(points):
        value = point.values[0]
        if value is not None:
            path.append(f"{'L' if is_down else 'M'}{frame.x(position + 0.5):.1f} {frame.y(value):.1f}")
        is_down = value is not None
    yield f'<path class="line" d="{" ".join(path)}"/>'


def _dots(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    for position, point in enumerate(points):
        x, value, title = frame.x(position + 0.5), point.values[0], f"<title>{html.escape(point.label)}</title>"
        if value is None:
            yield f'<g class="missing">{title}{svg_text(x, frame.floor - 6, _CROSS, anchor="middle")}</g>'
            continue
        yield f'<circle class="{point.style}" cx="{x:.1f}" cy="{frame.y(value):.1f}" r="4">{title}</circle>'
        if point.mark:
            yield svg_text(x, frame.y(value) - 8, point.mark, anchor="middle", style="mark")


def _pairs(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    slot = frame.x(1) - frame.x(0)
    thickness = min(12.0, slot * 0.4)
    for position, point in enumerate(points):
        title = f"<title>{html.escape(point.label)}</title>"
        for style, shift, value in zip(("float", "int8"), (-thickness, 0.0), point.values, strict=True):
            x = frame.x(position + 0.5) + shift
            if value is None:
                cross = svg_text(x + thickness / 2, frame.floor - 4, _CROSS, anchor="middle")
                yield f'<g class="missing">{title}{cross}</g>'
            else:
                yield _bar(x, frame.y(value), thickness * 0.9, frame.floor, style=style, title=title)


def _columns(counts: Sequence[int], frame: _Frame) -> Iterator[str]:
    wide = (frame.x(frame.x_most) - frame.x(0)) / max(1, len(counts))
    for position, count in enumerate(counts):
        if count:
            top = frame.y(math.log10(2 * count))  # a single value is seen, too
            yield _bar(frame.x(0) + position * wide, top, max(wide - 0.6, 0.6), frame.floor, style="count")


def _svg_bands(bands: Sequence[Band], frame: _Frame) -> Iterator[str]:
    for band in bands:
        left = frame.x(band.start)
        yield (
            f'<rect class="{band.style}" x="{left:.1f}" y="{_TOP}" width="{max(frame.x(band.end) - left, 2.0):.1f}" '
            f'height="{frame.floor - _TOP:.1f}"/>'
        )


def _decades(frame: _Frame) -> Iterator[str]:
    last = int(frame.y_most - math.log10(2))
    for exponent in range(0, last + 1, max(1, math.ceil(last / 4))):
        y = frame.y(exponent + math.log10(2))
        yield svg_line("grid", _LEFT, y, frame.width - _RIGHT, y)
        power, prefix = next(entry for entry in _PREFIXES if entry[0] <= exponent)
        yield svg_text(_LEFT - 6, y + 4, f"{10 ** (exponent - power)}{prefix}", anchor="end")


def _values(frame: _Frame) -> Iterator[str]:
    for value in _ticks(0, frame.x_most, most=5):
        yield svg_text(frame.x(value), frame.floor + 16, f"{value:g}", anchor="middle")


def _bar(x: float, top: float, wide: float, floor: float, *, style: str, title: str = "") -> str:
    high = max(floor - top, 0.0)
    return f'<rect class="{style}" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}">{title}</rect>'


def _ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most`."""
    if not high > low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(factor * power for factor in _STEPS if factor * power * most >= high - low)
    first = math.ceil(low / step)
    return [round(step * number, 12) for number in range(first, int(high / step) + 1)]


_BARS = 110

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
    worst = worst_layers(found.layers, count=SHOWN_WORST)
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
    place = {error.layer.name: rank for rank, error in enumerate(worst, start=1)}
    points = [
        Point(
            label=f"{position}. {error.layer.name}: {number(error.sqnr_db, '.1f')} dB, {error.verdict.value}",
            values=(error.sqnr_db if math.isfinite(error.sqnr_db) else None,),
            style="int8" if error.layer.is_int8 else "float",
            mark=str(place.get(error.layer.name, "")),
        )
        for position, error in enumerate(found.layers, start=1)
    ]
    return (
        "<h2>Signal to quantization noise along the model</h2>"
        '<p class="note">Of the output of each layer, everything in front of it in INT8 as well. Higher is better; '
        f"numbers are the ranks of the {len(worst)} layers that add most noise.</p>"
        '<p class="note"><span class="key int8 dot"></span>in INT8<span class="key ring"></span>kept in float</p>'
        f'<div class="wide">{points_svg(points, title="SQNR of each layer in dB", unit="dB")}</div>\n'
    )


def _time_plot(found: Comparison) -> str:
    points = [
        Point(
            label=f"{position}. {error.layer.name}: float {number(error.float_ms, '.3f')} ms, "
            f"INT8 {number(error.int8_ms, '.3f')} ms",
            values=(error.float_ms, error.int8_ms),
        )
        for position, error in enumerate(found.layers, start=1)
    ]
    return (
        "<h2>Time of each layer</h2>"
        f'<p class="note">Median milliseconds for one frame, with what {html.escape(found.engine)} fused into the '
        "layer, on one thread of this machine. A Jetson has other kernels: there, measure again. A cross: the engine "
        "does not tell the time of this layer alone.</p>"
        '<p class="note"><span class="key float"></span>float model<span class="key int8"></span>INT8 model</p>'
        f'<div class="wide">{bars_svg(points, title="Time of each layer in float and in INT8", unit="ms")}</div>\n'
    )


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
    counts, bands = rebinned(histogram, _BARS, x_most), _bands(quantization)
    plot = histogram_svg(counts, x_most=x_most, bands=bands, title=f"|x| of {error.layer.input_}")
    caption = (
        f"reads {error.layer.input_}: largest {histogram.amax:.4g}, range {quantization.range_:.4g}, "
        f"step {quantization.step:.3g}; {percent(error.clipped_share)} clipped, {percent(error.dead_share)} become 0"
    )
    title = f"{rank}. {error.layer.name}"
    return f"<figure><h3>{html.escape(title)}</h3>{plot}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _bands(quantization: Quantization) -> tuple[Band, ...]:
    return (
        Band(start=0, end=quantization.step / 2, style="dead"),
        Band(start=quantization.range_, end=quantization.range_, style="range"),
    )


def rebinned(histogram: Histogram, bars: int, x_most: float) -> list[int]:
    """Return the counts of a histogram in `bars` equal parts of [0, x_most]; a bin goes where its middle lies."""
    middles = (np.arange(len(histogram.counts)) + 0.5) * histogram.bin_width
    where = np.minimum(middles / x_most * bars, bars - 1).astype(np.intp)
    return [int(count) for count in np.bincount(where, weights=histogram.counts, minlength=bars)]


def _table(found: Comparison, worst: Sequence[LayerError]) -> str:
    styles = ["worst" if error in worst else "" if error.layer.is_int8 else "kept" for error in found.layers]
    rows = [list(_cells(position, error)) for position, error in enumerate(found.layers, start=1)]
    return (
        "<h2>All layers</h2>"
        f'<p class="note">In the order of the model; the {len(worst)} that add most noise are shaded.</p>'
        f'<div class="wide">{html_table(_COLUMNS, rows, styles=styles)}</div>\n'
    )


def _cells(position: int, error: LayerError) -> Iterator[str]:
    yield from (str(position), error.layer.name, error.layer.op_type, layer_precision(error))
    yield from (number(error.sqnr_db, ".1f"), number(error.input_sqnr_db, ".1f"), percent(error.added_noise))
    yield from (percent(error.clipped_share), percent(error.dead_share), percent(error.mac_share))
    yield from (number(error.float_ms, ".3f"), number(error.int8_ms, ".3f"), error.verdict.value)


def _reading(found: Comparison) -> str:
    return (
        "<h2>How to read it</h2>"
        "<p>SQNR is 10 log10(sum x² / sum (x - x_int8)²) over all images, where x is a tensor of the float model. "
        "A layer makes more or less of the noise that comes in, in float just so; the noise that it adds by its own "
        "rounding is measured against the same layer in float on the same input, in shares of the power of its output. "
        "Clipped and become 0 are shares of the values that it reads, "
        f"the latter of those that are not 0.</p>{definitions(verdict_lines())}"
    )
