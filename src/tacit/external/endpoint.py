"""Where an external program sends its calls: `http://127.0.0.1:PORT/EPISODE/v1`, OpenAI's format.

Each call is recorded as a turn of its episode. The model id, or the header `x-tacit-role`, says
which agent is asked. How agents sample is set in the team's config; of a client's own settings only
a lower `max_tokens` counts.
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import ConfigError, PromptTooLong, TacitError
from tacit.external.loopback_server import EPISODE, ROLE, Loopback, split_path
from tacit.registry import did_you_mean
from tacit.serve.admission import ServerLimits
from tacit.serve.app import Service
from tacit.serve.backend import Answer, Emit, Heard, finished
from tacit.serve.http_error import HttpError
from tacit.serve.schema import FINISH, ChatRequest, Json, chunks_of, completion, models_json
from tacit.serve.team_backend import UNSUPPORTED, unsupported
from tacit.team.seat import Seat
from tacit.team.team import Team
from tacit.types import Call, ChatMessage, Choice, Message, Stop

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
FINAL = {"x-should-retry": "false"}
"""Tells the openai client that asking again is of no use."""
REFUSED = UNSUPPORTED | {"n": (1,), "stop": ("", [])}
"""What is cut off or thrown away of an agent's words could not be learned from."""
LIMITS = ServerLimits(body_bytes=1 << 24, places=1 << 16, waiting=0, deadline=3600.0)
"""Wide, since the program is the user's own: 16 MiB for a call and an hour for its answer."""

Rank = tuple[int, str, str]
"""A call's place in the chain of calls, its agent and its number."""


@dataclass(slots=True, eq=False)
class Session:
    """Calls may come several at once and in any order; what each of them draws depends on neither.

    A call is numbered by its prompt and by how often the agent was asked exactly that. Its rank is
    its place in the chain of calls, by which `settle` puts them in order.
    """

    team: Team
    failure: TacitError | None = None
    """Why the episode cannot go on. The program sees an HTTP error, and may hide it."""
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    _turns: Counter[str] = field(default_factory=Counter)
    _done: list[tuple[Rank, list[Call]]] = field(default_factory=list)
    _finished: int = 0
    """The highest rank of a call that is over."""

    def seat(self, name: str) -> Seat | None:
        """The agent of that name, or the only one of that role."""
        seats = {seat.name: seat for seat in self.team.seats}
        several = self.team.all(name)
        return seats.get(name) or (several[0] if len(several) == 1 else None)

    async def answer(
        self, seat: Seat, messages: tuple[ChatMessage, ...], max_tokens: int | None
    ) -> tuple[Message, list[Call]]:
        """What the agent says, and the call it took; no call if the agent is muted."""
        if self.failure:
            raise self.failure
        try:
            self._check_choice(seat)
            key = seat.name, hashlib.blake2b(repr(messages).encode(), digest_size=8).hexdigest()
            self._asked[key] += 1
            number = f"{key[1]}.{self._asked[key]}"
            rank = self._finished + 1
            with self.team.strand() as strand:
                message = await seat.reply(messages, number=number, max_tokens=max_tokens)
        except TacitError as error:
            self.failure = self.failure or error
            raise
        self._done.append(((rank, seat.name, number), strand.calls))
        self._finished = max(self._finished, rank)
        return message, strand.calls

    def settle(self) -> None:
        """Put the episode's calls into the order of the chain, whichever of them came first."""
        ordered = sorted(self._done, key=lambda done: done[0])
        self.team.whole.calls = [call for _, calls in ordered for call in calls]

    def _check_choice(self, seat: Seat) -> None:
        role = seat.agent.role
        self._turns[role] += 1
        setting = self.team.setting
        one_choice = setting.choices.get(role) in (Choice.SPEAK, Choice.SILENT)
        arms = setting.training and one_choice and Choice.FLOOR not in setting.choices.values()
        if arms and seat.agent.may_be_silent and self._turns[role] > 1:
            raise ConfigError(
                f"the program asked `{role}` more than once in an episode, but "
                "`silence.exploration: arms` judges one choice to speak; use `floor`"
            )


class Recorder:
    """The backend: every request is a call in some session."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    async def models(self, headers: Mapping[str, str]) -> Json:
        return models_json([seat.name for seat in self._session(headers).team.seats])

    def check(self, chat: ChatRequest) -> list[str]:
        self._seat(chat)
        if field := unsupported(chat, REFUSED):
            raise HttpError(400, f"`{field}` is not supported", param=field, headers=FINAL)
        if len(chat.prompts) > 1:
            raise HttpError(400, "an agent is asked one thing at a time", param="prompt")
        prompt_of(chat)
        return []

    async def answer(self, chat: ChatRequest, emit: Emit, heard: Heard) -> Answer:
        session, seat = self._session(chat.headers), self._seat(chat)
        try:
            message, calls = await session.answer(seat, prompt_of(chat), chat.max_tokens)
        except PromptTooLong as error:
            code = "context_length_exceeded"
            raise HttpError(400, str(error), param="messages", code=code, headers=FINAL) from error
        except TacitError as error:
            raise HttpError(502, str(error), code="model_failed", headers=FINAL) from error
        for call in calls:
            heard(call)
        finish = FINISH[calls[-1].stop if calls else Stop.EOS]
        body = completion(chat, [(message.text, finish)], calls)
        if chat.streams:  # in one piece, since an agent may turn out to be silent
            for chunk in chunks_of(body):
                emit(chunk)
        return finished(chat, body, calls, emit)

    def _session(self, headers: Mapping[str, str]) -> Session:
        session = self.sessions.get(headers.get(EPISODE, ""))
        if session is None:
            raise HttpError(404, "no such episode is being played", code="episode_over")
        return session

    def _seat(self, chat: ChatRequest) -> Seat:
        session = self._session(chat.headers)
        name = chat.headers.get(ROLE, chat.fields.model)
        seat = session.seat(name)
        if seat is None:
            hint = did_you_mean(name, [seat.name for seat in session.team.seats])
            told = f"the team has no agent `{name}`: {hint}"
            raise HttpError(404, told, param="model", code="model_not_found")
        return seat


def prompt_of(chat: ChatRequest) -> tuple[ChatMessage, ...]:
    """The messages as agents read them: text only."""
    for place, message in enumerate(chat.fields.messages):
        if message.role not in ROLES:
            told = f"a message of role `{message.role}` cannot be read"
            raise HttpError(400, told, param=f"messages.{place}.role")
        if message.odd_part is not None:
            raise HttpError(400, "agents read text only", param=f"messages.{place}.content")
    return tuple(ChatMessage(ROLES[one.role], one.text) for one in chat.fields.messages)


def by_path(inside: ASGIApp) -> ASGIApp:
    """Makes `/EPISODE/v1/…` of `/v1/…` and a header, so that a base URL is all a client needs."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        name, rest = split_path(scope["path"])
        if name and rest is not None:
            others = [pair for pair in scope["headers"] if pair[0] != EPISODE.encode()]
            headers = [*others, (EPISODE.encode(), name.encode())]
            scope = {**scope, "path": f"/v1/{rest}", "headers": headers}
        await inside(scope, receive, send)

    return app


class Endpoint:
    """The recorder behind HTTP on a free port of this machine, open while somebody uses it."""

    def __init__(self) -> None:
        self.users = 0
        self._recorder = Recorder()
        service = Service(self._recorder, LIMITS)
        self._loopback = Loopback(service, by_path(service.app()))

    @contextlib.contextmanager
    def opened(self, session: Session) -> Iterator[str]:
        """The base URL of one episode. After the episode, calls that still come are refused."""
        name = secrets.token_urlsafe(16)
        self._recorder.sessions[name] = session
        try:
            yield self._loopback.url(name)
        finally:
            del self._recorder.sessions[name]

    async def close(self) -> None:
        await self._loopback.close()


_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """The event loop's one endpoint: its first user opens it, its last user closes it."""
    loop = asyncio.get_running_loop()
    mine = _OPEN.get(loop)
    if mine is None:
        mine = _OPEN[loop] = Endpoint()
    mine.users += 1
    try:
        yield mine
    finally:
        mine.users -= 1
        if not mine.users:
            del _OPEN[loop]
            await mine.close()
