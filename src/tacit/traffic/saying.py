"""What messages add: repetition, acknowledgements, loops, and tools called again.

- *Repetition* is the reward's measure: word 4-grams that were said before in the episode.
- An *acknowledgement* has at most `MOST_WORDS` words, a word of courtesy, no digit, and no content
  word that its sender had not been shown or said. The words are English; in other languages
  acknowledgements are missed. "Thanks, I agree." is one, "42" and "No, thanks" are not.
- A *loop* is two or more messages in a row, each by an agent that has spoken before and was shown
  the message before it, that add nothing: no new content word, and at least `ROUND` of their word
  pairs had been said in the episode. A → B → A → B is one if the second A and B add nothing. A
  changed mind can look like one, so examples are kept.

None of this says what a message was worth: an agreement can be a vote, and a repeated call of a
tool can see a changed world.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tacit.economy.reward import repeated_grams
from tacit.traffic.exchange import EXAMPLES, Example, Read, example
from tacit.traffic.prompt_pieces import COURTESIES, CallReading, can_follow, words
from tacit.types import Call, Episode

MOST_WORDS = 12
AGAIN = 0.8
"""The share of repeated 4-grams from which a message says again what was said."""
ROUND = 0.5
"""The share of repeated word pairs from which a message can be part of a loop: in a long episode
most single words have been said."""


@dataclass(slots=True)
class Saying:
    """The messages of one agent; words to tools are not messages."""

    agent: str
    messages: int = 0
    generated: int = 0
    """Tokens of these messages."""
    repetition: float = 0.0
    """The share of its word 4-grams that repeat what was said before in the episode."""
    again: int = 0
    """Messages of which at least `AGAIN` repeats."""
    again_tokens: int = 0
    acknowledgements: int = 0
    acknowledgement_tokens: int = 0
    again_examples: list[Example] = field(default_factory=list)
    acknowledgement_examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Messages in a row that add no word."""

    episode: int
    task_id: str
    calls: tuple[int, ...]
    agents: tuple[str, ...]
    """Of these calls."""
    tokens: int
    """Generated and read by these calls."""
    examples: tuple[Example, ...]


@dataclass(slots=True)
class ToolRepeat:
    """One agent called one tool again with the same arguments, within an episode."""

    agent: str
    tool: str
    calls: int = 0
    """All its calls of the tool."""
    repeated: int = 0
    """Those that had been made before."""
    examples: list[Example] = field(default_factory=list)


def sayings(read: Iterable[Read]) -> tuple[Saying, ...]:
    """One row for each agent that said something, in order of their first message."""
    found: dict[str, Saying] = {}
    every: Counter[str] = Counter()
    for place, (episode, readings) in enumerate(read):
        turns = list(_turns(episode))
        grams = repeated_grams([episode.calls[number].text for number in turns])
        for number, (repeated, total) in zip(turns, grams, strict=True):
            call = episode.calls[number]
            tokens, here = call.usage.generated, example(place, episode, number)
            one = found.setdefault(call.agent, Saying(call.agent))
            one.messages += 1
            one.generated += tokens
            one.repetition += repeated
            every[call.agent] += total
            if total and repeated >= AGAIN * total:
                one.again += 1
                one.again_tokens += tokens
                one.again_examples = [*one.again_examples, here][:EXAMPLES]
            if _acknowledges(episode, call, readings[number]):
                one.acknowledgements += 1
                one.acknowledgement_tokens += tokens
                one.acknowledgement_examples = [*one.acknowledgement_examples, here][:EXAMPLES]
    for agent, one in found.items():
        one.repetition /= max(1, every[agent])
    return tuple(found.values())


def _turns(episode: Episode) -> Iterator[int]:
    """The calls whose texts the reward compares, but for those without a text."""
    for number, call in enumerate(episode.calls):
        if not (call.silent or call.tool_calls) and call.text.strip():
            yield number


def _acknowledges(episode: Episode, call: Call, reading: CallReading) -> bool:
    told = words(reading.said)
    return (
        0 < len(told) <= MOST_WORDS
        and not COURTESIES.isdisjoint(told)
        and not any(character.isdigit() for character in reading.said)
        and not reading.novel
        and call.text.strip() != episode.answer.strip()
    )


def loops(read: Iterable[Read]) -> tuple[Loop, ...]:
    found: list[Loop] = []
    for place, (episode, readings) in enumerate(read):
        spoken: set[str] = set()
        run: list[int] = []
        before: int | None = None
        turns = list(_turns(episode))
        pairs = repeated_grams([" ".join(words(readings[number].said)) for number in turns], 2)
        for number, (repeated, total) in zip(turns, pairs, strict=True):
            agent, reading = episode.calls[number].agent, readings[number]
            stale = agent in spoken and not reading.novel and repeated >= ROUND * total
            if stale and before is not None and _shown(episode, readings, before, number):
                run.append(number)
            else:
                found += _loop(place, episode, run)
                run = []
            spoken.add(agent)
            before = number
        found += _loop(place, episode, run)
    return tuple(found)


def _shown(episode: Episode, readings: Sequence[CallReading], before: int, number: int) -> bool:
    """True if a call was shown the message before it, rather than an equal one of another round.

    Two prompts with the same messages in them were written at the same time.
    """
    if not can_follow(episode.calls[number], episode.calls[before]):
        return False
    earlier, later = (
        Counter(piece.text for piece in readings[n].pieces if piece.source is not None)
        for n in (before, number)
    )
    return readings[before].said in readings[number].held and earlier != later


def _loop(place: int, episode: Episode, run: Sequence[int]) -> Iterator[Loop]:
    if len(run) > 1:
        calls = [episode.calls[number] for number in run]
        yield Loop(
            episode=place,
            task_id=episode.task_id,
            calls=tuple(run),
            agents=tuple(call.agent for call in calls),
            tokens=sum(call.usage.total for call in calls),
            examples=tuple(example(place, episode, number) for number in run[:EXAMPLES]),
        )


def tool_repeats(read: Iterable[Read]) -> tuple[ToolRepeat, ...]:
    """Agents that called a tool again with the same arguments, most often first."""
    found: dict[tuple[str, str], ToolRepeat] = {}
    for place, (episode, _) in enumerate(read):
        made: set[tuple[str, str, str]] = set()
        for number, call in enumerate(episode.calls):
            for tool in call.tool_calls:
                asked = call.agent, tool.name, _sorted(tool.arguments)
                one = found.setdefault(asked[:2], ToolRepeat(*asked[:2]))
                one.calls += 1
                if asked in made:
                    one.repeated += 1
                    said = example(place, episode, number, f"{tool.name} {asked[2]}")
                    one.examples = [*one.examples, said][:EXAMPLES]
                made.add(asked)
    repeats = [one for one in found.values() if one.repeated]
    return tuple(sorted(repeats, key=lambda one: -one.repeated))


def _sorted(arguments: str) -> str:
    """Arguments in one spelling; as they are if they are not JSON."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments.strip()
