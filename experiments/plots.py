"""A scatter plot as SVG text. No library, so that the file stays the same."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 55
STRONG, PLAIN = "#0072b2", "#666666"


LETTER, LINE = 6.2, 14
"""About how wide a letter of a label is, and how high a line."""
WIDE = 5
"""A horizontal axis is logarithmic when its values differ by more than this factor."""


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
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: "_Box") -> bool:
        beside = self.right < other.left or other.right < self.left
        return not (beside or self.bottom < other.top or other.bottom < self.top)


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
    """Points with intervals. Where they crowd, the first has a label, then the strong ones."""
    least, most = min(p.x for p in points), max(p.x for p in points)
    log = most > WIDE * least
    room = most - least or most
    low, high = (0.8 * least, 2.0 * most) if log else (least - 0.2 * room, most + 0.5 * room)
    x = _Axis(low, high, LEFT, WIDTH - RIGHT, log)
    y = _vertical([p.low for p in points] + [p.high for p in points])
    body = [_frame(title, x, y, x_label, y_label)]
    taken = [_Box(x(p.x) - 6, y(p.y) - 6, x(p.x) + 6, y(p.y) + 6) for p in points]
    for point in sorted(points, key=lambda p: (p is not points[0], not p.strong)):
        colour = STRONG if point.strong else PLAIN
        fill = colour if point.strong else "white"
        across, up = x(point.x), y(point.y)
        body += [
            f'<line x1="{across}" x2="{across}" y1="{y(point.low)}" y2="{y(point.high)}" '
            f'stroke="{colour}" stroke-opacity="0.4"/>',
            f'<circle cx="{across}" cy="{up}" r="5" fill="{fill}" stroke="{colour}">'
            f"<title>{escape(point.label)}: {point.y:.1f} %, {point.x:.0f}</title></circle>",
        ]
        far = 4 if point is points[0] or point.strong else 1
        if box := _free(across, up, LETTER * len(point.label), far, taken):
            taken.append(box)
            if abs(middle := (box.top + box.bottom) / 2 - up) > LINE:
                side = box.left if box.left > across else box.right
                body.append(_leader(colour, across, up, side, round(up + middle, 1)))
            body.append(
                f'<text x="{box.left}" y="{round(box.bottom - 3, 1)}" fill="{colour}">'
                f"{escape(point.label)}</text>"
            )
    return _svg(body)


def _leader(colour: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{colour}" stroke-width="0.5"/>'


def _free(x: float, y: float, width: float, far: int, taken: Sequence[_Box]) -> _Box | None:
    """Where a label lies on nothing: beside its point, up to so many lines higher or lower."""
    lines = sorted(range(-far, far + 1), key=lambda line: (abs(line), line))
    places = [
        _Box(round(left, 1), down - LINE / 2, left + width, down + LINE / 2)
        for down in (y + LINE * line for line in lines)
        for left in (x + 8, x - 8 - width)
    ]
    inside = (p for p in places if p.left > LEFT and p.right < WIDTH and p.top > TOP - LINE)
    return next((p for p in inside if not any(p.touches(other) for other in taken)), None)


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
