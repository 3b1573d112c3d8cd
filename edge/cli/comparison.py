"""Result of `edge-deploy compare` in figures, and as one HTML file: no script, nothing from elsewhere."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from edge.cli.svg import Frame, circle, line, missing, rect, text, ticks
from edge.evaluate.layers import MOST_ADDED_NOISE, LayerError, LayerVerdict, worst_layers
from edge.quantize.comparison import Comparison

__all__ = [
    "SHOWN_WORST",
    "comparison_page",
    "comparison_summary",
    "figures",
    "number",
    "percent",
    "sum_ms",
    "verdict_lines",
]

SHOWN_WORST = 10
_UNKNOWN = "-"
_SMALLEST_PERCENT = 0.01


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


def figures(error: LayerError) -> tuple[str, ...]:
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


def sum_ms(found: Comparison) -> tuple[float, float]:
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
    float_ms, int8_ms = sum_ms(found)
    which = "They" if len(timed) == len(found.layers) else f"The {len(timed)} whose time is known"
    return f"{which} take {float_ms:.1f} ms per frame in float, {int8_ms:.1f} ms in the INT8 model (this machine)."


_LIGHT = {
    "ground": "#fcfcfb", "text": "#17171a", "quiet": "#5c5c63", "grid": "#e4e4e1", "float": "#b0632c",
    "int8": "#2a6fc9", "missing": "#c22f3d", "worst": "#fdf0e6",
}  # fmt: skip
_DARK = {
    "ground": "#18181b", "text": "#ececee", "quiet": "#a5a5ad", "grid": "#36363c", "float": "#e3995f",
    "int8": "#6ba6f2", "missing": "#f2727d", "worst": "#33281f",
}  # fmt: skip
_STYLE = """
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0 .8rem; max-width: 52rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
dt, .note { color: var(--quiet); } .note { font-size: .87rem; }
.wide { overflow-x: auto; } .wide svg { min-width: 46rem; } svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
svg text.mark { fill: var(--text); font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--quiet); }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .9em; border-radius: 2px;
  vertical-align: -.05em; } .key:first-child { margin-left: 0; } .key.dot { border-radius: 50%; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .2rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { vertical-align: bottom; white-space: normal; } td.text, th.text { text-align: left; }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
.line { fill: none; stroke: var(--int8); opacity: .45; }
.int8 { fill: var(--int8); } .float { fill: var(--float); }
.missing text { fill: var(--missing); }
circle.float { fill: var(--ground); stroke: var(--float); stroke-width: 2; }
.key.int8 { background: var(--int8); } .key.float { background: var(--float); }
.key.ring { background: none; border: 2px solid var(--float); border-radius: 50%;
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
    sections = (
        _head(title, found),
        _error_plot(found, worst),
        _time_plot(found),
        _table(found, worst),
        _reading(found),
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>\n:root {{ color-scheme: light dark; {_colours(_LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_colours(_DARK)} }} }}"
        f"{_STYLE}</style></head><body>\n{''.join(sections)}</body></html>\n"
    )


def _colours(named: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in named.items())


def _head(title: str, found: Comparison) -> str:
    facts = (
        ("Model", f"{found.spec.path} (sha256 {found.spec.sha256[:12]})"),
        ("Table", str(found.table)),
        ("Images", str(found.images)),
        ("Engine", f"{found.engine}; times of this machine, on one thread"),
        ("Output", f"{number(found.output_sqnr_db, '.1f')} dB signal to quantization noise"),
    )
    return f"<h1>{html.escape(title)}</h1><p>{html.escape(comparison_summary(found))}</p>{_definitions(facts)}"


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


def _table(found: Comparison, worst: Sequence[LayerError]) -> str:
    styles = ["worst" if error in worst else "" if error.layer.is_int8 else "kept" for error in found.layers]
    rows = [
        (f"{position}", error.layer.name, error.layer.op_type, *figures(error))
        for position, error in enumerate(found.layers, start=1)
    ]
    return (
        "<h2>All layers</h2>"
        f'<p class="note">In the order of the model; the {len(worst)} that add most noise are shaded.</p>'
        f'<div class="wide">{_html_table(rows, styles)}</div>\n'
    )


def _reading(found: Comparison) -> str:
    return (
        "<h2>How to read it</h2>"
        "<p>SQNR is 10 log10(sum x² / sum (x - x_int8)²) over all images, where x is a tensor of the float model. "
        "A layer makes more or less of the noise that comes in, in float just so; the noise that it adds by its own "
        "rounding is measured against the same layer in float on the same input, in shares of the power of its output. "
        "Clipped and become 0 are shares of the values that it reads, "
        f"the latter of those that are not 0.</p>{_definitions(verdict_lines())}"
    )


def _definitions(facts: Iterable[tuple[str, str]]) -> str:
    """Escape names and values."""
    return f"<dl>{''.join(f'<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>' for name, text in facts)}</dl>\n"


def _html_table(rows: Iterable[Sequence[str]], styles: Iterable[str]) -> str:
    """Return a table of escaped cells; `styles` are classes of the rows."""
    head = "".join(f'<th class="{style}">{html.escape(name)}</th>' for name, style in _COLUMNS)
    cells = [
        "".join(f'<td class="{style}">{html.escape(cell)}</td>' for (_, style), cell in zip(_COLUMNS, row, strict=True))
        for row in rows
    ]
    lines = "".join(f'<tr class="{style}">{row}</tr>' for style, row in zip(styles, cells, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
