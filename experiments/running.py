"""One experiment with one seed: train in a time box, then measure; everything resumes.

A run is a folder: `train/` is what `tacit train` would write, `test/` the episodes of the
evaluations, `outcomes/` their columns, `calls.jsonl` when and how long. `result_of` makes the JSON
that is committed from it.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from experiments.catalogue import Evaluation, Experiment, Tree, merged
from experiments.clock import Clock
from experiments.outcomes import base_loss, columns, right_calls
from tacit.config import Config, TaskConfig, TeamConfig
from tacit.config.file import apply_override, parse_config
from tacit.engine.base import Engine
from tacit.errors import ConfigError, GradingError
from tacit.evaluation.measure import evaluate_team
from tacit.grading import grade
from tacit.learn.assemble import Stage, open_stage
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.loop import Trainer
from tacit.learn.memory import as_memory_allows, in_two
from tacit.learn.score import Scores, score
from tacit.rollout import Grader, Job, play_all
from tacit.run.folder import RunFolder, write_atomically
from tacit.run.opening import open_engines, tasks_of
from tacit.tasks import drop_leaks
from tacit.team.roster import Roster, build_roster, check_team
from tacit.team.team import Setting
from tacit.types import Episode, Task

SCORED_AT_ONCE = 64
BUDGET_TASKS = 64
"""Validation tasks on which it is seen what the untrained team generates."""
TIME_OVER = "the time for training was over"
HARDWARE = ("path", "rows", "device", "dtype", "context")
"""What of a model's config may differ from one machine to the next."""

Say = Callable[[str], None]
Said = tuple[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""A task, and the ids of a prompt and of what was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run, where and for how long."""

    experiment: Experiment
    seed: int
    models: Tree
    """`base`, and `small` where there is one: as in a config's `models`."""
    runs: Path
    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    """Names of the evaluations wanted; all when not given."""
    first: int | None = None
    """Only so many test tasks, where that is fewer than the evaluation's own."""
    tag: str = ""
    """Tells a variant of an experiment, made by overrides, from the experiment itself."""
    training: Clock | None = None
    """When it is over, so is training: what was learned by then is what is measured."""

    @property
    def name(self) -> str:
        return f"{self.experiment.name}+{self.tag}" if self.tag else self.experiment.name

    @property
    def folder(self) -> Path:
        return self.runs / f"{self.name}-s{self.seed}"

    @property
    def trained_in(self) -> Path:
        return self.runs / f"{self.experiment.weights_of or self.name}-s{self.seed}"

    @property
    def wanted(self) -> dict[str, Evaluation]:
        known = self.experiment.evaluations
        if self.only is None:
            return dict(known)
        if unknown := [name for name in self.only if name not in known]:
            raise ConfigError(
                f"--only: no evaluation `{unknown[0]}`; there are: {', '.join(known)}"
            )
        return {name: known[name] for name in self.only}


def config_of(order: Order) -> Config:
    """The resolved config: the experiment's own, its seed's tasks, the models, the overrides."""
    experiment, seed = order.experiment, order.seed
    own = {"name": experiment.weights_of or experiment.name, "seed": seed, "models": order.models}
    tree = deepcopy(merged(own, experiment.config))
    if seed and (tasks := tree.get("train_tasks")) and tasks.get("limit") and "offset" in tasks:
        tree["train_tasks"] = tasks | {"offset": seed * tasks["limit"]}
    if (path := order.folder / "budget.json").exists():
        tree["budget"] = tree.get("budget", {}) | {"tokens": json.loads(path.read_text())["tokens"]}
    for one in order.overrides:
        apply_override(tree, one)
    _check_apart(tree, order)
    return parse_config(tree, experiment.name)


def _check_apart(tree: Mapping[str, Any], order: Order) -> None:
    """Refuse a share of a shuffle that reaches the validation tasks: they would be left out."""
    train, held = tree.get("train_tasks") or {}, tree.get("tasks") or {}
    kind = ("name", "split", "shuffle_seed", "level")
    alike = train and all(train.get(key) == held.get(key) for key in kind)
    first, limit = train.get("offset", 0), train.get("limit")
    place, size = held.get("offset", 0), held.get("limit")
    ends_before = limit is not None and first + limit <= place
    begins_after = size is not None and first >= place + size
    if alike and not (ends_before or begins_after):
        raise ConfigError(
            f"{order.name}, seed {order.seed}: its training tasks reach the validation tasks; "
            "give another train_tasks.offset"
        )


def team_of(order: Order, name: str) -> TeamConfig:
    """The team of an evaluation. Overrides of a trained agent hold here too, as do the prompts'."""
    tree = deepcopy(order.experiment.evaluations[name].team)
    trained = [role for role, agent in tree["agents"].items() if agent.get("trained")]
    places = ["team.prompts=", *(f"team.agents.{role}." for role in trained)] if trained else []
    for one in order.overrides:
        if one.startswith(tuple(places)):
            apply_override(tree, one.removeprefix("team."))
    team = TeamConfig.model_validate(tree)
    check_team(team, name)
    return team


async def run(order: Order, clock: Clock, say: Say) -> bool:
    """Do what is missing and fits the time box; True when nothing is."""
    config = config_of(order)
    teams = {name: team_of(order, name) for name in order.wanted}
    if order.experiment.trains and not order.experiment.weights_of:
        _accept_other_hardware(order.folder / "train", config)
        RunFolder.check(order.folder / "train", config)
    missing = [name for name in teams if not outcome_path(order.folder, name).exists()]
    if not missing and not still_trains(order):
        return True
    async with _open(order, config, teams) as company:
        if company.stage and not await _train(order, company.stage, clock, say):
            return False
        for name in missing:
            if not await _measure(order, name, company, teams[name], clock, say):
                return False
    return True


def still_trains(order: Order) -> bool:
    return order.experiment.trains and not _is_trained(order)


def is_finished(order: Order) -> bool:
    """Whether everything the experiment asks for is there, wanted now or not."""
    measured = (outcome_path(order.folder, name) for name in order.experiment.evaluations)
    return not still_trains(order) and all(path.exists() for path in measured)


# --- training ------------------------------------------------------------------------------------


async def _train(order: Order, stage: Stage, clock: Clock, say: Say) -> bool:
    """Train as far as the time goes; when done, put the best weights in place."""
    folder = order.trained_in / "train"
    if order.experiment.weights_of and not _is_trained(order):
        raise ConfigError(
            f"{order.experiment.name} measures the weights of {order.experiment.weights_of}: "
            f"run that with seed {order.seed} first (`{order.trained_in}` has no finished training)"
        )
    if not _is_trained(order):
        await _set_budget(order, stage, say)
        trainer = Trainer(
            stage,
            RunFolder(folder),
            on_step=lambda numbers: say(_line(numbers)),
            on_note=say,
            pause=clock.too_late,
            enough=lambda: TIME_OVER if order.training and order.training.too_late() else None,
        )
        state = await trainer.train()
        if state.step < stage.config.train.steps and not state.stopped:
            say(f"paused after step {state.step} of {stage.config.train.steps}")
            return False
        _note(order.trained_in / "trained.json", {"step": state.step, "stopped": state.stopped})
    await _load_best(folder, stage)
    return True


async def _set_budget(order: Order, stage: Stage, say: Say) -> None:
    """Where the budget is a share of the untrained team's tokens: see what those are, once."""
    share, path = order.experiment.budget_share, order.folder / "budget.json"
    given = any(one.startswith("budget.tokens=") for one in order.overrides)
    if share is None or given or path.exists():
        return
    jobs = [Job(task, Setting(seed=order.seed)) for task in stage.test_tasks[:BUDGET_TASKS]]
    concurrency = stage.config.evaluation.concurrency
    episodes = await play_all(stage.roster, jobs, concurrency=concurrency, grader=stage.grader)
    tokens = fmean(episode.usage.generated for episode in episodes if episode.grade)
    _note(path, {"untrained": round(tokens, 1), "tokens": round(share * tokens)})
    stage.config = config_of(order)
    say(f"untrained {tokens:.0f} tokens, budget {stage.config.budget.tokens:.0f}")


def _is_trained(order: Order) -> bool:
    return (order.trained_in / "trained.json").exists()


async def _load_best(folder: Path, stage: Stage) -> None:
    checkpoints = Checkpoints(folder / "checkpoints")
    best = checkpoints.step("best")
    step = checkpoints.step("last") if best is None else best
    assert step is not None, "a finished run has a checkpoint"
    for engine in stage.trained_engines:
        async with engine.paused():
            for policy in stage.policies.values():
                checkpoints.load_policy(step, policy)
            await engine.refresh(engine.version + 1)


def _accept_other_hardware(folder: Path, config: Config) -> None:
    """Let a run go on where the model lies elsewhere, or is decoded in other blocks."""
    path = folder / "config.json"
    if not path.exists():
        return
    run = RunFolder(folder)
    before = parse_config(run.read_json("config.json"), str(path)).model_dump(mode="json")
    now = config.model_dump(mode="json")
    for name, model in before["models"].items():
        if name in now["models"]:
            model.update({key: now["models"][name][key] for key in HARDWARE})
    run.write_json("config.json", before)


def _line(numbers: Mapping[str, float]) -> str:
    """What is worth seeing of a step as it goes by."""
    shown = {
        "accuracy/sampled": "right", "accuracy/silent_arm": "alone", "cost/tokens": "tokens",
        "lambda/tokens": "λ", "train/gradient_norm": "norm", "eval/accuracy": "held-out",
        "eval/tokens": "tokens", "rollout_s": "play", "update_s": "learn",
    }  # fmt: skip
    silence = {k: f"silent {k.partition('/')[2]}" for k in numbers if k.startswith("silence/")}
    parts = [
        f"{label} {numbers[key]:.4g}" for key, label in (shown | silence).items() if key in numbers
    ]
    return f"step {numbers['step']:>4.0f}  " + "  ".join(parts)


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Whoever can speak: frozen engines by model, and the trained one where there is one."""

    engines: Mapping[str, Engine]
    grader: Grader
    stage: Stage | None = None

    def seat(self, team: TeamConfig) -> Roster:
        trained = self.stage.trained_engines[0] if self.stage else None
        by_role: dict[str, Engine] = {
            role: trained if agent.trained and trained else self.engines[agent.model]
            for role, agent in team.agents.items()
        }
        return build_roster(team, by_role)


@asynccontextmanager
async def _open(
    order: Order, config: Config, teams: Mapping[str, TeamConfig]
) -> AsyncIterator[Company]:
    if order.experiment.trains:
        async with open_stage(config) as stage:
            if len(stage.trained_engines) != 1:
                raise ConfigError("experiments measure one policy: keep `policy.share: team`")
            _keep_apart(stage, order.experiment)
            yield Company(engines=stage.engines, grader=stage.grader, stage=stage)
        return
    async with open_engines(config, teams) as engines:
        yield Company(engines=engines, grader=grade)


def _keep_apart(stage: Stage, experiment: Experiment) -> None:
    """Never train on a task that is measured, not even where two benchmarks share it."""
    for evaluation in experiment.evaluations.values():
        measured = tasks_of(TaskConfig.model_validate(evaluation.tasks))
        stage.train_tasks, dropped = drop_leaks(stage.train_tasks, measured)
        stage.dropped_leaks += dropped


async def _measure(
    order: Order, name: str, company: Company, team: TeamConfig, clock: Clock, say: Say
) -> bool:
    """Play the test tasks, keep their columns; False when time is up (what was played is kept)."""
    evaluation = order.experiment.evaluations[name]
    config = config_of(order)
    tasks = tasks_of(TaskConfig.model_validate(evaluation.tasks))[: order.first]
    began = clock.spent
    run = RunFolder(order.folder / "test")
    try:
        async with asyncio.timeout(clock.left):
            episodes = await evaluate_team(
                _file_name(name),
                company.seat(team),
                tasks,
                config.evaluation,
                run,
                seed=order.seed,
                grader=company.grader,
            )
    except TimeoutError:
        say(f"{name}: out of time after {sum(1 for _ in run.episodes(_file_name(name)))} episodes")
        return False
    found = columns(episodes, tasks)
    if evaluation.single_answers:
        found["right_calls"] = right_calls(await _single(episodes, tasks, company.grader), tasks)
    if company.stage and any(agent.trained for agent in team.agents.values()):
        found |= base_loss(await _base_losses(episodes, company.stage), tasks)
    found["seconds"] = round(clock.spent - began, 1)
    found["team"] = team.model_dump(mode="json", exclude_defaults=True)
    _note(outcome_path(order.folder, name), found)
    right = found["right"]
    share = right.count("1") / max(1, len(right) - right.count("-"))
    tokens = sum(episode.usage.generated for episode in episodes) / len(episodes)
    say(f"{name}: {100 * share:.1f} % right, {tokens:.1f} tokens, {found['seconds']:.0f} s")
    return True


async def _single(
    episodes: Sequence[Episode], tasks: Sequence[Task], grader: Grader
) -> dict[str, list[bool]]:
    """Every solver's answer of every episode, graded by itself; one without a grade is left out."""
    by_id = {task.id: task for task in tasks}
    said = [
        (episode.task_id, call.text)
        for episode in episodes
        for call in episode.calls
        if call.part == "solver"
    ]

    async def right(task: str, text: str) -> bool | None:
        try:
            return (await grader(by_id[task], text)).right
        except GradingError:
            return None

    found = await asyncio.gather(*(right(task, text) for task, text in said))
    rights: dict[str, list[bool]] = {task.id: [] for task in tasks}
    for (task, _), one in zip(said, found, strict=True):
        if one is not None:
            rights[task].append(one)
    return rights


def _scored(module: Any, some: Sequence[Said]) -> Scores:
    return score(module, [ids for _, ids in some])


async def _base_losses(episodes: Iterable[Episode], stage: Stage) -> dict[str, tuple[float, int]]:
    """Task id → nats and tokens of its spoken trained messages under the frozen base."""
    said = [
        (episode.task_id, (call.prompt_ids, call.output_ids))
        for episode in episodes
        for call in episode.calls
        if call.policy and not call.silent
    ]
    said.sort(key=lambda one: one[1][0])  # what prompts begin with is computed once
    total: dict[str, tuple[float, int]] = {}
    (policy,) = stage.policies.values()
    async with stage.trained_engines[0].paused():
        module, weights = policy.reference()
        with torch.no_grad(), weights:
            pieces = [said[i : i + SCORED_AT_ONCE] for i in range(0, len(said), SCORED_AT_ONCE)]
            scored = partial(_scored, module)
            for some, scores in as_memory_allows(pieces, scored, in_two):
                sums = (scores.logprobs_BT * scores.mask_BT).sum(dim=1).tolist()
                for (task_id, (_, output)), value in zip(some, sums, strict=True):
                    nats, tokens = total.get(task_id, (0.0, 0))
                    total[task_id] = (nats - value, tokens + len(output))
    return {task: one for task, one in total.items() if math.isfinite(one[0])}


def _file_name(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def outcome_path(folder: Path, name: str) -> Path:
    return folder / "outcomes" / f"{_file_name(name)}.json"


def _note(path: Path, tree: Any) -> None:
    write_atomically(path, json.dumps(tree, separators=(",", ":")).encode())
