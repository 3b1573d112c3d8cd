"""Rooflines in words: what a machine can do, what bounds each layer, what bounds the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from edge.cli.output import aligned, echo_parts, shown_width
from edge.quantize.account import PrecisionAccounts
from edge.roofline.bound import Gain, LayerBound, LayerWorth, ModelBound, Worth, bound_of_model, worth_of_int8
from edge.roofline.lessons import Lesson, lessons_of
from edge.roofline.machines import Machine
from edge.types import Precision

__all__ = [
    "Roofline",
    "echo_rooflines",
    "machines_lines",
    "precision_word",
    "roofline_of",
    "rooflines_as_json",
]


def precision_word(precision: Precision) -> str:
    return precision.value.upper()


_SUMMARY_HEAD = ("least ms", "never below", "most frames/s", "layers by memory", "time by memory", "in", "machine")
_LAYERS_HEAD = ("in", "op/B", "bound", "least us", "share", "operator", "layer")
_MACHINES_HEAD = ("INT8 TOPS", "FP16 TFLOPS", "FP32 TFLOPS", "GB/s", "INT8 ridge", "watts", "machine", "name")
_UNKNOWN = "?"
_NAMED = 3
_WORDS = {
    Gain.OPERATIONS: "gain by operations: they wait for compute in {kind}, and the roof of INT8 is higher",
    Gain.BYTES: "gain by bytes alone: they wait for memory, and move fewer of them",
    Gain.NOTHING: "gain nothing",
    Gain.LESS_THAN_NOTHING: "lose: they stay in float, and now move more bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A model on one machine, in each precision whose peak is known, slowest first; `lessons` are of the fastest.

    `worth`: of INT8 against the float above it; None where one of both is not there.
    """

    machine: Machine
    bounds: tuple[ModelBound, ...]
    lessons: tuple[Lesson, ...]
    worth: Worth | None = None

    @property
    def fastest(self) -> ModelBound:
        """The bound in the precision with the highest peak."""
        return self.bounds[-1]


def roofline_of(accounts: PrecisionAccounts, machine: Machine) -> Roofline:
    """Return what bounds a model on a machine; without bounds where in each precision a peak is not known."""
    found = [bound_of_model(account, machine) for account in accounts.by_precision.values()]
    bounds = tuple(bound for bound in found if bound is not None)
    lessons = lessons_of(bounds[-1].account) if bounds else ()
    return Roofline(machine=machine, bounds=bounds, lessons=lessons, worth=_worth(accounts, bounds))


def _worth(accounts: PrecisionAccounts, bounds: tuple[ModelBound, ...]) -> Worth | None:
    if len(bounds) < 2 or bounds[-1].account.precision is not Precision.INT8:
        return None
    most = None if accounts.most_int8 is None else bound_of_model(accounts.most_int8, bounds[-1].machine)
    return worth_of_int8(bounds[-2], bounds[-1], most=most)


def rooflines_as_json(accounts: PrecisionAccounts, found: Sequence[Roofline]) -> dict[str, Any]:
    return {
        "model": accounts.spec.name,
        "sha256": accounts.spec.sha256,
        "batch": next(iter(accounts.by_precision.values())).batch,
        "int8": accounts.origin_of_int8,
        "machines": [
            {
                **one.machine.as_json(),
                "bounds": [bound.as_json() for bound in one.bounds],
                "worth_of_int8": None if one.worth is None else one.worth.as_json(),
            }
            for one in found
        ],
    }


def echo_rooflines(accounts: PrecisionAccounts, found: Sequence[Roofline]) -> None:
    """Print the layers and lessons of one machine, or a line for each of several."""
    why = accounts.why_no_int8
    click.echo(f"INT8 {accounts.origin_of_int8}" if why is None else f"INT8 is not bounded: {why}", err=True)
    parts: list[Iterable[str]] = [_summary_lines(found)]
    if len(found) == 1:
        only = found[0]
        worth = [] if only.worth is None else [_worth_lines(only.worth)]
        parts = [
            _machine_lines(only.machine),
            _layer_bound_lines(only.fastest),
            *parts,
            _sentences(only),
            *worth,
            _lesson_lines(only),
        ]
    echo_parts([*parts, [_verdict(found)]])


def _rate(precision: Precision, peak: float) -> str:
    """Return a peak as it is written of its precision: `INT8 33.4 TOPS`."""
    return f"{precision_word(precision)} {_tera(peak)} {'TOPS' if precision is Precision.INT8 else 'TFLOPS'}"


def _tera(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value / 1e12:.3g}"


def _machine_lines(machine: Machine) -> Iterator[str]:
    """Yield what a machine can do: dense peaks with their ridges, memory, and what its box says."""
    yield f"{machine.title} ({machine.called})"
    peaks = [(kind, machine.peak(kind), machine.ridge(kind)) for kind in Precision]
    words = [
        f"{_rate(kind, peak)} (ridge {ridge:.0f})"
        for kind, peak, ridge in peaks
        if peak is not None and ridge is not None
    ]
    yield f"{machine.bytes_per_s / 1e9:.1f} GB/s; dense peaks: {', '.join(words)} operations per byte"
    unknown = [precision_word(kind) for kind, peak, _ in peaks if peak is None]
    if unknown:
        yield f"no peak is known, so not bounded here: {', '.join(unknown)}"
    yield from _advertised(machine)


def _advertised(machine: Machine) -> Iterator[str]:
    said, peak = machine.facts.advertised, machine.peak(Precision.INT8)
    if said is None:
        return
    text = f"advertised: {said.tops:g} TOPS, {said.is_of}"
    if peak is not None:
        sparse = machine.unit_peak("tensor", Precision.INT8.value, is_sparse=True)
        dla = f" and {_tera(machine.dla_peak(is_sparse=True))} sparse on its DLA" if machine.facts.dla else ""
        where = "" if machine.mode is None else " in this power mode"
        text += f"; here {_tera(peak)} dense, {_tera(sparse)} sparse on the GPU{dla}{where}"
    yield text


def _summary_lines(rooflines: Sequence[Roofline]) -> Iterator[str]:
    rows = [
        (*_bound_figures(bound), precision_word(bound.account.precision), bound.machine.called)
        for roofline in rooflines
        for bound in roofline.bounds
    ]
    yield from aligned([_SUMMARY_HEAD, *rows], width=shown_width(), spare=("never below", "layers by memory"))
    for roofline in rooflines:
        if not roofline.bounds:
            yield f"{roofline.machine.called}: a peak that this model needs is not known"


def _verdict(rooflines: Sequence[Roofline]) -> str:
    """Return one line: how fast the model is at most, on the machine or from the slowest to the fastest of them."""
    fastest = sorted((one.fastest for one in rooflines if one.bounds), key=lambda bound: -bound.least_s_per_frame)
    shown = " to ".join(map(_most, fastest if len(fastest) == 1 else (fastest[0], fastest[-1])))
    only = next((one.worth for one in rooflines if one.worth is not None), None) if len(rooflines) == 1 else None
    worth = f", {only.times_faster:.2f} times {precision_word(only.before.account.precision)}" if only else ""
    return f"Verdict: {shown}{worth}. At most: an engine takes longer."


def _most(bound: ModelBound) -> str:
    kind = precision_word(bound.account.precision)
    return f"{1 / bound.least_s_per_frame:.0f} frames/s in {kind} on {bound.machine.called}"


def _bound_figures(bound: ModelBound) -> tuple[str, ...]:
    return (
        f"{1e3 * bound.least_s_per_frame:.3f}",
        f"{1e3 * bound.floor_s_per_frame:.3f}",
        f"{1 / bound.least_s_per_frame:.0f}",
        f"{len(bound.memory_bound)} of {len(bound.layers)}",
        f"{bound.memory_bound_time_share:.0%}",
    )


def _sentences(roofline: Roofline) -> Iterator[str]:
    bound = roofline.fastest
    kind = precision_word(bound.account.precision)
    least, floor = f"{1e3 * bound.least_s_per_frame:.3f} ms", f"{1e3 * bound.floor_s_per_frame:.3f} ms"
    yield (
        f"In {kind} a frame takes at least {least} where the tensors of each layer pass through memory once, and never "
        f"less than {floor}, even if caches kept all that is made on the way. These are bounds: kernels, launches, "
        "scaling and NMS come on top."
    )
    yield (
        f"{len(bound.memory_bound)} of {len(bound.layers)} layers wait for memory, for "
        f"{bound.memory_bound_time_share:.0%} of that time: there, fewer bytes help; more operations per second do not."
    )
    if len(roofline.bounds) > 1 and bound.account.precision is Precision.INT8:
        yield _worth_of_int8(roofline.bounds[-2], bound)


def _worth_of_int8(before: ModelBound, after: ModelBound) -> str:
    bytes_left = after.account.moved_bytes / before.account.moved_bytes
    kind = precision_word(before.account.precision)
    return (
        f"INT8 leaves {bytes_left:.0%} of the bytes of {kind}, has {_gain(before, after):.3g} times its operations per "
        f"second, and leaves {after.least_s / before.least_s:.0%} of its least time."
    )


def _gain(before: ModelBound, after: ModelBound) -> float:
    low, high = before.machine.peak(before.account.precision), after.machine.peak(after.account.precision)
    return high / low if low and high else 1.0


def _layer_bound_lines(bound: ModelBound) -> Iterator[str]:
    rows = [
        (precision_word(one.layer.precision), *_layer_figures(bound, one), "+".join(one.layer.fused), one.layer.name)
        for one in bound.layers
    ]
    yield from aligned([_LAYERS_HEAD, *rows], width=shown_width(), spare=("operator",), is_named=True)


def _layer_figures(bound: ModelBound, one: LayerBound) -> tuple[str, ...]:
    return f"{one.layer.intensity:.1f}", one.bound.value, f"{1e6 * one.least_s:.2f}", f"{bound.share(one):.1%}"


def _lesson_lines(roofline: Roofline) -> Iterator[str]:
    """Yield what shapes do to intensity, each lesson with its steps."""
    for lesson in roofline.lessons:
        steps = ", ".join(
            f"{step.label}{' (as it is)' if step.is_own else ''} {step.intensity:.3g}" for step in lesson.steps
        )
        yield f"{lesson.topic}: {lesson.sentence}"
        yield f"  operations per byte: {steps}"


def machines_lines(machines: Sequence[Machine]) -> Iterator[str]:
    rows = [_MACHINES_HEAD, *map(_machine_cells, machines)]
    yield from aligned(rows, width=shown_width(), spare=("name", "INT8 ridge", "FP32 TFLOPS"))


def _machine_cells(machine: Machine) -> tuple[str, ...]:
    ridge, watts = machine.ridge(Precision.INT8), None if machine.mode is None else machine.mode.watts
    return (
        *(_tera(machine.peak(kind)) for kind in (Precision.INT8, Precision.FP16, Precision.FP32)),
        f"{machine.bytes_per_s / 1e9:.1f}",
        _UNKNOWN if ridge is None else f"{ridge:.0f}",
        "" if watts is None else f"{watts:g}",
        machine.called,
        machine.title,
    )


def _worth_lines(worth: Worth) -> Iterator[str]:
    """Yield what is gained as a whole, by which layers in which way, and what the float remainder costs."""
    kind, frames = precision_word(worth.before.account.precision), worth.before.account.batch
    before_ms, after_ms = 1e3 * worth.before.least_s / frames, 1e3 * worth.after.least_s / frames
    yield (
        f"What INT8 is worth: {before_ms:.3f} ms in {kind}, {after_ms:.3f} in INT8, at least: "
        f"{worth.times_faster:.2f} times as fast, as far as the bounds tell."
    )
    for gain, words in _WORDS.items():
        layers = worth.of(gain)
        if layers:
            saved_us = 1e6 * sum(one.saved_s for one in layers) / frames
            amount = f", {abs(saved_us):.1f} us together" if gain is not Gain.NOTHING else ""
            yield f"  {len(layers)} layers {words.format(kind=kind)}{amount}{_named(layers, gain)}"
    yield from _remainder(worth)


def _remainder(worth: Worth) -> Iterator[str]:
    if worth.most is None:
        return
    left, frames = worth.left_in_float, worth.before.account.batch
    if not left:
        yield "  The table leaves nothing in float that could be in INT8."
        return
    yield (
        f"  The table leaves {len(left)} layers in float that could be in INT8: {1e6 * worth.remainder_s / frames:.1f} "
        f"us a frame, {worth.remainder_s / worth.after.least_s:.0%} of the least time{_named(left, Gain.BYTES)}"
    )


def _named(layers: Sequence[LayerWorth], gain: Gain) -> str:
    if gain is Gain.NOTHING:
        return ""
    names = ", ".join(one.name for one in layers[:_NAMED])
    more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
    return f" ({names}{more})"
