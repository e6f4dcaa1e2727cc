"""Tables, progress bars and conversations in the terminal."""

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from tacit.errors import RunError
from tacit.evaluation.helper_effects import HelperEffects
from tacit.evaluation.measure import Summary, frontier
from tacit.evaluation.statistics import Estimate, Paired, holm
from tacit.evaluation.talk import Choosing, Play, Talk
from tacit.run.folder import RunFolder
from tacit.team.prompts import INTRODUCTIONS
from tacit.team.tools import CONTROL
from tacit.types import Call, ChatMessage, Episode, Grade


class _Console(Console):
    def render(self, *what: Any) -> Iterator[Segment]:
        """Without the control characters of texts, which could clear the screen or hide what is."""
        for one in super().render(*what):
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


PAIRED, SUMMARY = TypeAdapter(Paired), TypeAdapter(Summary)

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


def columns() -> list[ProgressColumn]:
    return [
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeRemainingColumn(),
    ]


@contextmanager
def episode_progress() -> Iterator[Progress]:
    with Progress(*columns(), console=err, transient=not err.is_terminal) as progress:
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


LEGEND = (
    "* on the frontier: no other team is both more accurate and cheaper. accuracy: tasks solved, "
    "with its interval. said, read: tokens per episode. per solved: tokens said for each solved "
    "task. path: tokens said one after another, the rest being said at the same time. silent: of "
    "the calls that could have been silent."
)


def summary_table(summaries: Sequence[Summary], checkpoint: str = "") -> Grid:
    """The teams side by side; `checkpoint` is a sentence about the trained team's weights."""
    best, levels = frontier(summaries), _columns(summaries)
    named = _reward_name(summaries)
    rewarded = [f"{named} %\n[interval]"] if named else []
    headers = ["team", "accuracy %\n[interval]", *rewarded, *(f"{lv}\n%" for lv in levels)]
    headers += ["said", "read", "per\nsolved", "path", "silent\n%"]
    priced = any(summary.money is not None for summary in summaries)
    rows = []
    for one in summaries:
        by_level = [one.accuracy_by_level.get(level) for level in levels]
        shares = [percent(estimate.mean if estimate else None) for estimate in by_level]
        row = [
            f"{one.team}{' *' if one.team in best else ''}",
            interval(one.accuracy),
            *([interval(one.reward or one.accuracy)] if named else []),
            *shares,
            f"{one.generated.mean:.1f}",
            f"{one.read:.0f}",
            "–" if one.generated_per_solved is None else f"{one.generated_per_solved:.0f}",
            f"{one.path_tokens:.0f}",
            percent(one.silence),
        ]
        rows.append(row + (["–" if one.money is None else f"{one.money:.6f}"] if priced else []))
    counted = frontier(summaries, read=True)
    unlike = {*counted} != {*best}
    more = f" With tokens read, the frontier is {', '.join(counted)}." if unlike else ""
    more += f" {named}: mean reward, also of answers that are partly right." if named else ""
    more += " money: per task." if priced else ""
    chosen = f" {checkpoint}" if checkpoint else ""
    headers += ["money"] if priced else []
    return Grid(headers, rows, legend=f"{LEGEND}{more}{chosen}")


def _reward_name(summaries: Sequence[Summary]) -> str:
    """Empty if no team has a reward that says more than right and wrong."""
    return next((one.reward_name for one in summaries if one.reward_name), "")


def _levels(summaries: Sequence[Summary]) -> list[str]:
    levels = list(dict.fromkeys(level for s in summaries for level in s.accuracy_by_level))
    return levels if len(levels) > 1 else []


def _columns(summaries: Sequence[Summary]) -> list[str]:
    """The levels that get a column; if they are many or long, `detail_lines` shows them."""
    levels = _levels(summaries)
    return levels if sum(max(5, len(level)) + 2 for level in levels) <= 21 else []


def agents_table(summaries: Sequence[Summary]) -> Grid:
    tools = any(agent.tool_calls for one in summaries for agent in one.agents)
    rows: list[Sequence[str] | str] = []
    for one in summaries:
        rows.append(one.team)
        for agent in one.agents:
            rows.append(
                [
                    f" {agent.agent}",
                    agent.model,
                    f"{agent.calls:.2f}",
                    f"{agent.generated:.1f}",
                    f"{agent.prompt:.0f}",
                    f"{agent.cached:.0f}",
                    *([f"{agent.tool_calls:.2f}", f"{agent.observed:.0f}"] if tools else []),
                    percent(agent.silence if agent.choices else None),
                ]
            )
    told = ["tools", "told"] if tools else []
    called = " tools: calls of them; told: the part of read that they said." if tools else ""
    return Grid(
        ["agent", "model", "calls", "said", "read", "cached", *told, "silent %"],
        rows,
        names=2,
        title="Tokens per episode, by agent",
        legend=f"cached: the part of read that was computed before.{called} "
        "silent: as above; – must speak.",
    )


PLAYS = {
    "free": "as it is",
    "silent": "all silent",
    "speaking": "made to speak",
    "gate": "random gate",
    "alone": "trained, alone",
    "reworded": "reworded",
}
"""What the plays of a talk are called."""
TALK = ["played", "accuracy\n%", "as it is, above it\n[interval]", "messages", "said", "read"]
OTHERWISE = "What talk is worth: the same tasks played otherwise"
TALK_LEGEND = (
    "messages: of those who may be silent. random gate: speaks as often as the team, but by "
    "chance. trained, alone: the trained weights give the answer, without help."
)


def talk_table(summaries: Sequence[Summary]) -> Grid | None:
    """Teams whose talk was measured beside other plays of the tasks; None if there are none."""
    named = _reward_name(summaries)
    rows: list[Sequence[str] | str] = []
    for one in summaries:
        plays, rewards = (one.talk.plays, one.talk.rewards) if one.talk else ({}, {})
        rows += [one.team] if len(plays) > 1 else []
        for name in PLAYS if len(plays) > 1 else ():
            if play := plays.get(name):
                row = [f" {PLAYS[name]}", *_scored(play)]
                row += ["  ".join(filter(None, _scored(rewards.get(name, play))))] if named else []
                row += [f"{play.messages:.2f}", f"{play.generated:.1f}", f"{play.read:.0f}"]
                rows.append(row)
    headers = [*TALK[:3], *([f"{named} %, and as it\nis, above it"] if named else []), *TALK[3:]]
    return Grid(headers, rows, title=OTHERWISE, legend=TALK_LEGEND) if rows else None


def _scored(play: Play) -> tuple[str, str]:
    return percent(play.accuracy), points(play.above) if play.above else ""


def points(estimate: Estimate) -> str:
    """A difference of accuracies."""
    return f"{100 * estimate.mean:+.1f} [{100 * estimate.low:+.1f}, {100 * estimate.high:+.1f}]"


def detail_lines(summaries: Sequence[Summary]) -> Iterator[str]:
    """Facts about only some teams, or without a column: a line or two per team that has any."""
    levels = [] if _columns(summaries) else _levels(summaries)
    for one in summaries:
        facts = []
        if by_level := [lv for lv in levels if lv in one.accuracy_by_level]:
            shares = [f"{lv} {percent(one.accuracy_by_level[lv].mean)}" for lv in by_level]
            facts.append(f"accuracy % by level {', '.join(shares)}")
        if one.majority is not None:
            k = one.samples
            facts.append(f"maj@{k} {percent(one.majority)} %, pass@{k} {percent(one.any_right)} %")
        if one.leaks is not None:
            facts.append(f"{percent(one.leaks)} % of helpers' messages already hold the answer")
        if one.silent_accuracy is not None:
            silent, spoken = percent(one.silent_accuracy), percent(one.spoken_accuracy)
            facts.append(f"{silent} % right where somebody was silent, {spoken} % elsewhere")
        for agent in one.agents:
            if agent.silence and len(agent.silence_by_level) > 1:
                quiet = [f"{lv} {percent(s)}" for lv, s in agent.silence_by_level.items()]
                facts.append(f"{agent.agent} silent % by level {', '.join(quiet)}")
        if one.changed is not None:
            facts.append(_effects(one.changed))
        if one.talk:
            facts += _talk(one.talk, one.reward_name)
        if one.overflowed:
            some = "episode" if one.overflowed == 1 else "episodes"
            facts.append(f"{one.overflowed} {some} wrong because the talk overflowed a prompt")
        if facts:
            yield f"{one.team}: {'; '.join(facts)}"
        if one.talk and one.talk.missing:
            missing = [f"{PLAYS[name]} ({why})" for name, why in one.talk.missing.items()]
            yield f"{one.team}, not played: {'; '.join(missing)}"


def _effects(changed: HelperEffects) -> str:
    return (
        f"helpers helped in {changed.helped}, harmed in {changed.harmed}, spoke without a "
        f"difference in {changed.same}, said nothing in {changed.silent} of "
        f"{changed.episodes} episodes"
    )


def _talk(talk: Talk, reward: str) -> Iterator[str]:
    if talk.choosing:
        yield _choosing(talk.choosing)
    aucs = {agent: _auc(choice) for agent, choice in talk.choosing_by_agent.items()}
    if len(set(aucs.values())) > 1:
        yield f"AUC by agent {', '.join(f'{agent} {auc}' for agent, auc in aucs.items())}"
    if talk.share_of_speaking:
        names = ("messages", "generated", "total")
        messages, said, total = (percent(talk.share_of_speaking.get(name)) for name in names)
        yield (
            f"against made to speak, {messages} % of the messages, {said} % of the tokens said, "
            f"{total} % of those said and read"
        )
    if talk.kept is not None or talk.kept_reward is not None:
        more = f" ({percent(talk.kept_reward)} % in {reward})" if reward else ""
        yield f"reworded, {percent(talk.kept)} % of the gain over silence is left{more}"


def _auc(choice: Choosing) -> str:
    return "–" if choice.auc is None else f"{choice.auc:.2f}"


def _choosing(choice: Choosing) -> str:
    needed, idle = percent(choice.silent_needed), percent(choice.silent_idle)
    by = " of speaking or not" if choice.by == "spoke" else ""
    return (
        f"silent in {needed} % of the calls in which an agent knew what others lacked, and in "
        f"{idle} % of the rest (AUC{by} {_auc(choice)}); "
        f"{percent(choice.precision)} % of what was said was needed, {percent(choice.recall)} % "
        "of what was needed was said"
    )


def spend_lines(spend: Mapping[str, Any] | None) -> Iterator[str]:
    """What a run paid for API calls, one line per model."""
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


@dataclass(frozen=True, slots=True)
class Compared:
    """One of a run's paired tests; `p` is corrected for their number, `of`."""

    name: str
    baseline: str
    test: Paired
    p: float
    of: int

    @property
    def sure(self) -> bool:
        return self.p < 0.05

    @property
    def side(self) -> str:
        return "above" if self.test.difference.mean > 0 else "below"

    def __str__(self) -> str:
        by, tasks = self.test.difference, self.test.tasks
        rewards = f"; mean reward {points(self.test.reward)}" if self.test.reward else ""
        if not by.mean:
            return f"{self.name} and {self.baseline} are level on {tasks} tasks{rewards}."
        sure = "significantly " if self.sure else ""
        corrected = f"; {p_value(self.p)} corrected for {self.of} tests" if self.of > 1 else ""
        return (
            f"{self.name} is {sure}{self.side} {self.baseline} by {100 * abs(by.mean):.1f} points "
            f"[{100 * by.low:+.1f}, {100 * by.high:+.1f}] on {tasks} tasks "
            f"(McNemar {p_value(self.test.p_mcnemar)}, bootstrap {p_value(self.test.p_bootstrap)}"
            f"{corrected}){rewards}."
        )


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def paired_tests(summary: Mapping[str, Any]) -> list[Compared]:
    """The tests in a summary.json, the trained team's first; unreadable ones are left out."""
    found: list[tuple[str, str, Paired]] = []
    for name, baseline, tree in _pairs(summary):
        with suppress(ValidationError):
            found.append((name, baseline, PAIRED.validate_python(tree)))
    corrected = holm([max(test.p_mcnemar, test.p_bootstrap) for _, _, test in found])
    return [
        Compared(name, baseline, test, p, len(found))
        for (name, baseline, test), p in zip(found, corrected, strict=True)
    ]


def untested(summary: Mapping[str, Any]) -> list[str]:
    """A sentence for each pair that could not be tested."""
    pairs = [(name, baseline) for name, baseline, tree in _pairs(summary) if tree is None]
    return [f"{name} and {other} have no graded task in common." for name, other in pairs]


def _pairs(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    first = str(summary.get("compared_with"))
    for place in ("trained_compared_with", "paired"):
        trees = summary.get(place)
        for other, tree in trees.items() if isinstance(trees, dict) else ():
            yield ("trained", other, tree) if place != "paired" else (other, first, tree)


def in_one_line(tests: Sequence[Compared]) -> str:
    """All of a run's tests in one sentence."""
    sure: dict[tuple[str, str], list[str]] = {}
    for one in tests:
        if one.sure:
            sure.setdefault((one.name, one.side), []).append(one.baseline)
    found = [f"{name} is {side} {', '.join(others)}" for (name, side), others in sure.items()]
    rest = sum(not one.sure for one in tests)
    found += [f"{rest} show{'s' if rest == 1 else ''} no difference"] if rest else []
    several = f"{len(tests)} paired tests, p < 0.05 corrected for their number"
    count = several if len(tests) > 1 else "paired test, p < 0.05"
    return f"{count}: {'; '.join(found)} (--details: each)"


def print_result(result: Mapping[str, Any], path: Path, *, details: bool) -> None:
    """Print the summary.json of a finished evaluation or training run for people."""
    summaries = [SUMMARY.validate_python(tree) for tree in result["teams"].values()]
    out.print(summary_table(summaries, _checkpoint(result)))
    out.print(agents_table(summaries))
    if talk := talk_table(summaries):
        out.print(talk)
    tests = paired_tests(result)
    lines = [*detail_lines(summaries), *([in_one_line(tests)] if tests and not details else [])]
    lines += [*map(str, tests), *untested(result)] if details else []
    if result.get("dropped"):
        lines.append(f"{result['dropped']} training episodes failed and were left out.")
    if failed := sum(summary.failed for summary in summaries):
        lines.append(f"{failed} episodes failed and are left out; run again to retry them.")
    for line in (*lines, *spend_lines(result["spend"])):
        out.print(line)
    out.print(f"transcripts and numbers: {path}", style="dim", soft_wrap=True)


def _checkpoint(result: Mapping[str, Any]) -> str:
    """Which weights `trained` has, and how they were chosen."""
    if (step := result.get("best_step")) is not None:
        return (
            f"trained: step {step}, the best of those evaluated on these same tasks, "
            "which flatters it a little."
        )
    step = result.get("checkpoint")
    return "" if step is None else f"trained: the weights of step {step}."


def show_views(views: Mapping[str, str]) -> None:
    """Print who alone sees what."""
    for agent, text in views.items():
        out.print(Text.assemble((agent, "bold cyan"), (" alone sees  ", "dim"), text))


def show_call(call: Call) -> None:
    """Print one message of a conversation, after what tools told its agent."""
    for observed in _new_observations(call):
        tool = observed.tool_calls[0].name
        told = Text.assemble((tool, "bold magenta"), (" told ", "dim"), call.agent, "  ")
        out.print(told + Text(observed.content))
    said = ("silent", "dim") if call.silent else call.text
    if call.tool_calls and not call.text.strip():
        said = "\n".join(f"{one.name}({one.arguments})" for one in call.tool_calls)
    calls = " calls tools" if call.tool_calls else ""
    tokens = (f" ({call.usage.generated} tokens){calls}  ", "dim")
    out.print(Text.assemble((call.agent, "bold cyan"), tokens, said))


def _new_observations(call: Call) -> list[ChatMessage]:
    """What tools said since the agent's last call."""
    last = list(itertools.takewhile(lambda one: one.role == "tool", reversed(call.messages)))
    return last[::-1]


def show_played(episode: Episode, reference: str | None) -> None:
    """Print the outcome of one conversation, with its grade if there is a reference."""
    if episode.error:
        raise RunError(f"the episode failed: {episode.error}")
    if reference is not None and episode.grade:
        _show_grade(episode.grade, reference)
    usage = episode.usage
    told = f" ({usage.observed} of them from tools)" if usage.observed else ""
    out.print(f"{usage.generated} tokens generated, {usage.prompt} read{told}", style="dim")


def _show_grade(grade: Grade, reference: str) -> None:
    verdict = ("right", "green") if grade.right else ("wrong", "red")
    read = f"read {grade.answer!r}, " if grade.answer else ""
    out.print(Text.assemble(verdict, f": {read}reference {reference!r}"))


def show_result(result: Mapping[str, Any], run: RunFolder, *, as_json: bool, details: bool) -> None:
    """Print a run's summary.json, for people or for programs."""
    if as_json:
        return print_json(result)
    print_result(result, run.path, details=details)
    if result.get("best_step"):
        _before_after(run, result["best_step"])


def _before_after(run: RunFolder, best: int) -> None:
    """Print the conversations before and after training of the first task it fixed."""
    first = {episode.task_id: episode for episode in run.episodes("eval-000000")}
    for episode in run.episodes(f"eval-{best:06d}"):
        old = first.get(episode.task_id)
        if not (old and old.grade and episode.grade) or old.grade.right or not episode.grade.right:
            continue
        for title, one in (("before", old), ("after", episode)):
            asked = one.calls[0].messages[-1].content.partition(f"\n\n{INTRODUCTIONS['view']}\n")
            out.print(f"\n{title} training: {asked[0]}")
            show_views(one.views)
            for call in one.calls:
                show_call(call)
        return
