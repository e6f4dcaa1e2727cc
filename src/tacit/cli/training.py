"""`tacit train`: train, then compare the trained team with the untrained one and the baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from tacit.cli.commands import show_result
from tacit.cli.live import step_display
from tacit.cli.tables import (
    EpisodeBar,
    episode_progress,
    err,
    note,
)
from tacit.config import Config
from tacit.errors import ConfigError
from tacit.evaluation.measure import (
    compare,
    evaluate_team,
    evaluate_without,
    frontier,
    summarise,
)
from tacit.evaluation.statistics import Paired
from tacit.learn.assemble import Stage, check_training, open_stage, spread
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.loop import Trainer
from tacit.learn.state import State
from tacit.learn.track import check_trackers
from tacit.learn.weights import Weights
from tacit.run.folder import Request, RunFolder
from tacit.run.opening import helpers_of, measured_teams_of, prices_of, seat
from tacit.run.spending import Purse
from tacit.types import Episode


async def run_training(
    config: Config,
    folder: Path,
    *,
    as_json: bool,
    details: bool = False,
    start: str | None = None,
) -> dict[str, Any]:
    """Train (or go on training) in a run folder; print and write the summary."""
    result = await train_run(config, folder, start)
    if "paused" not in result:
        show_result(result, RunFolder(folder), as_json=as_json, details=details)
    return result


async def train_run(config: Config, folder: Path, start: str | None = None) -> dict[str, Any]:
    """`run_training` without the tables: its progress is shown, its summary written and returned.

    A new run begins with the weights that `start` names; see `Weights.find`.
    """
    run, weights = check_run(config, folder, start)
    with run.held():
        return await _train(config, run, weights)


def check_run(
    config: Config, folder: Path, start: str | None = None
) -> tuple[RunFolder, Weights | None]:
    """Refuse what cannot be trained, before a model loads; and say what a new run begins with."""
    team = check_training(config)
    check_trackers(config.train.trackers)
    measured_teams_of(config)
    run = RunFolder.check(folder, config)
    last = Checkpoints(run.path / "checkpoints").step("last")
    if last is not None and last > config.train.steps:
        raise ConfigError(
            f"train.steps is {config.train.steps}, but `{folder}` is at step {last} already: "
            "give more steps, or name another folder with --out"
        )
    given, began = Weights.find(start) if start else None, run.origin()
    if given and (run.trains or began) and not (began and _beside(given, began)):
        raise ConfigError(
            f"`{folder}` holds a run that began with {began or 'untrained weights'}: go on with it "
            "without --from, or name another folder with --out"
        )
    weights = given
    if began:
        weights = _origin(folder, began) if last is None else None
        if given and given.folder.name != Path(began).name:
            note(f"`{folder}` began with {began}, and goes on from there")
    if weights:
        weights.check(config, team)
    return run, weights


def _beside(weights: Weights, checkpoint: str) -> bool:
    return weights.checkpoints.resolve() == Path(checkpoint).parent.resolve()


def _origin(folder: Path, checkpoint: str) -> Weights:
    """What a run began with, which it needs until it has a checkpoint of its own."""
    if not Path(checkpoint).exists():
        raise ConfigError(
            f"`{folder}` began with {checkpoint}, which is gone: begin anew, in another folder "
            "with --out"
        )
    return Weights.find(checkpoint)


async def _train(config: Config, run: RunFolder, weights: Weights | None) -> dict[str, Any]:
    purse = Purse(run, prices_of(config), config.spend_cap)
    async with open_stage(config, purse.account(note)) as stage:
        _say_what(stage)
        for request in get_args(Request):
            run.take(request)  # what was asked of an earlier process
        with step_display(config) as on_step:
            trainer = Trainer(
                stage, run, on_step=on_step, on_note=note,
                pause=lambda: run.take("stop"), cap=purse.cap(), start=weights,
            )  # fmt: skip
            state = await trainer.train()
        if state.step < config.train.steps and not state.stopped:
            note(f"stopped after step {state.step} as asked; the same command goes on")
            return {"name": config.name, "seed": config.seed, "steps": state.step, "paused": True}
        if state.best and not state.best["step"]:
            note("no step did better on the held-out tasks: `trained` is the untrained team")
        episodes, without = await _played(stage, run, state, purse)
        return _finish(stage, run, state, episodes, without, purse)


async def _played(
    stage: Stage, run: RunFolder, state: State, purse: Purse
) -> tuple[dict[str, list[Episode]], list[Episode]]:
    """The held-out episodes of every team that is compared, and the team's without its helpers."""
    config, tasks = stage.config, stage.test_tasks
    assert state.best is not None
    how: Any = {"seed": config.seed, "grader": stage.grader, "cap": purse.cap()}
    episodes = {"untrained": list(run.episodes("eval-000000"))}
    with episode_progress() as progress:
        for name, team in config.teams.items():
            common = (name, seat(team, stage.engines), tasks, config.evaluation, run)
            bar = EpisodeBar(progress, name, len(tasks) * config.evaluation.samples)
            episodes[name] = await evaluate_team(*common, **how, on_episode=bar.add)
    episodes["trained"] = list(run.episodes(f"eval-{state.best['step']:06d}"))
    helpers = helpers_of(config, stage.team)
    return episodes, await evaluate_without(
        "team", stage.roster, tasks, config.evaluation, run, helpers, **how
    )


def _finish(
    stage: Stage,
    run: RunFolder,
    state: State,
    episodes: Mapping[str, Sequence[Episode]],
    without: Sequence[Episode],
    purse: Purse,
) -> dict[str, Any]:
    config, tasks = stage.config, stage.test_tasks
    prices, helpers = prices_of(config), helpers_of(config, stage.team)
    own = ("untrained", "trained")
    summaries = [
        summarise(
            name, some, tasks, config.evaluation, prices, without if name in own else (), helpers
        )
        for name, some in episodes.items()
    ]
    trained_against, paired = _tests(episodes, config)
    result: dict[str, Any] = {
        "name": config.name,
        "seed": config.seed,
        "steps": state.step,
        "stopped": state.stopped,
        "from": run.origin(),
        "best_step": state.best["step"] if state.best else None,
        "budget": config.budget.model_dump(mode="json", exclude_none=True),
        "lambdas": {name: dual.value for name, dual in state.duals.items()},
        "dropped": state.dropped,
        "spend": purse.to_json(),
        "teams": {summary.team: summary.to_json() for summary in summaries},
        "frontier": frontier(summaries),
        "compared_with": next(iter(config.teams), None),
        "paired": {n: asdict(t) if t else None for n, t in paired.items()},
        "trained_compared_with": {n: asdict(t) if t else None for n, t in trained_against.items()},
    }
    run.write_json("summary.json", result)
    return result


def _tests(
    episodes: Mapping[str, Sequence[Episode]], config: Config
) -> tuple[dict[str, Paired | None], dict[str, Paired | None]]:
    """The trained team against each of the others, and those against the first baseline."""
    others = [name for name in episodes if name != "trained"]
    first = next(iter(config.teams), None)
    return (
        {n: compare(episodes[n], episodes["trained"], config.evaluation) for n in others},
        {
            name: compare(episodes[first], episodes[name], config.evaluation)
            for name in others
            if first is not None and name != first
        },
    )


def _say_what(stage: Stage) -> None:
    weights = ", ".join(f"{name} {count:,}" for name, count in spread(stage).items())
    leaks = f" ({stage.dropped_leaks} held-out ones dropped)" if stage.dropped_leaks else ""
    err.print(
        f"training {stage.team.topology}: {len(stage.train_tasks)} tasks{leaks}, "
        f"{stage.config.train.steps} steps of {stage.config.train.tasks_per_step} × "
        f"{stage.config.train.group} episodes; weights that learn: {weights}"
    )
