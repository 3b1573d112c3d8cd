"""The account of a model in words: amounts with their units, a line for each layer, the sums."""

from __future__ import annotations

from collections.abc import Iterator

from edge.cli.columns import aligned, shown_width
from edge.model.account import LayerAccount, ModelAccount
from edge.types import Precision

__all__ = ["account_lines", "amount", "precision_word"]

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_HEAD = ("in", "operations", "weights B", "read B", "written B", "op/B", "operator", "layer")


def amount(value: float) -> str:
    """Return a count in three digits with its prefix: `1.64 M`."""
    for factor, prefix in _PREFIXES:
        if value >= 0.9995 * factor:
            return f"{value / factor:#.3g}".rstrip(".") + f" {prefix}"
    return f"{value:.3g}"


def precision_word(precision: Precision) -> str:
    """Return the name of a precision as people write it."""
    return precision.value.upper()


def account_lines(account: ModelAccount) -> Iterator[str]:
    """Yield a head, a line for each layer in the order of the model, and the sums."""
    rows = [_HEAD, *(_cells(layer) for layer in account.layers)]
    yield from aligned(rows, width=shown_width(), spare=("operator", "weights B"), is_named=True)
    frames = "frame" if account.batch == 1 else "frames"
    yield ""
    yield (
        f"{len(account.layers)} layers for {account.batch} {frames}: {amount(account.operations)}op, "
        f"{amount(account.parameters)} parameters, {amount(account.moved_bytes)}B through memory "
        f"({amount(account.weight_bytes)}B of it weights), {account.intensity:.1f} operations per byte"
    )
    if account.uncounted:
        yield f"not counted, their sizes are not in the file: {', '.join(account.uncounted)}"


def _cells(layer: LayerAccount) -> tuple[str, ...]:
    moved = (layer.weight_bytes, layer.read_bytes, layer.written_bytes)
    return (
        precision_word(layer.precision),
        amount(layer.operations),
        *map(amount, moved),
        f"{layer.intensity:.1f}",
        "+".join(layer.fused),
        layer.name,
    )
