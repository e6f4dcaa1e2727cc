"""Four agents whose worth is known: the audit finds it, with honest intervals and few plays."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from tacit.audit.auditing import Audit
from tacit.audit.playing import TeamPlayer
from tacit.audit.worth import Worth
from tacit.config import AuditConfig, Config, TeamConfig
from tacit.engine.base import Request
from tacit.engine.scripted import ScriptedEngine
from tacit.run.folder import RunFolder
from tacit.team.roster import Roster, build_roster
from tacit.team.team import Team
from tacit.types import Message, Task

SHARES = {
    "useless": (0.03, 0.03),
    "harmful": (0.01, 0.25),
    "vital": (0.48, 0.02),
    "sometimes": (0.10, 0.02),
}
"""Of all tasks: how many each helper decides, first those it helps with, then those it harms."""
TRUE = {role: helps - harms for role, (helps, harms) in SHARES.items()}
ORDER = sorted(TRUE, key=lambda role: TRUE[role])


async def panel(task: Task, team: Team) -> Message:
    """Four helpers speak, then the actor answers with what they said."""
    said = [await getattr(team, role).ask(task.question) for role in SHARES]
    return await team.actor.ask(task.question, messages=said, final=True)


def answer(request: Request) -> str:
    """Right or wrong by a point of the unit interval that each task has.

    Where the point falls into a helper's share, all depends on whether that helper is heard. So
    what one is worth does not depend on the others.
    """
    asked = request.messages[-1].content
    luck = random.Random(int(asked.split()[1]))
    point, right, start = luck.random(), luck.random() < 0.5, 0.0
    for role, shares in SHARES.items():
        for share, helps in zip(shares, (True, False), strict=True):
            if start <= point < start + share:
                right = helps == (f'from="{role}"' in asked)
            start += share
    return "yes" if right else "no"


def roster() -> Roster:
    config = TeamConfig.model_validate(
        {"topology": f"{__name__}:panel", "agents": {role: {} for role in (*SHARES, "actor")}}
    )
    engines = {role: ScriptedEngine({"": f"{role} speaks"}) for role in SHARES}
    return build_roster(config, engines | {"actor": ScriptedEngine(answer)})


def tasks_of(seed: int, count: int) -> list[Task]:
    numbers = random.Random(seed).sample(range(10**9), count)
    return [
        Task(id=f"t/{n}", question=f"Question {n} ?", answer="yes", grader="span") for n in numbers
    ]


async def audited(folder: Path, tasks: Sequence[Task]) -> Audit:
    settings = AuditConfig(rounds=False, edges=False, margin=0.06)
    player = TeamPlayer(config=Config(audit=settings), run=RunFolder(folder), roster=roster())
    audit = Audit(player=player, tasks=tasks, settings=settings)
    await audit.run()
    return audit


def ranked(worth: Sequence[Worth]) -> list[str]:
    return [one.name for one in sorted(worth, key=lambda one: one.value.mean)]


async def test_each_agent_is_worth_what_was_planted(tmp_path: Path) -> None:
    audit = await audited(tmp_path, tasks_of(0, 512))
    assert ranked(list(audit.worth.values())) == ORDER
    assert audit.worth["vital"].verdict(0.05) == "helps"
    assert audit.worth["harmful"].verdict(0.05) == "harms"
    assert {one.generated for one in audit.worth.values()} == {2.0}
    assert "actor" not in audit.worth and audit.worth["vital"].tasks < 512
    assert audit.spent() < audit.equal()


@pytest.mark.slow
def test_over_fifty_seeds_the_order_is_right_the_intervals_hold_and_much_is_saved(
    tmp_path: Path,
) -> None:
    """Equal sampling must settle on a number of tasks for all before it knows anything."""
    right, covered, spent, needed = [], [], [], []
    for seed in range(50):
        audit = asyncio.run(audited(tmp_path / str(seed), tasks_of(seed, 1024)))
        worth = audit.worth.values()
        right.append(ranked(list(worth)) == ORDER)
        covered += [one.value.low <= TRUE[one.name] <= one.value.high for one in worth]
        spent.append(sum(one.tasks for one in worth))
        needed.append(max(one.tasks for one in worth))
    equal = sorted(needed)[int(0.95 * len(needed))] * len(SHARES)
    assert all(right)
    assert 0.9 <= fmean(covered) <= 0.99
    assert fmean(spent) <= 0.4 * equal
