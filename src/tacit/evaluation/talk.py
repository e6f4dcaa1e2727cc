"""Measures whether a team's talk pays, and whether the agents with needed information speak.

The team's own play of the held-out tasks is compared with other plays of the same tasks: nobody
speaks, everybody who may be silent must speak, and the others in `Talk.plays`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.config import EvaluationConfig
from tacit.evaluation.statistics import Estimate, bootstrap, interval, resampled_means
from tacit.types import Episode

Numbers = NDArray[np.float64]

RIGHT, SPOKEN, CHOICES, GENERATED, READ = range(5)
"""Columns of a play's table, one row for each task, means over its samples. The second and third
count messages of agents that could have been silent, and all their calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One way to play the tasks; means per episode."""

    accuracy: float
    messages: float
    """Messages of agents that could have been silent."""
    generated: float
    read: float
    above: Estimate | None = None
    """How far the team's own accuracy is above this one, task by task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """How well the choice to speak agrees with who held information that others needed."""

    needed: int
    """Number of choices by agents that held it, and by agents that did not."""
    idle: int
    auc: float | None
    """Chance that an agent that held it was more inclined to speak than one that did not."""
    by: str
    """The score behind `auc`: `silence_logprob`, or `spoke` if the engine gives none."""
    precision: float | None
    """Share of the messages said that were needed."""
    recall: float | None
    """Share of the needed that were said."""
    silent_needed: float | None
    """Share of silent choices where the agent held it, and where it did not."""
    silent_idle: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The value of a team's talk, on the tasks for which every play has a grade."""

    tasks: int
    plays: dict[str, Play]
    """`free`: the team as it is. `silent`: helpers left out. `speaking`: whoever may be silent is
    made to speak. `gate`: see `above_gate`. `alone`: the trained weights answer by themselves.
    `reworded`: a frozen model says every message in other words."""
    rate: float | None
    """Share of the choices in which an agent spoke."""
    share_of_speaking: dict[str, float] = field(default_factory=dict)
    """The team's messages and tokens, as shares of those of `speaking`; `total`: said and read."""
    kept: float | None = None
    """Share of the gain over silence that remains when messages are reworded."""
    choosing: Choosing | None = None
    """Over all agents for which the tasks say who was needed; then by agent."""
    choosing_by_agent: dict[str, Choosing] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Play → why it is missing, or how to get it."""
    rewards: dict[str, Play] = field(default_factory=dict)
    """The same plays with the mean reward as `accuracy`, if rewards are not just right or wrong."""
    kept_reward: float | None = None


def talk_of(
    own: Iterable[Episode],
    others: Mapping[str, Sequence[Episode]],
    settings: EvaluationConfig,
    missing: Mapping[str, str] | None = None,
    *,
    score: str = "right",
    rewards: bool = False,
) -> Talk | None:
    """Compares the team's own episodes with other plays; None if there is nothing to compare.

    With `rewards` every play is scored a second time, by its rewards.
    """
    own = [episode for episode in own if episode.grade]
    tables = {name: _table(play, score) for name, play in {"free": own, **others}.items()}
    choices = list(_choices(own))
    shared = sorted(set.intersection(*map(set, tables.values())))
    if not shared or not (choices or others or missing):
        return None
    rows = {name: np.array([table[task] for task in shared]) for name, table in tables.items()}
    free, plays = rows["free"], {"free": _play(rows["free"])}
    asked = free[:, CHOICES].sum()
    rate = float(free[:, SPOKEN].sum() / asked) if asked else None
    many, sure = settings.resamples, settings.confidence
    for name in others:
        by = list(free[:, RIGHT] - rows[name][:, RIGHT])
        plays[name] = _play(rows[name], bootstrap(by, confidence=sure, resamples=many))
    if "silent" in others and "speaking" in others and rate is not None:
        silent, speaking = rows["silent"], rows["speaking"]
        above = above_gate(free, silent, speaking, confidence=sure, resamples=many)
        plays["gate"] = _play(rate * speaking + (1 - rate) * silent, above)
    agents = dict.fromkeys(choice.agent for choice in choices)
    paid = talk_of(own, others, settings, missing, score="grade.reward") if rewards else None
    return Talk(
        tasks=len(shared),
        plays=plays,
        rate=rate,
        share_of_speaking=_shares(plays),
        kept=_kept(plays),
        choosing=choosing(choices) if choices else None,
        choosing_by_agent={a: choosing([c for c in choices if c.agent == a]) for a in agents},
        missing=dict(missing or {}),
        rewards=paid.plays if paid else {},
        kept_reward=paid.kept if paid else None,
    )


def above_gate(
    free: Numbers, silent: Numbers, speaking: Numbers, *, confidence: float, resamples: int
) -> Estimate:
    """How far a team is above a gate that passes messages at random, as often as it speaks.

    The gate's expected accuracy is q·speaking + (1 − q)·silent, with q the team's rate of speaking.
    Every resample of tasks has its own q. Where several agents choose, the gate opens for all or
    for none, since other mixtures were not played.
    """
    columns = [*free[:, [RIGHT, SPOKEN, CHOICES]].T, silent[:, RIGHT], speaking[:, RIGHT]]
    drawn = [resampled_means(column, resamples) for column in columns]

    def above(means: Sequence[Numbers]) -> Numbers:
        own, spoken, choices, quiet, loud = means
        rate = spoken / np.maximum(choices, 1e-9)
        return np.asarray(own - rate * loud - (1 - rate) * quiet)

    exact = float(above([column.mean() for column in columns]))
    return interval(exact, above(drawn), confidence)


def auc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """Chance that a positive scores above a negative, ties counting half (Mann-Whitney's U/mn)."""
    if not (positive and negative):
        return None
    ranked = np.sort(negative)
    below = np.searchsorted(ranked, positive, side="left")
    not_above = np.searchsorted(ranked, positive, side="right")
    return float((below + not_above).mean()) / (2 * len(negative))


class Chosen(NamedTuple):
    """One agent in one episode."""

    agent: str
    needed: bool
    spoke: bool
    silence_logprob: float | None
    """Its lowest in the episode: that of the call in which it was least inclined to be silent."""


def choosing(choices: Sequence[Chosen]) -> Choosing:
    known = all(choice.silence_logprob is not None for choice in choices)

    def score(choice: Chosen) -> float:
        return -(choice.silence_logprob or 0.0) if known else float(choice.spoke)

    needed = [choice for choice in choices if choice.needed]
    idle = [choice for choice in choices if not choice.needed]
    spoken = [choice for choice in choices if choice.spoke]
    recall = _share(choice.spoke for choice in needed)
    return Choosing(
        needed=len(needed),
        idle=len(idle),
        auc=auc([*map(score, needed)], [*map(score, idle)]),
        by="silence_logprob" if known else "spoke",
        precision=_share(choice.needed for choice in spoken),
        recall=recall,
        silent_needed=None if recall is None else 1 - recall,
        silent_idle=_share(not choice.spoke for choice in idle),
    )


def _choices(episodes: Iterable[Episode]) -> Iterator[Chosen]:
    """The choices of agents that could be silent, in episodes that say who was needed."""
    for episode in episodes:
        for agent, needed in episode.needed.items():
            calls = [call for call in episode.calls if call.agent == agent and call.may_be_silent]
            odds = [c.silence_logprob for c in calls if c.silence_logprob is not None]
            least = min(odds) if odds and len(odds) == len(calls) else None
            if calls:
                yield Chosen(agent, needed, not all(call.withheld for call in calls), least)


def _table(episodes: Iterable[Episode], score: str) -> dict[str, Numbers]:
    """Task → its row."""
    rows = defaultdict(list)
    for episode in episodes:
        free = [call for call in episode.calls if call.may_be_silent]
        if episode.grade:
            said, usage = sum(not call.withheld for call in free), episode.usage
            row = (attrgetter(score)(episode), said, len(free), usage.generated, usage.prompt)
            rows[episode.task_id].append(row)
    return {task: np.mean(np.array(mine, np.float64), axis=0) for task, mine in rows.items()}


def _play(rows: Numbers, above: Estimate | None = None) -> Play:
    right, said, _, generated, read = map(float, rows.mean(axis=0))
    return Play(accuracy=right, messages=said, generated=generated, read=read, above=above)


def _shares(plays: Mapping[str, Play]) -> dict[str, float]:
    if "speaking" not in plays:
        return {}
    both = [asdict(plays[name]) for name in ("free", "speaking")]
    mine, most = ({**one, "total": one["generated"] + one["read"]} for one in both)
    return {n: mine[n] / most[n] for n in ("messages", "generated", "read", "total") if most[n]}


def _kept(plays: Mapping[str, Play]) -> float | None:
    if not {"silent", "reworded"} <= plays.keys():
        return None
    silent, free = plays["silent"].accuracy, plays["free"].accuracy
    return (plays["reworded"].accuracy - silent) / (free - silent) if free > silent else None


def _share(flags: Iterable[bool]) -> float | None:
    found = list(flags)
    return sum(found) / len(found) if found else None
