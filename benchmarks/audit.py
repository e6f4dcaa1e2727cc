"""Audits of a team whose four helpers are worth what was planted: order, intervals, plays.

    python -m benchmarks.audit --out benchmarks/results/audit.json

Compared with sampling all parts alike: until the order is settled by the same rule, and on a number
of tasks that is fixed beforehand so that in 95 % of the seeds the order is settled; by the same
rule, by one look, which need not be widened, or so that it is right, though nobody could know.
"""

import argparse
import asyncio
import json
import platform
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from tacit import __version__
from tacit.audit.auditing import Audit, rungs_of
from tacit.audit.team_player import TeamPlayer
from tacit.audit.worth import Worth, pairs_of, unsettled, worth_of
from tacit.config import AuditConfig, Config
from tacit.run.folder import RunFolder
from tests.helpers.planted import ORDER, SHARES, TRUE, roster, tasks_of

TASKS = 1024
SIZES = range(16, TASKS + 1, 16)
SETTINGS = AuditConfig(rounds=False, edges=False, margin=0.06)


async def audited(folder: Path, seed: int) -> Audit:
    player = TeamPlayer(config=Config(audit=SETTINGS), run=RunFolder(folder), roster=roster())
    audit = Audit(player=player, tasks=tasks_of(seed, TASKS), settings=SETTINGS)
    await audit.run()
    return audit


async def needed_alike(audit: Audit) -> int:
    """Tasks for each part until the order is settled, if all play as many."""
    for size in rungs_of(TASKS, SETTINGS.first):
        await audit._with_all(size)
        for target in audit.targets:
            await audit._without(target, size)
        if not unsettled(audit.worth, audit.strict, SETTINGS.margin):
            return size
    return TASKS


def at_once(audit: Audit, size: int) -> tuple[bool, bool]:
    """Whether one look at so many tasks of each part settles the order; whether the order is right.

    True for both beyond what was played, which is until the order was settled by the stricter rule.
    """
    plays = {target: audit.without[target.name][:size] for target in audit.targets}
    if any(len(some) < size for some in plays.values()):
        return True, True
    worth = {
        target.name: worth_of(target, pairs_of(audit.base, some), confidence=audit.confidence)
        for target, some in plays.items()
    }
    settled = not unsettled(worth, audit.confidence, SETTINGS.margin)
    return settled, ranked(list(worth.values())) == ORDER


def fewest(looks: Sequence[Sequence[bool]]) -> int:
    """Plays from which on 95 % of the seeds look as they should; `looks` are by seed and size."""
    enough = [fmean(column) >= 0.95 for column in zip(*looks, strict=True)]
    short = [size for size, fine in zip(SIZES, enough, strict=True) if not fine]
    return len(SHARES) * min(size for size in SIZES if not short or size > short[-1])


def ranked(worth: Sequence[Worth]) -> list[str]:
    return [one.name for one in sorted(worth, key=lambda one: one.value.mean)]


def measure(seeds: int) -> dict[str, Any]:
    right, covered, plays, alike, looks = [], [], [], [], []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            audit = asyncio.run(audited(Path(folder), seed))
            worth = list(audit.worth.values())
            right.append(ranked(worth) == ORDER)
            covered += [one.value.low <= TRUE[one.name] <= one.value.high for one in worth]
            plays.append(sum(one.tasks for one in worth))
            alike.append(asyncio.run(needed_alike(audit)))
            looks.append([at_once(audit, size) for size in SIZES])
        print(f"{seed + 1} of {seeds}: {plays[-1]} plays, alike {len(SHARES) * alike[-1]}")
    one_look, chance = (fewest([[one[n] for one in row] for row in looks]) for n in (0, 1))
    fixed = len(SHARES) * sorted(alike)[int(0.95 * seeds)]
    return {
        "planted": TRUE,
        "seeds": seeds,
        "order_right": fmean(right),
        "intervals_hold": fmean(covered),
        "plays": fmean(plays),
        "alike_until_settled": len(SHARES) * fmean(alike),
        "alike_fixed_beforehand": fixed,
        "alike_fixed_and_one_look": one_look,
        "alike_right_by_chance": chance,
        "share_of_alike": fmean(plays) / (len(SHARES) * fmean(alike)),
        "share_of_fixed": fmean(plays) / fixed,
        "share_of_fixed_and_one_look": fmean(plays) / one_look,
        "date": date.today().isoformat(),
        "versions": {"tacit": __version__, "python": platform.python_version()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result = measure(options.seeds)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
