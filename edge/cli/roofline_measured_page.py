"""What was measured, and what INT8 is worth, as parts of the page of rooflines."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from edge.cli.account_lines import precision_word
from edge.cli.roofline_measured import amount_of_bytes, measured_lines
from edge.cli.roofline_svg import Dot, Segment, Slope, strip_svg
from edge.cli.roofline_worth import worth_lines
from edge.quantize.this_machine import Measured
from edge.roofline.efficiency import MeasuredLayer, MeasuredModel
from edge.roofline.measured import MeasuredMachine
from edge.roofline.worth import Gain, LayerWorth, Worth

__all__ = ["measured_dots", "measured_key", "measured_section", "slopes_of", "worth_section"]

_STYLE_OF_GAIN = {
    Gain.OPERATIONS: "compute",
    Gain.BYTES: "memory",
    Gain.NOTHING: "float",
    Gain.LESS_THAN_NOTHING: "float",
}


def slopes_of(machine: object) -> tuple[Slope, ...]:
    """Return what caches allow, of a machine that was measured."""
    if not isinstance(machine, MeasuredMachine):
        return ()
    return tuple(
        Slope(label=f"up to {amount_of_bytes(step.up_to_bytes)}", bytes_per_s=step.bytes_per_s)
        for step in machine.steps[:-1]
    )


def measured_dots(measured: Measured) -> Iterator[Dot]:
    """Yield the measured layers: of the last precision below their bounds, of the others as rings."""
    *others, last = measured.models.values()
    for model in others:
        for one in _computing(model):
            yield _dot(model, one, style="before")
    far = {id(one): str(number) for number, one in enumerate(last.far_below, start=1)}
    for one in _computing(last):
        yield _dot(last, one, style=one.layers[0].layer.precision.value, mark=far.get(id(one), ""), has_stem=True)


def _computing(model: MeasuredModel) -> Iterator[MeasuredLayer]:
    return (one for one in model.layers if one.operations)


def _dot(model: MeasuredModel, one: MeasuredLayer, *, style: str, mark: str = "", has_stem: bool = False) -> Dot:
    kind = precision_word(one.layers[0].layer.precision)
    return Dot(
        label=f"{one.called} ({kind}): {1e6 * one.measured_s:.1f} us measured, at least {1e6 * one.least_s:.2f} us "
        f"({one.efficiency:.0%} of its roof), {one.intensity:.1f} operations per byte",
        style=style,
        intensity=one.intensity,
        rate=one.operations / one.measured_s,
        share=one.measured_s / model.run_s,
        mark=mark,
        roof_rate=one.operations / one.least_s if has_stem and one.least_s else None,
    )


def measured_key(measured: Measured) -> str:
    """Return what stands for what in the picture."""
    *others, last = measured.models.values()
    kinds = dict.fromkeys(one.layers[0].layer.precision for one in last.layers)
    keys = [f'<span class="key dot {kind.value}"></span>a layer in {precision_word(kind)}, measured' for kind in kinds]
    keys += [
        f'<span class="key dot before"></span>measured with the whole model in '
        f"{precision_word(one.bound.account.precision)}"
        for one in others
    ]
    return "".join([*keys, "; the line above a dot ends at its bound. Area: share of the frame. Numbers: far below"])


def measured_section(measured: Measured) -> str:
    """Return the sentences: each precision against its bound, what is far below, what has no place."""
    return f"<h3>Measured</h3>{_lines(measured_lines(measured))}"


def worth_section(worth: Worth, *, times_measured: float | None) -> str:
    """Return the sentences, and least times of both precisions, layers coloured by what they gain."""
    frames = worth.before.account.batch
    rows = [
        (precision_word(bound.account.precision), [_segment(one, seconds) for one, seconds in pairs if seconds > 0])
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
    said = _lines(worth_lines(worth, times_measured=times_measured))
    return f'<h3>What INT8 is worth</h3>{said}{key}<div class="wide">{picture}</div>'


def _segment(one: LayerWorth, seconds: float) -> Segment:
    text = f"{one.name}: {1e6 * one.before_s:.2f} us, in INT8 {1e6 * one.after_s:.2f}; gain: {one.gain.value}"
    return Segment(label=text, style=_STYLE_OF_GAIN[one.gain], length=1e3 * seconds)


def _lines(lines: Iterable[str]) -> str:
    return "".join(
        f"<p{' class=note' if text.startswith(' ') else ''}>{html.escape(text.strip())}</p>" for text in lines
    )
