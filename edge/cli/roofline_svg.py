"""A roofline as SVG text: both axes logarithmic, roofs of a machine, dots of layers; and steps on a line."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge.cli.page import svg, svg_line, svg_text
from edge.cli.roofline_lines import amount

__all__ = ["Dot", "Roof", "Segment", "ladder_svg", "roofline_svg", "strip_svg"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 26, 26, 48
_WIDTH, _HEIGHT = 1040, 540
_LARGEST_PX, _SMALLEST_PX = 26.0, 2.5  # radius of a dot with all of the time, and of one with hardly any
_LABEL_GAP_PX = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Operations per second that one precision allows; `style` is a class of the page around."""

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
    """Where values lie: whole decades of both axes."""

    x_low: int
    x_high: int
    y_low: int
    y_high: int

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.x_low) / (self.x_high - self.x_low)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(self, value: float) -> float:
        share = (math.log10(value) - self.y_low) / (self.y_high - self.y_low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def roofline_svg(roofs: Sequence[Roof], dots: Sequence[Dot], *, bytes_per_s: float, title: str) -> str:
    """Return the picture; roofs are given lowest first, dots have an intensity above 0."""
    frame = _frame(roofs, dots, bytes_per_s)
    parts = (
        *_grid(frame), *_ridges(roofs, frame, bytes_per_s),
        *_slope(bytes_per_s, roofs, frame), *_flats(roofs, frame, bytes_per_s), *_dots(dots, frame),
    )  # fmt: skip
    return svg(_WIDTH, _HEIGHT, title, "".join(parts))


def _frame(roofs: Sequence[Roof], dots: Sequence[Dot], bytes_per_s: float) -> _Frame:
    ridges = [roof.peak / bytes_per_s for roof in roofs]
    x = [dot.intensity for dot in dots] + ridges
    low, high = math.floor(math.log10(min(x))), math.ceil(math.log10(max(x) * 1.6))
    rates = [dot.rate for dot in dots] + [one.peak for one in roofs]
    y_low, y_high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates) * 1.2))
    return _Frame(x_low=low, x_high=high, y_low=y_low, y_high=y_high)


def _grid(frame: _Frame) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for power in range(frame.x_low, frame.x_high + 1):
        x = frame.x(10.0**power)
        yield svg_line("grid", x, _TOP, x, bottom)
        yield svg_text(x, bottom + 17, f"{10.0**power:g}", anchor="middle")
    for power in range(frame.y_low, frame.y_high + 1):
        y = frame.y(10.0**power)
        yield svg_line("grid", _LEFT, y, right, y)
        yield svg_text(_LEFT - 8, y + 4, amount(10.0**power).replace(".00", "").replace("0.0", "0"), anchor="end")
    yield svg_line("axis", _LEFT, bottom, right, bottom)
    yield svg_text(_LEFT, _HEIGHT - 12, "operations per byte moved", anchor="start")
    yield svg_text(8, 14, "operations per second", anchor="start")


def _ridges(roofs: Sequence[Roof], frame: _Frame, bytes_per_s: float) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    for roof in roofs:
        ridge = roof.peak / bytes_per_s
        x = frame.x(ridge)
        yield svg_line(f"ridge {roof.style}", x, frame.y(roof.peak), x, bottom)
        yield svg_text(x, bottom + 33, f"{ridge:.0f}", anchor="middle", style=f"mark {roof.style}")


def _slope(rate: float, roofs: Sequence[Roof], frame: _Frame) -> Iterator[str]:
    """Yield what the memory allows, up to the highest roof; it leaves the picture where that is lower."""
    start = max(10.0**frame.x_low, 10.0**frame.y_low / rate)
    end = roofs[-1].peak / rate
    x1, y1, x2, y2 = frame.x(start), frame.y(start * rate), frame.x(end), frame.y(end * rate)
    yield svg_line("roof memory", x1, y1, x2, y2)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = x1 + 0.3 * (x2 - x1), y1 + 0.3 * (y2 - y1)
    text = svg_text(x, y - 30, f"memory: {rate / 1e9:.1f} GB/s", anchor="middle", style="mark")
    yield f'<g transform="rotate({angle:.1f} {x:.1f} {y:.1f})">{text}</g>'


def _flats(roofs: Sequence[Roof], frame: _Frame, bytes_per_s: float) -> Iterator[str]:
    right = _WIDTH - _RIGHT
    for roof in roofs:
        y = frame.y(roof.peak)
        yield svg_line(f"roof {roof.style}", frame.x(roof.peak / bytes_per_s), y, right, y)
        yield svg_text(right, y - 8, roof.label, anchor="end", style=f"mark {roof.style}")


def _dots(dots: Sequence[Dot], frame: _Frame) -> Iterator[str]:
    """Yield the largest first, so that a small one is never hidden; their marks above all of them."""
    marks, taken = [], list[float]()
    for dot in sorted(dots, key=lambda one: -one.share):
        x, y = frame.x(dot.intensity), frame.y(dot.rate)
        radius = max(_SMALLEST_PX, _LARGEST_PX * math.sqrt(2 * dot.share))
        title = f"<title>{html.escape(dot.label)}</title>"
        yield f'<circle class="{dot.style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{title}</circle>'
        if dot.mark and all(abs(x - other) > _LABEL_GAP_PX for other in taken):
            taken.append(x)
            marks.append(svg_text(x + radius * 0.7 + 3, y + radius * 0.7 + 11, dot.mark, anchor="start", style="mark"))
    yield from marks


def strip_svg(rows: Sequence[tuple[str, Sequence[Segment]]], *, title: str, unit: str) -> str:
    """Return a bar for each row, its segments end to end, all rows to one scale."""
    most = max(sum(segment.length for segment in segments) for _, segments in rows)
    wide, high, step = _WIDTH - _LEFT - 110, 24, 36
    parts: list[str] = []
    for number, (name, segments) in enumerate(rows):
        x, y = float(_LEFT), 8 + step * number
        parts.append(svg_text(_LEFT - 8, y + 16, name, anchor="end", style="mark"))
        for segment in segments:
            width = wide * segment.length / most
            parts.append(
                f'<rect class="{segment.style}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{high}">'
                f"<title>{html.escape(segment.label)}</title></rect>"
            )
            x += width
        parts.append(svg_text(x + 8, y + 16, f"{sum(one.length for one in segments):.3g} {unit}", anchor="start"))
    return svg(_WIDTH, 8 + step * len(rows), title, "".join(parts))


def ladder_svg(steps: Sequence[tuple[str, float, bool]], *, ridge: float, title: str) -> str:
    """Return steps as bars as long as the logarithm of their value, and where the ridge lies; own ones are marked."""
    width, step, left = 480, 24, 92
    values = [value for _, value, _ in steps]
    low, high = math.log10(min(*values, ridge)) - 0.15, math.log10(max(*values, ridge)) + 0.1
    room, height = width - left - 64, step * len(steps) + 20

    def x(value: float) -> float:
        return left + room * (math.log10(value) - low) / (high - low)

    parts = []
    for number, (label, value, is_own) in enumerate(steps):
        y = step * number
        style = "step own" if is_own else "step"
        parts.append(svg_text(left - 8, y + 15, label, anchor="end", style="mark" if is_own else "tick"))
        parts.append(f'<rect class="{style}" x="{left}" y="{y + 3}" width="{x(value) - left:.1f}" height="16" rx="3"/>')
        parts.append(svg_text(x(value) + 6, y + 15, f"{value:.3g}", anchor="start", style="mark" if is_own else "tick"))
    parts.append(svg_line("ridge", x(ridge), 0, x(ridge), height - 16))
    parts.append(svg_text(x(ridge), height - 3, f"ridge {ridge:.0f}", anchor="middle"))
    return svg(width, height, title, "".join(parts))
