"""The training loop: play, judge, update, price, log; evaluate and save now and then.

Everything a run knows is in its folder: `journal` writes the files, `state` is what a checkpoint
keeps.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.config import Config
from tacit.economy.budget import open_duals
from tacit.economy.group import Group
from tacit.errors import SpendCap
from tacit.evaluation.measure import evaluate_team, summarise
from tacit.learn.assemble import NEVER_CHARGED, Assembly, check_asked
from tacit.learn.checkpoint import Checkpoints, reading
from tacit.learn.credit import Batch, Credit
from tacit.learn.journal import REPLAYED, Journal, Meter
from tacit.learn.learners import Learners
from tacit.learn.metrics import (
    empty_share,
    notes_before_training,
    price_metrics,
    staleness_metrics,
    step_metrics,
)
from tacit.learn.overlap import Rollouts, evaluated_after, saved_after
from tacit.learn.policy import check_frozen
from tacit.learn.state import State
from tacit.learn.task_sampler import TaskSampler
from tacit.learn.track import Trackers
from tacit.learn.update import Updated
from tacit.learn.weights import Weights
from tacit.rollout.groups import Player
from tacit.rollout.play import NO_CAP, Cap
from tacit.run.folder import RunFolder
from tacit.run.opening import prices_of, unseen_views
from tacit.types import Episode, Task


@dataclass(slots=True, eq=False)
class Trainer:
    assembly: Assembly
    run: RunFolder
    on_step: Callable[[dict[str, float]], None] = lambda numbers: None
    on_note: Callable[[str], None] = lambda sentence: None
    pause: Callable[[], bool] = lambda: False
    """Called before each step: True saves and stops, and the same command resumes."""
    enough: Callable[[], str | None] = lambda: None
    """Called before each step: a reason ends the training here, with an evaluation."""
    cap: Cap = NO_CAP
    """Spending limit, checked before each step, and before each episode outside of steps."""
    start: Weights | None = None
    """Initial weights of a new run, if not those of the models."""
    state: State = field(init=False)
    player: Player = field(init=False)
    meter: Meter = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    sampler: TaskSampler = field(init=False)
    rollouts: Rollouts = field(init=False)
    credit: Credit = field(init=False)
    learners: Learners = field(init=False)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        assembly, config = self.assembly, self.config
        self.meter = Meter()
        self.player = assembly.player(self.meter.add)
        self.checkpoints = Checkpoints(self.run.path / "checkpoints")
        self.credit = assembly.credit()
        warmup = assembly.warmup()
        self.state = State(duals=open_duals(config.budget, warming=not warmup.over), warmup=warmup)
        self.sampler = TaskSampler(assembly.train_tasks, config.seed)
        staleness = config.cluster.staleness if assembly.remote else 0
        self.rollouts = Rollouts(self.player, self.sampler, self.meter, config.train, staleness)
        self.learners = Learners(assembly, self.rollouts.playing, apart=staleness > 0)

    @property
    def config(self) -> Config:
        return self.assembly.config

    async def train(self) -> State:
        """Run to the last step, from the folder's last checkpoint if there is one."""
        config = self.config
        resumed = await self._resume()
        if not resumed:
            if self.start:
                await self.start.put_into(self.assembly, version=0)
                self.on_note(f"beginning with the weights of {self.start.folder}")
            await self.probe()
            if self.state.warmup.limit >= config.train.steps:
                self.on_note(NEVER_CHARGED)
            if lost := unseen_views(self.assembly.train_tasks, [self.assembly.team]):
                self.on_note(lost)
        elif self.state.stopped:
            self.on_note(f"stopped after step {self.state.step}: {self.state.stopped}")
        elif self.state.step:
            done = self.state.step == config.train.steps
            self.on_note(f"{'done' if done else 'going on'} after step {self.state.step}")
            self._say_schedule()
        origin = {"from": str(self.start.folder.resolve())} if self.start and not resumed else {}
        self.run.begin(config, **origin)  # only now: what is refused before leaves nothing
        folder, tree = str(self.run.path / "tracker"), config.model_dump(mode="json")
        trackers = Trackers(config.train.trackers, config.name, folder, tree)
        self.journal = Journal(self.run, self.meter, trackers, self.on_step)
        if not resumed:
            await self._evaluate()
            self._save()
        elif self.state.owed or self._shortened():
            await self._evaluate_or_owe()
            self._save()
        try:
            await self._steps()
        finally:
            self.rollouts.drop()
        check_frozen(self.assembly.fingerprints, self.assembly.frozen)
        trackers.close()
        return self.state

    def _shortened(self) -> bool:
        """True if all steps are done but the last is not evaluated: train.steps was lowered."""
        last = self.run.path / "evals" / f"eval-{self.state.step:06d}.json"
        return self.state.step == self.config.train.steps and not last.exists()

    async def _steps(self) -> None:
        while self.state.step < self.config.train.steps and not self.state.stopped:
            if self.pause():
                self._save()
                break
            if reason := self.enough():
                await self._end(reason)
                break
            if reason := self.cap.reached():
                self._save()
                raise SpendCap(reason)
            await self._step()
            if self.run.take("save"):
                self._save()

    async def _end(self, reason: str) -> None:
        self.state.stopped = reason
        every = self.config.train.evaluate_every
        if not every or self.state.step % every:
            await self._evaluate_or_owe()
        self._save()

    async def rehearse(self, tasks: Sequence[Task]) -> tuple[list[Group], float, float]:
        """Play tasks and learn from them without saving; also returns the seconds of each."""
        began = time.perf_counter()
        played = await self.player.play(tasks, step=1, cap=self.cap)
        rolled = time.perf_counter()
        batch = self.credit(played, self.state.multipliers(self.config.reward))
        await self.learners.update(batch, train_choice=self.state.warmup.over)
        return played, rolled - began, time.perf_counter() - rolled

    async def _step(self) -> None:
        began = time.perf_counter()
        step, rollouts = self.state.step + 1, self.rollouts
        with self._saved():
            played = await rollouts.take(step)
        rolled, failed = time.perf_counter(), played.failed
        if not self.cap.reached():
            rollouts.begin(step)
        batch = self.credit(played.groups, self.state.multipliers(self.config.reward))
        update = self.learners.update(batch, train_choice=self.state.warmup.over)
        updated = await _finished(update, rollouts.drop)
        stale = staleness_metrics(batch.groups, self.state.step) if rollouts.staleness else {}
        self.state.step, self.state.position = step, played.position
        self.state.dropped += len(failed)
        numbers = {
            **step_metrics(batch.groups),
            **stale,
            **price_metrics(self.state.duals, self.config.budget, self.state.warmup),
            **self.learners.numbers(batch, updated),
            "episodes/dropped": len(failed),
        }
        for sentence in self.state.advance_prices(batch.groups, self.config.budget):
            self.on_note(sentence)
        self._guard(batch, updated)
        train = self.config.train
        times = {"rollout_s": rolled - began, "update_s": time.perf_counter() - rolled}
        times |= self._remote_times()
        self.journal.failed(step, failed)
        if train.save_episodes:
            self.journal.played(step, batch)
        self.journal.line(step, numbers, times)
        if self.state.stopped or evaluated_after(step, train):
            await self._evaluate_or_owe()
        if self.state.stopped or saved_after(step, train):
            self._save()

    def _guard(self, batch: Batch, updated: Mapping[str, Updated]) -> None:
        """Stop a run that cannot recover."""
        signal = any(row.advantage for row in batch.rows) or (
            self.state.warmup.over and any(choice.gain for choice in batch.choices)
        )
        self.state.check(self.config.train, signal=signal, empty=empty_share(batch.groups))
        if updated and all(one.dropped and not one.stats for one in updated.values()):
            self.state.stopped = "no micro-batch of the step had a finite loss and gradient"
        if self.state.stopped:
            self.on_note(f"stopped: {self.state.stopped}")

    async def probe(self) -> list[Episode]:
        """Refuse a budget that the team cannot learn to meet; returns the episodes played."""
        if not self.state.duals:
            return []
        return await self.player.probe(self.assembly.train_tasks, self.cap)

    async def _evaluate_or_owe(self) -> None:
        """Evaluate the last step; if interrupted, the saved state says that this is still due."""
        self.state.owed = True
        self.rollouts.drop()
        with self._saved():
            await self._evaluate()

    async def _evaluate(self) -> None:
        """Play the held-out tasks greedily, and remember the best checkpoint."""
        config, step = self.config, self.state.step
        began = time.perf_counter()
        name = f"eval-{step:06d}"
        episodes = await evaluate_team(
            name, self.assembly.roster, self.assembly.test_tasks, config.evaluation, self.run,
            seed=config.seed, grader=self.assembly.grader, on_episode=self.meter.add,
            cap=self.cap,
        )  # fmt: skip
        summary = summarise(
            name, episodes, self.assembly.test_tasks, config.evaluation, prices_of(config)
        )
        if not step:
            check_asked(self.assembly.team, episodes)
        self.run.write_json(f"evals/{name}.json", summary.to_json())
        turns = [episode.turns for episode in episodes if episode.grade]
        numbers = {
            "eval/accuracy": summary.accuracy.mean,
            "eval/tokens": summary.generated.mean + summary.observed,
            "eval/turns": sum(turns) / max(1, len(turns)),
        }
        if summary.reward:
            numbers["eval/reward"] = summary.reward.mean
        times = {"evaluate_s": time.perf_counter() - began} | self._remote_times()
        self.journal.line(step, numbers, times)
        for sentence in notes_before_training(episodes) if not step else ():
            self.on_note(sentence)
        self.state.remember_best(numbers, config)
        if self.state.stop_if_no_better(config.train):
            self.on_note(f"stopped: {self.state.stopped}")
        self.state.owed = False

    def _remote_times(self) -> dict[str, float]:
        return self.assembly.remote.times() if self.assembly.remote else {}

    def _say_schedule(self) -> None:
        """Say how the learning rate continues if train.steps has changed."""
        config = self.config
        before, now = self.run.changes(config).get("train.steps", (0, 0))
        if before != now and config.optimizer.schedule != "constant":
            rate = next(iter(self.assembly.updaters.values())).learning_rate()
            self.on_note(
                f"train.steps was {before}: the {config.optimizer.schedule} schedule now ends at "
                f"step {now}, so the learning rate goes on at {rate:.3g}"
            )

    def _save(self) -> None:
        self.state.sizes = {name: _size(self.run.path / name) for name in REPLAYED}
        self.checkpoints.save(self.state.step, self.state.to_json(), self.assembly.updaters)
        if self.state.best and self.state.best["step"] == self.state.step:
            self.checkpoints.point("best", self.state.step)

    @contextmanager
    def _saved(self) -> Iterator[None]:
        """Saves the state of the last whole step if the run is interrupted inside."""
        try:
            yield
        except (SpendCap, asyncio.CancelledError):
            self._save()
            self.on_note(f"saved after step {self.state.step}")
            raise

    async def _resume(self) -> bool:
        """Load the last checkpoint, and cut off what was written after it; False if none."""
        self.checkpoints.sweep()
        last = self.checkpoints.step("last")
        if last is None:
            for name in REPLAYED:
                self.run.cut(name, 0)
            return False
        tree = self.checkpoints.load(last, self.assembly.updaters)
        with reading(self.checkpoints.folder / f"step-{last:06d}"):
            self.state = State.from_json(tree)
            self.state.reconsider(self.config)
        for name in REPLAYED:
            self.run.cut(name, self.state.sizes.get(name, 0))
        self.sampler.position = self.state.position
        for engine in self.assembly.trained_engines:
            async with engine.paused():
                await engine.refresh(self.state.step)
        if self.state.best and self.state.best["step"] == last:
            self.checkpoints.point("best", last)
        return True


async def _finished(
    work: Coroutine[Any, Any, dict[str, Updated]], on_cancel: Callable[[], None]
) -> dict[str, Updated]:
    """Await work to its end even if cancelled; the cancellation follows at the next await."""
    task, me, cancelled = asyncio.ensure_future(work), asyncio.current_task(), 0
    assert me is not None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled += 1
            on_cancel()
    for _ in range(cancelled):
        me.uncancel()
    if cancelled:
        me.cancel()  # only once, which asyncio.run takes for Ctrl-C
    return task.result()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
