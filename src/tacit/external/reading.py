"""Makes episodes of a recording: which calls belong together, and which agent made each.

An agent is named by `x-tacit-role`; else by its API key, if the app uses several; else by model and
system prompt. An episode is named by the client; calls without a name are told apart by pauses, and
only where they do not overlap.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.external.calls import Record, read_calls
from tacit.external.passing import OF_START
from tacit.external.wire_formats import GENERATING, messages_of, said_of, system_of
from tacit.run.folder import read_lines
from tacit.traffic.critical_path import ordered_in_time, sums_in_time
from tacit.types import Call, ChatMessage, Episode, Grade, Usage

ABOUT, OUTCOMES = "recording.json", "outcomes.jsonl"
MANY_AGENTS = 8
"""So many agents, each asked about once, are probably one whose system prompt changes."""
_OPENING = re.compile(
    r"\W*(?:(?:you are|you're|act as|your role is|as)\b|(?:role|name)\s*:)?\W*"
    r"(?:(?:an?|the)\b)?\W*",
    re.IGNORECASE,
)
_WORDS, _LETTERS = 4, 40
"""The longest name that is made of a system prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The episodes of a recording, and what is not in them."""

    episodes: tuple[Episode, ...]
    """In order of their first calls. `task_id` is the episode's name."""
    records: Mapping[str, tuple[Record, ...]]
    """Episode → its successful records, in order of their start."""
    agents: "Agents"
    failed: int
    """Calls without a complete answer, which are in no episode."""
    others: int
    """Requests in which no model speaks: lists of models, embeddings, files."""
    apart: int
    """Calls that could not be told apart by episode, and are in none."""
    done: frozenset[str]
    """Tasks that need not be run again: with a grade, or which nobody can grade."""
    notes: tuple[str, ...]
    """What is missing and how to send it, in sentences."""


class Agents:
    """Names for the agents of a recording, in order of appearance."""

    def __init__(self, records: Iterable[Record]) -> None:
        """`records`: those in which a model speaks, in order of their start."""
        records = list(records)
        keys = {record.key for record in records if record.key and not record.role}
        starts = Counter(key.partition(OF_START)[2] for key in keys)
        self._keys = {key for key in keys if starts[key.partition(OF_START)[2]] > 1}
        """Those of starts that saw several."""
        self._names: dict[tuple[str, ...], str] = {}
        self._used: set[str] = {record.role for record in records if record.role}
        self._before: dict[tuple[str, ...], str] = {}
        """Those of the recording, in a copy."""
        for record in records:
            self.name(record)

    def copy(self) -> "Agents":
        """For calls of another run, whose agents' names must not reach the others.

        A system prompt may hold the date: who is new there is taken for the only one in the
        recording with the same model and the same first words, if there is one.
        """
        other = Agents(())
        other._before = self._names
        other._keys, other._names, other._used = self._keys, {**self._names}, {*self._used}
        return other

    def name(self, record: Record) -> str:
        if record.role:
            return record.role
        known: tuple[str, ...] = (record.key or "",)
        wanted = known[0]
        if record.key not in self._keys:
            model = str(record.request.get("model") or "model")
            known = model, system_of(record.path, record.request)
            wanted = name_in(known[1]) or model
        if known not in self._names:
            same = known[0], name_in(known[-1])
            alike = [n for one, n in self._before.items() if (one[0], name_in(one[-1])) == same]
            self._names[known] = alike[0] if len(alike) == 1 else self._unused(wanted)
        return self._names[known]

    def _unused(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._used:
            number += 1
            name = f"{wanted} {number}"
        self._used.add(name)
        return name


def name_in(system: str) -> str:
    """`You are the Lead Critic, and terse.` → `Lead Critic`."""
    told = _OPENING.match(system.strip())
    rest = system.strip()[told.end() if told else 0 :]
    words = re.split(r"[.,:;!?\n(<]", rest, maxsplit=1)[0].split()[:_WORDS]
    while words and words[-1] in ("a", "an", "the", "of", "to", "who", "that", "and", "in"):
        words.pop()
    return " ".join(words)[:_LETTERS].strip()


def recorded_episodes(folder: str | Path, pause: float | None = None) -> list[Episode]:
    """The episodes of a recording; `read_recording` also says what is not in them."""
    return list(read_recording(folder, pause).episodes)


def read_recording(folder: str | Path, pause: float | None = None) -> Recording:
    """Read a folder that `tacit record` wrote, also while it writes.

    `pause` replaces the one that the recording was made with.
    """
    path = Path(folder)
    if not (path / ABOUT).exists():
        raise ConfigError(f"`{folder}` holds no recording: make one with `tacit record --to URL`")
    pause = about(path)["pause"] if pause is None else pause
    calls = sorted(read_calls(path), key=lambda record: (record.start, record.end))
    good = [record for record in calls if not record.failed]
    named, apart = _by_episode(calls, pause)
    speaking = [record for record in good if speaks(record)]
    others = [record for record in good if not speaks(record)]
    agents = Agents(speaking)
    broken = {record.episode for record in calls if record.failed}
    outcomes = _outcomes(path, broken)
    done = {one["task"] for one in outcomes.values() if one["grade"] or not one["error"]}
    lost = {one["task"]: one["error"] for one in outcomes.values() if one["task"] not in done}
    episodes = tuple(
        episode_of(name, named.get(name, ()), agents, outcomes.get(name, {}))
        for name in dict.fromkeys((*named, *outcomes))
        if name in outcomes or any(map(speaks, named[name]))
    )
    failed = len(calls) - len(good)
    return Recording(
        episodes=episodes,
        records=named,
        agents=agents,
        failed=failed,
        others=len(others),
        apart=apart,
        done=frozenset(done),
        notes=(*_notes(speaking, others, agents, failed, apart), *_lost(lost)),
    )


def about(path: Path) -> dict[str, Any]:
    """The settings of a recording: where it went to, and its pause."""
    try:
        found = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        return {"to": str(found["to"]), "pause": float(found["pause"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path / ABOUT} is damaged: {error}") from None


def speaks(record: Record) -> bool:
    """True if a model said something in this call."""
    asked, said = isinstance(record.request, dict), isinstance(record.response, dict)
    return record.path in GENERATING and record.method == "POST" and asked and said


def _by_episode(records: Sequence[Record], pause: float) -> tuple[dict[str, Any], int]:
    """Episode → its good records; and how many speaking ones could not be told apart."""
    groups: dict[str, list[Record]] = {}
    nameless: list[list[Record]] = []
    end = float("-inf")
    for record in records:
        if record.episode is None:
            if record.start - end > pause:
                nameless.append([])
            end = max(end, record.end)  # who waits for a call that fails is not quiet
        if not record.failed:
            group = (
                nameless[-1] if record.episode is None else groups.setdefault(record.episode, [])
            )
            group.append(record)
    apart, number = 0, 0
    for group in nameless:
        speaking = [record for record in group if speaks(record)]
        if _overlap(speaking):
            apart += len(speaking)
        elif speaking:
            number += 1
            while f"episode {number}" in groups:
                number += 1
            groups[f"episode {number}"] = group
    ordered = sorted(groups.items(), key=lambda item: item[1][0].start)
    return {name: tuple(group) for name, group in ordered}, apart


def _overlap(records: Sequence[Record]) -> bool:
    end = 0.0
    for record in records:
        if record.start < end:
            return True
        end = max(end, record.end)
    return False


def episode_of(
    name: str, records: Sequence[Record], agents: Agents, outcome: Mapping[str, Any]
) -> Episode:
    """`outcome` is what the program returned, if it was run under the recording."""
    speaking = [record for record in records if speaks(record)]
    times = [(record.start, record.end) for record in speaking]
    calls = ordered_in_time(calls_of(speaking, agents), times)
    said = [call.text for call in calls if not call.tool_calls]
    grade = outcome.get("grade")
    return Episode(
        task_id=name,
        sample=0,
        level=outcome.get("level") or "",
        calls=tuple(calls),
        answer=outcome["answer"] if "answer" in outcome else said[-1] if said else "",
        grade=Grade(**grade) if grade else None,
        error=outcome.get("error"),
        seconds=max(sums_in_time(times, [call.seconds for call in calls]), default=0.0),
    )


def calls_of(records: Sequence[Record], agents: Agents) -> list[Call]:
    """The calls of one episode. Where a server remembers what came before, so does the prompt."""
    calls: list[Call] = []
    before: dict[str, tuple[ChatMessage, ...]] = {}
    for record in records:
        call = call_of(record, agents.name(record))
        earlier = before.get(str(record.request.get("previous_response_id")), ())
        call = replace(call, messages=(*earlier, *call.messages))
        heard = (message for message in call.messages if message.role != "system")
        said = ChatMessage("assistant", call.text, call.tool_calls)
        before[str(record.response.get("id"))] = (*heard, said)
        calls.append(call)
    return calls


def call_of(record: Record, agent: str) -> Call:
    """An empty answer is silence. Tokens that the server did not tell of are counted as 0."""
    said = said_of(record.path, record.response)
    silent = not (said.text.strip() or said.tool_calls)
    return Call(
        agent=agent,
        model=str(record.request.get("model") or said.served),
        messages=messages_of(record.path, record.request),
        text=said.text,
        stop=said.stop,
        usage=said.usage or Usage(),
        silent=silent,
        may_be_silent=silent,
        seconds=record.end - record.start,
        served=said.served,
        fingerprint=said.fingerprint,
        tool_calls=said.tool_calls,
    )


def _outcomes(path: Path, broken: Collection[str | None]) -> dict[str, dict[str, Any]]:
    """Episode → what the program returned, the last time it was run.

    A program that broke by itself, with no call in the episode that failed, was wrong: without an
    agent it would count as wrong too, and must not seem to be worse for that.
    """
    wrong = {"grade": asdict(Grade(reward=0.0, right=False))}
    found: dict[str, dict[str, Any]] = {}
    for number, text in enumerate(read_lines(path / OUTCOMES), start=1):
        try:
            line = json.loads(text)
            line["task"], line["grade"], line["error"]  # what every outcome has
            by_itself = line.get("broke") and line["episode"] not in broken
            found[line["episode"]] = line | (wrong if by_itself else {})
        except (ValueError, KeyError, TypeError):
            told = f"{path / OUTCOMES} line {number} is no outcome: remove that line"
            raise ConfigError(f"{told}, and its task is run again") from None
    return found


def _lost(lost: Mapping[str, str]) -> Iterable[str]:
    if lost:
        yield (
            f"not recorded to the end: {len(lost)} of the tasks, which `tacit record` with the "
            f"same options runs again; the first: {next(iter(lost.values()))}"
        )


def _notes(
    speaking: Sequence[Record],
    others: Sequence[Record],
    agents: Agents,
    failed: int,
    apart: int,
) -> Iterable[str]:
    if failed:
        yield f"{_count(failed, 'call')} failed and {'is' if failed == 1 else 'are'} left out"
    if apart:
        yield (
            f"{_count(apart, 'call')} named no episode, and some of them overlap, so nobody knows "
            "which belong together: give each run of the app a base URL of its own, "
            "http://HOST:PORT/RUN/v1, or send the header `x-tacit-episode: RUN`, or the API key "
            "`tacit/RUN:KEY`"
        )
    if uncounted := sum(said_of(one.path, one.response).usage is None for one in speaking):
        yield (
            f"{_count(uncounted, 'call')} told no usage, which counts as 0 tokens: streams tell it "
            "if the app sends "
            '`"stream_options": {"include_usage": true}`'
        )
    if others and not speaking:
        paths = ", ".join(f"`{path}`" for path in dict.fromkeys(one.path for one in others))
        yield f"no agent was heard: they are read from {', '.join(GENERATING)}, not from {paths}"
    names = Counter(agents.name(record) for record in speaking)
    if len(names) > MANY_AGENTS and 2 * len(names) > len(speaking):
        yield (
            f"{len(names)} agents made {len(speaking)} calls: if a system prompt changes from call "
            "to call, name the agent with the header `x-tacit-role`"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
