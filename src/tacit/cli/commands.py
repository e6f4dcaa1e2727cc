"""The work behind the commands `eval`, `compare` and `play`.

Takes a source (a config file, a recipe's name or a run folder) or a config, shows progress and
returns results, which `tables` prints.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tacit.cli.tables import SUMMARY
from tacit.cli.terminal import EpisodeBar, episode_progress, note
from tacit.config import Config, TeamConfig
from tacit.engine.base import Account
from tacit.errors import ConfigError
from tacit.evaluation.measure import pin
from tacit.evaluation.teams import Measured, Measurement
from tacit.grading import Grader
from tacit.registry import check_name
from tacit.rollout.play import Job, play_episode
from tacit.run.folder import HISTORY, RunFolder
from tacit.run.opening import (
    answer_form_of,
    grader_of,
    measured_teams_of,
    open_engines,
    prices_of,
    seat,
    tasks_of,
    teams_of,
    unseen_views,
    variants_of,
)
from tacit.run.spending import Spending
from tacit.team.roster import Roster, agent_names
from tacit.team.setting import Setting
from tacit.types import Call, Episode, Grade, Task


@asynccontextmanager
async def open_rosters(
    config: Config,
    teams: Mapping[str, TeamConfig],
    trained: Path | None,
    account: Account | None = None,
) -> AsyncIterator[tuple[dict[str, Roster], Grader]]:
    """The teams ready to play, the config's own with trained weights if given; and the grader."""
    if trained is None:
        async with open_engines(config, teams, account) as engines:
            yield {n: seat(team, engines) for n, team in teams.items()}, grader_of(config, engines)
        return
    from tacit.learn.weights import open_trained

    async with open_trained(config, trained, account=account) as assembly:
        rosters = {
            name: assembly.roster if team is config.team else seat(team, assembly.engines)
            for name, team in teams.items()
        }
        yield rosters, grader_of(config, assembly.engines)


async def run_evaluation(
    config: Config, folder: Path, *, trained: Path | None = None, alone: bool = False
) -> dict[str, Any]:
    """Evaluate every team of the config in one run folder; write and return the summary.

    `alone` plays only the config's own team, though the folder keeps the whole config. `trained` is
    the folder of a checkpoint, whose weights the config's own team plays with.
    """
    run = RunFolder.check(folder, config)
    with run.held():
        return await _evaluate(config, run, trained=trained, alone=alone)


async def _evaluate(
    config: Config, run: RunFolder, *, trained: Path | None, alone: bool
) -> dict[str, Any]:
    whole, config = config, config.model_copy(update={"teams": {}}) if alone else config
    teams, prices = measured_teams_of(config), prices_of(config)
    if alone:  # under the same name as among the others
        teams = {name: team for name, team in teams_of(whole).items() if team is config.team}
    tasks = tasks_of(config.tasks, config.judge)
    if lost := unseen_views(tasks, teams.values()):
        note(lost)
    if trained:
        teams = {"trained" if t is config.team else name: t for name, t in teams.items()}
    if (known := finished(run, whole, teams)) and "steps" not in known:
        pin(run, tasks)
        return known
    spending = Spending(run, prices, config.spend_cap)
    measured: dict[str, Measured] = {}
    async with open_rosters(config, teams, trained, spending.account(note)) as (rosters, grader):
        run.begin(whole)
        with measuring(config, run, tasks, grader, spending) as measurement:
            for name, roster in rosters.items():
                variants = variants_of(config, teams[name], tasks)
                measured[name] = await measurement.team(name, roster, variants)
                summary = measurement.summary(name, measured[name])
                run.write_json(f"evals/{name}.json", summary.to_json())
    result: dict[str, Any] = {
        "name": config.name,
        "seed": config.seed,
        "tasks": config.tasks.model_dump(mode="json", exclude_defaults=True),
        **measurement.compared(measured, next(iter(teams))),
        "spend": spending.to_json(),
    }
    if trained:
        result["checkpoint"] = int(trained.name.removeprefix("step-"))
    run.write_json("summary.json", result)
    return result


@contextmanager
def measuring(
    config: Config, run: RunFolder, tasks: Sequence[Task], grader: Grader, spending: Spending
) -> Iterator[Measurement]:
    """A measurement that shows a progress bar for each team."""
    with episode_progress() as progress:
        yield Measurement(
            config=config,
            run=run,
            tasks=tasks,
            prices=prices_of(config),
            grader=grader,
            cap=spending.cap(),
            listen=lambda name, total: EpisodeBar(progress, name, total).add,
        )


def finished(run: RunFolder, config: Config, teams: Iterable[str]) -> dict[str, Any] | None:
    """The summary of these teams if the last start finished with the same config."""
    try:
        result, (_, before) = run.read_json("summary.json"), run.existing(run.path)
        ended, started = ((run.path / name).stat().st_mtime for name in ("summary.json", HISTORY))
        summaries = [SUMMARY.validate_python(tree) for tree in result["teams"].values()]
    except (OSError, ConfigError, KeyError, TypeError, AttributeError, ValidationError):
        return None  # missing, damaged, or in an older layout: evaluate again
    same = before == config and set(teams) == set(result["teams"])
    whole = not any(summary.failed for summary in summaries)
    return result if same and whole and ended >= started else None


async def play_once(
    config: Config,
    question: str,
    answer: str | None = None,
    trained: Path | None = None,
    on_call: Callable[[Call], None] | None = None,
    views: Mapping[str, str] | None = None,
) -> Episode:
    """One episode of the config's team; ignore its grade if no reference `answer` is given."""
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
        views=views or {},
    )

    async def ungraded(task: Task, text: str) -> Grade:
        return Grade(reward=0.0, right=False)

    async with open_rosters(config, {name: teams[name]}, trained) as (rosters, graded):
        job, by = Job(task, Setting(seed=config.seed)), ungraded if answer is None else graded
        return await play_episode(rosters[name], job, grader=by, on_call=on_call)


def views_of(given: Sequence[str], config: Config) -> dict[str, str]:
    """Agent → text, from `--view agent=text`."""
    known = {
        name
        for team in teams_of(config).values()
        for role, agent in team.agents.items()
        for name in (role, *agent_names(role, agent.count))
    }
    views: dict[str, str] = {}
    for one in given:
        agent, equals, text = one.partition("=")
        if not equals or not text.strip():
            raise ConfigError(f"play: --view {one!r}: write it as agent=text")
        check_name("agent", agent, known)
        if agent in views:
            raise ConfigError(f"play: --view {agent} is given twice: write it once")
        views[agent] = text
    return views


def for_one(config: Config) -> Config:
    """The config with one row per local model on a CPU, which computes unused rows too."""
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


def folder_of(source: str, name: str) -> Path:
    """The source itself if it is a run folder, else a new one of that name."""
    return Path(source) if Path(source).is_dir() else Path("runs") / name


def measured_in(source: str, name: str, trained: Path | None, what: str) -> Path:
    """The folder of an evaluation; a trained run's is inside it, named by the checkpoint's step."""
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
    """The folder of a trained run's checkpoint; None if the source is not a trained run."""
    run = trained_run(source)
    if run is None:
        if which != "best":
            raise ConfigError(f"--checkpoint: `{source}` is no trained run, so it has none")
        return None
    from tacit.learn.checkpoint import Checkpoints

    checkpoints = Checkpoints(run / "checkpoints")
    kept = {int(path.name[5:]): path for path in sorted(checkpoints.folder.glob("step-*"))}
    if which in ("best", "last"):
        step = checkpoints.step(which)
        step = checkpoints.step("last") if step is None else step
    else:
        step = int(which) if which.isdecimal() else None
    if step is None or step not in kept:
        known = ", ".join(["best", "last", *map(str, kept)])
        raise ConfigError(f"--checkpoint: `{which}` is not kept in `{run}`; it has {known}")
    return kept[step]


def trained_run(source: str) -> Path | None:
    """The source as a folder if it is a trained run."""
    folder = Path(source)
    return folder if (folder / "checkpoints" / "last.json").exists() else None


def start_of(source: str, folder: Path) -> str | None:
    """The source if it is a trained run and `folder` is another: its weights start a new run."""
    forks = trained_run(source) and Path(source).resolve() != folder.resolve()
    return source if forks else None
