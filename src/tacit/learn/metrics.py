"""The metrics of one training step that come from its groups, its prices and its warm-up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp
from statistics import fmean

from tacit.config import BudgetConfig
from tacit.economy.budget import Dual, Warmup
from tacit.economy.group import Group
from tacit.engine.base import without_marker
from tacit.learn.advantage import Difficulty, difficulty
from tacit.types import Call, Episode


def step_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Accuracy, reward parts, expected cost, tokens by agent, silence by agent and level."""
    episodes = [episode for group in groups for episode in group.episodes]
    silent = [episode for group in groups for episode in group.silent]
    rewards = [parts for group in groups for parts in group.rewards]
    charged, own = rewards[0].charged, rewards[0].raw.user
    kinds = Counter(difficulty([parts.task for parts in group.rewards]) for group in groups)
    numbers = {
        "accuracy/sampled": _right(episodes),
        "reward/total": fmean(parts.total for parts in rewards),
        "reward/task": fmean(parts.task for parts in rewards),
        "cost/tokens": fmean(group.tokens for group in groups),
        "cost/turns": fmean(group.turns for group in groups),
        **{f"reward/{name}": -fmean(p.charged[name] for p in rewards) for name in charged},
        **{f"reward/{name}": fmean(p.raw.user[name] for p in rewards) for name in own},
        **_tokens(episodes),
        **_silence(groups),
        **_cut(episodes),
        **{f"groups/{kind.value}": kinds[kind] / len(groups) for kind in Difficulty},
        "episodes/overflowed": sum(episode.overflowed for episode in (*episodes, *silent)),
    }
    if silent:
        numbers["accuracy/silent_arm"] = _right(silent)
        numbers["accuracy/policy"] = fmean(g.right for g in groups if g.right is not None)
        numbers["silence/gain"] = fmean(g.gain for g in groups if g.gain is not None)
    return dict(sorted(numbers.items()))


def staleness_metrics(groups: Sequence[Group], version: int) -> dict[str, float]:
    """By how many updates the weights that generated each message are behind."""
    episodes = [episode for group in groups for episode in group.episodes]
    calls = [call for call in _calls(episodes) if call.policy and not call.reused]
    ages = [version - call.version for call in calls] or [0]
    return {"staleness/mean": fmean(ages), "staleness/max": max(ages)}


def price_metrics(
    duals: Mapping[str, Dual], budget: BudgetConfig, warmup: Warmup
) -> dict[str, float]:
    numbers = {}
    for name, dual in duals.items():
        numbers[f"budget/{name}"] = budget.limit(name) or 0.0
        numbers[f"lambda/{name}"] = dual.value
    numbers["silence/warming"] = float(not warmup.over)
    return numbers


def _right(episodes: Iterable[Episode]) -> float:
    return fmean(episode.right for episode in episodes)


def _calls(episodes: Iterable[Episode]) -> list[Call]:
    return [call for episode in episodes for call in episode.calls]


def _tokens(episodes: Sequence[Episode]) -> dict[str, float]:
    """Generated tokens by agent, and what its tools told it."""
    tokens: Counter[str] = Counter()
    for call in _calls(episodes):
        tokens[f"tokens/{call.agent}"] += call.usage.generated
        if call.usage.observed:
            tokens[f"observed/{call.agent}"] += call.usage.observed
    return {name: total / len(episodes) for name, total in tokens.items()}


def _silence(groups: Sequence[Group]) -> dict[str, float]:
    """Mean probability of silence by agent, and by level if tasks have one."""
    chances: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for call in _calls(group.episodes):
            if call.silence_logprob is not None:
                chance = exp(call.silence_logprob)
            elif call.may_be_silent:
                chance = float(call.silent)
            else:
                continue
            chances[f"silence/{call.agent}"].append(chance)
            if group.level:
                chances[f"silence/{call.agent}/{group.level}"].append(chance)
    return {name: fmean(values) for name, values in chances.items()}


def _choosing(episodes: Iterable[Episode]) -> list[Call]:
    """Calls of trained agents that could have been silent."""
    return [c for c in _calls(episodes) if c.policy and c.silence_logprob is not None]


def _cut(episodes: Sequence[Episode]) -> dict[str, float]:
    """Share of messages ending in the silence marker, among agents that may be silent."""
    texts = [call.text for call in _choosing(episodes) if not call.silent]
    return {"messages/cut": fmean(without_marker(text) != text for text in texts)} if texts else {}


def notes_before_training(episodes: Sequence[Episode]) -> list[str]:
    """How often each trained agent is silent at first, when it decodes greedily."""
    by_agent: dict[str, list[Call]] = defaultdict(list)
    for call in _choosing(episodes):
        by_agent[call.agent].append(call)
    return [_note(agent, calls) for agent, calls in by_agent.items()]


def _note(agent: str, calls: Sequence[Call]) -> str:
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


def empty_share(groups: Sequence[Group]) -> float:
    """Share of the trained agents' spoken messages that have no text."""
    calls = [call for group in groups for call in _calls(group.episodes)]
    texts = [call.text for call in calls if call.policy and not call.silent]
    return fmean(not text.strip() for text in texts) if texts else 0.0
