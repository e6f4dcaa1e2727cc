"""Sums of who read whom: what prompts consist of, and how often each message was read.

All tokens are estimates by share of characters (`reading`), summed over the episodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Part:
    """One part of an agent's prompts, in tokens."""

    name: str
    tokens: float = 0.0
    before: float = 0.0
    """Of these, tokens that an earlier prompt of the same agent held in the same episode."""


@dataclass(slots=True)
class Prompts:
    """What the prompts of one agent consist of; the parts sum to `tokens`."""

    agent: str
    calls: int = 0
    tokens: float = 0.0
    before: float = 0.0
    parts: tuple[Part, ...] = ()
    examples: list[Example] = field(default_factory=list)
    """The longest texts that were sent again."""


@dataclass(slots=True)
class Edge:
    """What one agent read of another, or of its own earlier messages."""

    sender: str
    reader: str
    messages: int = 0
    """Different messages of the sender that the reader was shown whole."""
    readings: int = 0
    """The same, counted once for each prompt."""
    tokens: float = 0.0
    before: float = 0.0


@dataclass(slots=True)
class Sender:
    """How often the messages of one agent were read. The team's answer is not counted."""

    agent: str
    messages: int = 0
    readings: int = 0
    """Prompts that hold one of them whole, all readers together."""
    readers: float = 0.0
    """Agents, itself left out, that were shown a message: the mean over its messages."""
    unread: int = 0
    """Messages that no later prompt holds whole."""
    unread_tokens: int = 0
    """Generated for these."""
    examples: list[Example] = field(default_factory=list)
    """Of unread messages."""


def prompts(read: Iterable[Read]) -> tuple[Prompts, ...]:
    """One row for each agent, in order of their first call."""
    found: dict[str, Prompts] = {}
    parts: dict[str, dict[str, Part]] = {}
    for place, (episode, readings) in enumerate(read):
        for number, (call, reading) in enumerate(zip(episode.calls, readings, strict=True)):
            one = found.setdefault(call.agent, Prompts(call.agent))
            mine = parts.setdefault(call.agent, {name: Part(name) for name in PARTS})
            one.calls += 1
            for piece in reading.pieces:
                for sums in (one, mine[piece.part]):
                    sums.tokens += piece.tokens
                    sums.before += piece.tokens * piece.before
            resent = [piece.text for piece in reading.pieces if piece.before]
            if resent and len(one.examples) < EXAMPLES:
                one.examples.append(example(place, episode, number, max(resent, key=len)))
    for agent, one in found.items():
        one.parts = tuple(part for part in parts[agent].values() if part.tokens)
    return tuple(found.values())


def edges(read: Iterable[Read]) -> tuple[Edge, ...]:
    """Who was shown whose messages, most tokens first."""
    found: dict[tuple[str, str], Edge] = {}
    shown: set[tuple[int, int, str]] = set()
    for place, (episode, readings) in enumerate(read):
        for call, reading in zip(episode.calls, readings, strict=True):
            for piece in reading.pieces:
                if piece.source is not None:
                    pair = episode.calls[piece.source].agent, call.agent
                    one = found.setdefault(pair, Edge(*pair))
                    one.tokens += piece.tokens
                    one.before += piece.tokens * piece.before
            for source in reading.sources:
                one = found[episode.calls[source].agent, call.agent]
                one.readings += 1
                one.messages += (place, source, call.agent) not in shown
                shown.add((place, source, call.agent))
    return tuple(sorted(found.values(), key=lambda edge: -edge.tokens))


def senders(read: Iterable[Read]) -> tuple[Sender, ...]:
    """One row for each agent that said something before the answer, in order of their first."""
    found: dict[str, Sender] = {}
    for place, (episode, readings) in enumerate(read):
        held, by = _readers(episode, readings)
        for number, spoken in enumerate(readings):
            call = episode.calls[number]
            if not (spoken.said and call.is_turn) or _answers(episode, number, readings):
                continue
            one = found.setdefault(call.agent, Sender(call.agent))
            one.messages += 1
            one.readings += len(by.get(number, ()))
            one.readers += len({*by.get(number, ())} - {call.agent})
            if held.get(spoken.said, -1) <= number:
                one.unread += 1
                one.unread_tokens += call.usage.generated
                if len(one.examples) < EXAMPLES:
                    one.examples.append(example(place, episode, number))
    for one in found.values():
        one.readers /= one.messages
    return tuple(found.values())


def _readers(
    episode: Episode, readings: Sequence[CallReading]
) -> tuple[dict[str, int], dict[int, list[str]]]:
    """The last call whose prompt holds each text, and the agents whose prompts hold each call's."""
    held: dict[str, int] = {}
    by: dict[int, list[str]] = {}
    for number, (call, reading) in enumerate(zip(episode.calls, readings, strict=True)):
        held |= dict.fromkeys(reading.held, number)
        for source in reading.sources:
            by.setdefault(source, []).append(call.agent)
    return held, by


def _answers(episode: Episode, number: int, readings: Sequence[CallReading]) -> bool:
    """True for the last message, and for messages with the text of the team's answer."""
    text = episode.calls[number].text.strip()
    last = max((n for n, one in enumerate(readings) if one.said), default=-1)
    return number == last or bool(text and text == episode.answer.strip())
