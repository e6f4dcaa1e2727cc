"""The longest chain of calls of an episode, in seconds: what an answer had to wait for.

A call follows another if its prompt holds the other's message. Tacit's own calls also know how many
tokens lie before them (`path_tokens`), which adds what was waited for and not read, such as a
silence, and leaves out what was said at the same time. Without any seconds, generated tokens are
measured instead. Not covered: the time of tools and of the program between calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tacit.traffic.exchange import Read
from tacit.traffic.prompt_pieces import CallReading
from tacit.types import Call, Episode


@dataclass(slots=True)
class AgentPath:
    agent: str
    amount: float = 0.0
    """Of its calls on the longest chains."""
    share: float = 0.0
    """Of all longest chains."""
    off: float = 0.0
    """Of its other calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """Sums over the episodes whose order is known."""

    unit: str
    """`seconds` or `tokens`."""
    episodes: int
    path: float
    """The longest chains."""
    total: float
    """All calls, one after another."""
    wall: float
    """Seconds the episodes took, if known; else 0."""
    beside: float
    """The share of `total` that is off the longest chain: it ran, or could run, side by side."""
    agents: tuple[AgentPath, ...]
    """Largest share first."""


def critical_path(read: Sequence[Read]) -> CriticalPath | None:
    """None if no episode's order can be known: one needs texts or `path_tokens` for it."""
    timed = any(call.seconds for episode, _ in read for call in episode.calls)
    agents: dict[str, AgentPath] = {}
    episodes, wall = 0, 0.0
    for episode, readings in read:
        if not _ordered(episode, readings):
            continue
        episodes += 1
        wall += episode.seconds
        chain = set(longest_chain(episode.calls, readings, timed))
        for number, call in enumerate(episode.calls):
            one = agents.setdefault(call.agent, AgentPath(call.agent))
            if number in chain:
                one.amount += _amount(call, timed)
            else:
                one.off += _amount(call, timed)
    if not episodes:
        return None
    path = sum(one.amount for one in agents.values())
    total = path + sum(one.off for one in agents.values())
    for one in agents.values():
        one.share = one.amount / path if path else 0.0
    return CriticalPath(
        unit="seconds" if timed else "tokens",
        episodes=episodes,
        path=path,
        total=total,
        wall=wall,
        beside=1.0 - path / total if total else 0.0,
        agents=tuple(sorted(agents.values(), key=lambda one: -one.share)),
    )


def longest_chain(calls: Sequence[Call], readings: Sequence[CallReading], timed: bool) -> list[int]:
    """The calls of the longest chain, first to last."""
    best: list[float] = []
    last: list[int | None] = []
    for number, call in enumerate(calls):
        earlier = max(_before(calls, readings, number), key=lambda n: best[n], default=None)
        best.append(_amount(call, timed) + (0.0 if earlier is None else best[earlier]))
        last.append(earlier)
    chain: list[int] = []
    at: int | None = max(range(len(best)), key=best.__getitem__, default=None)
    while at is not None:
        chain.append(at)
        at = last[at]
    return chain[::-1]


Times = Sequence[tuple[float, float]]
"""When each call began and when it ended, in order of their start."""


def sums_in_time(times: Times, costs: Sequence[float]) -> list[float]:
    """The largest sum of costs up to each call, over calls of which each began after the last.

    The program may have waited for less: what a call needed to know is not seen.
    """
    sums: list[float] = []
    for (start, _), cost in zip(times, costs, strict=True):
        before = (total for total, (_, end) in zip(sums, times, strict=False) if end <= start)
        sums.append(cost + max(before, default=0))
    return sums


def ordered_in_time(calls: Sequence[Call], times: Times) -> list[Call]:
    """The calls with their `path_tokens`, each waiting for those that had ended before it."""
    tokens = sums_in_time(times, [call.usage.generated for call in calls])
    return [replace(call, path_tokens=int(n)) for call, n in zip(calls, tokens, strict=True)]


def _before(calls: Sequence[Call], readings: Sequence[CallReading], number: int) -> Iterable[int]:
    """The calls that this one had to wait for."""
    call, read = calls[number], readings[number].sources
    if not call.path_tokens:
        return sorted(read)
    room = call.path_tokens - call.usage.generated
    return sorted(read | {n for n in range(number) if 0 < calls[n].path_tokens == room})


def _ordered(episode: Episode, readings: Sequence[CallReading]) -> bool:
    """True if the order of calls can be told from their texts or their tokens."""
    known = any(call.path_tokens for call in episode.calls)
    texts = any(piece.text for reading in readings for piece in reading.pieces)
    return bool(episode.calls) and (known or texts or len(episode.calls) == 1)


def _amount(call: Call, timed: bool) -> float:
    return call.seconds if timed else float(call.usage.generated)
