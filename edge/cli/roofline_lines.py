"""Rooflines in words: what a machine can do, what bounds each layer, what bounds the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge.cli.account_lines import precision_word
from edge.cli.columns import aligned, shown_width
from edge.cli.roofline_measured import measured_machine_lines
from edge.quantize.account import PrecisionAccounts
from edge.quantize.this_machine import Measured
from edge.roofline.bound import LayerBound, ModelBound, Roofs, bound_of_model
from edge.roofline.lessons import Lesson, lessons_of
from edge.roofline.machines import Machine
from edge.roofline.measured import THIS, MeasuredMachine
from edge.roofline.worth import Worth, worth_of_int8
from edge.types import Precision

__all__ = [
    "Roofline",
    "rate",
    "layer_bound_lines",
    "lesson_lines",
    "machine_lines",
    "machines_lines",
    "roofline_of",
    "roofline_summary_lines",
    "summary_sentences",
]

_SUMMARY_HEAD = ("least ms", "never below", "most frames/s", "layers by memory", "time by memory", "in", "machine")
_LAYERS_HEAD = ("in", "op/B", "bound", "least us", "share", "operator", "layer")
_MACHINES_HEAD = ("INT8 TOPS", "FP16 TFLOPS", "FP32 TFLOPS", "GB/s", "INT8 ridge", "watts", "machine", "name")
_UNKNOWN = "?"
_THIS_WORDS = "This machine, measured when it is asked for; this/1: on one core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A model on one machine, in each precision of which the machine's peak is known, slowest first.

    Attributes:
        lessons: of what shapes do, on the fastest of them.
        worth: of INT8 against the float above it; None where one of both is not there.
        measured: of this machine.
    """

    machine: Roofs
    bounds: tuple[ModelBound, ...]
    lessons: tuple[Lesson, ...]
    worth: Worth | None = None
    measured: Measured | None = None

    @property
    def fastest(self) -> ModelBound:
        """The bound in the precision with the highest peak."""
        return self.bounds[-1]


def roofline_of(accounts: PrecisionAccounts, machine: Roofs, *, measured: Measured | None = None) -> Roofline:
    """Return what bounds a model on a machine; without bounds where none of the peaks that it needs is known."""
    found = [bound_of_model(account, machine) for account in accounts.by_precision.values()]
    bounds = tuple(bound for bound in found if bound is not None)
    lessons = lessons_of(bounds[-1].account) if bounds else ()
    return Roofline(machine=machine, bounds=bounds, lessons=lessons, worth=_worth(accounts, bounds), measured=measured)


def _worth(accounts: PrecisionAccounts, bounds: tuple[ModelBound, ...]) -> Worth | None:
    if len(bounds) < 2 or bounds[-1].account.precision is not Precision.INT8:
        return None
    most = None if accounts.most_int8 is None else bound_of_model(accounts.most_int8, bounds[-1].machine)
    return worth_of_int8(bounds[-2], bounds[-1], most=most)


def rate(precision: Precision, peak: float) -> str:
    """Return a peak as it is written of its precision: `INT8 33.4 TOPS`."""
    return f"{precision_word(precision)} {_tera(peak)} {'TOPS' if precision is Precision.INT8 else 'TFLOPS'}"


def _tera(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value / 1e12:.3g}"


def machine_lines(machine: Roofs) -> Iterator[str]:
    """Yield what a machine can do: dense peaks with their ridges, memory, and what its box says."""
    if isinstance(machine, MeasuredMachine):
        yield from measured_machine_lines(machine)
        return
    yield f"{machine.title} ({machine.called})"
    peaks = [(kind, machine.peak(kind), machine.ridge(kind)) for kind in Precision]
    words = [
        f"{rate(kind, peak)} (ridge {ridge:.0f})"
        for kind, peak, ridge in peaks
        if peak is not None and ridge is not None
    ]
    yield f"{machine.bytes_per_s / 1e9:.1f} GB/s; dense peaks: {', '.join(words)} operations per byte"
    unknown = [precision_word(kind) for kind, peak, _ in peaks if peak is None]
    if unknown:
        yield f"not published, so not bounded here: {', '.join(unknown)}"
    if isinstance(machine, Machine):
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


def roofline_summary_lines(rooflines: Sequence[Roofline]) -> Iterator[str]:
    """Yield a head, and a line for each machine and precision."""
    rows = [_summary_cells(bound) for roofline in rooflines for bound in roofline.bounds]
    yield from aligned([_SUMMARY_HEAD, *rows], width=shown_width(), spare=("never below", "layers by memory"))
    for roofline in rooflines:
        if not roofline.bounds:
            yield f"{roofline.machine.called}: none of the peaks that this model needs is known"


def _summary_cells(bound: ModelBound) -> tuple[str, ...]:
    return (
        f"{1e3 * bound.least_s_per_frame:.3f}",
        f"{1e3 * bound.floor_s_per_frame:.3f}",
        f"{1 / bound.least_s_per_frame:.0f}",
        f"{len(bound.memory_bound)} of {len(bound.layers)}",
        f"{bound.memory_bound_time_share:.0%}",
        precision_word(bound.account.precision),
        bound.machine.called,
    )


def summary_sentences(roofline: Roofline) -> Iterator[str]:
    """Yield what the figures of the fastest precision mean."""
    bound = roofline.fastest
    kind = precision_word(bound.account.precision)
    yield _least(bound, kind)
    yield (
        f"{len(bound.memory_bound)} of {len(bound.layers)} layers wait for memory, for "
        f"{bound.memory_bound_time_share:.0%} of that time: there, fewer bytes help; more operations per second do not."
    )
    if len(roofline.bounds) > 1 and bound.account.precision is Precision.INT8:
        yield _worth_of_int8(roofline.bounds[-2], bound)


def _least(bound: ModelBound, kind: str) -> str:
    least, floor = f"{1e3 * bound.least_s_per_frame:.3f} ms", f"{1e3 * bound.floor_s_per_frame:.3f} ms"
    if isinstance(bound.machine, MeasuredMachine):
        return (
            f"In {kind} a frame takes at least {least}: each layer at the measured peak, or as long as what it moves "
            "takes to move in a working set of that size."
        )
    return (
        f"In {kind} a frame takes at least {least} where the tensors of each layer pass through memory once, and never "
        f"less than {floor}, even if caches kept all that is made on the way. These are bounds: kernels, launches, "
        "scaling and NMS come on top."
    )


def _worth_of_int8(before: ModelBound, after: ModelBound) -> str:
    bytes_left = after.account.moved_bytes / before.account.moved_bytes
    kind = precision_word(before.account.precision)
    return (
        f"INT8 leaves {bytes_left:.0%} of the bytes of {kind}, has {_gain(before, after):.3g} times its operations per "
        f"second, and leaves {after.least_s / before.least_s:.0%} of its least time."
    )


def _gain(before: ModelBound, after: ModelBound) -> float:
    """Return how much higher the roof is."""
    low, high = before.machine.peak(before.account.precision), after.machine.peak(after.account.precision)
    return high / low if low and high else 1.0


def layer_bound_lines(bound: ModelBound) -> Iterator[str]:
    """Yield a head, and a line for each layer in the order of the model."""
    rows = [_LAYERS_HEAD, *(_layer_cells(bound, one) for one in bound.layers)]
    yield from aligned(rows, width=shown_width(), spare=("operator",), is_named=True)


def _layer_cells(bound: ModelBound, one: LayerBound) -> tuple[str, ...]:
    return (
        precision_word(one.layer.precision),
        f"{one.layer.intensity:.1f}",
        one.bound.value,
        f"{1e6 * one.least_s:.2f}",
        f"{bound.share(one):.1%}",
        "+".join(one.layer.fused),
        one.layer.name,
    )


def lesson_lines(roofline: Roofline) -> Iterator[str]:
    """Yield what shapes do to intensity, each lesson with its steps."""
    for lesson in roofline.lessons:
        steps = ", ".join(
            f"{step.label}{' (as it is)' if step.is_own else ''} {step.intensity:.3g}" for step in lesson.steps
        )
        yield f"{lesson.topic}: {lesson.sentence}"
        yield f"  operations per byte: {steps}"


def machines_lines(machines: Sequence[Machine]) -> Iterator[str]:
    """Yield a head, and a line for each machine and power mode."""
    rows = [_MACHINES_HEAD, *map(_machine_cells, machines), (*[""] * 6, THIS, _THIS_WORDS)]
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
