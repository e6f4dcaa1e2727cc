"""What each prompt of an episode consists of, and who had said it: prompts cut into pieces.

A message counts as read if its whole text occurs in a later prompt, whatever the white space, and
whether or not our prompts quote it. Texts of fewer than `SHORTEST` characters must fill a line. The
tokens of a piece are estimated: its share of the prompt's characters times the prompt's tokens. A
piece was sent before if the same agent had it in an earlier prompt of the episode: a known text
whole, anything else line by line. Not seen: what was shortened, summarised or translated on its
way, and labels such as `Hint:` in messages that the `published` form of our prompts rewrites.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tacit.engine.base import without_marker
from tacit.team.prompts import INTRODUCTIONS
from tacit.types import Call, ChatMessage, Episode, ToolCall

PARTS = ("instructions", "question", "own", "others", "observations", "rest", "unrecorded")
"""What prompts consist of: system texts; the first user message of the episode, by paragraphs, and
private views; the agent's own earlier messages; messages of others; what tools said; anything else;
and prompts of which only the number of tokens is known."""
SHORTEST = 16
_BLOCK = 8
"""Characters. A text of twice as many covers a whole block of any prompt that holds it."""

BY_ROLE = {"system": "instructions", "developer": "instructions", "assistant": "own"}
BY_ROLE |= {"tool": "observations", "function": "observations"}
_QUOTED = {"&lt;": "<", "&#40;": "(", "&#41;": ")"}
"""How our prompts write what could end a quotation."""
_ESCAPE = re.compile("|".join(_QUOTED))
_WORD = re.compile(r"\w+")
QUESTION = -1
"""The source of a text that the task gave."""


def words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


STOP_WORDS = frozenset(
    words("""
    a about all also am an and any are as at be been but by can could did do does for from had
    has have he her here his how i if in into is it its just let ll m me more my of on or our out
    re s she so some t than that the their them then there these they this to too up us ve very
    was we were what when which who will with would you your
""")
)
"""English words without content of their own. What is affirmed or denied is content."""
COURTESIES = frozenset(
    words("""
    absolutely agree agreed appreciate awesome cool excellent fantastic fine glad good great happy
    hello hi indeed looks makes much nice ok okay perfect please point sense sounds sure thank
    thanks welcome well wonderful
""")
)
"""English words that acknowledge, and are no content either."""


def content_words(text: str) -> set[str]:
    return set(words(text)) - STOP_WORDS - COURTESIES


def lines_of(text: str) -> list[str]:
    """The lines of a text that are not blank, with single spaces and without our escapes."""
    plain = _ESCAPE.sub(lambda match: _QUOTED[match[0]], text)
    return [line for raw in plain.splitlines() if (line := " ".join(raw.split()))]


def flat(text: str) -> str:
    return " ".join(lines_of(text))


def written(content: str, tool_calls: Iterable[ToolCall]) -> str:
    """A message with the tool calls that its own text does not spell out."""
    calls = [f"{one.name} {one.arguments}" for one in tool_calls if one.name not in content]
    return "\n".join([content, *calls] if content else calls)


def said(call: Call) -> str:
    """What others can read of a call: neither its reasoning nor the marker of silence."""
    return "" if call.withheld else flat(written(_heard(call), call.tool_calls))


def _heard(call: Call) -> str:
    return without_marker(call.text.rpartition("</think>")[2])


@dataclass(frozen=True, slots=True)
class Piece:
    part: str
    """One of `PARTS`."""
    text: str
    tokens: float
    """Estimated."""
    before: bool
    """True if an earlier prompt of the same agent held it."""
    source: int | None = None
    """The call that said it."""


@dataclass(frozen=True, slots=True)
class CallReading:
    """One call: what its prompt consists of, and what its message adds."""

    pieces: tuple[Piece, ...]
    said: str
    held: frozenset[str]
    """Every known text in the prompt, also inside others."""
    novel: frozenset[str]
    """Content words of the message that the agent had neither been shown nor said."""

    @property
    def sources(self) -> set[int]:
        """The calls whose messages stand in the prompt."""
        return {piece.source for piece in self.pieces if piece.source is not None}


@dataclass(slots=True)
class _Known:
    """The texts said so far, found in a prompt by one pass over every eighth place of it."""

    sources: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _blocks: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, text: str, source: int) -> None:
        if text and text not in self.sources and len(text) >= SHORTEST:
            for offset in range(_BLOCK):
                self._blocks[text[offset : offset + _BLOCK]].append((text, offset))
        if text:
            self.sources[text].append(source)

    def find(self, lines: Sequence[str]) -> list[tuple[int, str]]:
        """Places of known texts in these lines joined by spaces."""
        whole, found, place = " ".join(lines), set(), 0
        for line in lines:
            if line in self.sources:
                found.add((place, line))
            place += len(line) + 1
        for at in range(0, len(whole) - _BLOCK + 1, _BLOCK):
            for text, offset in self._blocks.get(whole[at : at + _BLOCK], ()):
                if offset <= at and whole.startswith(text, at - offset):
                    found.add((at - offset, text))
        kept = [(at, text) for at, text in found if _apart(whole, at, at + len(text))]
        return sorted(kept, key=lambda one: (one[0], -len(one[1])))


def _apart(whole: str, start: int, end: int) -> bool:
    """True unless a text begins or ends within a word or number."""
    around = [whole[cut - 1 : cut + 1] for cut in (start, end) if 0 < cut < len(whole)]
    return not any(pair.isascii() and pair.isalnum() for pair in around)


Cut = tuple[str, str, str]
"""A piece of a prompt: the part of its role, its text, and what precedes a known text."""


def _cut(lines: Sequence[str], places: Sequence[tuple[int, str]], part: str) -> Iterator[Cut]:
    """A message's text at known texts, and the rest of it at the ends of lines."""
    whole = " ".join(lines)
    ends, end = [], -1
    for line in lines:
        ends.append(end := end + len(line) + 1)
    done = 0
    for at, text in (*places, (len(whole), "")):
        if at < done:
            continue
        inner = ends[bisect_right(ends, done) : bisect_left(ends, at)]
        for stop in (*inner, at):
            if gap := whole[done:stop].strip():
                yield part, gap, ""
            done = stop
        if text:
            yield part, text, whole[max(0, at - 60) : at] or " "
            done = at + len(text)


def read_episode(episode: Episode) -> list[CallReading]:
    """Every call of an episode, in order."""
    known, readings = _Known(), []
    for text in _given(episode):
        known.add(flat(text), QUESTION)
    sent: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, set[str]] = defaultdict(set)
    for number, call in enumerate(episode.calls):
        cuts: list[Cut] = []
        held: set[str] = set()
        for message in call.messages:
            lines = lines_of(_text(message))
            places = known.find(lines)
            held.update(text for _, text in places)
            cuts += _cut(lines, places, BY_ROLE.get(message.role, "rest"))
        pieces = _pieces(episode.calls, call, cuts, known, sent[call.agent])
        for piece in pieces:
            if piece.text not in sent[call.agent]:
                sent[call.agent].add(piece.text)
                seen[call.agent] |= content_words(piece.text)
        text = said(call)
        novel = content_words(text) - seen[call.agent]
        seen[call.agent] |= novel
        known.add(text, number)
        if (
            text and (bare := flat(_heard(call))) != text
        ):  # words beside tool calls, passed on alone
            known.add(bare, number)
        readings.append(CallReading(pieces, text, frozenset(held), frozenset(novel)))
    return readings


def _text(message: ChatMessage) -> str:
    calls = message.tool_calls if message.role == "assistant" else ()
    return written(message.content, calls)


def _given(episode: Episode) -> Iterator[str]:
    """What the task gave, paragraph by paragraph: the question, and the views of single agents."""
    asked = [m.content for call in episode.calls for m in call.messages if m.role == "user"]
    for text in (*asked[:1], *episode.views.values()):
        for paragraph in re.split(r"\n[^\S\n]*\n", text):
            if paragraph.strip().partition("\n")[0] not in INTRODUCTIONS.values():
                yield paragraph


def can_follow(call: Call, earlier: Call) -> bool:
    """False if the call's `path_tokens` leave no room for the earlier one: both went on at once."""
    return not call.path_tokens or earlier.path_tokens + call.usage.generated <= call.path_tokens


def _pieces(
    calls: Sequence[Call], call: Call, cuts: Sequence[Cut], known: _Known, sent: set[str]
) -> tuple[Piece, ...]:
    characters = sum(len(text) for _, text, _ in cuts)
    if not characters:
        return (Piece("unrecorded", "", call.usage.prompt, False),) if call.usage.prompt else ()
    times = Counter(text for _, text, before in cuts if before)
    every = {
        text: [n for n in known.sources[text] if n == QUESTION or can_follow(call, calls[n])]
        for text in times
    }
    left = {text: every[text][-count:] for text, count in times.items()}
    pieces = []
    for part, text, before in cuts:
        known_by = every.get(text) if before else None
        source = _source(calls, left[text], known_by, before) if known_by else None
        if source == QUESTION:
            part, source = "question", None
        elif source is not None:
            part = "own" if calls[source].agent == call.agent else "others"
        tokens = call.usage.prompt * len(text) / characters
        pieces.append(Piece(part, text, tokens, text in sent, source))
    return tuple(pieces)


def _source(calls: Sequence[Call], left: list[int], every: Sequence[int], before: str) -> int:
    """Who said it, if several said the same: whoever is named before it, else one after another."""
    if QUESTION in every:
        return QUESTION
    named = {n: _last(calls[n].agent, before) for n in every}
    best = max(named.values())
    if best >= 0 and len({calls[n].agent for n in every}) > 1:
        mine = [n for n in every if named[n] == best]
        chosen = next((n for n in mine if n in left), mine[-1])
    else:
        chosen = left[0] if left else every[-1]
    if chosen in left:
        left.remove(chosen)
    return chosen


def _last(name: str, text: str) -> int:
    """Where a name last stands in a text as a word of its own; -1 if nowhere."""
    found = re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return max((match.start() for match in found), default=-1)
