"""Plots as SVG text, for our HTML files: layers in their order, histograms, rooflines, strips, ladders.

Styles are classes of the page around.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge.cli.output import amount

__all__ = [
    "Band",
    "Dot",
    "Point",
    "Roof",
    "Segment",
    "bars_svg",
    "histogram_svg",
    "ladder_svg",
    "points_svg",
    "roofline_svg",
    "strip_svg",
]

_PREFIXES = ((9, "G"), (6, "M"), (3, "k"), (0, ""))
_CROSS = "\N{MULTIPLICATION SIGN}"
_STEPS = (1, 2, 2.5, 5, 10)
_LARGEST_PX, _SMALLEST_PX = 26.0, 2.5  # radius of a dot with all of the time, and of one with hardly any
_LABEL_GAP_PX = 14


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
class Roof:
    """Operations per second that one precision allows."""

    label: str
    style: str
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One layer: operations per byte, operations per second, its share of the time; `mark` stands beside it."""

    label: str
    style: str
    intensity: float
    rate: float
    share: float
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a strip: how long it is, and what is shown when it is pointed at."""

    label: str
    style: str
    length: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A picture of `width` x `height` pixels, its borders, and the values at the ends of its axes."""

    width: int
    height: int
    left: int = 52
    right: int = 14
    top: int = 14
    bottom: int = 34
    x_low: float = 0
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return self.left + (self.end - self.left) * (value - self.x_low) / (self.x_high - self.x_low)

    def y(self, value: float) -> float:
        return self.floor - (self.floor - self.top) * (value - self.y_low) / (self.y_high - self.y_low)

    @property
    def floor(self) -> int:
        return self.height - self.bottom

    @property
    def end(self) -> int:
        return self.width - self.right

    def picture(self, title: str, *parts: Iterator[str]) -> str:
        axis = _line("axis", self.left, self.floor, self.end, self.floor)
        return _svg(self.width, self.height, title, "".join(text for part in parts for text in part) + axis)


def _svg(width: int, height: int, title: str, content: str) -> str:
    name = html.escape(title)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{name}">{content}</svg>'


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, *, anchor: str, style: str = "tick") -> str:
    """Return escaped text; `anchor` is the part of it that is at x."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _rect(style: str, x: float, y: float, width: float, height: float, label: str = "") -> str:
    title = f"<title>{html.escape(label)}</title>" if label else ""
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}">{title}</rect>'


def _circle(style: str, x: float, y: float, radius: float, label: str) -> str:
    title = f"<title>{html.escape(label)}</title>"
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{title}</circle>'


def _missing(x: float, y: float, label: str) -> str:
    cross = _text(x, y, _CROSS, anchor="middle")
    return f'<g class="missing"><title>{html.escape(label)}</title>{cross}</g>'


def points_svg(points: Sequence[Point], *, title: str, unit: str) -> str:
    """Return the first value of each point, in their order, joined by a line that stops where there is none."""
    known = [point.values[0] for point in points if point.values[0] is not None]
    low, high = min([0.0, *known]), max([1.0, *known])
    frame = _Frame(width=1040, height=300, x_high=len(points), y_low=low * 1.08, y_high=high * 1.08)
    return frame.picture(title, _values(frame, unit), _order(frame), _path(points, frame), _marked(points, frame))


def bars_svg(points: Sequence[Point], *, title: str, unit: str) -> str:
    """Return two bars for each point, of the styles `float` and `int8`; a cross where a value is not known."""
    high = max([value for point in points for value in point.values if value is not None], default=1.0) or 1.0
    frame = _Frame(width=1040, height=300, x_high=len(points), y_low=0, y_high=high * 1.08)
    return frame.picture(title, _values(frame, unit), _order(frame), _pairs(points, frame))


def _values(frame: _Frame, unit: str) -> Iterator[str]:
    for value in _ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        yield _line("grid", frame.left, y, frame.end, y)
        yield _text(frame.left - 6, y + 4, f"{value:g}", anchor="end")
    yield _text(frame.left - 6, frame.height - 8, unit, anchor="end")


def _order(frame: _Frame) -> Iterator[str]:
    for value in _ticks(1, frame.x_high, most=12):
        if value == int(value):
            yield _text(frame.x(value - 0.5), frame.floor + 16, f"{value:g}", anchor="middle")
    yield _text(frame.end, frame.height - 4, "layers, in the order of the model", anchor="end")


def _path(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    path, is_down = [], False
    for position, point in enumerate(points):
        value = point.values[0]
        if value is not None:
            path.append(f"{'L' if is_down else 'M'}{frame.x(position + 0.5):.1f} {frame.y(value):.1f}")
        is_down = value is not None
    yield f'<path class="line" d="{" ".join(path)}"/>'


def _marked(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    for position, point in enumerate(points):
        x, value = frame.x(position + 0.5), point.values[0]
        if value is None:
            yield _missing(x, frame.floor - 6, point.label)
            continue
        yield _circle(point.style, x, frame.y(value), 4, point.label)
        if point.mark:
            yield _text(x, frame.y(value) - 8, point.mark, anchor="middle", style="mark")


def _pairs(points: Sequence[Point], frame: _Frame) -> Iterator[str]:
    thickness = min(12.0, (frame.x(1) - frame.x(0)) * 0.4)
    for position, point in enumerate(points):
        for style, shift, value in zip(("float", "int8"), (-thickness, 0.0), point.values, strict=True):
            x = frame.x(position + 0.5) + shift
            if value is None:
                yield _missing(x + thickness / 2, frame.floor - 4, point.label)
            else:
                top = frame.y(value)
                yield _rect(style, x, top, thickness * 0.9, frame.floor - top, point.label)


def histogram_svg(counts: Sequence[int], *, x_most: float, bands: Sequence[Band], title: str) -> str:
    """Return bars over [0, x_most], as high as the logarithm of their counts, with `bands` over them."""
    decades = max(1.0, math.log10(max([1, *counts]) * 2))
    frame = _Frame(width=340, height=170, x_high=x_most, y_low=0, y_high=decades)
    return frame.picture(title, _decades(frame), _columns(counts, frame), _bands(bands, frame), _magnitudes(frame))


def _decades(frame: _Frame) -> Iterator[str]:
    last = int(frame.y_high - math.log10(2))
    for exponent in range(0, last + 1, max(1, math.ceil(last / 4))):
        y = frame.y(exponent + math.log10(2))
        yield _line("grid", frame.left, y, frame.end, y)
        power, prefix = next(entry for entry in _PREFIXES if entry[0] <= exponent)
        yield _text(frame.left - 6, y + 4, f"{10 ** (exponent - power)}{prefix}", anchor="end")


def _columns(counts: Sequence[int], frame: _Frame) -> Iterator[str]:
    wide = (frame.x(frame.x_high) - frame.x(0)) / max(1, len(counts))
    for position, count in enumerate(counts):
        if count:
            top = frame.y(math.log10(2 * count))  # a single value is seen, too
            yield _rect("count", frame.x(0) + position * wide, top, max(wide - 0.6, 0.6), frame.floor - top)


def _bands(bands: Sequence[Band], frame: _Frame) -> Iterator[str]:
    for band in bands:
        width = max(frame.x(band.end) - frame.x(band.start), 2.0)
        yield _rect(band.style, frame.x(band.start), frame.top, width, frame.floor - frame.top)


def _magnitudes(frame: _Frame) -> Iterator[str]:
    for value in _ticks(0, frame.x_high, most=5):
        yield _text(frame.x(value), frame.floor + 16, f"{value:g}", anchor="middle")


def _ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most about `most`."""
    if not high > low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / most))
    step = next(factor * power for factor in _STEPS if factor * power * most >= high - low)
    first = math.ceil(low / step)
    return [round(step * number, 12) for number in range(first, int(high / step) + 1)]


def roofline_svg(roofs: Sequence[Roof], dots: Sequence[Dot], *, bytes_per_s: float, title: str) -> str:
    """Return the picture, both axes logarithmic; roofs are given lowest first, dots have an intensity above 0."""
    x = [*(dot.intensity for dot in dots), *(roof.peak / bytes_per_s for roof in roofs)]
    y = [*(dot.rate for dot in dots), *(roof.peak for roof in roofs)]
    frame = _Frame(
        width=1040, height=540, left=64, right=26, top=26, bottom=48,
        x_low=math.floor(math.log10(min(x))), x_high=math.ceil(math.log10(max(x) * 1.6)),
        y_low=math.floor(math.log10(min(y))), y_high=math.ceil(math.log10(max(y) * 1.2)),
    )  # fmt: skip
    return frame.picture(title, _grid(frame), _roofs(roofs, frame, bytes_per_s), _dots(dots, frame))


def _grid(frame: _Frame) -> Iterator[str]:
    for power in range(int(frame.x_low), int(frame.x_high) + 1):
        x = frame.x(power)
        yield _line("grid", x, frame.top, x, frame.floor)
        yield _text(x, frame.floor + 17, f"{10.0**power:g}", anchor="middle")
    for power in range(int(frame.y_low), int(frame.y_high) + 1):
        y = frame.y(power)
        yield _line("grid", frame.left, y, frame.end, y)
        yield _text(frame.left - 8, y + 4, amount(10.0**power).replace(".00", "").replace("0.0", "0"), anchor="end")
    yield _text(frame.left, frame.height - 12, "operations per byte moved", anchor="start")
    yield _text(8, 14, "operations per second", anchor="start")


def _roofs(roofs: Sequence[Roof], frame: _Frame, rate: float) -> Iterator[str]:
    """Yield each roof with its ridge, where it begins, and the slope of the memory up to the highest of them."""
    for roof in roofs:
        x, y = frame.x(math.log10(roof.peak / rate)), frame.y(math.log10(roof.peak))
        yield _line(f"ridge {roof.style}", x, y, x, frame.floor)
        yield _text(x, frame.floor + 33, f"{roof.peak / rate:.0f}", anchor="middle", style=f"mark {roof.style}")
        yield _line(f"roof {roof.style}", x, y, frame.end, y)
        yield _text(frame.end, y - 8, roof.label, anchor="end", style=f"mark {roof.style}")
    # The slope leaves the picture on the left where that is lower.
    start = max(frame.x_low, frame.y_low - math.log10(rate))
    x1, y1 = frame.x(start), frame.y(start + math.log10(rate))
    x2, y2 = frame.x(math.log10(roofs[-1].peak / rate)), frame.y(math.log10(roofs[-1].peak))
    yield _line("roof memory", x1, y1, x2, y2)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = x1 + 0.3 * (x2 - x1), y1 + 0.3 * (y2 - y1)
    text = _text(x, y - 30, f"memory: {rate / 1e9:.1f} GB/s", anchor="middle", style="mark")
    yield f'<g transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{text}</g>'


def _dots(dots: Sequence[Dot], frame: _Frame) -> Iterator[str]:
    """Yield the largest first, so that a small one is never hidden; their marks above all of them."""
    marks, taken = [], list[float]()
    for dot in sorted(dots, key=lambda one: -one.share):
        x, y = frame.x(math.log10(dot.intensity)), frame.y(math.log10(dot.rate))
        radius = max(_SMALLEST_PX, _LARGEST_PX * math.sqrt(2 * dot.share))
        yield _circle(dot.style, x, y, radius, dot.label)
        if dot.mark and all(abs(x - other) > _LABEL_GAP_PX for other in taken):
            taken.append(x)
            marks.append(_text(x + radius * 0.7 + 3, y + radius * 0.7 + 11, dot.mark, anchor="start", style="mark"))
    yield from marks


def strip_svg(rows: Sequence[tuple[str, Sequence[Segment]]], *, title: str, unit: str) -> str:
    """Return a bar for each row, its segments end to end, all rows to one scale."""
    most = max(sum(segment.length for segment in segments) for _, segments in rows)
    left, width, step = 64, 1040, 36
    parts: list[str] = []
    for number, (name, segments) in enumerate(rows):
        x, y = float(left), 8 + step * number
        parts.append(_text(left - 8, y + 16, name, anchor="end", style="mark"))
        for segment in segments:
            length = (width - left - 110) * segment.length / most
            parts.append(_rect(segment.style, x, y, length, 24, segment.label))
            x += length
        parts.append(_text(x + 8, y + 16, f"{sum(one.length for one in segments):.3g} {unit}", anchor="start"))
    return _svg(width, 8 + step * len(rows), title, "".join(parts))


def ladder_svg(steps: Sequence[tuple[str, float, bool]], *, ridge: float, title: str) -> str:
    """Return steps as bars as long as the logarithm of their value, and where the ridge lies; own ones are marked."""
    values = [ridge, *(value for _, value, _ in steps)]
    low, high = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.1
    step, height = 24, 24 * len(steps) + 20
    frame = _Frame(width=480, height=height, left=92, right=64, x_low=low, x_high=high, y_low=0, y_high=1)
    parts = []
    for number, (label, value, is_own) in enumerate(steps):
        x, y, style = frame.x(math.log10(value)), step * number, "mark" if is_own else "tick"
        parts.append(_text(frame.left - 8, y + 15, label, anchor="end", style=style))
        parts.append(_rect("step own" if is_own else "step", frame.left, y + 3, x - frame.left, 16))
        parts.append(_text(x + 6, y + 15, f"{value:.3g}", anchor="start", style=style))
    x = frame.x(math.log10(ridge))
    parts += [_line("ridge", x, 0, x, height - 16), _text(x, height - 3, f"ridge {ridge:.0f}", anchor="middle")]
    return _svg(frame.width, height, title, "".join(parts))
