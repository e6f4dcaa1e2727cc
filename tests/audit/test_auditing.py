"""What could be left out, what an audit may spend, and the messages it shows."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tacit.audit.auditing import Audit, paid, rungs_of
from tacit.audit.targets import Target, targets_of
from tacit.audit.team_player import TeamPlayer
from tacit.audit.worth import Worth, adjusted, unsettled
from tacit.config import AuditConfig, Config, Cut
from tacit.engine.base import Request
from tacit.errors import ConfigError, SpendCap
from tacit.evaluation.statistics import Estimate
from tacit.run.folder import RunFolder
from tacit.team.roster import Roster
from tacit.team.team import Team
from tacit.types import Message, Task
from tests.helpers.planted import roster, tasks_of
from tests.helpers.scripted_teams import TASK, play, scripted

ALL = AuditConfig()


def audit_of(folder: Path, team: Roster, tasks: list[Task], **settings: object) -> Audit:
    wanted = AuditConfig.model_validate(settings)
    player = TeamPlayer(config=Config(audit=wanted), run=RunFolder(folder), roster=team)
    return Audit(player=player, tasks=tasks, settings=wanted)


async def test_who_answers_alone_stays_and_an_only_reader_is_no_part_of_its_own() -> None:
    team = scripted("hint_actor", {"hinter": ["use 17"], "actor": ["42"]})
    names = [target.name for target in targets_of([await play(team)], ALL)]
    assert names == ["hinter"], "round 0 is the hinter's, round 1 the actor's, who must answer"


async def test_all_of_a_debate_can_be_left_out_one_at_a_time() -> None:
    replies = [f"I say {n}" for n in range(4)]
    team = scripted("debate", {"debater": replies}, debater={"count": 2})
    episode = await play(team)
    kinds = [target.kind for target in targets_of([episode], ALL)]
    assert kinds == ["agent", "agent", "round", "round", "edge", "edge"]
    plain = AuditConfig(rounds=False, edges=False)
    assert targets_of([episode], plain) == targets_of([episode], ALL)[:2]


@pytest.mark.parametrize("said", ["I say", "<message> is what I say"])
async def test_readers_are_parts_where_there_are_several(said: str) -> None:
    replies = [f"{said} {n}" for n in range(6)]
    team = scripted("debate", {"debater": replies}, debater={"count": 3})
    edges = [t.name for t in targets_of([await play(team)], ALL) if t.kind == "edge"]
    assert len(edges) == 6 and "debater 3 to debater 1" in edges


def test_an_interval_is_never_certain_of_nothing() -> None:
    """By hand: n = 10 zeros, variance 2/12, error sqrt(2)/12, half-width 1.96 times that."""
    estimate, error = adjusted([0.0] * 10, 0.95)
    assert abs(error - 2**0.5 / 12) < 1e-12
    assert abs(estimate.high - 0.23098) < 1e-4 and estimate.low == -estimate.high
    assert adjusted([], 0.95)[0].mean == 0.0


def test_rungs_double_up_to_all_tasks() -> None:
    assert rungs_of(100, 16) == [16, 32, 64, 100] and rungs_of(5, 16) == [5]


async def test_an_audit_stops_before_it_spends_too_much(tmp_path: Path) -> None:
    free = audit_of(tmp_path / "free", roster(), tasks_of(0, 256), rounds=False, edges=False)
    await free.run()
    held = audit_of(
        tmp_path / "held", roster(), tasks_of(0, 256), rounds=False, edges=False, tokens=6000
    )
    await held.run()
    assert held.spent() <= 6000 < free.spent()
    assert "audit.tokens=6,000" in held.ended and free.ended
    little = audit_of(tmp_path / "little", roster(), tasks_of(0, 256), tokens=10)
    with pytest.raises(ConfigError, match=r"too little for one part: .*tokens=10 are spent"):
        await little.run()


async def test_tokens_that_pay_for_the_first_rung_are_enough_for_it(tmp_path: Path) -> None:
    """What a part takes is measured on few tasks, and what was played is not paid for again."""
    rung = audit_of(tmp_path / "rung", roster(), tasks_of(0, 16), rounds=False, edges=False)
    await rung.run()
    tokens = int(1.05 * rung.spent())
    held = audit_of(
        tmp_path / "held", roster(), tasks_of(0, 64), rounds=False, edges=False, tokens=tokens
    )
    await held.run()
    assert {one.tasks for one in held.worth.values()} == {16} and held.spent() <= tokens
    few = audit_of(
        tmp_path / "few", roster(), tasks_of(0, 64), rounds=False, edges=False, tokens=tokens // 5
    )
    await few.run()
    assert few.spent() <= tokens // 5 and few.worth
    missing = {one.name for one in few.targets} - few.worth.keys()
    assert missing and all(name in few.to_json()["notes"][-1] for name in missing)


async def test_a_second_start_plays_nothing_and_finds_the_same(tmp_path: Path) -> None:
    team = roster()
    first = audit_of(tmp_path, team, tasks_of(0, 64))
    await first.run()
    asked = [agent.engine.calls for agent in team.agents]  # type: ignore[attr-defined]
    second = audit_of(tmp_path, team, tasks_of(0, 64))
    await second.run()
    assert [agent.engine.calls for agent in team.agents] == asked  # type: ignore[attr-defined]
    assert second.to_json() == first.to_json()


async def test_what_comes_before_a_part_is_not_asked_again(tmp_path: Path) -> None:
    audit = audit_of(tmp_path, roster(), tasks_of(0, 16), rounds=False, edges=False)
    await audit.run()
    calls = [call for one in audit.without["sometimes"] for call in one.calls]
    assert {call.agent for call in calls if not call.reused} == {"actor"}
    assert paid(audit.without["sometimes"]) < paid(audit.base) / 2


async def test_messages_that_mattered_by_luck_are_not_shown(tmp_path: Path) -> None:
    """The actor is right by a coin of its own, whatever the hinter says."""
    coin = random.Random(0)
    counted = itertools.count()

    def actor(request: Request) -> str:
        return r"\boxed{42}" if coin.random() < 0.5 else r"\boxed{41}"

    team = scripted("hint_actor", {"hinter": lambda r: f"hint {next(counted)}", "actor": actor})
    tasks = [
        Task(id=f"t/{n}", question=TASK.question, answer="42", grader="math") for n in range(40)
    ]
    audit = audit_of(tmp_path, team, tasks, again=64, rounds=False)
    await audit.run()
    once = await audit.telling()
    assert {one.value for one in once} == {1.0, -1.0}
    audit.samples, before = True, audit.spent()
    sure = await audit.telling()
    assert sure and all(abs(one.value) < 0.5 for one in sure)
    spent, asked = audit.spent(), next(counted)
    assert [one.value for one in await audit.telling()] == [one.value for one in sure]
    assert next(counted) == asked + 1 and audit.spent() == spent > before, "kept, and counted"
    audit.settings = audit.settings.model_copy(update={"tokens": before + (spent - before) // 2})
    some = await audit.telling()
    assert len(some) < len(sure) and audit.spent() <= (audit.settings.tokens or 0)
    assert "messages are not played on from" in audit.to_json()["notes"][-1]


async def test_an_agent_that_must_answer_is_no_part(tmp_path: Path) -> None:
    """The hinter says just what the actor answers, so who answers is seen only by trying."""
    team = scripted("hint_actor", {"hinter": {"": "42"}, "actor": {"": "42"}})
    audit = audit_of(tmp_path, team, [TASK], rounds=False)
    await audit.run()
    assert list(audit.worth) == ["hinter"] == [target.name for target in audit.targets]


async def test_agents_take_turns_among_the_messages_to_read(tmp_path: Path) -> None:
    audit = audit_of(tmp_path, roster(), tasks_of(0, 128), rounds=False, edges=False, messages=3)
    await audit.run()
    found = await audit.telling()
    helped = {one.said.agent for one in found if one.value > 0}
    assert {"vital", "sometimes"} <= helped and len(found) == 6


async def fragile(task: Task, team: Team) -> Message:
    """Breaks if the planner says nothing."""
    plan, cheer = await team.planner.ask(task.question), await team.cheer.ask(task.question)
    said = [Message("", str(int(plan.text.split()[0]))), cheer]
    return await team.actor.ask(task.question, messages=said, round=1, final=True)


async def test_a_part_that_cannot_be_left_out_is_named_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    scripts = {"planner": {"": "1 plan"}, "cheer": {"": "go"}, "actor": {"": "42"}}
    audit = audit_of(tmp_path, scripted(f"{__name__}:fragile", scripts), tasks_of(0, 12))
    said: list[str] = []
    audit.say = said.append
    await audit.run()
    assert "cheer" in audit.worth and "planner" not in audit.worth
    assert said[0].startswith("planner is not valued: no episode succeeded")


async def test_what_was_paid_for_is_shown_when_the_cap_is_reached(tmp_path: Path) -> None:
    audit = audit_of(tmp_path, roster(), tasks_of(0, 64), rounds=False, edges=False)
    play, rungs = audit.player.play, []

    async def capped(name: str, tasks: Any, *more: Any) -> Any:
        rungs.append(len(tasks))
        if len(tasks) > 16:
            raise SpendCap("the spend cap is reached")
        return await play(name, tasks, *more)

    audit.player = SimpleNamespace(play=capped)  # type: ignore[assignment]
    await audit.run()
    assert audit.ended == "the spend cap is reached" and len(audit.worth) == 4


def test_a_part_worth_nothing_is_seldom_called_anything_else() -> None:
    """200 audits of one part whose true value is 0, each with seven looks."""
    rungs, wrong, held = rungs_of(1024, 16), 0, 0
    target = Target("agent", Cut(agent="a"))
    strict = 1 - 0.05 / len(rungs)
    for seed in range(200):
        luck = random.Random(seed)
        draws = [luck.choice((1.0, -1.0)) if luck.random() < 0.3 else 0.0 for _ in range(1024)]
        for size in rungs:
            value, error = adjusted(draws[:size], 0.95)
            one = replace(NOTHING, name=target.name, value=value, error=error, tasks=size)
            if not unsettled({"a": one}, strict, 0.03):
                break
        wrong += one.verdict(strict, 0.03) in ("helps", "harms")
        held += value.low <= 0 <= value.high
    assert wrong <= 14 and held >= 0.9 * 200


NOTHING = Worth(
    name="", kind="agent", value=Estimate(0, 0, 0), error=0.0, tasks=0, helped=0, harmed=0,
    generated=0.0, read=0.0, money=None, failed=0,
)  # fmt: skip


def test_a_part_that_played_all_tasks_is_not_asked_for_more(tmp_path: Path) -> None:
    """Parts go on one by one where tokens are few, so some may be through before the others."""
    audit = audit_of(tmp_path, roster(), tasks_of(0, 16), first=16, tokens=10**9)
    audit._rungs = [4, 8, 16]
    audit.targets = [Target("agent", Cut(agent=name)) for name in ("dear", "cheap")]
    assert audit._going({"dear": 4, "cheap": 16}) == {"dear"}
