"""A measured machine, and a model on it, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.cli.account_lines import amount, precision_word
from edge.cli.columns import aligned, shown_width
from edge.quantize.this_machine import Measured
from edge.roofline.efficiency import ExecutedNode, MeasuredLayer, MeasuredModel
from edge.roofline.measured import MeasuredMachine

__all__ = ["measured_layer_lines", "measured_lines", "measured_machine_lines", "shape_words"]

_HEAD = ("in", "op/B", "bound", "least us", "measured us", "of it", "share", "run as", "layer")
_NAMED = 4
_MANY = 0.5  # of the runs
_ROUNDS_WORD = "the two best rounds"


def measured_machine_lines(machine: MeasuredMachine) -> Iterator[str]:
    """Yield what was measured of a machine, how sure it is, and what makes it doubtful."""
    yield f"{machine.title} ({machine.called}; {machine.engine})"
    peaks = ", ".join(
        f"{precision_word(kind)} {amount(rate.best)}op/s ({_ROUNDS_WORD} within {rate.spread:.1%})"
        for kind, rate in machine.peaks.items()
    )
    yield f"peaks of {machine.peaks_of}: {peaks}"
    *caches, memory = machine.steps
    words = [f"{step.bytes_per_s / 1e9:.0f} GB/s up to {amount_of_bytes(step.up_to_bytes)}" for step in caches]
    yield f"bandwidth by what is moved: {', '.join([*words, f'{memory.bytes_per_s / 1e9:.0f} GB/s beyond'])}"
    for kind, why in machine.why_no.items():
        yield f"{precision_word(kind)} is not bounded: {why}"
    if machine.doubt is not None:
        yield f"careful: {machine.doubt}"


def amount_of_bytes(size: int) -> str:
    """Return a power of two as people write it: `512 KiB`."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def measured_layer_lines(model: MeasuredModel) -> Iterator[str]:
    """Yield a head, and a line for each layer that was measured, in the order of the model."""
    rows = [_HEAD, *(_cells(model, one) for one in model.layers)]
    yield from aligned(rows, width=shown_width(), spare=("share", "run as"), is_named=True)


def _cells(model: MeasuredModel, one: MeasuredLayer) -> tuple[str, ...]:
    first = one.layers[0]
    return (
        precision_word(first.layer.precision),
        f"{one.intensity:.1f}",
        first.bound.value,
        f"{1e6 * one.least_s:.2f}",
        f"{1e6 * one.measured_s:.1f}",
        f"{one.efficiency:.0%}",
        f"{one.measured_s / model.run_s:.1%}",
        ", ".join(dict.fromkeys(node.kind for node in one.nodes)),
        one.called,
    )


def measured_lines(measured: Measured) -> Iterator[str]:
    """Yield for each precision what a frame took, against its bound; what is far below, and what has no place."""
    for model in measured.models.values():
        yield from _model_lines(model)
    for kind, why in measured.why_not.items():
        if kind not in measured.models:
            yield f"{precision_word(kind)} was not measured: {why}"
    yield _verdict(measured)


def _model_lines(model: MeasuredModel) -> Iterator[str]:
    account = model.bound.account
    kind, frames = precision_word(account.precision), account.batch
    yield (
        f"{kind}: {1e3 * model.run_s / frames:.3f} ms a frame measured, {1e3 * model.bound.least_s / frames:.3f} at "
        f"least: {model.ratio:.0%} of the roof. Its layers took {1e3 * model.layers_s / frames:.3f} ms, "
        f"{len(model.beside)} other nodes {1e3 * model.beside_s / frames:.3f}{_beside(model.beside)}."
    )
    if model.interrupted > _MANY:
        yield (
            f"  careful: others had a core during {model.interrupted:.0%} of the runs: layers are measured too slow, "
            "and efficiencies too low"
        )
    for one in model.far_below:
        yield (
            f"  far below: {one.called}{shape_words(one)}: {1e6 * one.measured_s:.0f} us for at least "
            f"{1e6 * one.least_s:.1f} ({one.efficiency:.0%})"
        )
    if model.untimed:
        names = [one.layer.name for one in model.untimed]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"  no time of their own, inside of others or too short: {', '.join(names[:_NAMED])}{more}"


def shape_words(one: MeasuredLayer) -> str:
    """Return the shape of a convolution in brackets; nothing of another layer."""
    shape = one.layers[0].layer.shape
    if shape is None or len(one.layers) > 1:
        return ""
    groups = "" if shape.groups == 1 else f", {shape.groups} groups"
    return (
        f" ({shape.kernel[0]}x{shape.kernel[1]}, {shape.channels_in} to {shape.channels_out} channels, "
        f"{shape.size_out[0]}x{shape.size_out[1]}{groups})"
    )


def _beside(nodes: Sequence[ExecutedNode]) -> str:
    """Return what the nodes are that belong to no layer, by kind, the costliest first."""
    spent: dict[str, float] = {}
    for node in nodes:
        kind = node.kind.split(" ")[0]
        spent[kind] = spent.get(kind, 0.0) + node.seconds
    costliest = sorted(spent.items(), key=lambda one: -one[1])[:_NAMED]
    return f" ({', '.join(f'{kind} {1e6 * seconds:.0f} us' for kind, seconds in costliest)})" if costliest else ""


def _verdict(measured: Measured) -> str:
    excess = measured.excess
    if measured.beaten:
        names = ", ".join(one.called for one in measured.beaten[:_NAMED])
        return (
            f"{len(measured.beaten)} layers are up to {excess:.1%} faster than their bounds ({names}): the roof was "
            "measured too low. Run it again when the machine is idle."
        )
    if excess > 0:
        return f"No layer is faster than its bound by more than the noise of measuring; the nearest by {excess:.1%}."
    return "No layer is faster than its bound."
