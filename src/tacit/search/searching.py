"""`tacit search`: find a team, check it on other tasks, train it; one command, resumed anywhere."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tacit.cli.terminal import EpisodeBar, episode_progress, err, note, print_json
from tacit.config import AgentConfig, Config, TeamConfig
from tacit.errors import ConfigError
from tacit.run.folder import RunFolder
from tacit.run.opening import (
    grader_of,
    measured_teams_of,
    open_engines,
    prices_of,
    tasks_of,
    unseen_views,
)
from tacit.run.spending import Spending
from tacit.search.candidate_player import CandidatePlayer
from tacit.search.candidates import Candidate, first_candidates, start_name
from tacit.search.finishing import check_winner, train_winner
from tacit.search.halving import sizes
from tacit.search.rungs import PROBE, Search
from tacit.search.search_state import FILE, State, Turn, entry_of, read_state
from tacit.search.search_tables import plan_of, print_plan, show_search as show_search, turn_line
from tacit.tasks import drop_leaks
from tacit.types import Task


async def run_search(config: Config, folder: Path) -> dict[str, Any]:
    """Search, check and train in one run folder, or go on; returns what `search.json` holds.

    The trained winner is a run of its own in the folder `winner`. A training that was asked to stop
    leaves the search `paused`.
    """
    tasks = _checked(config)
    run = RunFolder.check(folder, config)
    state = _state(config, run, len(sizes(config.search, len(tasks))))
    with run.held():
        if state.stage == "done":
            return state.to_json()
        run.begin(config)
        if state.stage == "search":
            await _search(config, run, state, tasks)
        if state.stage == "check":
            summary = await check_winner(config, run, state)
            run.write_json("summary.json", {**summary, "name": config.name})
            _advance(run, state, "train")
        trained = await train_winner(config, run, state)
        if trained and "paused" in trained:
            return state.to_json() | {"paused": True}
        _advance(run, state, "done")
    return state.to_json()


def _checked(config: Config) -> list[Task]:
    """The tasks to search on; refuses what can be refused before a model loads."""
    search = config.search
    measured_teams_of(config)
    if (source := search.tasks or config.train_tasks) is None:
        raise ConfigError("search.tasks: name tasks to search on, other than those of `tasks`")
    if search.train and config.train_tasks is None:
        raise ConfigError("search.train: add `train_tasks:`, or turn it off")
    if search.train:
        from tacit.learn.track import check_trackers

        check_trackers(config.train.trackers)
    held_out = tasks_of(config.tasks, config.judge)
    tasks, _ = drop_leaks(tasks_of(source, config.judge), held_out)
    if not tasks:
        raise ConfigError("search.tasks: every task is also among the held-out `tasks`")
    if len(tasks) < search.first:
        raise ConfigError(
            f"search.first is {search.first}, but there are {len(tasks)} tasks: lower it"
        )
    if lost := unseen_views(tasks, (one.team for one in first_candidates(config))):
        note(lost)
    return tasks


def _state(config: Config, run: RunFolder, planned: int) -> State:
    """Of the search that has begun here, with the budget of now, or of a new one."""
    budget = config.search.tokens or config.search.money
    if budget is None:
        raise ConfigError("search.tokens: say what the search may take (or search.money)")
    state = read_state(run, config)
    if state is None:
        pool = {one.name: entry_of(one, born=0) for one in first_candidates(config)}
        state = State(unit=unit_of(config), start=start_name(config))
        state.entries = pool
    elif budget > state.budget or planned > state.planned:
        if state.stage == "train" or "teams" in (state.training or {}):
            note("its winner is being trained already: search on with another --out")
            return state
        state.stage, state.stopped = "search", ""
    elif state.stage == "done" and config.search.train and "teams" not in (state.training or {}):
        state.stage = "train"  # which may have been off
    state.budget, state.planned = budget, planned
    return state


def unit_of(config: Config) -> str:
    if config.search.money is not None:
        prices = prices_of(config)
        return prices.currency if prices else "money"
    return "tokens" if config.search.counted == "total" else "generated tokens"


def _advance(run: RunFolder, state: State, stage: Any) -> None:
    state.stage = stage
    run.write_json(FILE, state.to_json())


async def _search(config: Config, run: RunFolder, state: State, tasks: list[Task]) -> None:
    async with opened(config, run, state, tasks) as player:
        with _bars(config, state, player) as begin:
            search = Search(
                config,
                state,
                player,
                len(tasks),
                save=lambda: run.write_json(FILE, state.to_json()),
                on_turn=begin,
                on_judged=lambda turn: err.print(turn_line(state, turn), soft_wrap=True),
            )
            await search.run()
    note(f"the search ended: {state.stopped}")
    last = max(turn.tasks for turn in state.rungs)
    played = state.entries.values()
    whole = {one.name: one.cost * last * config.evaluation.samples for one in played}
    first = sum(whole[one.name] for one in played if not one.born)
    state.spend = {"search": player.spent, "all": sum(whole.values()), "first_pool": first}
    _advance(run, state, "check")


@asynccontextmanager
async def opened(
    config: Config, run: RunFolder, state: State, tasks: list[Task]
) -> AsyncIterator[CandidatePlayer]:
    """A player with every engine that a candidate may need."""
    every = config.model_copy(update={"teams": dict(_teams(config, state))})
    spending = Spending(run, prices_of(every), config.spend_cap)
    async with open_engines(every, every.teams, spending.account(note)) as engines:
        yield CandidatePlayer(
            config=config,
            run=run,
            tasks=tasks,
            engines=engines,
            grader=grader_of(config, engines),
            budget=state.budget,
            prices=prices_of(every),
            spend_cap=spending.cap(),
        )


def _teams(config: Config, state: State) -> Iterator[tuple[str, TeamConfig]]:
    """Teams that use every model that may be needed: of all `models` if edits may change them."""
    for entry in state.entries.values():
        yield entry.name, TeamConfig.model_validate(entry.team)
    for name in config.models if "model" in config.search.edits else ():
        yield f"any with {name}", TeamConfig(agents={"actor": AgentConfig(model=name)})


@contextmanager
def _bars(
    config: Config, state: State, player: CandidatePlayer
) -> Iterator[Callable[[Turn], None]]:
    """A progress bar for each turn."""
    with episode_progress() as progress:

        def begin(turn: Turn) -> None:
            number = len(state.rungs) + (turn.kind == "rung")
            title = f"rung {number}" if turn.kind == "rung" else turn.kind
            total = len(turn.teams) * turn.tasks * config.evaluation.samples
            player.on_episode = EpisodeBar(progress, title, total).add

        yield begin


async def dry_run(config: Config, folder: Path, *, as_json: bool) -> None:
    """Print the pool, and what each rung will take, from a few episodes of each team."""
    tasks = _checked(config)
    RunFolder.check(folder, config)
    pool, unit = first_candidates(config), unit_of(config)
    state = State(unit=unit, start=pool[0].name)
    state.entries = {one.name: entry_of(one, born=0) for one in pool}
    with tempfile.TemporaryDirectory() as empty:
        async with opened(config, RunFolder(empty), state, tasks) as player:
            await _sample(config, state, player, pool)
        plan = plan_of(config, state, len(tasks), player.spent)
    print_json(plan) if as_json else print_plan(plan)


async def _sample(
    config: Config, state: State, player: CandidatePlayer, pool: list[Candidate]
) -> None:
    some = min(PROBE, config.search.first)
    with episode_progress() as progress:
        total = some * len(pool) * config.evaluation.samples
        player.on_episode = EpisodeBar(progress, "sample", total).add
        for one in pool:
            if why := await player.play(one, some):
                note(f"{one.name}: {why}")
            state.entries[one.name].cost = player.result(one.name, some).cost
