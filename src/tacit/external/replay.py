"""Runs an app again as it was recorded, with one message changed: what would have happened then?

    async with replaying("runs/recorded") as replays:
        change = Change(2, "")                    # the third message of the episode is not said
        played = await replays.run("my_app:solve", task, "episode 1", change)
        played.answer, played.spent

Requests that equal a recorded one are answered from the recording at no cost. All others are asked
of the server, and are kept in `replays.jsonl`. An app whose prompts hold the time, or anything else
that changes by itself, cannot be replayed: every call is then real.
"""

import contextlib
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, EngineError
from tacit.external.answers import local_reply, spoken
from tacit.external.calls import CallLog, KeylessFolder, Record, record_of, without_keys
from tacit.external.loopback_server import Loopback
from tacit.external.passing import Exchange, Local, PassThrough
from tacit.external.program import answer_of, find_program
from tacit.external.reading import Recording, about, call_of, calls_of, read_recording, speaks
from tacit.external.wire_formats import GENERATING
from tacit.registry import did_you_mean
from tacit.serve.http_error import HttpError
from tacit.serve.upstream import Upstream, parsed
from tacit.types import Call, Task, Usage

REPLAYS = "replays.jsonl"
ASIDE = ("metadata", "prompt_cache_key", "safety_identifier", "store", "user")
"""Fields of a request that do not reach the model, and may differ from run to run."""


class Source(StrEnum):
    """Where an answer came from."""

    RECORDED = "recorded"
    CHANGED = "changed"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Change:
    """What one message of an episode is replaced by.

    Example: Change(0, "I have nothing to add.")
    """

    index: int
    """Into the recorded episode's `calls`."""
    text: str = ""
    """Empty is silence: an empty answer that calls no tool."""


@dataclass(frozen=True, slots=True)
class Mute:
    """What every message of an agent is replaced by."""

    agent: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One run of the app."""

    answer: str
    """What the app returned; empty if it failed."""
    error: str | None
    """Why it failed, in a sentence."""
    calls: tuple[Call, ...]
    """In order of their start. Of recorded ones, `reused` is True; failed ones are left out."""
    sources: tuple[Source, ...]
    """Of each call."""
    changed: bool
    """Whether the app came to the message in question."""
    server_failure: str | None
    """Why the server is to blame for this outcome: what the app failed after, or ended with."""

    def made(self, source: Source) -> tuple[Call, ...]:
        pairs = zip(self.calls, self.sources, strict=True)
        return tuple(call for call, one in pairs if one is source)

    @property
    def spent(self) -> Usage:
        """What the server was really asked for."""
        return sum((call.usage for call in self.made(Source.REAL)), Usage())


class Replays:
    """Runs apps against one recording; several at once, if the caller likes."""

    def __init__(self, recording: Recording, hidden: Callable[[str], str] = str) -> None:
        """`hidden` takes API keys out of what apps and servers say."""
        self.recording, self._hidden = recording, hidden
        self.loopback: Loopback | None = None
        self._sessions: dict[str, _Session] = {}

    async def run(
        self,
        program: str,
        task: Task,
        episode: str,
        change: Change | Mute | None = None,
        *,
        seconds: float = 600.0,
    ) -> Replayed:
        """Run `program` (`module:function`) on the task that it had in the recorded episode.

        Without a change it only shows whether the app does the same again.
        """
        assert self.loopback is not None
        find_program(program)
        session = _Session(self.recording, episode, change)
        name = secrets.token_urlsafe(16)
        self._sessions[name] = session
        answer, error = "", None
        try:
            answer = await answer_of(program, self.loopback.url(name), task, seconds)
        except (ConfigError, EngineError) as failure:
            error = self._hidden(str(failure))
        finally:
            del self._sessions[name]
        played = session.result(self._hidden(answer), error)
        blamed = played.server_failure
        return replace(played, server_failure=blamed and self._hidden(blamed))

    def answer(self, exchange: Exchange) -> Local | None:
        """The answer to give here; None if the server must be asked."""
        if exchange.place not in self._sessions:
            raise HttpError(404, "no such episode is being replayed", code="episode_over")
        return self._sessions[exchange.place].answer(exchange)

    def keep(self, exchange: Exchange) -> Record | None:
        """Note what was asked; returns the record of what the server answered."""
        if session := self._sessions.get(exchange.place):
            return session.keep(exchange)
        return record_of(exchange) if exchange.reply else None  # an app that took too long


class _Session:
    """One run: what is still to be answered from the recording, and what was asked."""

    def __init__(self, recording: Recording, episode: str, change: Change | Mute | None) -> None:
        known = recording.records
        if episode not in known:
            hint = did_you_mean(episode, known)
            raise ConfigError(f"no episode `{episode}` was recorded: {hint}")
        calls = [record for record in known[episode] if speaks(record)]
        one = change if isinstance(change, Change) else None
        if one and not 0 <= one.index < len(calls):
            raise ConfigError(f"`{episode}` has {len(calls)} messages, and none at {one.index}")
        self._episode = episode
        self._agents = recording.agents.copy()
        self._text = change.text if change else ""
        self._in_question = calls[one.index] if one else None
        self._muted = change.agent if isinstance(change, Mute) else None
        self._waiting: dict[str, deque[Record]] = {}
        for record in known[episode]:
            asked = _identity(record.role, record.path, record.request)
            self._waiting.setdefault(asked, deque()).append(record)
        self._keys: dict[str | None, str | None] = {}
        """This run's label of an API key → the recording's, as learned from equal requests."""
        self._done: list[tuple[Record, Source]] = []
        self._under_way = 0
        """Real calls that have not ended."""

    def answer(self, exchange: Exchange) -> Local | None:
        """The n-th equal request has the n-th recorded answer; None if there is none."""
        request = without_keys(parsed(exchange.body))
        waiting = self._waiting.get(_identity(exchange.role, exchange.path, request))
        record = waiting.popleft() if waiting else None
        if record:
            self._keys[exchange.key] = record.key
        asked = request if isinstance(request, dict) else {}
        if (record and record is self._in_question) or self._is_muted(exchange):
            reply = spoken(exchange.path, asked, self._text)
            return local_reply(exchange.path, asked, reply, Source.CHANGED)
        if record is None:
            self._under_way += 1
            return None
        return local_reply(record.path, asked, record.response, Source.RECORDED)

    def _is_muted(self, exchange: Exchange) -> bool:
        if self._muted is None or exchange.path not in GENERATING or exchange.method != "POST":
            return False
        asked = replace(record_of(exchange), key=self._keys.get(exchange.key))
        return isinstance(asked.request, dict) and self._agents.name(asked) == self._muted

    def keep(self, exchange: Exchange) -> Record | None:
        source = Source(exchange.source or Source.REAL)
        record = record_of(exchange)
        record = replace(record, episode=self._episode, key=self._keys.get(record.key))
        self._under_way -= source is Source.REAL
        self._done.append((record, source))
        return record if source is Source.REAL else None

    def result(self, answer: str, error: str | None) -> Replayed:
        ordered = sorted(self._done, key=lambda one: one[0].start)
        good = [(one, source) for one, source in ordered if speaks(one) and not one.failed]
        calls = calls_of([one for one, _ in good], self._agents)
        return Replayed(
            answer=answer,
            error=error,
            calls=tuple(
                replace(call, reused=source is Source.RECORDED)
                for call, (_, source) in zip(calls, good, strict=True)
            ),
            sources=tuple(source for _, source in good),
            changed=any(source is Source.CHANGED for _, source in ordered),
            server_failure=self._server_failure([one for one, _ in ordered], error),
        )

    def _server_failure(self, records: list[Record], error: str | None) -> str | None:
        """A failed call that the app lived with, by another try or another model, is none."""
        if self._under_way:
            return "it had not answered when the app was over"
        asked = [one for one in records if one.path in GENERATING]
        failed = [one for one in (records if error else asked[-1:]) if one.failed]
        said = [one.error or f"{one.status} {json.dumps(one.response)[:200]}" for one in failed]
        return said[-1] if said else None


def _identity(role: str | None, path: str, request: Any) -> str:
    """Equal for two requests that ask the same agent the same."""
    if isinstance(request, dict):
        request = {name: value for name, value in request.items() if name not in ASIDE}
    return json.dumps([role, path, request], sort_keys=True)


@contextlib.asynccontextmanager
async def replaying(
    folder: str | Path | KeylessFolder,
    *,
    to: str | None = None,
    key: str | None = None,
    pay: Callable[[Call], None] = lambda call: None,
) -> AsyncIterator[Replays]:
    """Open a recording for replays. Real calls go to the server that was recorded, or to `to`.

    `key` is shown to that server; without one the app shows its own. `pay` hears of each answer.
    """
    run = folder if isinstance(folder, KeylessFolder) else KeylessFolder(folder)
    recording, url = read_recording(run.path), to or about(run.path)["to"]
    upstream = Upstream(url, key, pass_keys=True, name="the server", options=("to", "key"))
    run.hide(key)
    replays, log = Replays(recording, run.hidden), CallLog(run, REPLAYS)

    def keep(exchange: Exchange) -> None:
        run.hide(*exchange.secrets)
        if record := replays.keep(exchange):
            log.append(record)
            if speaks(record) and not record.failed:
                pay(call_of(record, ""))

    app = PassThrough(upstream, keep, keys=log.keys, local=replays.answer)
    replays.loopback = Loopback(app, app)
    try:
        yield replays
    finally:
        await replays.loopback.close()
        await upstream.close()
