"""What people see: tables, progress and conversations in the terminal."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tacit.changes import Changed
from tacit.evaluate import Summary, frontier
from tacit.statistics import Estimate, Paired
from tacit.types import Call, Episode, Grade

out = Console()
err = Console(stderr=True)


def note(sentence: str) -> None:
    """Something to know, beside what the run says."""
    err.print(f"[yellow]{escape(sentence)}[/]", highlight=False)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def interval(estimate: Estimate) -> str:
    return f"{percent(estimate.mean)} [{percent(estimate.low)}, {percent(estimate.high)}]"


LOG_EVERY_S = 10.0
"""Where no terminal shows a bar."""


class EpisodeBar:
    """A progress bar that says how the team is doing so far; in a log, a line now and then."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress, self._name, self._total = progress, name, total
        self._said = time.monotonic()
        self._task = progress.add_task(escape(name), total=total, numbers="")
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
        failed = f"  [red]{self._failed} failed[/]" if self._failed else ""
        self._progress.update(self._task, advance=1, numbers=numbers + failed)
        if not err.is_terminal and time.monotonic() - self._said > LOG_EVERY_S:
            self._said = time.monotonic()
            line = f"{escape(self._name)}  {done} of {self._total}  {numbers}{failed}"
            err.print(line, highlight=False)


@contextmanager
def episode_progress() -> Iterator[Progress]:
    columns = [
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=err, transient=not err.is_terminal) as progress:
        yield progress


def summary_table(summaries: Sequence[Summary]) -> Table:
    best = set(frontier(summaries))
    levels = list(dict.fromkeys(level for s in summaries for level in s.accuracy_by_level))
    levels = levels if 1 < len(levels) <= 5 else []
    table = _table(caption="* on the frontier: no other team is both more accurate and cheaper")
    table.add_column("team", overflow="fold")
    numbers = ["accuracy %\n\\[interval]", *(f"{level}\n%" for level in levels)]
    numbers += ["tokens\nsaid", "tokens\nread", "per\nsolved", "path", "silent\n%"]
    priced = any(summary.money is not None for summary in summaries)
    for header in [*numbers, *(["money\nper task"] if priced else [])]:
        table.add_column(header, justify="right", no_wrap=True)
    for one in summaries:
        by_level = [
            percent(one.accuracy_by_level[lv].mean) if lv in one.accuracy_by_level else "–"
            for lv in levels
        ]
        solved = "–" if one.generated_per_solved is None else f"{one.generated_per_solved:.0f}"
        row = [
            f"{escape(one.team)}{' *' if one.team in best else ''}",
            interval(one.accuracy),
            *by_level,
            f"{one.generated.mean:.1f}",
            f"{one.read:.0f}",
            solved,
            f"{one.path_tokens:.0f}",
            percent(one.silence),
        ]
        table.add_row(*row, *([f"{one.money:.6f}"] if priced and one.money is not None else []))
    return table


def _table(**settings: Any) -> Table:
    """Narrow enough for a terminal of 80 columns."""
    return Table(box=SIMPLE_HEAD, padding=0, **settings)


def agents_table(summaries: Sequence[Summary]) -> Table:
    table = _table(title="Tokens per episode, by agent", title_justify="left")
    for header in ("team", "agent", "model"):
        table.add_column(header)
    for header in ("calls", "said", "read", "cached", "silent\n%", "silent %\nby level"):
        table.add_column(header, justify="right")
    for one in summaries:
        for agent in one.agents:
            levels = " ".join(f"{lv} {percent(s)}" for lv, s in agent.silence_by_level.items())
            table.add_row(
                *map(escape, (one.team, agent.agent, agent.model)),
                f"{agent.calls:.2f}",
                f"{agent.generated:.1f}",
                f"{agent.prompt:.0f}",
                f"{agent.cached:.0f}",
                percent(agent.silence if agent.choices else None),
                levels if agent.silence else "",
            )
    return table


def detail_lines(summaries: Sequence[Summary]) -> Iterator[str]:
    """What is true of some teams only, or has no column, a line for each team."""
    for one in summaries:
        facts = [f"{one.path_seconds:.2f} s on the critical path"]
        if one.majority is not None:
            k = one.samples
            facts.append(f"maj@{k} {percent(one.majority)} %, pass@{k} {percent(one.any_right)} %")
        if one.leaks is not None:
            facts.append(f"{percent(one.leaks)} % of helpers' messages already hold the answer")
        if one.silent_accuracy is not None:
            silent, spoken = percent(one.silent_accuracy), percent(one.spoken_accuracy)
            facts.append(f"{silent} % right where somebody was silent, {spoken} % elsewhere")
        if one.changed is not None:
            facts.append(changed_phrase(one.changed))
        if one.overflowed:
            some = "episode" if one.overflowed == 1 else "episodes"
            facts.append(f"{one.overflowed} {some} wrong because the talk overflowed a prompt")
        yield f"{one.team}: {'; '.join(facts)}"


def changed_phrase(changed: Changed) -> str:
    """What the helpers of a team changed, in words."""
    words = [
        (changed.helped, "helped"),
        (changed.harmed, "harmed"),
        (changed.same, "spoke without a difference"),
        (changed.silent, "said nothing"),
    ]
    told = ", ".join(f"{what} in {n}" for n, what in words)
    return f"helpers {told} of {changed.episodes} episodes"


def spend_lines(spend: Mapping[str, Any] | None) -> Iterator[str]:
    """What a run paid for API calls, a line a model."""
    if spend is None:
        return
    for one in spend["models"]:
        usage = one["usage"]
        thought = f" ({usage['reasoning']:,} of them reasoning)" if usage["reasoning"] else ""
        money = "" if one["money"] is None else f", {one['money']:.4f} {spend['currency']}"
        yield (
            f"{one['model']}: {one['calls']:,} calls paid, {usage['prompt']:,} tokens read "
            f"({usage['cached']:,} cached), {usage['generated']:,} generated{thought}{money}"
        )
    if spend["money"] is not None:
        cap = f" of {spend['cap']:g}" if spend["cap"] else ""
        money = f"{spend['money']:.4f}{cap} {spend['currency']}"
        yield f"spent {money} (prices of {spend['prices_of']})"


def paired_lines(baseline: str, results: Mapping[str, Paired | None]) -> Iterator[str]:
    """Each comparison as a sentence."""
    for name, result in results.items():
        if result is None:
            yield f"{name} and {baseline} have no graded task in common."
            continue
        points = 100 * result.difference.mean
        direction = "above" if points > 0 else "below"
        certain = "significantly " if max(result.p_mcnemar, result.p_bootstrap) < 0.05 else ""
        low, high = 100 * result.difference.low, 100 * result.difference.high
        yield (
            f"{name} is {certain}{direction} {baseline} by {abs(points):.1f} points "
            f"[{low:+.1f}, {high:+.1f}] on {result.tasks} tasks "
            f"(McNemar p = {result.p_mcnemar:.2g}, bootstrap p = {result.p_bootstrap:.2g})."
            if points
            else f"{name} and {baseline} are level on {result.tasks} tasks."
        )


def show_call(call: Call) -> None:
    """One message of a conversation, model text never read as markup."""
    said = ("silent", "dim") if call.silent else call.text
    tokens = (f" ({call.usage.generated} tokens)  ", "dim")
    out.print(Text.assemble((call.agent, "bold cyan"), tokens, said))


def show_grade(grade: Grade, reference: str) -> None:
    verdict = ("right", "green") if grade.right else ("wrong", "red")
    read = f"read {grade.answer!r}, " if grade.answer else ""
    out.print(Text.assemble(verdict, f": {read}reference {reference!r}"))
