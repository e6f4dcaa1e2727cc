"""How others prune, to set beside an audit at the same cost in plays.

AgentPrune (Zhang et al., 2024, "Cut the Crap") learns by policy gradient with which probability
each message passage is kept, and removes the least probable share at once. AgentDropout (Wang et
al., 2025) does so for agents in each round first, then for passages. Both are written here after
their papers, on masks over our cuts; neither's low-rank penalty is kept, since teams are small.
"""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from tacit.audit.auditing import paid
from tacit.audit.playing import TeamPlayer
from tacit.audit.proposals import Proposal
from tacit.config import Cut
from tacit.types import Episode, Task

BATCH, RATE, SHARE = 8, 2.0, 0.5
"""Tasks of one mask, step size of the logits, and the share that is removed."""


async def learned_proposals(
    player: TeamPlayer, tasks: Sequence[Task], audit: Mapping[str, Any]
) -> list[Proposal]:
    """What each method removes after as many tokens as the audit took."""
    base = await player.play("rivals", tasks)
    agents = list(dict.fromkeys(call.agent for one in base for call in one.calls))
    rounds = sorted({call.round for one in base for call in one.calls})
    edges = [Cut(agent=a, reader=b) for a, b in permutations(agents, 2)]
    nodes = [Cut(agent=agent, round=number) for agent in agents for number in rounds]
    half = audit["spent"] // 2
    pruned = await learned(player, tasks, base, edges, 2 * half, "AgentPrune")
    dropped = await learned(player, tasks, base, nodes, half, "AgentDropout agents")
    passages = await learned(player, tasks, base, edges, half, "AgentDropout passages")
    return [
        Proposal(name="AgentPrune", without=removed(pruned, SHARE)),
        Proposal(
            name="AgentDropout",
            without=removed(dropped, 1 / len(nodes)) | removed(passages, SHARE / 2),
        ),
    ]


async def learned(
    player: TeamPlayer,
    tasks: Sequence[Task],
    base: Sequence[Episode],
    cuts: Sequence[Cut],
    tokens: int,
    name: str,
) -> dict[Cut, float]:
    """The logit of keeping each, by REINFORCE with the mean reward of the team as baseline."""
    luck = random.Random(player.config.seed)
    logits = dict.fromkeys(cuts, 0.0)
    recorded = {(one.task_id, one.sample): one for one in base}
    spent = step = 0
    while spent < tokens and step * BATCH < 8 * len(tasks):
        some = luck.sample(list(tasks), min(BATCH, len(tasks)))
        keep = {cut: luck.random() < _chance(logits[cut]) for cut in cuts}
        without = frozenset(cut for cut, kept in keep.items() if not kept)
        plays = await player.play(f"{name} {step}", some, without, recorded)
        gain = _mean(plays) - _mean([recorded[one.task_id, one.sample] for one in plays])
        for cut, kept in keep.items():
            logits[cut] += RATE * gain * (kept - _chance(logits[cut]))
        spent += paid(plays)
        step += 1
    return logits


def removed(logits: Mapping[Cut, float], share: float) -> frozenset[Cut]:
    """The least probable share."""
    order = sorted(logits, key=lambda cut: (logits[cut], str(cut)))
    return frozenset(order[: max(1, round(share * len(order)))])


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _mean(episodes: Sequence[Episode]) -> float:
    rewards = [one.grade.reward for one in episodes if one.grade]
    return sum(rewards) / max(1, len(rewards))
