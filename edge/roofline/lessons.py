"""Effect of shapes on intensity, shown on a layer of the model at hand: one thing is changed, the rest stays."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from edge.model.layer_account import ConvShape, LayerAccount, ModelAccount

__all__ = ["LayerVariant", "Lesson", "lessons_of"]

_KERNELS = (1, 3, 5, 7)
_FACTORS = ((1, 4), (1, 2), (1, 1), (2, 1), (4, 1))
_BATCHES = (1, 8, 64, 512)
_FEWEST = 4  # times as much work as the chosen layer is the most that another has


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerVariant:
    """One variant of the layer: what was changed to, and the operations per byte that follow."""

    label: str
    intensity: float
    is_own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A property of shapes, the sentence that says why, and the layer with it changed step by step."""

    topic: str
    sentence: str
    steps: tuple[LayerVariant, ...]


def lessons_of(account: ModelAccount) -> tuple[Lesson, ...]:
    """Return the lessons, all on one convolution; none for a model that has no convolution of one group.

    Of those with at least a quarter of the work of the hardest it is the one with most weights: they have to be seen.
    """
    known = list(_teachable(account))
    hardest = max((layer.operations for layer in known), default=0)
    heavy = [layer for layer in known if _FEWEST * layer.operations >= hardest]
    own = max(heavy, key=lambda layer: layer.weight_bytes, default=None)
    if own is None or own.shape is None:
        return ()
    one = _Example(own, own.shape, account.batch)
    return (one.kernel(), one.channels(), one.output_size(), one.groups(), one.fully_connected())


def _teachable(account: ModelAccount) -> Iterator[LayerAccount]:
    """Yield convolutions that mix channels, those with a kernel larger than 1x1 alone if there is one."""
    plain = [layer for layer in account.layers if layer.op_type == "Conv" and layer.shape and layer.shape.groups == 1]
    square = [layer for layer in plain if layer.shape and layer.shape.channels_in > 3]
    wide = [layer for layer in square if layer.shape and layer.shape.kernel != (1, 1)]
    yield from wide or square or plain


@dataclass(frozen=True, slots=True)
class _Example:
    own: LayerAccount
    shape: ConvShape
    batch: int

    def kernel(self) -> Lesson:
        side = self.shape.kernel[0]
        steps = tuple(
            self._step(f"{size}x{size}", self._with(kernel=(size, size)), is_own=size == side)
            for size in sorted({*_KERNELS, side})
        )
        return Lesson(
            topic="Kernel size",
            sentence=f"{self._called} multiplies each value that it reads with {side * side} places of its kernel. A "
            f"larger kernel works more on the same picture, and only the weights grow: {self._ends(steps)}.",
            steps=steps,
        )

    def channels(self) -> Lesson:
        read, made = self.shape.channels_in, self.shape.channels_out
        sizes = [(read * up // down, made * up // down) for up, down in _FACTORS if read % down == made % down == 0]
        steps = tuple(
            self._step(f"{a} to {b}", self._with(channels_in=a, channels_out=b), is_own=a == read) for a, b in sizes
        )
        return Lesson(
            topic="Channels",
            sentence="Each value that is read serves all channels of the output, each that is written sums over all of "
            f"the input: work grows with their product, bytes with their sum: {self._ends(steps)}.",
            steps=steps,
        )

    def output_size(self) -> Lesson:
        own = self.shape.size_out
        factors = [(up, down) for up, down in _FACTORS if own[0] % down == own[1] % down == 0]
        steps = tuple(
            self._step(f"{_scaled(own, *one)[0]}x{_scaled(own, *one)[1]}", self._sized(*one), is_own=one == (1, 1))
            for one in factors
        )
        return Lesson(
            topic="Output size",
            sentence="The weights are read once, whatever the picture: a large one shares them among more values, "
            f"until they no longer count: {self._ends(steps)}. More frames in a batch do the same.",
            steps=steps,
        )

    def groups(self) -> Lesson:
        most = math.gcd(self.shape.channels_in, self.shape.channels_out)
        counts = [1 << power for power in range(most.bit_length()) if most % (1 << power) == 0]
        chosen = sorted({1, *counts[1::2], most})
        steps = tuple(self._step(str(count), self._with(groups=count), is_own=count == 1) for count in chosen)
        is_square = self.shape.channels_in == self.shape.channels_out
        word = "a depthwise convolution saves" if is_square else f"{most} groups save"
        return Lesson(
            topic="Groups",
            sentence="Groups divide the work and hardly the bytes: each value serves the channels of its own group "
            f"alone. So {word} operations, and little time where memory is the bound: {self._ends(steps)}.",
            steps=steps,
        )

    def fully_connected(self) -> Lesson:
        point = ConvShape(
            kernel=(1, 1), channels_in=self.shape.channels_in, channels_out=self.shape.channels_out, groups=1,
            size_in=(1, 1), size_out=(1, 1),
        )  # fmt: skip
        steps = tuple(
            LayerVariant(label=f"batch {batch}", intensity=point.intensity(batch, self.own.precision))
            for batch in _BATCHES
        )
        return Lesson(
            topic="Fully connected",
            sentence=f"A layer that connects {point.channels_in} values to {point.channels_out} has no picture to "
            "share its weights among: each is read for one product, so it runs as fast as the weights arrive. Only a "
            f"batch shares them: {self._ends(steps)}.",
            steps=steps,
        )

    @property
    def _called(self) -> str:
        shape = self.shape
        size = f"{shape.size_out[0]}x{shape.size_out[1]}"
        kernel = f"{shape.kernel[0]}x{shape.kernel[1]}"
        return f"{self.own.name} ({kernel}, {shape.channels_in} to {shape.channels_out} channels, {size})"

    def _with(self, **changes: object) -> ConvShape:
        return dataclasses.replace(self.shape, **changes)  # type: ignore[arg-type]

    def _sized(self, up: int, down: int) -> ConvShape:
        return self._with(
            size_in=_scaled(self.shape.size_in, up, down), size_out=_scaled(self.shape.size_out, up, down)
        )

    def _step(self, label: str, shape: ConvShape, *, is_own: bool) -> LayerVariant:
        return LayerVariant(label=label, intensity=shape.intensity(self.batch, self.own.precision), is_own=is_own)

    @staticmethod
    def _ends(steps: tuple[LayerVariant, ...]) -> str:
        first, last = steps[0], steps[-1]
        return f"{first.intensity:.3g} operations per byte at {first.label}, {last.intensity:.3g} at {last.label}"


def _scaled(size: tuple[int, int], up: int, down: int) -> tuple[int, int]:
    return size[0] * up // down, size[1] * up // down
