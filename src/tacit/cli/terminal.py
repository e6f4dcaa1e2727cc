"""Prints for every command: the two consoles, progress bars, numbers, tables."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from tacit.evaluation.statistics import Estimate
from tacit.team.tools import CONTROL
from tacit.types import Episode


class _Console(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Replaces control characters in texts, which could clear the screen or hide lines."""
        for one in super().render(renderable, options):
            yield one if one.control else one._replace(text=CONTROL.sub("\ufffd", one.text))


out = _Console(markup=False, emoji=False, highlight=False)
err = _Console(markup=False, emoji=False, highlight=False, stderr=True)
"""Both print text of users and models as it is; style comes with `style=` or `Text`."""


def note(sentence: str) -> None:
    err.print(sentence, style="yellow")


def print_json(result: Mapping[str, Any]) -> None:
    json.dump(result, sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def interval(estimate: Estimate) -> str:
    return f"{percent(estimate.mean)} [{percent(estimate.low)}, {percent(estimate.high)}]"


LOG_EVERY_S = 10.0
"""Seconds between lines in a log, where no bar is shown."""


class EpisodeBar:
    """A progress bar with the team's results so far; in a log, a line every few seconds."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress, self._name, self._total = progress, name, total
        self._said = time.monotonic()
        self._task = progress.add_task(name, total=total, numbers="")
        self._graded = self._right = self._failed = self._tokens = 0

    def add(self, episode: Episode) -> None:
        self._tokens += episode.usage.generated
        if episode.grade:
            self._graded += 1
            self._right += episode.grade.right
        else:
            self._failed += 1
        done = max(1, self._graded + self._failed)
        numbers = f"{percent(self._right / max(1, self._graded))} %  {self._tokens / done:.0f} tok"
        numbers += f"  {self._failed} failed" if self._failed else ""
        self._progress.update(self._task, advance=1, numbers=numbers)
        if not err.is_terminal and time.monotonic() - self._said > LOG_EVERY_S:
            self._said = time.monotonic()
            err.print(f"{self._name}  {done} of {self._total}  {numbers}")

    def remove(self) -> None:
        self._progress.remove_task(self._task)


@contextmanager
def episode_progress() -> Iterator[Progress]:
    with Progress(
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeRemainingColumn(),
        console=err,
        transient=not err.is_terminal,
    ) as progress:
        yield progress


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that never cuts a name: if it is too wide, names get lines of their own."""

    headers: Sequence[str]
    """May have several lines."""
    rows: Sequence[Sequence[str] | str]
    """A plain string is a heading for the rows below it."""
    names: int = 1
    """How many columns, from the left, hold names."""
    title: str = ""
    legend: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [row for row in self.rows if not isinstance(row, str)]
        widths = [
            max(cell_len(line) for row in (self.headers, *rows) for line in row[n].split("\n"))
            for n in range(len(self.headers))
        ]
        first, gap = self._fit(widths, options.max_width)
        tall = max(header.count("\n") for header in self.headers)
        headers = [("\n" * (tall - h.count("\n")) + h).split("\n") for h in self.headers]

        def line(cells: Sequence[str]) -> str:
            rooms = [" " * (w - cell_len(c)) for w, c in zip(widths, cells, strict=True)]
            padded = [
                cell + room if n < self.names else room + cell
                for n, (cell, room) in enumerate(zip(cells, rooms, strict=True))
            ]
            return " " + (" " * gap).join(padded[first:])

        yield Text(f"\n{self.title}", "italic") if self.title else Text()
        for texts in zip(*headers, strict=True):
            yield Text(line(texts), "bold", no_wrap=True)
        yield Text(" " + "─" * (cell_len(line(texts)) - 1), no_wrap=True)
        for row in self.rows:
            if isinstance(row, str) or first:
                yield Text(row if isinstance(row, str) else "  ".join(row[:first]))
            if not isinstance(row, str):
                yield Text(line(row), no_wrap=True)
        yield Text(self.legend, "dim")

    def _fit(self, widths: Sequence[int], room: int) -> tuple[int, int]:
        """The first column shown on a row's own line, and the gap between columns."""
        for first in (0, self.names):
            for gap in (2, 1):
                if 1 + sum(widths[first:]) + gap * (len(widths) - first - 1) <= room:
                    return first, gap
        return self.names, 1


def points(estimate: Estimate) -> str:
    """A difference of accuracies."""
    return f"{100 * estimate.mean:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"
