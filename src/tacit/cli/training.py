"""`tacit train`: train, then compare the trained team with the untrained one and the baselines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from tacit.cli.commands import measuring
from tacit.cli.live import step_display
from tacit.cli.terminal import err, note
from tacit.config import Config
from tacit.errors import ConfigError
from tacit.evaluation.teams import Measured, Measurement
from tacit.learn.assemble import Assembly, check_training, open_training
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.loop import Trainer
from tacit.learn.state import State
from tacit.learn.track import check_trackers
from tacit.learn.weights import Weights
from tacit.run.folder import RunFolder, RunRequest
from tacit.run.opening import Variants, measured_teams_of, prices_of, variants_of
from tacit.run.spending import Spending
from tacit.types import Episode


async def run_training(config: Config, folder: Path, start: str | None = None) -> dict[str, Any]:
    """Train or resume training in a run folder; write and return the summary.

    A new run starts from the weights that `start` names; see `Weights.find`. A run that was asked
    to stop is `paused` and has no summary yet.
    """
    run, weights = check_run(config, folder, start)
    with run.held():
        return await _train(config, run, weights)


def check_run(
    config: Config, folder: Path, start: str | None = None
) -> tuple[RunFolder, Weights | None]:
    """Refuse what cannot be trained, before a model loads; returns a new run's first weights."""
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
    same = given and began and given.checkpoints.resolve() == Path(began).parent.resolve()
    if given and (run.trains or began) and not same:
        raise ConfigError(
            f"`{folder}` holds a run that began with {began or 'untrained weights'}: go on with it "
            "without --from, or name another folder with --out"
        )
    weights = given
    if began:  # needed only until the run has a checkpoint of its own
        weights = _origin(folder, began) if last is None else None
        if given and given.folder.name != Path(began).name:
            note(f"`{folder}` began with {began}, and goes on from there")
    if weights:
        weights.check(config, team)
    return run, weights


def _origin(folder: Path, checkpoint: str) -> Weights:
    if not Path(checkpoint).exists():
        raise ConfigError(
            f"`{folder}` began with {checkpoint}, which is gone: start again in another folder "
            "with --out"
        )
    return Weights.find(checkpoint)


async def _train(config: Config, run: RunFolder, weights: Weights | None) -> dict[str, Any]:
    spending = Spending(run, prices_of(config), config.spend_cap)
    async with open_training(config, spending.account(note)) as assembly:
        _introduce(assembly)
        for request in get_args(RunRequest):
            run.take(request)  # meant for an earlier process
        with step_display(config) as on_step:
            trainer = Trainer(
                assembly, run, on_step=on_step, on_note=note,
                pause=lambda: run.take("stop"), cap=spending.cap(), start=weights,
            )  # fmt: skip
            state = await trainer.train()
        if state.step < config.train.steps and not state.stopped:
            note(f"stopped after step {state.step} as asked; the same command goes on")
            return {"name": config.name, "seed": config.seed, "steps": state.step, "paused": True}
        if state.best and not state.best["step"]:
            note("no step did better on the held-out tasks: `trained` is the untrained team")
        compared = await _compared(assembly, run, state, spending)
        cluster = {"cluster": assembly.remote.to_json()} if assembly.remote else {}
    result = {
        "name": config.name,
        "seed": config.seed,
        "steps": state.step,
        "stopped": state.stopped,
        "from": run.origin(),
        "best_step": state.best["step"] if state.best else None,
        "budget": config.budget.model_dump(mode="json", exclude_none=True),
        "lambdas": {name: dual.value for name, dual in state.duals.items()},
        "dropped": state.dropped,
        "spend": spending.to_json(),
        **compared,
        **cluster,
    }
    run.write_json("summary.json", result)
    return result


async def _compared(
    assembly: Assembly, run: RunFolder, state: State, spending: Spending
) -> dict[str, Any]:
    """The trained team, the untrained one and the baselines on the held-out tasks."""
    config = assembly.config
    assert state.best is not None
    with measuring(config, run, assembly.test_tasks, assembly.grader, spending) as measurement:
        teams = {"untrained": Measured(measurement.played("eval-000000"))}
        for name, team in config.teams.items():
            teams[name] = await measurement.team(name, assembly.seat(team))
        best = int(state.best["step"])
        teams["trained"] = Measured(measurement.played(f"eval-{best:06d}"))
        variants = variants_of(config, assembly.team, assembly.test_tasks)
        without = await measurement.without("team", assembly.roster, variants.helpers)
        others = await _others(measurement, assembly, variants, best, state.step)
    for name in ("untrained", "trained"):
        teams[name] = Measured(teams[name].episodes, variants, without, others.get(name, {}))
    return measurement.compared_with_trained(teams, next(iter(config.teams), None))


async def _others(
    measurement: Measurement, assembly: Assembly, variants: Variants, best: int, last: int
) -> dict[str, dict[str, Sequence[Episode]]]:
    """Other plays of the team, to measure its talk; loads the best weights over the last ones.

    The untrained team is included only if its weights, the frozen models', are still loaded.
    """
    if not variants.speakers:
        return {}
    if best != last:
        weights = Weights(measurement.run.path / "checkpoints", best)
        await weights.put_into(assembly, version=best)
    trained = await measurement.others(f"eval-{best:06d}", assembly.roster, variants)
    if not best:
        return {"untrained": trained, "trained": trained}
    models = {agent.model for agent in assembly.team.agents.values()}
    if measurement.run.origin() or not models <= assembly.engines.keys():
        return {"trained": trained}
    untrained = await measurement.others("eval-000000", assembly.seat(assembly.team), variants)
    return {"untrained": untrained, "trained": trained}


def _introduce(assembly: Assembly) -> None:
    weights = ", ".join(
        f"{name} {sum(weight.numel() for weight in policy.parameters.values()):,}"
        for name, policy in assembly.policies.items()
    )
    leaks = f" ({assembly.dropped_leaks} held-out ones dropped)" if assembly.dropped_leaks else ""
    err.print(
        f"training {assembly.team.topology}: {len(assembly.train_tasks)} tasks{leaks}, "
        f"{assembly.config.train.steps} steps of {assembly.config.train.tasks_per_step} × "
        f"{assembly.config.train.group} episodes; trained weights: {weights}"
    )
