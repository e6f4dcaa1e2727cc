"""Two plots as SVG text: points with labels, and curves. No library, so the files stay the same."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 55
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666", "#000000")
"""Told apart by the colour-blind as well (Okabe and Ito)."""


LABEL_WIDTH, LABEL_HEIGHT = 150, 13


@dataclass(frozen=True, slots=True)
class Point:
    label: str
    x: float
    y: float
    low: float
    high: float
    strong: bool = False
    """Drawn filled: what the page is about."""


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        share = (_scale(value, self.log) - _scale(self.low, self.log)) / (
            _scale(self.high, self.log) - _scale(self.low, self.log)
        )
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            marks = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
            return [mark for mark in marks if self.low <= mark <= self.high]
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scatter(title: str, points: Sequence[Point], x_label: str, y_label: str) -> str:
    """Points with their intervals; the x axis is logarithmic."""
    x = _Axis(
        0.8 * min(p.x for p in points), 2.0 * max(p.x for p in points), LEFT, WIDTH - RIGHT, True
    )
    y = _vertical([p.low for p in points] + [p.high for p in points])
    body = [_frame(title, x, y, x_label, y_label)]
    taken: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: (-p.y, p.label)):
        colour = COLOURS[0] if point.strong else COLOURS[6]
        fill = colour if point.strong else "white"
        across, up = x(point.x), y(point.y)
        down = _free(across, up + 4, taken)
        body += [
            f'<line x1="{across}" x2="{across}" y1="{y(point.low)}" y2="{y(point.high)}" '
            f'stroke="{colour}" stroke-opacity="0.4"/>',
            f'<circle cx="{across}" cy="{up}" r="5" fill="{fill}" stroke="{colour}"/>',
            f'<text x="{across + 8}" y="{down}" fill="{colour}">{escape(point.label)}</text>',
        ]
    return _svg(body)


def _free(x: float, y: float, taken: list[tuple[float, float]]) -> float:
    """The first height, going down, at which a label does not lie on another."""
    while any(abs(x - a) < LABEL_WIDTH and abs(y - b) < LABEL_HEIGHT for a, b in taken):
        y += LABEL_HEIGHT
    taken.append((x, y))
    return round(y, 1)


def curves(
    title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_label: str, y_label: str
) -> str:
    """One line for each series, with a legend."""
    everything = [point for line in series.values() for point in line]
    x = _Axis(
        min(a for a, _ in everything), max(a for a, _ in everything) or 1.0, LEFT, WIDTH - RIGHT
    )
    y = _vertical([b for _, b in everything])
    body = [_frame(title, x, y, x_label, y_label)]
    ends = [y(line[-1][1]) for line in series.values()]
    above = sum(ends) / len(ends) > (TOP + HEIGHT - BOTTOM) / 2  # where the lines do not end
    top = TOP if above else HEIGHT - BOTTOM - 16 * len(series) - 8
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x(a)},{y(b)}" for a, b in line)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        down = top + 16 * (number + 1)
        body.append(
            f'<text x="{WIDTH - RIGHT - 8}" y="{down}" text-anchor="end" fill="{colour}">'
            f"{escape(name)}</text>"
        )
    return _svg(body)


def _vertical(values: Sequence[float]) -> _Axis:
    room = 0.08 * (max(values) - min(values)) or 1.0
    return _Axis(min(values) - room, max(values) + room, HEIGHT - BOTTOM, TOP)


def _frame(title: str, x: _Axis, y: _Axis, x_label: str, y_label: str) -> str:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = [
        f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        f"{escape(x_label)}</text>",
        f'<text transform="translate(18,{(TOP + floor) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    for tick in x.ticks():
        lines += [
            f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP}" y2="{floor}" stroke="#ddd"/>',
            f'<text x="{x(tick)}" y="{floor + 18}" text-anchor="middle">{tick:g}</text>',
        ]
    for tick in y.ticks():
        lines += [
            f'<line x1="{LEFT}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}" stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>',
        ]
    return "\n".join(lines)


def _svg(body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            *body,
            "</svg>\n",
        ]
    )


def _scale(value: float, log: bool) -> float:
    return math.log10(value) if log else value


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
