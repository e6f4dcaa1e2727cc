"""The longest chain of calls of an episode, in seconds: what an answer had to wait for.

A call follows another if its prompt holds the other's message. Tacit's own calls also know how many
tokens lie before them (`path_tokens`), which adds what was waited for and not read, such as a
silence, and leaves out what was said at the same time. Without any seconds, generated tokens are
measured instead. Not covered: the time of tools and of the program between calls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tacit.traffic.exchange import Read
from tacit.traffic.prompt_pieces import CallReading
from tacit.types import Call, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPath:
    agent: str
    amount: float
    """Of its calls on the longest chains."""
    share: float
    """Of all longest chains."""
    off: float
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
    on: dict[str, float] = {}
    every: dict[str, float] = {}
    episodes, wall = 0, 0.0
    for episode, readings in read:
        if not _ordered(episode, readings):
            continue
        episodes += 1
        wall += episode.seconds
        for call in episode.calls:
            every[call.agent] = every.get(call.agent, 0.0) + _amount(call, timed)
        for number in longest_chain(episode.calls, readings, timed):
            call = episode.calls[number]
            on[call.agent] = on.get(call.agent, 0.0) + _amount(call, timed)
    if not episodes:
        return None
    path, total = sum(on.values()), sum(every.values())
    agents = [
        AgentPath(
            agent=agent,
            amount=on.get(agent, 0.0),
            share=on.get(agent, 0.0) / path if path else 0.0,
            off=amount - on.get(agent, 0.0),
        )
        for agent, amount in every.items()
    ]
    return CriticalPath(
        unit="seconds" if timed else "tokens",
        episodes=episodes,
        path=path,
        total=total,
        wall=wall,
        beside=1.0 - path / total if total else 0.0,
        agents=tuple(sorted(agents, key=lambda one: -one.share)),
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


def _before(calls: Sequence[Call], readings: Sequence[CallReading], number: int) -> Iterable[int]:
    """The calls that this one had to wait for."""
    call = calls[number]
    read = {piece.source for piece in readings[number].pieces if piece.source is not None}
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
