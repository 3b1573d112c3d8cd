"""Plots as SVG text: points along the model, paired bars, a histogram. Colours are classes of the page around them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Band", "Point", "bars_svg", "histogram_svg", "points_svg"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 34
_PREFIXES = ((9, "G"), (6, "M"), (3, "k"), (0, ""))
_CROSS = "\N{MULTIPLICATION SIGN}"
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layer in a plot: `label` is shown when it is pointed at; a value that is None is not drawn."""

    label: str
    values: tuple[float | None, ...]
    style: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Part of the x axis of a histogram that is drawn in, from `start` to `end`."""

    start: float
    end: float
    style: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where values lie in the picture: x from 0 to `x_most`, y from `y_least` to `y_most`."""

    width: int
    height: int
    x_most: float
    y_least: float
    y_most: float

    def x(self, value: float) -> float:
        return _LEFT + (self.width - _LEFT - _RIGHT) * value / self.x_most

    def y(self, value: float) -> float:
        share = (value - self.y_least) / (self.y_most - self.y_least)
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * share

    @property
    def floor(self) -> float:
        return self.height - _BOTTOM


def points_svg(points: Sequence[Point], *, title: str, unit: str, width: int = 1040, height: int = 300) -> str:
    """Return the first value of each point, in their order, joined by a line that stops where there is none."""
    known = [point.values[0] for point in points if point.values[0] is not None]
    low, high = min([0.0, *known]), max([1.0, *known])
    frame = _Frame(width=width, height=height, x_most=len(points), y_least=low * 1.08, y_most=high * 1.08)
    return _svg(
        frame, title, "".join((*_axis(frame, unit), *_order(frame), *_line(points, frame), *_dots(points, frame)))
    )


def bars_svg(points: Sequence[Point], *, title: str, unit: str, width: int = 1040, height: int = 300) -> str:
    """Return two bars for each point, of the styles `float` and `int8`; a cross where a value is not known."""
    high = max([value for point in points for value in point.values if value is not None], default=1.0) or 1.0
    frame = _Frame(width=width, height=height, x_most=len(points), y_least=0, y_most=high * 1.08)
    return _svg(frame, title, "".join((*_axis(frame, unit), *_order(frame), *_pairs(points, frame))))


def histogram_svg(
    counts: Sequence[int], *, x_most: float, bands: Sequence[Band], title: str, width: int = 340, height: int = 170
) -> str:
    """Return bars over [0, x_most], as high as the logarithm of their counts, with `bands` over them."""
    decades = max(1.0, math.log10(max([1, *counts]) * 2))
    frame = _Frame(width=width, height=height, x_most=x_most, y_least=0, y_most=decades)
    parts = [*_decades(frame), *_columns(counts, frame), *_bands(bands, frame), *_values(frame)]
    return _svg(frame, title, "".join(parts))


def _svg(frame: _Frame, title: str, content: str) -> str:
    name = html.escape(title)
    return (
        f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{name}">'
        f'{content}<line class="axis" x1="{_LEFT}" y1="{frame.floor:.1f}" x2="{frame.width - _RIGHT}" '
        f'y2="{frame.floor:.1f}"/></svg>'
    )


def _axis(frame: _Frame, unit: str) -> Iterator[str]:
    for value in _ticks(frame.y_least, frame.y_most):
        y = frame.y(value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{frame.width - _RIGHT}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 6, y + 4, f"{value:g}", anchor="end")
    yield _text(_LEFT - 6, frame.height - 8, unit, anchor="end")


def _order(frame: _Frame) -> Iterator[str]:
    for value in _ticks(1, frame.x_most, most=12):
        if value == int(value):
            yield _text(frame.x(value - 0.5), frame.floor + 16, f"{value:g}", anchor="middle")
    yield _text(frame.width - _RIGHT, frame.height - 4, "layers, in the order of the model", anchor="end")


def _line(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    path, is_down = [], False
    for position, point in enumerate(points):
        value = point.values[0]
        if value is not None:
            path.append(f"{'L' if is_down else 'M'}{frame.x(position + 0.5):.1f} {frame.y(value):.1f}")
        is_down = value is not None
    yield f'<path class="line" d="{" ".join(path)}"/>'


def _dots(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    for position, point in enumerate(points):
        x, value, title = frame.x(position + 0.5), point.values[0], f"<title>{html.escape(point.label)}</title>"
        if value is None:
            yield f'<g class="missing">{title}{_text(x, frame.floor - 6, _CROSS, anchor="middle")}</g>'
            continue
        yield f'<circle class="{point.style}" cx="{x:.1f}" cy="{frame.y(value):.1f}" r="4">{title}</circle>'
        if point.mark:
            yield _text(x, frame.y(value) - 8, point.mark, anchor="middle", style="mark")


def _pairs(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    slot = frame.x(1) - frame.x(0)
    thickness = min(12.0, slot * 0.4)
    for position, point in enumerate(points):
        title = f"<title>{html.escape(point.label)}</title>"
        for style, shift, value in zip(("float", "int8"), (-thickness, 0.0), point.values, strict=True):
            x = frame.x(position + 0.5) + shift
            if value is None:
                cross = _text(x + thickness / 2, frame.floor - 4, _CROSS, anchor="middle")
                yield f'<g class="missing">{title}{cross}</g>'
            else:
                yield _bar(x, frame.y(value), thickness * 0.9, frame.floor, style=style, title=title)


def _columns(counts: Sequence[int], frame: _Frame) -> Iterator[str]:
    wide = (frame.x(frame.x_most) - frame.x(0)) / max(1, len(counts))
    for position, count in enumerate(counts):
        if count:
            top = frame.y(math.log10(2 * count))  # a single value is seen, too
            yield _bar(frame.x(0) + position * wide, top, max(wide - 0.6, 0.6), frame.floor, style="count")


def _bands(bands: Sequence[Band], frame: _Frame) -> Iterator[str]:
    for band in bands:
        left = frame.x(band.start)
        yield (
            f'<rect class="{band.style}" x="{left:.1f}" y="{_TOP}" width="{max(frame.x(band.end) - left, 2.0):.1f}" '
            f'height="{frame.floor - _TOP:.1f}"/>'
        )


def _decades(frame: _Frame) -> Iterator[str]:
    last = int(frame.y_most - math.log10(2))
    for exponent in range(0, last + 1, max(1, math.ceil(last / 4))):
        y = frame.y(exponent + math.log10(2))
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{frame.width - _RIGHT}" y2="{y:.1f}"/>'
        power, prefix = next(entry for entry in _PREFIXES if entry[0] <= exponent)
        yield _text(_LEFT - 6, y + 4, f"{10 ** (exponent - power)}{prefix}", anchor="end")


def _values(frame: _Frame) -> Iterator[str]:
    for value in _ticks(0, frame.x_most, most=5):
        yield _text(frame.x(value), frame.floor + 16, f"{value:g}", anchor="middle")


def _bar(x: float, top: float, wide: float, floor: float, *, style: str, title: str = "") -> str:
    high = max(floor - top, 0.0)
    return f'<rect class="{style}" x="{x:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}">{title}</rect>'


def _text(x: float, y: float, text: str, *, anchor: str, style: str = "tick") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most`."""
    if not high > low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(factor * power for factor in _STEPS if factor * power * most >= high - low)
    first = math.ceil(low / step)
    return [round(step * number, 12) for number in range(first, int(high / step) + 1)]
