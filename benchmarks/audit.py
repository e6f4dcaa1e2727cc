"""Audits of a team whose four helpers are worth what was planted: order, intervals, plays.

    python -m benchmarks.audit --out benchmarks/results/audit.json

Compared with sampling all parts alike: until the order is settled by the same rule, and on a number
of tasks that is fixed beforehand so that the order is settled in 95 % of the seeds.
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
from tacit.audit.worth import Worth, unsettled
from tacit.config import AuditConfig, Config
from tacit.run.folder import RunFolder
from tests.helpers.planted import ORDER, SHARES, TRUE, roster, tasks_of

TASKS = 1024
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


def ranked(worth: Sequence[Worth]) -> list[str]:
    return [one.name for one in sorted(worth, key=lambda one: one.value.mean)]


def measure(seeds: int) -> dict[str, Any]:
    right, covered, plays, alike = [], [], [], []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            audit = asyncio.run(audited(Path(folder), seed))
            worth = list(audit.worth.values())
            right.append(ranked(worth) == ORDER)
            covered += [one.value.low <= TRUE[one.name] <= one.value.high for one in worth]
            plays.append(sum(one.tasks for one in worth))
            alike.append(asyncio.run(needed_alike(audit)))
        print(f"{seed + 1} of {seeds}: {plays[-1]} plays, alike {len(SHARES) * alike[-1]}")
    fixed = len(SHARES) * sorted(alike)[int(0.95 * seeds)]
    return {
        "planted": TRUE,
        "seeds": seeds,
        "order_right": fmean(right),
        "intervals_hold": fmean(covered),
        "plays": fmean(plays),
        "alike_until_settled": len(SHARES) * fmean(alike),
        "alike_fixed_beforehand": fixed,
        "share_of_alike": fmean(plays) / (len(SHARES) * fmean(alike)),
        "share_of_fixed": fmean(plays) / fixed,
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
