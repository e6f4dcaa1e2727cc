"""Where a program outside sends its calls: `http://127.0.0.1:PORT/EPISODE/v1`, OpenAI's format.

The model id, or the header `x-tacit-role`, says which agent is asked. How agents sample is the
team's affair; of a client's own settings only a lower `max_tokens` counts.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import PromptTooLong, TacitError
from tacit.external.recording import Session
from tacit.serve.app import Limits, Service
from tacit.serve.backend import Answer, Emit
from tacit.serve.conversation import text_of
from tacit.serve.problem import Problem
from tacit.serve.schema import FINISH, Chat, Json, account, chunk, completion, models_json
from tacit.serve.server import bind, serve
from tacit.serve.team import UNSUPPORTED, asks_for_more
from tacit.team.team import Seat
from tacit.types import Call, ChatMessage, Stop, Usage

EPISODE, ROLE = "x-tacit-episode", "x-tacit-role"
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
FINAL = {"x-should-retry": "false"}
"""What the openai client understands as: asking again is of no use."""
REFUSED = UNSUPPORTED | {"n": (1,), "stop": ("", [])}
"""Whatever is cut off or thrown away of what an agent said could not be learned from."""
LIMITS = Limits(body_bytes=1 << 24, places=1 << 16, waiting=0, deadline=3600.0)
"""Wide, since the program is the user's own: 16 MiB for a call and an hour for its answer."""


class Recorder:
    """The backend: every request is a call in some session."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._opened = int(time.time())

    async def models(self, headers: Mapping[str, str]) -> Json:
        names = [seat.name for seat in self._session(headers).team.seats]
        return models_json(names, self._opened)

    def check(self, chat: Chat) -> list[str]:
        self._seat(chat)
        for field, nothing in REFUSED.items():
            if asks_for_more(chat.body.get(field), nothing):
                raise Problem(400, f"`{field}` is not supported", param=field, headers=FINAL)
        if len(chat.prompts) > 1:
            raise Problem(400, "an agent is asked one thing at a time", param="prompt")
        prompt_of(chat)
        return []

    async def answer(self, chat: Chat, emit: Emit) -> Answer:
        session, seat = self._session(chat.headers), self._seat(chat)
        try:
            message, calls = await session.answer(seat, prompt_of(chat), chat.max_tokens)
        except PromptTooLong as error:
            code = "context_length_exceeded"
            raise Problem(400, str(error), param="messages", code=code, headers=FINAL) from error
        except TacitError as error:
            raise Problem(502, str(error), code="model_failed", headers=FINAL) from error
        body = _body(chat, message.text, calls)
        if chat.streams:
            _emit(chat, body, emit)
        return Answer(body, calls)

    async def close(self) -> None:
        """The engines belong to whoever opened them."""

    def _session(self, headers: Mapping[str, str]) -> Session:
        session = self.sessions.get(headers.get(EPISODE, ""))
        if session is None:
            raise Problem(404, "no such episode is being played", code="episode_over")
        return session

    def _seat(self, chat: Chat) -> Seat:
        session = self._session(chat.headers)
        name = chat.headers.get(ROLE, chat.fields.model)
        seat = session.seat(name)
        if seat is None:
            raise Problem(
                404,
                f"the team has no agent `{name}`: {session.hint(name)}",
                param="model",
                code="model_not_found",
            )
        return seat


def prompt_of(chat: Chat) -> tuple[ChatMessage, ...]:
    """The messages as agents read them: words only."""
    prompt = []
    for place, message in enumerate(chat.fields.messages):
        if message.role not in ROLES:
            place_ = f"messages.{place}.role"
            raise Problem(400, f"a message of role `{message.role}` cannot be read", param=place_)
        parts = message.content if isinstance(message.content, list) else []
        if any(part.get("type") != "text" for part in parts):
            raise Problem(400, "agents read text only", param=f"messages.{place}.content")
        prompt.append(ChatMessage(ROLES[message.role], text_of(message)))
    return tuple(prompt)


def _body(chat: Chat, text: str, calls: list[Call]) -> Json:
    usage = sum((call.usage for call in calls), Usage())
    finish = FINISH[calls[-1].stop if calls else Stop.EOS]
    body = completion(chat, [(text, finish)], usage)
    return body | ({"tacit": account(calls)} if chat.fields.tacit else {})


def _emit(chat: Chat, body: Json, emit: Emit) -> None:
    """A stream in one piece: whether an agent is silent shows only when it is done."""
    choice = body["choices"][0]
    emit(chunk(chat, {"role": "assistant", "content": choice["message"]["content"]}))
    emit(chunk(chat, {}, choice["finish_reason"]))
    if last := chat.last_fields(body):
        emit(chunk(chat, {}) | {"choices": []} | last)


class ByPath:
    """Makes `/EPISODE/v1/…` of `/v1/…` and a header, so that a base URL is all a client needs."""

    def __init__(self, inside: ASGIApp) -> None:
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "/v1/" in scope["path"]:
            name, _, rest = scope["path"].removeprefix("/").partition("/v1/")
            if name:
                others = [pair for pair in scope["headers"] if pair[0] != EPISODE.encode()]
                headers = [*others, (EPISODE.encode(), name.encode())]
                scope = {**scope, "path": f"/v1/{rest}", "headers": headers}
        await self._inside(scope, receive, send)


class Endpoint:
    """The recorder behind HTTP on a free port of this machine, open while somebody uses it."""

    def __init__(self) -> None:
        self.users = 0
        self._recorder = Recorder()
        service = Service(self._recorder, LIMITS)
        self._asked = asyncio.Semaphore(0)
        self._socket = bind("127.0.0.1", 0)
        self._socket.listen(1024)  # from now on whoever connects is served, if a little later
        work = serve(service, ByPath(service.app()), self._socket, 0.0, self._asked)
        self._serving = asyncio.create_task(work)

    @contextlib.contextmanager
    def opened(self, session: Session) -> Iterator[str]:
        """The base URL of one episode. When it is left, calls that still come are refused."""
        name = secrets.token_urlsafe(16)
        self._recorder.sessions[name] = session
        try:
            yield f"http://127.0.0.1:{self._socket.getsockname()[1]}/{name}/v1"
        finally:
            del self._recorder.sessions[name]

    async def close(self) -> None:
        self._asked.release()
        await self._serving


_OPEN: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """The event loop's one endpoint: the first who enters opens it, the last who leaves closes."""
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
