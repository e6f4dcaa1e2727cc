"""What the commands do, above the library and below the command line."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.table import Table

from tacit.cli.tables import (
    SUMMARY,
    EpisodeBar,
    episode_progress,
    note,
    out,
    print_result,
    show_call,
    show_grade,
)
from tacit.config import Config, TeamConfig
from tacit.engine.base import Account
from tacit.errors import ConfigError, RunError
from tacit.evaluation.measure import (
    Summary,
    compare,
    evaluate_team,
    evaluate_without,
    frontier,
    pin,
    summarise,
)
from tacit.evaluation.statistics import Paired
from tacit.rollout import Grader, Job, play_episode
from tacit.run.folder import HISTORY, WITHOUT, RunFolder
from tacit.run.opening import (
    answer_form_of,
    check_graders,
    grader_of,
    helpers_of,
    measured_teams_of,
    open_engines,
    prices_of,
    seat,
    tasks_of,
    teams_of,
)
from tacit.run.spending import Purse
from tacit.team.roster import Roster
from tacit.team.team import Setting
from tacit.types import Call, Episode, Grade, Task


@asynccontextmanager
async def open_rosters(
    config: Config,
    teams: Mapping[str, TeamConfig],
    trained: Path | None,
    account: Account | None = None,
) -> AsyncIterator[tuple[dict[str, Roster], Grader]]:
    """The teams in their seats, the config's own with a trained run's weights; and the grader."""
    if trained is None:
        async with open_engines(config, teams, account) as engines:
            rosters = {name: seat(team, engines) for name, team in teams.items()}
            yield rosters, grader_of(config, engines)
        return
    from tacit.learn.weights import open_trained

    async with open_trained(config, trained, account=account) as stage:
        rosters = {
            name: stage.roster if team is config.team else seat(team, stage.engines)
            for name, team in teams.items()
        }
        yield rosters, grader_of(config, stage.engines)


async def run_evaluation(
    config: Config,
    folder: Path,
    *,
    as_json: bool,
    details: bool = False,
    trained: Path | None = None,
    alone: bool = False,
) -> dict[str, Any]:
    """Evaluate every team of the config in one run folder; print and write the summary."""
    result = await evaluate_run(config, folder, trained=trained, alone=alone)
    show_result(result, RunFolder(folder), as_json=as_json, details=details)
    return result


async def evaluate_run(
    config: Config, folder: Path, *, trained: Path | None = None, alone: bool = False
) -> dict[str, Any]:
    """`run_evaluation` without the tables: its progress is shown, its summary written and returned.

    `alone` plays only the config's own team; the folder keeps the whole config all the same.
    `trained` is the folder of a checkpoint, whose weights the config's own team plays with.
    """
    run = RunFolder.check(folder, config)
    with run.held():
        return await _evaluate(config, run, trained=trained, alone=alone)


async def _evaluate(
    config: Config, run: RunFolder, *, trained: Path | None, alone: bool
) -> dict[str, Any]:
    whole, config = config, config.model_copy(update={"teams": {}}) if alone else config
    teams, prices = measured_teams_of(config), prices_of(config)
    if alone:  # under the name that it has among the others
        teams = {name: team for name, team in teams_of(whole).items() if team is config.team}
    tasks = tasks_of(config.tasks, config.judge)
    if trained:
        teams = {"trained" if t is config.team else name: t for name, t in teams.items()}
    if (known := finished(run, whole, teams)) and "steps" not in known:
        pin(run, tasks)
        return known
    purse = Purse(run, prices, config.spend_cap)
    episodes: dict[str, list[Episode]] = {}
    summaries: list[Summary] = []
    async with open_rosters(config, teams, trained, purse.account(note)) as (rosters, grader):
        run.begin(whole)
        with episode_progress() as progress:
            for name, roster in rosters.items():
                common = (name, roster, tasks, config.evaluation, run)
                how: Any = {"seed": config.seed, "grader": grader, "cap": purse.cap()}
                bar = EpisodeBar(progress, name, len(tasks) * config.evaluation.samples)
                episodes[name] = await evaluate_team(*common, **how, on_episode=bar.add)
                helpers = helpers_of(config, teams[name])
                if helpers:
                    bar = EpisodeBar(progress, f"{name}{WITHOUT}", len(tasks))
                without = await evaluate_without(*common, helpers, **how, on_episode=bar.add)
                summary = summarise(
                    name, episodes[name], tasks, config.evaluation, prices, without, helpers
                )
                run.write_json(f"evals/{name}.json", summary.to_json())
                summaries.append(summary)
    first, *others = teams
    paired = {n: compare(episodes[first], episodes[n], config.evaluation) for n in others}
    result = _result(config, summaries, first, paired) | {"spend": purse.to_json()}
    if trained:
        result["checkpoint"] = int(trained.name.removeprefix("step-"))
    run.write_json("summary.json", result)
    return result


def _result(
    config: Config, summaries: Sequence[Summary], first: str, paired: dict[str, Paired | None]
) -> dict[str, Any]:
    return {
        "name": config.name,
        "seed": config.seed,
        "tasks": config.tasks.model_dump(mode="json", exclude_defaults=True),
        "teams": {summary.team: summary.to_json() for summary in summaries},
        "frontier": frontier(summaries),
        "compared_with": first,
        "paired": {name: asdict(test) if test else None for name, test in paired.items()},
    }


def show_result(result: Mapping[str, Any], run: RunFolder, *, as_json: bool, details: bool) -> None:
    if as_json:
        json.dump(result, sys.stdout, indent=1, ensure_ascii=False)
        sys.stdout.write("\n")
        return
    print_result(result, run.path, details=details)
    if result.get("best_step"):
        _before_after(run, result["best_step"])


def _before_after(run: RunFolder, best: int) -> None:
    """The first task that training mended, as a conversation before and after."""
    first = {episode.task_id: episode for episode in run.episodes("eval-000000")}
    for episode in run.episodes(f"eval-{best:06d}"):
        old = first.get(episode.task_id)
        if not (old and old.grade and episode.grade) or old.grade.right or not episode.grade.right:
            continue
        for title, one in (("before", old), ("after", episode)):
            out.print(f"\n{title} training: {one.calls[0].messages[-1].content}")
            for call in one.calls:
                show_call(call)
        return


def finished(run: RunFolder, config: Config, teams: Iterable[str]) -> dict[str, Any] | None:
    """The summary of these teams, where the last start came to its end with this very config."""
    try:
        result, (_, before) = run.read_json("summary.json"), run.existing(run.path)
        ended, started = ((run.path / name).stat().st_mtime for name in ("summary.json", HISTORY))
        summaries = [SUMMARY.validate_python(tree) for tree in result["teams"].values()]
    except (OSError, ConfigError, KeyError, TypeError, AttributeError, ValidationError):
        return None  # not there, damaged, or of an older layout: it is made again
    same = before == config and set(teams) == set(result["teams"])
    whole = not any(summary.failed for summary in summaries)
    return result if same and whole and ended >= started else None


async def run_play(
    config: Config, question: str, answer: str | None, trained: Path | None = None
) -> None:
    """One conversation, printed call by call; graded where a reference is given."""
    episode = await play_once(config, question, answer, trained, show_call)
    if episode.error:
        raise RunError(f"the episode failed: {episode.error}")
    if answer is not None and episode.grade:
        show_grade(episode.grade, answer)
    usage = episode.usage
    out.print(f"{usage.generated} tokens generated, {usage.prompt} read", style="dim")


async def play_once(
    config: Config,
    question: str,
    answer: str | None = None,
    trained: Path | None = None,
    on_call: Callable[[Call], None] | None = None,
) -> Episode:
    """One episode of the config's team; without a reference its grade says nothing."""
    config = for_one(config)
    teams = teams_of(config)
    name = next((name for name, team in teams.items() if team is config.team), next(iter(teams)))
    if not question.strip():
        raise ConfigError("play: the question is empty")
    grader, instruction = answer_form_of(config)
    if answer is not None and grader in ("code", "chess"):
        raise ConfigError(f"play: --answer cannot be graded for {grader}; leave it out")
    task = Task(
        id="play/0",
        question=question,
        answer=answer or "",
        grader=grader,
        instruction=instruction,
    )

    async def ungraded(task: Task, text: str) -> Grade:
        return Grade(reward=0.0, right=False)

    async with open_rosters(config, {name: teams[name]}, trained) as (rosters, graded):
        job, by = Job(task, Setting(seed=config.seed)), ungraded if answer is None else graded
        return await play_episode(rosters[name], job, grader=by, on_call=on_call)


def for_one(config: Config) -> Config:
    """One row a model on a CPU, where all rows are computed whether they are in use or not."""
    local = {name: model for name, model in config.models.items() if model.engine == "local"}
    if not local:
        return config
    from tacit.engine.load import pick_device

    alone = {
        name: model.model_copy(update={"rows": 1})
        for name, model in local.items()
        if pick_device(model.device) == "cpu"
    }
    return config.model_copy(update={"models": {**config.models, **alone}})


def list_tasks() -> None:
    from tacit.tasks import describe

    table = Table(title="Task sets", title_justify="left")
    for header in ("name", "splits", "licence", "what"):
        table.add_column(header, no_wrap=header == "name")
    for entry in describe():
        splits = ", ".join(f"{split} {rows or '∞'}" for split, rows in entry.splits.items())
        what = entry.description + (" (evaluation only)" if entry.evaluation_only else "")
        table.add_row(entry.name, splits, entry.licence, what)
    out.print(table)
    out.print("Files are read from TACIT_DATA or `tasks.folder`; `tasks.hub: true` downloads them.")


def show_tasks(name: str, split: str, folder: str | None, samples: int) -> None:
    from tacit.tasks import load_tasks

    tasks = load_tasks(name, split=split, folder=folder, allow_canaried=True)
    check_graders(tasks)
    levels: dict[str, int] = {}
    for task in tasks:
        levels[task.level] = levels.get(task.level, 0) + 1
    counts = ", ".join(f"{level} {n}" for level, n in sorted(levels.items()) if level)
    out.print(f"{name} {split}: {len(tasks)} tasks{f' ({counts})' if counts else ''}")
    for task in tasks[:samples]:
        out.print(f"\n{task.id}", style="bold")
        out.print(task.question)
        out.print(f"answer: {task.answer}", style="dim")


def list_recipes() -> None:
    from tacit.config.file import recipe_files

    rows = []
    for name, file in recipe_files().items():
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        rows.append(f"{name}\n    {first.removeprefix('# ')}")
    out.print("\n".join(rows))
    out.print("`tacit train NAME`, `tacit compare NAME` and so on run one.", style="dim")


def list_topologies() -> None:
    from tacit.team.topologies import TOPOLOGIES

    table = Table(title="Topologies", title_justify="left")
    for header in ("name", "roles", "what"):
        table.add_column(header)
    for name, topology in TOPOLOGIES.items():
        roles = ", ".join(
            f"{role}{' (optional)' if r.optional else ''}" for role, r in topology.roles.items()
        )
        table.add_row(name, roles, topology.summary)
    out.print(table)


def folder_of(source: str, name: str) -> Path:
    """A run folder goes on in its place; anything else is a run of that name."""
    return Path(source) if Path(source).is_dir() else Path("runs") / name


def measured_in(source: str, name: str, trained: Path | None, what: str) -> Path:
    """Where an evaluation goes: of a trained run beside it, by the step of its weights."""
    if trained is None:
        folder = folder_of(source, name)
        if trained_run(str(folder)):
            raise ConfigError(
                f"`{folder}` was trained, and `{source}` is not: play the trained team with "
                f"`tacit {what} {folder}`, or name another folder with --out"
            )
        return folder
    return trained.parents[1] / f"{what}-{trained.name.removeprefix('step-')}"


def checkpoint_of(source: str, which: str) -> Path | None:
    """The folder of a trained run's checkpoint; None where the source is no trained run."""
    run = trained_run(source)
    if run is None:
        if which != "best":
            raise ConfigError(f"--checkpoint: `{source}` is no trained run, so it has none")
        return None
    from tacit.learn.checkpoint import Checkpoints

    checkpoints = Checkpoints(run / "checkpoints")
    step: int | None
    if which in ("best", "last"):
        step = checkpoints.step(which)
        step = checkpoints.step("last") if step is None else step
    else:
        step = int(which) if which.isdecimal() else None
    folder = checkpoints.folder / f"step-{step or 0:06d}"
    if step is None or not folder.is_dir():
        kept = ", ".join(str(int(p.name[5:])) for p in sorted(checkpoints.folder.glob("step-*")))
        raise ConfigError(
            f"--checkpoint: `{which}` is not kept in `{run}`; it has best, last, {kept}"
        )
    return folder


def trained_run(source: str) -> Path | None:
    """The run folder, where the source is one that was trained: its best weights are played."""
    folder = Path(source)
    return folder if (folder / "checkpoints" / "last.json").exists() else None
