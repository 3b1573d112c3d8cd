"""The rooflines of a model as one HTML file: a picture for each machine, what it says, and every layer."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence

from edge.cli.output import amount
from edge.cli.page import definitions, html_table, whole_page
from edge.cli.roofline_lines import (
    Roofline,
    bound_figures,
    layer_figures,
    machine_lines,
    precision_word,
    rate,
    summary_sentences,
    worth_lines,
)
from edge.cli.svg import Frame, circle, line, picture, rect, text
from edge.quantize.account import PrecisionAccounts
from edge.roofline.bound import Gain, LayerBound, LayerWorth, ModelBound, Worth
from edge.roofline.lessons import Lesson
from edge.types import Precision

__all__ = ["roofline_page"]

_MARKED = 5
_LARGEST_PX, _SMALLEST_PX = 26.0, 2.5  # radius of a dot with all of the time, and of one with hardly any
_LABEL_GAP_PX = 14
_STYLE_OF_GAIN = {
    Gain.OPERATIONS: "compute",
    Gain.BYTES: "memory",
    Gain.NOTHING: "float",
    Gain.LESS_THAN_NOTHING: "float",
}

_LIGHT = {"int8": "#2a6fc9", "fp16": "#b0632c", "fp32": "#6b5aa8", "memory": "#51545c", "compute": "#b0632c",
          "own": "#2a6fc9", "step": "#b9c4d3", "worst": "#eef4fc"}  # fmt: skip
_DARK = {"int8": "#6ba6f2", "fp16": "#e3995f", "fp32": "#a99bea", "memory": "#a5a5ad", "compute": "#e3995f",
         "own": "#6ba6f2", "step": "#47505e", "worst": "#1d2836"}  # fmt: skip
_STYLE = """
.roof { stroke-width: 2.5; stroke-linecap: round; } .roof.memory { stroke: var(--memory); }
.roof.int8, .ridge.int8 { stroke: var(--int8); } .roof.fp16, .ridge.fp16 { stroke: var(--fp16); }
.roof.fp32, .ridge.fp32 { stroke: var(--fp32); } .ridge { stroke: var(--quiet); stroke-dasharray: 3 4; }
svg text.int8 { fill: var(--int8); } svg text.fp16 { fill: var(--fp16); } svg text.fp32 { fill: var(--fp32); }
circle { fill-opacity: .38; stroke-width: 1.2; } circle.int8 { fill: var(--int8); stroke: var(--int8); }
circle.fp16 { fill: var(--fp16); stroke: var(--fp16); } circle.fp32 { fill: var(--fp32); stroke: var(--fp32); }
circle.depthwise { stroke-dasharray: 2 2; fill-opacity: .15; }
circle.before { fill: none; stroke: var(--fp16); stroke-opacity: .45; stroke-width: 1; }
rect.float { fill: var(--step); stroke: var(--ground); stroke-width: .6; } .key.float { background: var(--step); }
rect.memory, rect.compute { stroke: var(--ground); stroke-width: .6; }
rect.memory { fill: var(--memory); fill-opacity: .55; } rect.compute { fill: var(--compute); }
.step { fill: var(--step); rx: 3px; } .step.own { fill: var(--own); }
.key.int8 { background: var(--int8); } .key.fp16 { background: var(--fp16); } .key.fp32 { background: var(--fp32); }
.key.memory { background: var(--memory); opacity: .55; } .key.compute { background: var(--compute); }
.key.before { background: none; border: 1.5px solid var(--fp16); box-sizing: border-box; opacity: .6; }
.lessons { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1.6rem 2rem; }
.lessons p { font-size: .9rem; min-height: 6em; } tr.worst { background: var(--worst); }
details { margin-top: 1rem; } summary { cursor: pointer; color: var(--quiet); }
"""
_SUMMARY_COLUMNS = (
    ("machine", "text"), ("in", "text"), ("least ms per frame", ""), ("never below ms", ""),
    ("frames per second at most", ""), ("layers by memory", ""), ("time by memory", ""), ("ridge", ""),
)  # fmt: skip
_LAYER_COLUMNS = (
    ("#", ""), ("layer", "text"), ("operators", "text"), ("in", "text"), ("operations", ""), ("bytes", ""),
    ("op/byte", ""), ("bound", "text"), ("least us", ""), ("share", ""),
)  # fmt: skip


def roofline_page(accounts: PrecisionAccounts, rooflines: Sequence[Roofline]) -> str:
    """Escape names of layers and files."""
    title = f"Rooflines: {accounts.spec.name}"
    body = "".join((_head(title, accounts), _summary(rooflines), *map(_machine, rooflines), _reading()))
    return whole_page(title, body, light=_LIGHT, dark=_DARK, style=_STYLE)


def _head(title: str, accounts: PrecisionAccounts) -> str:
    account = list(accounts.by_precision.values())[-1]
    facts = (
        ("Model", f"{accounts.spec.path} (sha256 {accounts.spec.sha256[:12]})"),
        ("Batch", f"{account.batch}"),
        ("Work", f"{amount(account.operations / account.batch)}op a frame, "
                 f"{amount(account.parameters)} parameters, {len(account.layers)} layers after fusion"),
        ("INT8", accounts.why_no_int8 or accounts.origin_of_int8),
    )  # fmt: skip
    promise = (
        "What bounds this model on these machines, from what is published of them. A bound is "
        "what cannot be beaten; it is no prediction."
    )
    return f"<h1>{html.escape(title)}</h1><p>{promise}</p>{definitions(facts)}"


def _summary(rooflines: Sequence[Roofline]) -> str:
    rows = [_summary_cells(bound) for roofline in rooflines for bound in roofline.bounds]
    return f"<h2>At a glance</h2>{html_table(_SUMMARY_COLUMNS, rows)}\n" if rows else ""


def _summary_cells(bound: ModelBound) -> tuple[str, ...]:
    ridge = bound.machine.ridge(bound.account.precision)
    return (
        bound.machine.title,
        precision_word(bound.account.precision),
        *bound_figures(bound),
        "" if ridge is None else f"{ridge:.0f}",
    )


def _machine(roofline: Roofline) -> str:
    title, *facts = machine_lines(roofline.machine)
    head = f"<h2>{html.escape(title)}</h2>" + "".join(f'<p class="note">{html.escape(fact)}</p>' for fact in facts)
    if not roofline.bounds:
        return head
    said = "".join(f"<p>{html.escape(one)}</p>" for one in summary_sentences(roofline))
    worth = "" if roofline.worth is None else _worth(roofline.worth)
    parts = (_picture(roofline), said, _strips(roofline), worth, _lessons(roofline), _layers(roofline))
    return "".join((head, *parts))


def _picture(roofline: Roofline) -> str:
    machine = roofline.machine
    peaks = [(kind, peak) for kind in reversed(Precision) if (peak := machine.peak(kind)) is not None]
    roofs, dots = sorted(peaks, key=lambda one: one[1]), _dots(roofline)
    x = [*(one.layer.intensity for _, one, _ in dots), *(peak / machine.bytes_per_s for _, peak in roofs)]
    y = [*(_rate(one) for _, one, _ in dots), *(peak for _, peak in roofs)]
    frame = Frame(
        width=1040, height=540, left=64, right=26, top=26, bottom=48,
        x_low=math.floor(math.log10(min(x))), x_high=math.ceil(math.log10(max(x) * 1.6)),
        y_low=math.floor(math.log10(min(y))), y_high=math.ceil(math.log10(max(y) * 1.2)),
    )  # fmt: skip
    parts = (
        _grid(frame),
        _roofs(roofs, frame, machine.bytes_per_s),
        _memory(roofs[-1][1], frame, machine.bytes_per_s),
        _drawn(dots, _longest(roofline.fastest), frame),
    )
    return (
        f'<p class="note">{_key(roofline)}</p>'
        f'<div class="wide">{frame.picture(f"Roofline of {machine.title}", *parts)}</div>'
        f"{_named(roofline.fastest)}{_not_drawn(roofline.fastest)}"
    )


def _dots(roofline: Roofline) -> list[tuple[ModelBound, LayerBound, str]]:
    """Return layers that compute, with the model they are of and their style."""
    bound = roofline.fastest
    own = [(bound, one, _style(one)) for one in bound.layers if one.layer.operations]
    return [*_before(roofline), *own]


def _style(one: LayerBound) -> str:
    is_depthwise = one.layer.shape is not None and one.layer.shape.is_depthwise
    return f"{one.layer.precision.value}{' depthwise' if is_depthwise else ''}"


def _before(roofline: Roofline) -> list[tuple[ModelBound, LayerBound, str]]:
    """Return the layers of the model in FP16, where the dots are of INT8: what INT8 has moved them from."""
    found = [bound for bound in roofline.bounds if bound.account.precision is Precision.FP16]
    if not found or roofline.fastest.account.precision is not Precision.INT8:
        return []
    return [(found[0], one, "before") for one in found[0].layers if one.layer.operations]


def _rate(one: LayerBound) -> float:
    return one.layer.operations / one.least_s


def _grid(frame: Frame) -> Iterator[str]:
    for power in range(int(frame.x_low), int(frame.x_high) + 1):
        x = frame.x(power)
        yield line("grid", x, frame.top, x, frame.floor)
        yield text(x, frame.floor + 17, f"{10.0**power:g}", anchor="middle")
    for power in range(int(frame.y_low), int(frame.y_high) + 1):
        y = frame.y(power)
        yield line("grid", frame.left, y, frame.end, y)
        yield text(frame.left - 8, y + 4, amount(10.0**power).replace(".00", "").replace("0.0", "0"), anchor="end")
    yield text(frame.left, frame.height - 12, "operations per byte moved", anchor="start")
    yield text(8, 14, "operations per second", anchor="start")


def _roofs(roofs: Sequence[tuple[Precision, float]], frame: Frame, bytes_per_s: float) -> Iterator[str]:
    """Yield each roof with its ridge, where it begins."""
    for kind, peak in roofs:
        ridge = peak / bytes_per_s
        x, y = frame.x(math.log10(ridge)), frame.y(math.log10(peak))
        yield line(f"ridge {kind.value}", x, y, x, frame.floor)
        yield text(x, frame.floor + 33, f"{ridge:.0f}", anchor="middle", style=f"mark {kind.value}")
        yield line(f"roof {kind.value}", x, y, frame.end, y)
        yield text(frame.end, y - 8, rate(kind, peak), anchor="end", style=f"mark {kind.value}")


def _memory(highest: float, frame: Frame, bytes_per_s: float) -> Iterator[str]:
    """Yield the slope of the memory up to the highest roof; it leaves the picture on the left where that is lower."""
    start = max(frame.x_low, frame.y_low - math.log10(bytes_per_s))
    x1, y1 = frame.x(start), frame.y(start + math.log10(bytes_per_s))
    x2, y2 = frame.x(math.log10(highest / bytes_per_s)), frame.y(math.log10(highest))
    yield line("roof memory", x1, y1, x2, y2)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = x1 + 0.3 * (x2 - x1), y1 + 0.3 * (y2 - y1)
    label = text(x, y - 30, f"memory: {bytes_per_s / 1e9:.1f} GB/s", anchor="middle", style="mark")
    yield f'<g transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{label}</g>'


def _drawn(
    dots: Sequence[tuple[ModelBound, LayerBound, str]], longest: Sequence[LayerBound], frame: Frame
) -> Iterator[str]:
    """Yield the largest dot first, so that a small one is never hidden; their marks above all of them."""
    mark_of = {id(one): str(number) for number, one in enumerate(longest, start=1)}
    marks, taken = [], list[float]()
    for bound, one, style in sorted(dots, key=lambda dot: -dot[0].share(dot[1])):
        x, y = frame.x(math.log10(one.layer.intensity)), frame.y(math.log10(_rate(one)))
        radius = max(_SMALLEST_PX, _LARGEST_PX * math.sqrt(2 * bound.share(one)))
        yield circle(style, x, y, radius, _label(bound, one))
        if id(one) in mark_of and all(abs(x - other) > _LABEL_GAP_PX for other in taken):
            taken.append(x)
            beside = radius * 0.7
            marks.append(text(x + beside + 3, y + beside + 11, mark_of[id(one)], anchor="start", style="mark"))
    yield from marks


def _label(bound: ModelBound, one: LayerBound) -> str:
    return (
        f"{one.layer.name} ({'+'.join(one.layer.fused)}, {precision_word(one.layer.precision)}): "
        f"{one.layer.intensity:.1f} operations per byte, at least {1e6 * one.least_s:.2f} us "
        f"({bound.share(one):.1%}), bound by {one.bound.value}"
    )


def _key(roofline: Roofline) -> str:
    kinds = dict.fromkeys(one.layer.precision for one in roofline.fastest.layers)
    keys = [f'<span class="key dot {kind.value}"></span>a layer in {precision_word(kind)}' for kind in kinds]
    if _before(roofline):
        keys.append('<span class="key dot before"></span>the same layer with the whole model in FP16')
    keys.append("; dashed: depthwise. Area: share of the least time. Numbers: the longest layers")
    return "".join(keys)


def _named(bound: ModelBound) -> str:
    """Return which layers the numbers in the picture are."""
    words = [f"{one.layer.name} ({'+'.join(one.layer.fused)}, {bound.share(one):.1%})" for one in _longest(bound)]
    names = (f"<b>{number}</b> {html.escape(one)}" for number, one in enumerate(words, start=1))
    return f'<p class="note">{"; ".join(names)}</p>'


def _not_drawn(bound: ModelBound) -> str:
    moving = [one for one in bound.layers if not one.layer.operations]
    if not moving:
        return ""
    share = sum(bound.share(one) for one in moving)
    kinds = ", ".join(dict.fromkeys(one.layer.op_type for one in moving))
    return (
        f'<p class="note">Not in the picture, since they compute nothing: {len(moving)} layers that move bytes '
        f"({html.escape(kinds)}), {share:.1%} of the least time.</p>"
    )


def _strips(roofline: Roofline) -> str:
    rows = [
        (precision_word(bound.account.precision), [_segment(one) for one in bound.layers if one.least_s])
        for bound in roofline.bounds
    ]
    return (
        "<h3>Where the least time goes, layer by layer, for the whole batch</h3>"
        '<p class="note"><span class="key memory"></span>bound by memory<span class="key compute"></span>bound by '
        f'compute</p><div class="wide">{_strip(rows, title="Least time of each layer, end to end")}</div>'
    )


def _segment(one: LayerBound) -> tuple[str, float, str]:
    label = f"{one.layer.name}: {1e6 * one.least_s:.2f} us, bound by {one.bound.value}"
    return one.bound.value, 1e3 * one.least_s, label


def _strip(rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]], *, title: str) -> str:
    """Return a bar for each row, its segments (style, ms, label) end to end, all rows to one scale."""
    most = max(sum(ms for _, ms, _ in segments) for _, segments in rows)
    left, width, step = 64, 1040, 36
    parts: list[str] = []
    for number, (name, segments) in enumerate(rows):
        x, y = float(left), 8 + step * number
        parts.append(text(left - 8, y + 16, name, anchor="end", style="mark"))
        for style, ms, label in segments:
            length = (width - left - 110) * ms / most
            parts.append(rect(style, x, y, length, 24, label))
            x += length
        parts.append(text(x + 8, y + 16, f"{sum(ms for _, ms, _ in segments):.3g} ms", anchor="start"))
    return picture(width, 8 + step * len(rows), title, parts)


def _worth(worth: Worth) -> str:
    """Return the sentences, and least times of both precisions, layers coloured by what they gain."""
    frames = worth.before.account.batch
    rows = [
        (precision_word(bound.account.precision), [_worth_segment(*pair) for pair in pairs if pair[1] > 0])
        for bound, pairs in (
            (worth.before, [(one, one.before_s / frames) for one in worth.layers]),
            (worth.after, [(one, one.after_s / frames) for one in worth.layers]),
        )
    ]
    strips = _strip(rows, title="Least time of each layer in float and in INT8")
    key = (
        '<p class="note"><span class="key compute"></span>gains by operations<span class="key memory"></span>gains by '
        'bytes alone<span class="key float"></span>gains nothing</p>'
    )
    said = _lines(worth_lines(worth))
    return f'<h3>What INT8 is worth</h3>{said}{key}<div class="wide">{strips}</div>'


def _worth_segment(one: LayerWorth, seconds: float) -> tuple[str, float, str]:
    label = f"{one.name}: {1e6 * one.before_s:.2f} us, in INT8 {1e6 * one.after_s:.2f}; gain: {one.gain.value}"
    return _STYLE_OF_GAIN[one.gain], 1e3 * seconds, label


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"<p{' class=note' if one.startswith(' ') else ''}>{html.escape(one.strip())}</p>" for one in lines)


def _lessons(roofline: Roofline) -> str:
    ridge = roofline.machine.ridge(roofline.fastest.account.precision)
    if not roofline.lessons or ridge is None:
        return ""
    figures = [
        f"<figure><h3>{html.escape(lesson.topic)}</h3><p>{html.escape(lesson.sentence)}</p>"
        f"{_ladder(lesson, ridge=ridge)}</figure>"
        for lesson in roofline.lessons
    ]
    return (
        '<h2>What shapes do</h2><p class="note">Operations per byte of one layer of this model, with one thing '
        "changed, on a logarithmic scale; the coloured bar is the layer as it is. Right of the ridge compute is the "
        "bound.</p>"
        f'<div class="lessons">{"".join(figures)}</div>'
    )


def _ladder(lesson: Lesson, *, ridge: float) -> str:
    """Return steps as bars as long as the logarithm of their value, and where the ridge lies; own ones are marked."""
    values = [ridge, *(step.intensity for step in lesson.steps)]
    low, high = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.1
    step_px = 24
    height = step_px * len(lesson.steps) + 20
    frame = Frame(width=480, height=height, left=92, right=64, x_low=low, x_high=high, y_low=0, y_high=1)
    parts = []
    for number, step in enumerate(lesson.steps):
        x, y = frame.x(math.log10(step.intensity)), step_px * number
        style = "mark" if step.is_own else "tick"
        parts.append(text(frame.left - 8, y + 15, step.label, anchor="end", style=style))
        parts.append(rect("step own" if step.is_own else "step", frame.left, y + 3, x - frame.left, 16))
        parts.append(text(x + 6, y + 15, f"{step.intensity:.3g}", anchor="start", style=style))
    x = frame.x(math.log10(ridge))
    parts += [line("ridge", x, 0, x, height - 16), text(x, height - 3, f"ridge {ridge:.0f}", anchor="middle")]
    return picture(frame.width, height, f"{lesson.topic}: operations per byte", parts)


def _layers(roofline: Roofline) -> str:
    bound = roofline.fastest
    worst = {id(one) for one in _longest(bound)}
    rows = [_layer_cells(number, bound, one) for number, one in enumerate(bound.layers, start=1)]
    styles = ["worst" if id(one) in worst else "" for one in bound.layers]
    table = html_table(_LAYER_COLUMNS, rows, styles=styles)
    kind = precision_word(bound.account.precision)
    return f'<details><summary>All {len(rows)} layers in {kind}</summary><div class="wide">{table}</div></details>\n'


def _layer_cells(number: int, bound: ModelBound, one: LayerBound) -> tuple[str, ...]:
    return (
        f"{number}",
        one.layer.name,
        "+".join(one.layer.fused),
        precision_word(one.layer.precision),
        amount(one.layer.operations),
        amount(one.layer.moved_bytes),
        *layer_figures(bound, one),
    )


def _longest(bound: ModelBound) -> list[LayerBound]:
    return sorted((one for one in bound.layers if one.layer.operations), key=lambda one: -one.least_s)[:_MARKED]


def _reading() -> str:
    return (
        "<h2>How to read this</h2>"
        "<p>Each dot is a layer as engines run it: a convolution with its bias, activation and residual sum. It lies "
        "on the roof of its precision, at the highest rate that the machine allows. Left of the ridge the memory is "
        "the bound, and all roofs are one slope: the rate is the bandwidth times the operations per byte. Right of it "
        "compute is the bound.</p>"
        "<p>INT8 gains twice: a value is one byte instead of two, which moves a dot to the right along the slope, and "
        "its roof is higher, which counts only for layers that reach it.</p>"
        "<p>Peaks are dense: twice as much is advertised for weights of which half are zero in a set pattern, which "
        "calibrated models do not have. Bytes are counted once for each layer; where a cache keeps what one layer "
        "makes for the next, that layer can be faster than its dot, but never than its roof.</p>"
    )
