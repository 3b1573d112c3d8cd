"""Parts of plots as SVG text, for our HTML file. Styles are classes of the page around."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Frame", "circle", "line", "missing", "rect", "text", "ticks"]

_CROSS = "\N{MULTIPLICATION SIGN}"
_STEPS = (1, 2, 2.5, 5, 10)
_RIGHT, _BOTTOM = 14, 34  # of a plot, beside its left and top border


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture of `width` x `height` pixels, and the values at the ends of its axes; that of x begins at 0."""

    left: ClassVar[int] = 52
    top: ClassVar[int] = 14
    width: int
    height: int
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return self.left + (self.end - self.left) * value / self.x_high

    def y(self, value: float) -> float:
        return self.floor - (self.floor - self.top) * (value - self.y_low) / (self.y_high - self.y_low)

    @property
    def floor(self) -> int:
        return self.height - _BOTTOM

    @property
    def end(self) -> int:
        return self.width - _RIGHT

    def picture(self, title: str, *parts: Iterable[str]) -> str:
        """Return the parts with the x axis over them."""
        axis = line("axis", self.left, self.floor, self.end, self.floor)
        content = "".join(element for part in (*parts, [axis]) for element in part)
        size = f"0 0 {self.width} {self.height}"
        return f'<svg viewBox="{size}" role="img" aria-label="{html.escape(title)}">{content}</svg>'


def line(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, words: str, *, anchor: str, style: str = "tick") -> str:
    """Return escaped text; `anchor` is the part of it that is at x."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def rect(style: str, x: float, y: float, width: float, height: float, label: str = "") -> str:
    title = f"<title>{html.escape(label)}</title>" if label else ""
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}">{title}</rect>'


def circle(style: str, x: float, y: float, radius: float, label: str) -> str:
    title = f"<title>{html.escape(label)}</title>"
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{title}</circle>'


def missing(x: float, y: float, label: str) -> str:
    cross = text(x, y, _CROSS, anchor="middle")
    return f'<g class="missing"><title>{html.escape(label)}</title>{cross}</g>'


def ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most`."""
    if not high > low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(factor * power for factor in _STEPS if factor * power * most >= high - low)
    first = math.ceil(low / step)
    return [round(step * number, 12) for number in range(first, int(high / step) + 1)]
