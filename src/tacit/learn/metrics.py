"""The numbers of one training step, from what was played and what the update saw."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import exp
from statistics import fmean

from tacit.economy.group import Group
from tacit.engine.base import without_marker
from tacit.learn.advantage import Difficulty, difficulty
from tacit.silence import Silence
from tacit.types import Call, Episode


def step_metrics(groups: Sequence[Group], silence: Silence) -> dict[str, float]:
    """Accuracy, reward parts, expected cost, tokens by agent, silence by agent and level."""
    episodes = [episode for group in groups for episode in group.episodes]
    rewards = [parts for group in groups for parts in group.rewards]
    silent = [episode for group in groups for episode in group.silent]
    charged, own = rewards[0].charged, rewards[0].raw.user
    numbers = {
        "accuracy/sampled": _right(episodes),
        "reward/total": fmean(parts.total for parts in rewards),
        "reward/task": fmean(parts.task for parts in rewards),
        "cost/tokens": fmean(group.tokens for group in groups),
        "cost/turns": fmean(group.turns for group in groups),
        **{f"reward/{name}": -fmean(p.charged[name] for p in rewards) for name in charged},
        **{f"reward/{name}": fmean(p.raw.user[name] for p in rewards) for name in own},
        **_agents(episodes),
        **_silence(groups),
        **_cut(episodes),
        **_dead(groups),
        "episodes/overflowed": sum(episode.overflowed for episode in (*episodes, *silent)),
    }
    if silent:
        expected = (silence.expected_right(group) for group in groups)
        numbers["accuracy/silent_arm"] = _right(silent)
        numbers["accuracy/policy"] = fmean(right for right in expected if right is not None)
        numbers["silence/gain"] = fmean(g.gain for g in groups if g.gain is not None)
    return dict(sorted(numbers.items()))


def _right(episodes: Iterable[Episode]) -> float:
    return fmean(bool(episode.grade and episode.grade.right) for episode in episodes)


def _agents(episodes: Sequence[Episode]) -> dict[str, float]:
    tokens: Counter[str] = Counter()
    for episode in episodes:
        for call in episode.calls:
            tokens[call.agent] += call.usage.generated
    return {f"tokens/{agent}": total / len(episodes) for agent, total in tokens.items()}


def _silence(groups: Sequence[Group]) -> dict[str, float]:
    """How likely silence is to the policy, by agent, and by level where there are several."""
    chances: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for call in (call for episode in group.episodes for call in episode.calls):
            if (chance := _chance(call)) is not None:
                chances[f"silence/{call.agent}"].append(chance)
                if group.level:
                    chances[f"silence/{call.agent}/{group.level}"].append(chance)
    return {name: fmean(values) for name, values in chances.items()}


def _chance(call: Call) -> float | None:
    if call.silence_logprob is not None:
        return exp(call.silence_logprob)
    return float(call.silent) if call.may_be_silent else None


def _cut(episodes: Sequence[Episode]) -> dict[str, float]:
    """Share of what was said by those who may be silent that ends in the silence marker."""
    texts = [
        call.text
        for episode in episodes
        for call in episode.calls
        if call.policy and call.silence_logprob is not None and not call.silent
    ]
    return {"messages/cut": fmean(without_marker(text) != text for text in texts)} if texts else {}


def untrained_silence(episodes: Sequence[Episode]) -> list[str]:
    """Of each agent that learns and may be silent, greedily: what it does, and π(silence)."""
    asked: dict[str, list[Call]] = defaultdict(list)
    for call in (call for episode in episodes for call in episode.calls):
        if call.policy and call.silence_logprob is not None:
            asked[call.agent].append(call)
    return [_says(agent, calls) for agent, calls in asked.items()]


def _says(agent: str, calls: Sequence[Call]) -> str:
    chance = fmean(exp(call.silence_logprob or 0.0) for call in calls)
    silent, unheard = (fmean(getattr(c, kind) for c in calls) for kind in ("silent", "unheard"))
    sentence = (
        f"{agent} before training: π(silence) is {chance:.1%} on average, "
        f"and greedily it is silent in {silent:.0%} of {len(calls)} calls"
    )
    if unheard:
        example = next(call.output_ids for call in calls if call.unheard)
        sentence += f"; in {unheard:.0%} it spells the marker in other tokens, e.g. {example}"
    return sentence


def _dead(groups: Sequence[Group]) -> dict[str, float]:
    kinds = Counter(difficulty([part.task for part in group.rewards]) for group in groups)
    return {f"groups/{kind.value}": kinds[kind] / len(groups) for kind in Difficulty}


def empty_share(groups: Sequence[Group]) -> float:
    """Share of the trained agents' spoken messages that hold no text at all."""
    texts = [
        call.text
        for group in groups
        for episode in group.episodes
        for call in episode.calls
        if call.policy and not call.silent
    ]
    return fmean(not text.strip() for text in texts) if texts else 0.0
