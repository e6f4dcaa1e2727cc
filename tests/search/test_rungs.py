"""The search's decisions: what is found where the truth is planted, and what holds the budget."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tacit.config import Config
from tacit.errors import RunError
from tacit.search.candidates import first_candidates
from tacit.search.rungs import PROBE, SLACK, Search
from tacit.search.search_state import STATE, State, Turn, entry_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def planted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("search", ROOT / "benchmarks" / "search.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["search"] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


def begun(planted: ModuleType, config: Config, budget: float) -> tuple[State, Any]:
    pool = first_candidates(config)
    truth = planted.Planted.of(config.seed, pool)
    state = State(unit="tokens", budget=budget, start=pool[0].name)
    state.entries = {one.name: entry_of(one, born=0) for one in pool}
    return state, planted.PlantedPlayer(truth, budget)


def test_over_fifty_seeds_it_finds_the_best_more_often_than_spending_alike(
    planted: ModuleType,
) -> None:
    found = planted.summed_up(
        [asyncio.run(planted.searched(seed, share=0.5)) for seed in range(50)]
    )
    assert found["within_budget"] and found["largest_share"] <= 0.5
    assert found["share_of_all"] < 0.42
    ways = ("search", "all teams, all tasks", "as much on all alike")
    search, whole, alike = (found["found"][way] for way in ways)
    assert search >= 0.6 and search >= whole - 0.2 and search > alike, "fifty seeds tell 0.07"
    behind = found["points_behind"]
    assert behind["search"] < min(2.0, behind["as much on all alike"])
    assert found["edited_winners"] > 0.2


def test_the_record_is_of_this_benchmark() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "search.json").read_text())
    half = record["planted"]["half the cost of all"]
    assert half["seeds"] == 200 and half["within_budget"] and half["largest_share"] <= 0.5


async def test_rungs_halve_the_teams_and_double_the_tasks(planted: ModuleType) -> None:
    config = planted.config_of(5, first=8, rungs=3, newcomers=0)
    state, player = begun(planted, config, 1e9)
    judged: list[Turn] = []
    await Search(config, state, player, 1000, on_judged=judged.append).run()
    assert [(t.kind, t.tasks) for t in judged] == [
        ("probe", PROBE), ("rung", 8), ("rung", 16), ("rung", 32)
    ]  # fmt: skip
    assert all(turn.kept is not None for turn in judged)
    numbers = [len(turn.teams) for turn in judged]
    assert numbers[0] == numbers[1] == len(state.entries)
    assert numbers[2] <= 7 and numbers[3] <= 4, "fewer where the leader surely beats some"
    assert state.stopped == "the last rung is played"
    assert state.winner == (judged[-1].kept or [])[0]
    assert all(entry.dropped for name, entry in state.entries.items() if name not in state.alive)
    assert state.spend == {}, "told at the end, by who opened it"


async def test_newcomers_join_at_the_tasks_of_the_rung_and_leave_room_for_the_next(
    planted: ModuleType,
) -> None:
    config = planted.config_of(1, first=8, rungs=3, newcomers=3)
    state, player = begun(planted, config, 1e9)
    await Search(config, state, player, 1000).run()
    new = [turn for turn in state.turns if turn.kind == "newcomers"]
    assert [turn.tasks for turn in new] == [8, 16], "none after the last rung"
    for turn in new:
        assert 1 <= len(turn.teams) <= 3
        for name in turn.teams:
            entry = state.entries[name]
            assert entry.parent in state.entries and entry.edit and entry.born
    spent = player.spent
    tight, player = begun(planted, config, 0.55 * spent)
    await Search(config, tight, player, 1000).run()
    assert player.spent <= tight.budget
    joined = [len(t.teams) for t in tight.turns if t.kind == "newcomers"]
    assert sum(joined) < sum(len(turn.teams) for turn in new)


@pytest.mark.parametrize("fitting", [0, 1, 2, 3])
async def test_what_is_spent_stays_under_the_budget_and_the_end_is_explained(
    planted: ModuleType, fitting: int
) -> None:
    """A budget for so many rungs, and not for the next."""
    config = planted.config_of(5, newcomers=0)
    whole, player = begun(planted, config, 1e9)
    await Search(config, whole, player, 1000).run()
    spent = [0.0, *(turn.spent for turn in whole.turns)]
    last, before = spent[fitting + 1], spent[fitting]
    state, capped = begun(planted, config, before + 1.01 * SLACK * (last - before))
    search = Search(config, state, capped, 1000)
    if not fitting:
        with pytest.raises(
            RunError, match=r"no rung fits the budget of .*: the next rung, 13 teams on"
        ):
            await search.run()
        return
    await search.run()
    assert capped.spent <= state.budget
    assert len(state.rungs) == fitting < len(whole.rungs)
    assert state.stopped.startswith("the next rung, ") and state.stopped.endswith(" tokens left")
    assert state.winner == (state.rungs[-1].kept or [])[0], "by the last rung that fitted"


async def test_a_rung_that_turns_out_too_dear_does_not_count(planted: ModuleType) -> None:
    """A player that refuses before the search expects it to."""
    config = planted.config_of(5, newcomers=0)
    whole, player = begun(planted, config, 1e9)
    await Search(config, whole, player, 1000).run()
    state, capped = begun(planted, config, 0.7 * player.spent)
    state.budget = 1e9
    await Search(config, state, capped, 1000).run()
    assert capped.spent <= capped.budget
    assert state.stopped.endswith("the turn under way does not count")
    done = len(state.rungs)
    assert 1 <= done < len(whole.rungs)
    assert state.winner == (whole.rungs[done - 1].kept or [])[0]


async def test_a_larger_budget_goes_on_to_what_it_would_have_come_to(planted: ModuleType) -> None:
    config = planted.config_of(7, newcomers=0)
    whole, player = begun(planted, config, 1e9)
    await Search(config, whole, player, 1000).run()
    state, player = begun(planted, config, 0.6 * player.spent)
    await Search(config, state, player, 1000).run()
    assert len(state.rungs) < len(whole.rungs)
    state = STATE.validate_python(json.loads(json.dumps(state.to_json())))
    state.budget = player.budget = 1e9
    state.stopped = ""
    await Search(config, state, player, 1000).run()
    assert state.to_json() | {"budget": 0} == whole.to_json() | {"budget": 0}


class Killed(Exception):
    """Stands for a kill: nothing after it is written."""


@pytest.mark.parametrize("saves", [1, 2, 3, 4, 6])
async def test_a_search_that_died_at_any_save_comes_to_the_same(
    planted: ModuleType, saves: int
) -> None:
    config = planted.config_of(2, first=8, rungs=3)
    whole, player = begun(planted, config, 1e9)
    await Search(config, whole, player, 1000).run()
    state, player = begun(planted, config, 1e9)
    disk = [json.dumps(state.to_json())]

    def save() -> None:
        disk.append(json.dumps(state.to_json()))
        if len(disk) > saves:
            raise Killed

    with pytest.raises(Killed):
        await Search(config, state, player, 1000, save=save).run()
    again = STATE.validate_python(json.loads(disk[-1]))
    await Search(config, again, player, 1000).run()
    assert again.to_json() == whole.to_json()


async def test_a_candidate_that_cannot_be_played_is_dropped_and_all_of_them_end_it(
    planted: ModuleType,
) -> None:
    config = planted.config_of(4, first=8, rungs=2, newcomers=0)
    state, player = begun(planted, config, 1e9)
    broken = {"evo_agent, 3 generations, population 3"}
    play, result = player.play, player.result

    class Broken:
        spent = 0.0
        begin, numbers = player.begin, player.numbers

        async def play(self, one: Any, tasks: int) -> str | None:
            await play(one, tasks)
            return "no episode succeeded" if one.name in broken else None

        def result(self, name: str, tasks: int) -> Any:
            return result(name, 0 if name in broken else tasks)

    await Search(config, state, Broken(), 1000).run()
    (name,) = broken
    assert state.entries[name].dropped == "failed" and name not in state.alive
    broken |= {*state.entries}
    fresh, _ = begun(planted, config, 1e9)
    with pytest.raises(RunError, match="no episode succeeded"):
        await Search(config, fresh, Broken(), 1000).run()
