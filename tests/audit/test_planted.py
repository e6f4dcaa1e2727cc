"""Four agents whose worth is known: the audit finds it, with honest intervals and few plays."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from tacit.audit.auditing import Audit
from tacit.audit.team_player import TeamPlayer
from tacit.audit.worth import Worth
from tacit.config import AuditConfig, Config
from tacit.run.folder import RunFolder
from tacit.types import Task
from tests.helpers.planted import ORDER, SHARES, TRUE, roster, tasks_of


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
    assert audit.worth["vital"].verdict(0.95, 0.05) == "helps"
    assert audit.worth["harmful"].verdict(0.95, 0.05) == "harms"
    assert {one.generated for one in audit.worth.values()} == {2.0}
    assert "actor" not in audit.worth and audit.worth["vital"].tasks < 512
    assert audit.spent() < audit.equal()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [20, pytest.param(50, marks=pytest.mark.soak)])
def test_over_many_seeds_the_order_is_right_the_intervals_hold_and_much_is_saved(
    tmp_path: Path, seeds: int
) -> None:
    """Equal sampling must settle on a number of tasks for all before it knows anything."""

    async def found(seed: int) -> list[Worth]:
        return list((await audited(tmp_path / str(seed), tasks_of(seed, 1024))).worth.values())

    right, covered, spent, needed = [], [], [], []
    for seed in range(seeds):
        worth = asyncio.run(found(seed))
        right.append(ranked(worth) == ORDER)
        covered += [one.value.low <= TRUE[one.name] <= one.value.high for one in worth]
        spent.append(sum(one.tasks for one in worth))
        needed.append(max(one.tasks for one in worth))
    equal = sorted(needed)[int(0.95 * len(needed))] * len(SHARES)
    assert all(right)
    assert 0.9 <= fmean(covered) <= 0.99
    assert fmean(spent) <= 0.4 * equal
