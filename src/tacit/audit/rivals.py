"""How others prune, to set beside an audit at the same cost in plays.

AgentPrune (Zhang et al., 2024, "Cut the Crap") learns by policy gradient with which probability
each message passage is kept, and removes the least probable share at once. AgentDropout (Wang et
al., 2025) does so for agents in each round first, then for passages. Both are written here after
their papers, on masks over our cuts; neither's low-rank penalty is kept, since teams are small.
"""

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from tacit.audit.auditing import paid
from tacit.audit.proposals import Proposal, named
from tacit.audit.targets import targets_of
from tacit.audit.team_player import TeamPlayer
from tacit.audit.worth import by_task, pairs_of
from tacit.config import AuditConfig, Cut
from tacit.types import Episode, Task

ALL = AuditConfig(rounds=False)
BATCH, RATE = 8, 2.0
"""Tasks of one mask, and step size of the logits."""
PRUNED, DROPPED = 1 - 0.75**2, 1 - 0.8**2
"""Shares of the passages that are removed: `--pruning_rate` of what is left, twice, by default 0.25
in github.com/yanweiyue/AgentPrune, and 0.20 in the README of github.com/wangzx1219/AgentDropout."""


async def learned_proposals(
    player: TeamPlayer, tasks: Sequence[Task], base: Sequence[Episode], tokens: int
) -> list[Proposal]:
    """What each method removes after as many tokens as the audit took; `base` are its plays."""
    edges = [one.cut for one in targets_of(base, ALL) if one.kind == "edge"]
    spoken = {(call.agent, call.round) for one in base for call in one.calls}
    nodes = [Cut(agent=agent, round=number) for agent, number in sorted(spoken)]
    if not edges:
        return []
    kept = await learned(player, tasks, base, edges, tokens, "AgentPrune")
    agents = await learned(player, tasks, base, nodes, tokens // 2, "AgentDropout agents")
    gone = removed(agents, 1 / len(nodes))
    rest = await learned(player, tasks, base, edges, tokens // 2, "AgentDropout passages", gone)
    return [
        Proposal(name="AgentPrune", without=removed(kept, PRUNED)),
        Proposal(name="AgentDropout", without=gone | removed(rest, DROPPED)),
    ]


async def learned(
    player: TeamPlayer,
    tasks: Sequence[Task],
    base: Sequence[Episode],
    cuts: Sequence[Cut],
    tokens: int,
    name: str,
    gone: frozenset[Cut] = frozenset(),
) -> dict[Cut, float]:
    """The logit of keeping each, by REINFORCE with the mean reward of the team as baseline.

    `gone` is left out in every play. A team that cannot play earns nothing.
    """
    luck = random.Random(player.config.seed)
    logits = dict.fromkeys(cuts, 0.0)
    spent = step = 0
    while spent < tokens and step * BATCH < 8 * len(tasks):
        some = luck.sample(list(tasks), min(BATCH, len(tasks)))
        keep = {cut: luck.random() < _chance(logits[cut]) for cut in cuts}
        without = gone | {cut for cut, kept in keep.items() if not kept}
        shown = f"{name} {named(without).name}"
        plays = await player.tried(f"{name} {step}", some, without, base, shown)
        ids = {task.id for task in some}
        lost = [-one.grade.reward for one in base if one.grade and one.task_id in ids]
        gains = lost if plays is None else [*by_task(pairs_of(plays, base)).values()]
        gain = fmean(gains) if gains else 0.0
        for cut, kept in keep.items():
            logits[cut] += RATE * gain * (kept - _chance(logits[cut]))
        spent += paid(plays or [])
        step += 1
    return logits


def removed(logits: Mapping[Cut, float], share: float) -> frozenset[Cut]:
    """The least probable share."""
    order = sorted(logits, key=lambda cut: (logits[cut], str(cut)))
    return frozenset(order[: max(1, round(share * len(order)))])


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
