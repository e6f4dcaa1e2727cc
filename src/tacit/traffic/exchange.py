"""Sums of who read whom: what prompts consist of, and how often each message was read.

All tokens are estimates by share of characters (`reading`), summed over the episodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tacit.traffic.prompt_pieces import PARTS, CallReading
from tacit.types import Episode

EXAMPLES = 5
"""Most examples kept of one thing."""
_EXCERPT = 160

Read = tuple[Episode, Sequence[CallReading]]


@dataclass(frozen=True, slots=True)
class Example:
    """Where to read it: the episode's and the call's number, from 0."""

    episode: int
    task_id: str
    call: int
    agent: str
    excerpt: str


def example(place: int, episode: Episode, number: int, text: str = "") -> Example:
    call = episode.calls[number]
    excerpt = " ".join((text or call.text).split())
    excerpt = excerpt if len(excerpt) <= _EXCERPT else f"{excerpt[: _EXCERPT - 1]}…"
    return Example(place, episode.task_id, number, call.agent, excerpt)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an agent's prompts, in tokens."""

    name: str
    tokens: float
    before: float
    """Of these, tokens that an earlier prompt of the same agent held in the same episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What the prompts of one agent consist of; the parts sum to `tokens`."""

    agent: str
    calls: int
    tokens: float
    before: float
    parts: tuple[Part, ...]
    examples: tuple[Example, ...]
    """The longest texts that were sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What one agent read of another, or of its own earlier messages."""

    sender: str
    reader: str
    messages: int
    """Different messages of the sender that the reader was shown whole."""
    readings: int
    """The same, counted once for each prompt."""
    tokens: float
    before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """How often the messages of one agent were read. The team's answer is not counted."""

    agent: str
    messages: int
    readings: int
    """Prompts that hold one of them whole, all readers together."""
    readers: float
    """Agents, itself left out, that were shown a message: the mean over its messages."""
    unread: int
    """Messages that no later prompt holds whole."""
    unread_tokens: int
    """Generated for these."""
    examples: tuple[Example, ...]
    """Of unread messages."""


def prompts(read: Iterable[Read]) -> tuple[Prompts, ...]:
    """One row for each agent, in order of their first call."""
    calls: dict[str, int] = {}
    sums: dict[tuple[str, str], list[float]] = {}
    again: dict[str, list[Example]] = {}
    for place, (episode, readings) in enumerate(read):
        for number, (call, reading) in enumerate(zip(episode.calls, readings, strict=True)):
            calls[call.agent] = calls.get(call.agent, 0) + 1
            for piece in reading.pieces:
                both = sums.setdefault((call.agent, piece.part), [0.0, 0.0])
                both[0] += piece.tokens
                both[1] += piece.tokens * piece.before
            resent = [piece for piece in reading.pieces if piece.before]
            if resent and len(again.setdefault(call.agent, [])) < EXAMPLES:
                longest = max(resent, key=lambda piece: len(piece.text))
                again[call.agent].append(example(place, episode, number, longest.text))
    rows = []
    for agent, count in calls.items():
        parts = [Part(name, *sums.get((agent, name), (0.0, 0.0))) for name in PARTS]
        rows.append(
            Prompts(
                agent=agent,
                calls=count,
                tokens=sum(part.tokens for part in parts),
                before=sum(part.before for part in parts),
                parts=tuple(part for part in parts if part.tokens),
                examples=tuple(again.get(agent, ())),
            )
        )
    return tuple(rows)


def edges(read: Iterable[Read]) -> tuple[Edge, ...]:
    """Who was shown whose messages, most tokens first."""
    sums: dict[tuple[str, str], list[float]] = {}
    shown: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for place, (episode, readings) in enumerate(read):
        for call, reading in zip(episode.calls, readings, strict=True):
            counted: set[int] = set()
            for piece in reading.pieces:
                if piece.source is None:
                    continue
                pair = (episode.calls[piece.source].agent, call.agent)
                total = sums.setdefault(pair, [0, 0.0, 0.0])
                total[0] += piece.source not in counted
                total[1] += piece.tokens
                total[2] += piece.tokens * piece.before
                counted.add(piece.source)
                shown.setdefault(pair, set()).add((place, piece.source))
    found = [
        Edge(
            sender=pair[0],
            reader=pair[1],
            messages=len(shown[pair]),
            readings=int(readings),
            tokens=tokens,
            before=before,
        )
        for pair, (readings, tokens, before) in sums.items()
    ]
    return tuple(sorted(found, key=lambda edge: -edge.tokens))


@dataclass(slots=True)
class _Count:
    messages: int = 0
    readings: int = 0
    readers: int = 0
    unread: int = 0
    tokens: int = 0


def senders(read: Iterable[Read]) -> tuple[Sender, ...]:
    """One row for each agent that said something before the answer, in order of their first."""
    counts: dict[str, _Count] = {}
    unread: dict[str, list[Example]] = {}
    for place, (episode, readings) in enumerate(read):
        held, by = _readers(episode, readings)
        for number, spoken in enumerate(readings):
            call = episode.calls[number]
            if not (spoken.said and call.is_turn) or _answers(episode, number, readings):
                continue
            count = counts.setdefault(call.agent, _Count())
            count.messages += 1
            count.readings += len(by.get(number, ()))
            count.readers += len({*by.get(number, ())} - {call.agent})
            if held.get(spoken.said, -1) <= number:
                count.unread += 1
                count.tokens += call.usage.generated
                if len(kept := unread.setdefault(call.agent, [])) < EXAMPLES:
                    kept.append(example(place, episode, number))
    return tuple(
        Sender(
            agent=agent,
            messages=one.messages,
            readings=one.readings,
            readers=one.readers / one.messages,
            unread=one.unread,
            unread_tokens=one.tokens,
            examples=tuple(unread.get(agent, ())),
        )
        for agent, one in counts.items()
    )


def _readers(
    episode: Episode, readings: Sequence[CallReading]
) -> tuple[dict[str, int], dict[int, list[str]]]:
    """The last call whose prompt holds each text, and the agents whose prompts hold each call's."""
    held: dict[str, int] = {}
    by: dict[int, list[str]] = {}
    for number, (call, reading) in enumerate(zip(episode.calls, readings, strict=True)):
        held |= dict.fromkeys(reading.held, number)
        for source in {piece.source for piece in reading.pieces if piece.source is not None}:
            by.setdefault(source, []).append(call.agent)
    return held, by


def _answers(episode: Episode, number: int, readings: Sequence[CallReading]) -> bool:
    """True for the last message, and for messages with the text of the team's answer."""
    text = episode.calls[number].text.strip()
    last = max((n for n, one in enumerate(readings) if one.said), default=-1)
    return number == last or bool(text and text == episode.answer.strip())
