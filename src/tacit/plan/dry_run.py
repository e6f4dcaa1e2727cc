"""`--dry-run`: estimates the tokens, money and time of a run by playing a sample of it.

The sample is played for real, and paid for, within the spend cap; no run folder is written. Not
estimated: what cached answers will save, and what training changes beyond meeting its token budget.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tacit.cli.commands import open_rosters
from tacit.cli.tables import spend_lines
from tacit.cli.terminal import note, out, print_json
from tacit.config import Config, Cut, TrainConfig
from tacit.errors import ConfigError
from tacit.graders.judge import Judge
from tacit.grading import Grader
from tacit.plan.forecast import Forecast, Part, duration, forecast, talk_left
from tacit.rollout.play import Cap, Job, play_all
from tacit.run.folder import SPEAKING, WITHOUT, RunFolder
from tacit.run.opening import (
    Variants,
    measured_teams_of,
    prices_of,
    seat,
    tasks_of,
    variants_of,
)
from tacit.run.spending import FILE as RECEIPTS, Spending
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.types import Call, Choice, Task

if TYPE_CHECKING:
    from tacit.learn.assemble import Assembly

T = TypeVar("T")

HELD_OUT, TRAINED, GROUP = 16, 12, 2
"""Held-out tasks, training tasks and group size of a sample, kept small because it is paid for."""


async def dry_run(
    config: Config,
    *,
    training: bool,
    as_json: bool = False,
    trained: Path | None = None,
    folder: Path | None = None,
    alone: bool = False,
    start: str | None = None,
) -> dict[str, Any]:
    """Play the sample, scale it up, and print the estimate for a run in that folder.

    Refuses what the run itself would refuse, with the same message.
    """
    with _spending(config, folder) as spending:
        judged: list[Call] = []
        left = spending.left()
        if training:
            parts, seconds = await _training(
                config, spending, folder or spending.folder, start, judged
            )
        else:
            RunFolder.check(folder or spending.folder, config)
            config = config.model_copy(update={"teams": {}}) if alone else config
            parts, seconds = await _evaluation(config, spending, trained, judged), 0.0
        limits = {str(m.model): m for m in config.models.values() if m.engine == "api"}
        found = forecast(parts, prices_of(config), limits, seconds, judged)
        result = found.to_json() | {"within_cap": _within(left, found), "spend": spending.to_json()}
    if as_json:
        print_json(result)
    else:
        _show(config, found, left, spending)
    return result


async def _evaluation(
    config: Config, spending: Spending, trained: Path | None, judged: list[Call]
) -> list[Part]:
    teams, tasks = measured_teams_of(config), tasks_of(config.tasks, config.judge)
    parts: list[Part] = []
    async with open_rosters(config, teams, trained, spending.account(note)) as (rosters, grader):
        _listen(grader, judged)
        for name, roster in rosters.items():
            variants = variants_of(config, teams[name], tasks)
            parts += await _team(name, roster, variants, tasks, config, grader, spending.cap())
    return parts


async def _training(
    config: Config, spending: Spending, folder: Path, start: str | None, judged: list[Call]
) -> tuple[list[Part], float]:
    """The parts of the rest of a training run, and the seconds that its updates will take."""
    from tacit.cli.training import check_run
    from tacit.learn.assemble import open_training
    from tacit.learn.checkpoint import Checkpoints
    from tacit.learn.loop import Trainer
    from tacit.learn.weights import Weights

    run, weights = check_run(config, folder, start)
    last, train = Checkpoints(run.path / "checkpoints").step("last"), config.train
    if last is not None:
        weights = Weights(run.path / "checkpoints", last)
    done = last or 0
    left = train.steps - done
    if not left:
        raise ConfigError(f"`{folder}` is done after step {done}: give more train.steps")
    async with open_training(_smaller(config), spending.account(note)) as assembly:
        _listen(assembly.grader, judged)
        with tempfile.TemporaryDirectory() as empty:
            trainer = Trainer(assembly, RunFolder(empty), cap=spending.cap())
            if weights:
                await weights.put_into(assembly, version=done)
            began = time.perf_counter()
            probe = await trainer.probe() if last is None else []
            probed = time.perf_counter() - began
            parts = await _measured(config, assembly, spending.cap())
            some = trainer.sampler.take(min(TRAINED, left * train.tasks_per_step))
            groups, play_seconds, update_seconds = await trainer.rehearse(some)
    spoken = [episode for group in groups for episode in group.episodes]
    others, pairs = [e for group in groups for e in group.silent], assembly.silence.pairs
    quiet = probe or ([] if pairs else others)
    compared = min(config.silence.seats, len(trainer.player.seats)) if pairs else 1
    budget = config.budget.tokens if config.budget.control == "dual" else None
    looks = [step - done for step in _evaluations(train) if last is None or step > last]
    parts[0] = replace(
        parts[0],
        episodes=parts[0].episodes * len(looks),
        talk=talk_left(spoken, quiet, budget, looks),
        quiet=quiet,
    )
    whole = left * train.tasks_per_step
    learning = Part(
        name="training",
        episodes=whole * train.group * compared,
        sample=spoken,
        seconds=play_seconds,
        talk=talk_left(spoken, quiet, budget, range(left)),
        quiet=quiet,
    )
    arm = Part(name="silent arm", episodes=0, sample=quiet, seconds=0.0)
    if pairs:
        arm = Part(name="other choice", episodes=learning.episodes, sample=others, seconds=0.0)
    elif trainer.player.remembered:
        arm = replace(arm, episodes=min(whole, len(assembly.train_tasks)))
    elif trainer.player.silent_plays:
        arm = replace(arm, episodes=whole * config.silence.silent_samples)
    check = Part(name="budget check", episodes=len(probe), sample=probe, seconds=probed)
    return [learning, arm, check, *parts], update_seconds * learning.episodes / len(spoken)


def _smaller(config: Config) -> Config:
    """The config with small groups, all of it played here."""
    group = min(GROUP, config.train.group)
    train = config.train.model_copy(update={"group": group, "dynamic_sampling": 0})
    # as in the run, every play of the silent arm belongs to a spoken episode
    plays = min(group, config.silence.silent_samples)
    silence = config.silence.model_copy(update={"silent_samples": plays})
    here = config.cluster.model_copy(update={"address": None})
    return config.model_copy(update={"train": train, "silence": silence, "cluster": here})


async def _measured(config: Config, assembly: "Assembly", cap: Cap) -> list[Part]:
    """The team on the held-out tasks, and the teams it is compared with."""
    common = (assembly.test_tasks, config, assembly.grader, cap)
    variants = variants_of(config, assembly.team, assembly.test_tasks)
    parts = await _team("evaluations", assembly.roster, variants, *common)
    for name, team in config.teams.items():
        parts += await _team(name, seat(team, assembly.engines), Variants(), *common)
    return parts


def _listen(grader: Grader, judged: list[Call]) -> None:
    """Collect a judge's calls, which are in no episode but cost money too."""
    if isinstance(grader, Judge):
        grader.on_call = judged.append


def _evaluations(train: TrainConfig) -> list[int]:
    """The steps after which the held-out tasks are played, from 0 to the last."""
    every = train.evaluate_every or train.steps
    return [*range(0, train.steps, every), train.steps]


async def _team(
    name: str,
    roster: Roster,
    variants: Variants,
    tasks: Sequence[Task],
    config: Config,
    grader: Grader,
    cap: Cap,
) -> list[Part]:
    """A team on the held-out tasks, with and without its helpers, and made to speak.

    Left out: plays of the trained weights alone.
    """
    some, plain, every = _spread(tasks, HELD_OUT), Setting(seed=config.seed), len(tasks)
    samples = config.evaluation.samples
    wanted = [(name, plain, every * samples)]
    if variants.helpers:
        wanted.append((f"{name}{WITHOUT}", replace(plain, without=Cut.of(variants.helpers)), every))
    if variants.speakers and "speaking" not in variants.missing:
        choices = dict.fromkeys(variants.speakers, Choice.SPEAK)
        wanted.append((f"{name}{SPEAKING}", replace(plain, choices=choices), every * samples))
    parts = []
    for title, setting, episodes in wanted:
        began = time.perf_counter()
        jobs = [Job(task, setting) for task in some]
        sample = await play_all(
            roster, jobs, concurrency=config.evaluation.concurrency, grader=grader, cap=cap
        )
        seconds = time.perf_counter() - began
        parts.append(Part(name=title, episodes=episodes, sample=sample, seconds=seconds))
    return parts


def _spread(items: Sequence[T], count: int) -> list[T]:
    """`count` items, evenly spread."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def _show(config: Config, found: Forecast, left: float, spending: Spending) -> None:
    prices = prices_of(config)
    table = Table(title="What this run will take, about", title_justify="left", box=SIMPLE_HEAD)
    for header in ("model", "calls", "tokens read", "tokens generated", "money"):
        table.add_column(header, justify="left" if header == "model" else "right")
    for name, need in found.models.items():
        money = f"{prices.of(name).of(need.usage()):.4f} {prices.currency}" if prices else "–"
        numbers = (need.calls, need.prompt, need.generated)
        table.add_row(name, *(f"{number:,.0f}" for number in numbers), money)
    out.print(table)
    biggest = sorted(found.parts.items(), key=lambda part: -part[1])
    shares = ", ".join(f"{name} {tokens / found.tokens:.0%}" for name, tokens in biggest if tokens)
    lines = [
        f"{found.tokens:,.0f} tokens, give or take {found.unsure:.0%} ({shares})",
        f"about {duration(found.seconds)}, as fast as this machine was just now",
        f"from a sample of {found.sample_episodes} episodes and {found.sample_tokens:,} tokens",
    ]
    if found.money is not None and prices:
        cap = f" (spend_cap {config.spend_cap:g})" if config.spend_cap else ""
        if config.spend_cap and left < config.spend_cap:
            cap = f" ({left:.4g} of spend_cap {config.spend_cap:g} left)"
        over = "" if _within(left, found) else ": it will stop there"
        keeps = any(m.engine == "api" and m.cache != "none" for m in config.models.values())
        kept = ", less what kept answers will save" if keeps else ""
        money = f"{found.money:.4f} {prices.currency}"
        lines.append(f"{money} at the prices of {prices.date}{cap}{kept}{over}")
    for line in (*lines, *spend_lines(spending.to_json())):
        out.print(line)


def _within(left: float, found: Forecast) -> bool:
    return found.money is None or found.money <= left


@contextmanager
def _spending(config: Config, folder: Path | None) -> Iterator[Spending]:
    """The run's receipts so far plus those of the sample, which go to a temporary copy."""
    with tempfile.TemporaryDirectory() as copy:
        if folder and (folder / RECEIPTS).exists():
            shutil.copy(folder / RECEIPTS, copy)
        yield Spending(RunFolder(copy), prices_of(config), config.spend_cap)
