"""The rooflines of a model as one HTML file: a picture for each machine, what it says, and every layer."""

from __future__ import annotations

import html
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
from edge.cli.svg import Dot, Roof, Segment, ladder_svg, roofline_svg, strip_svg
from edge.quantize.account import PrecisionAccounts
from edge.roofline.bound import Gain, LayerBound, LayerWorth, ModelBound, Worth
from edge.types import Precision

__all__ = ["roofline_page"]

_MARKED = 5
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
    head = f"<h2>{html.escape(title)}</h2>" + "".join(f'<p class="note">{html.escape(text)}</p>' for text in facts)
    if not roofline.bounds:
        return head
    said = "".join(f"<p>{html.escape(text)}</p>" for text in summary_sentences(roofline))
    worth = "" if roofline.worth is None else _worth(roofline.worth)
    parts = (_picture(roofline), said, _strips(roofline), worth, _lessons(roofline), _layers(roofline))
    return "".join((head, *parts))


def _picture(roofline: Roofline) -> str:
    machine, bound = roofline.machine, roofline.fastest
    roofs = [
        Roof(label=rate(kind, peak), style=kind.value, peak=peak)
        for kind in reversed(Precision)
        if (peak := machine.peak(kind)) is not None
    ]
    picture = roofline_svg(
        sorted(roofs, key=lambda roof: roof.peak), list(_dots(roofline)), bytes_per_s=machine.bytes_per_s,
        title=f"Roofline of {machine.title}",
    )  # fmt: skip
    return f'<p class="note">{_key(roofline)}</p><div class="wide">{picture}</div>{_named(bound)}{_not_drawn(bound)}'


def _dots(roofline: Roofline) -> Iterator[Dot]:
    bound = roofline.fastest
    marks = {id(one): str(number) for number, one in enumerate(_longest(bound), start=1)}
    yield from _before(roofline)
    for one in bound.layers:
        if one.layer.operations:
            yield _dot(bound, one, mark=marks.get(id(one), ""))


def _key(roofline: Roofline) -> str:
    kinds = dict.fromkeys(one.layer.precision for one in roofline.fastest.layers)
    keys = [f'<span class="key dot {kind.value}"></span>a layer in {precision_word(kind)}' for kind in kinds]
    if any(True for _ in _before(roofline)):
        keys.append('<span class="key dot before"></span>the same layer with the whole model in FP16')
    keys.append("; dashed: depthwise. Area: share of the least time. Numbers: the longest layers")
    return "".join(keys)


def _before(roofline: Roofline) -> Iterator[Dot]:
    """Yield the layers of the model in FP16, where the dots are of INT8: what INT8 has moved them from."""
    found = [bound for bound in roofline.bounds if bound.account.precision is Precision.FP16]
    if not found or roofline.fastest.account.precision is not Precision.INT8:
        return
    for one in found[0].layers:
        if one.layer.operations:
            dot = _dot(found[0], one)
            yield Dot(label=dot.label, style="before", intensity=dot.intensity, rate=dot.rate, share=dot.share)


def _dot(bound: ModelBound, one: LayerBound, *, mark: str = "") -> Dot:
    is_depthwise = one.layer.shape is not None and one.layer.shape.is_depthwise
    label = (
        f"{one.layer.name} ({'+'.join(one.layer.fused)}, {precision_word(one.layer.precision)}): "
        f"{one.layer.intensity:.1f} operations per byte, at least {1e6 * one.least_s:.2f} us "
        f"({bound.share(one):.1%}), bound by {one.bound.value}"
    )
    return Dot(
        label=label,
        style=f"{one.layer.precision.value}{' depthwise' if is_depthwise else ''}",
        intensity=one.layer.intensity,
        rate=one.layer.operations / one.least_s,
        share=bound.share(one),
        mark=mark,
    )


def _named(bound: ModelBound) -> str:
    """Return which layers the numbers in the picture are."""
    words = [f"{one.layer.name} ({'+'.join(one.layer.fused)}, {bound.share(one):.1%})" for one in _longest(bound)]
    names = (f"<b>{number}</b> {html.escape(text)}" for number, text in enumerate(words, start=1))
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
    strips = strip_svg(rows, title="Least time of each layer, end to end", unit="ms")
    return (
        "<h3>Where the least time goes, layer by layer, for the whole batch</h3>"
        '<p class="note"><span class="key memory"></span>bound by memory<span class="key compute"></span>bound by '
        f'compute</p><div class="wide">{strips}</div>'
    )


def _segment(one: LayerBound) -> Segment:
    text = f"{one.layer.name}: {1e6 * one.least_s:.2f} us, bound by {one.bound.value}"
    return Segment(label=text, style=one.bound.value, length=1e3 * one.least_s)


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
    picture = strip_svg(rows, title="Least time of each layer in float and in INT8", unit="ms")
    key = (
        '<p class="note"><span class="key compute"></span>gains by operations<span class="key memory"></span>gains by '
        'bytes alone<span class="key float"></span>gains nothing</p>'
    )
    said = _lines(worth_lines(worth))
    return f'<h3>What INT8 is worth</h3>{said}{key}<div class="wide">{picture}</div>'


def _worth_segment(one: LayerWorth, seconds: float) -> Segment:
    text = f"{one.name}: {1e6 * one.before_s:.2f} us, in INT8 {1e6 * one.after_s:.2f}; gain: {one.gain.value}"
    return Segment(label=text, style=_STYLE_OF_GAIN[one.gain], length=1e3 * seconds)


def _lines(lines: Iterable[str]) -> str:
    return "".join(
        f"<p{' class=note' if text.startswith(' ') else ''}>{html.escape(text.strip())}</p>" for text in lines
    )


def _lessons(roofline: Roofline) -> str:
    ridge = roofline.machine.ridge(roofline.fastest.account.precision)
    if not roofline.lessons or ridge is None:
        return ""
    parts = []
    for lesson in roofline.lessons:
        steps = [(step.label, step.intensity, step.is_own) for step in lesson.steps]
        picture = ladder_svg(steps, ridge=ridge, title=f"{lesson.topic}: operations per byte")
        parts.append(
            f"<figure><h3>{html.escape(lesson.topic)}</h3><p>{html.escape(lesson.sentence)}</p>{picture}</figure>"
        )
    return (
        '<h2>What shapes do</h2><p class="note">Operations per byte of one layer of this model, with one thing '
        "changed, on a logarithmic scale; the coloured bar is the layer as it is. Right of the ridge compute is the "
        "bound.</p>"
        f'<div class="lessons">{"".join(parts)}</div>'
    )


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
