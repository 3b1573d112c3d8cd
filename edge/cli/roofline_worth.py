"""What INT8 is worth, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.cli.account_lines import precision_word
from edge.quantize.built import BuiltTimes
from edge.roofline.worth import Gain, LayerWorth, Worth

__all__ = ["built_lines", "worth_lines"]

_NAMED = 3
_WORDS = {
    Gain.OPERATIONS: "gain by operations: they wait for compute in {kind}, and the roof of INT8 is higher",
    Gain.BYTES: "gain by bytes alone: they wait for memory, and move fewer of them",
    Gain.NOTHING: "gain nothing",
    Gain.LESS_THAN_NOTHING: "lose: they stay in float, and now move more bytes",
}


def worth_lines(worth: Worth, *, times_measured: float | None = None) -> Iterator[str]:
    """Yield what is gained as a whole, by which layers in which way, and what the float remainder costs.

    Args:
        worth: by the bounds.
        times_measured: how many times as fast INT8 was found to be on this machine.
    """
    kind, frames = precision_word(worth.before.account.precision), worth.before.account.batch
    before_ms, after_ms = 1e3 * worth.before.least_s / frames, 1e3 * worth.after.least_s / frames
    yield (
        f"What INT8 is worth: {before_ms:.3f} ms in {kind}, {after_ms:.3f} in INT8, at least: "
        f"{worth.times_faster:.2f} times as fast, as far as the bounds tell."
    )
    if times_measured is not None:
        yield f"  measured on this machine: {times_measured:.2f} times as fast"
    for gain, words in _WORDS.items():
        layers = worth.of(gain)
        if layers:
            saved_us = 1e6 * sum(one.saved_s for one in layers) / frames
            amount = f", {abs(saved_us):.1f} us together" if gain is not Gain.NOTHING else ""
            yield f"  {len(layers)} layers {words.format(kind=kind)}{amount}{_named(layers, gain)}"
    yield from _remainder(worth)


def built_lines(built: Sequence[BuiltTimes], worth: Worth | None) -> Iterator[str]:
    """Yield what devices have measured, and how far above its bound that is.

    Args:
        built: by their `build.json`.
        worth: by the bounds of the one machine that is shown; None: none, or several.
    """
    for one in built:
        kind = precision_word(one.other)
        text = (
            f"Measured by the device of {one.path} ({one.kind}, {one.batch} at once, {one.pairs} pairs): "
            f"{1e3 * one.other_s_per_frame:.3f} ms a frame in {kind}, {1e3 * one.int8_s_per_frame:.3f} in INT8: "
            f"{one.times_faster:.2f} times as fast"
        )
        yield text + ("" if worth is None else f"; {_against(one, worth)}")


def _against(one: BuiltTimes, worth: Worth) -> str:
    bound_s = worth.after.floor_s_per_frame
    if one.int8_s_per_frame < bound_s:
        return f"faster than {1e3 * bound_s:.3f} ms, the bound of this machine: it was built on a faster one"
    least_s = worth.after.least_s_per_frame
    times, batch = one.int8_s_per_frame / least_s, worth.after.account.batch
    return f"INT8 takes {times:.1f} times its least time on this machine, {1e3 * least_s:.3f} ms at {batch} at once"


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
