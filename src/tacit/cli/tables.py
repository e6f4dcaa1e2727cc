"""Prints the results of an evaluation or a training run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tacit.cli.conversation import show_call, show_views
from tacit.cli.paired_tests import in_one_line, paired_tests, untested
from tacit.cli.terminal import Grid, interval, out, percent, points, print_json
from tacit.evaluation.helper_effects import HelperEffects
from tacit.evaluation.measure import Summary, frontier
from tacit.evaluation.talk import Choosing, Play, Talk
from tacit.run.folder import RunFolder
from tacit.team.prompts import INTRODUCTIONS

SUMMARY = TypeAdapter(Summary)
LEGEND = (
    "* On the frontier: no other team is both more accurate and cheaper. `accuracy` is the share "
    "of tasks solved; `said` and `read` are tokens per episode, `per solved` is tokens said for "
    "each solved task. Of messages said at the same time, `path` counts only the longest. `silent` "
    "is a share of the calls that could have been silent; – means that none could."
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
    more += f" `{named}` is the mean reward; partly right answers count in part." if named else ""
    more += " `money` is per task." if priced else ""
    chosen = f" {checkpoint}" if checkpoint else ""
    headers += ["money"] if priced else []
    return Grid(headers, rows, legend=f"{LEGEND}{more}{chosen}")


def _reward_name(summaries: Sequence[Summary]) -> str:
    """Empty if every team's rewards are just right or wrong."""
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
    called = " `tools` counts calls, `told` is the part of `read` from tools." if tools else ""
    return Grid(
        ["agent", "model", "calls", "said", "read", "cached", *told, "silent %"],
        rows,
        names=2,
        title="Tokens per episode, by agent",
        legend=f"`cached` is the part of `read` that was computed before.{called}",
    )


PLAYS = {
    "free": "as it is",
    "silent": "all silent",
    "speaking": "made to speak",
    "gate": "random gate",
    "alone": "trained, alone",
    "reworded": "reworded",
}
"""Names of the plays in a talk."""
TALK = ["played", "accuracy\n%", "as it is minus this\n[interval]", "messages", "said", "read"]
OTHERWISE = "What talk is worth: the same tasks played otherwise"
TALK_LEGEND = (
    "`messages` are those of agents that may be silent. The random gate speaks as often as the "
    "team, but by chance. In `trained, alone` the trained weights answer without help."
)


def talk_table(summaries: Sequence[Summary]) -> Grid | None:
    """Teams whose talk was compared with other plays of the tasks; None if there are none."""
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
    headers = [*TALK[:3], *([f"{named} %, and as it\nis minus this"] if named else []), *TALK[3:]]
    return Grid(headers, rows, title=OTHERWISE, legend=TALK_LEGEND) if rows else None


def _scored(play: Play) -> tuple[str, str]:
    return percent(play.accuracy), points(play.above) if play.above else ""


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
        f"of {changed.episodes} episodes, helpers helped in {changed.helped}, harmed in "
        f"{changed.harmed}, changed nothing in {changed.same} and were silent in {changed.silent}"
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
            f"compared with `made to speak`, {messages} % of the messages, {said} % of the tokens "
            f"said, {total} % of those said and read"
        )
    if talk.kept is not None or talk.kept_reward is not None:
        more = f" ({percent(talk.kept_reward)} % in {reward})" if reward else ""
        yield f"when reworded, {percent(talk.kept)} % of the gain over silence is left{more}"


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
    """A run's payments for API calls, one line per model."""
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
            f"`trained` is step {step}, the best of those evaluated on these same tasks, "
            "which flatters it a little."
        )
    step = result.get("checkpoint")
    return "" if step is None else f"`trained` has the weights of step {step}."


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
