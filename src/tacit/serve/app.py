"""The HTTP side: routes, keys, limits, deadlines and streams around a backend.

Every reply that is not a success has OpenAI's error shape. Logs hold no text and no key.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tacit.serve.admission import Gate
from tacit.serve.backend import Answer, Backend, Emit
from tacit.serve.dialects import Completions, Dialect, Responses
from tacit.serve.in_flight import Errand, EventStream
from tacit.serve.keys import RateLimit, check_json, check_key, read_body
from tacit.serve.metrics import CONTENT_TYPE, Metrics
from tacit.serve.outside import Outside, json_response, told
from tacit.serve.problem import Problem
from tacit.serve.schema import Chat, parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server takes on."""

    keys: Sequence[str] = ()
    """Bearer keys that are let in; empty lets everyone in."""
    body_bytes: int = 1 << 20
    rate: float | None = None
    """Requests a minute for each key, or for each address where there are no keys."""
    places: int = 64
    """Requests under way at once."""
    waiting: int = 256
    """Requests that may wait for a place."""
    deadline: float = 120.0
    """Seconds from a request's arrival to the end of its answer."""
    strict: bool = False
    """Whether a field that would have no effect is refused."""
    headers: float = 20.0
    """Seconds from a connection's beginning, or a request's first byte, to its last header."""


class Service:
    """A backend behind its limits: what the routes call."""

    def __init__(self, backend: Backend, limits: Limits) -> None:
        self.backend = backend
        self.limits = limits
        self.gate = Gate(limits.places, limits.waiting)
        self.metrics = Metrics(self.gate)
        self._rate = RateLimit(limits.rate) if limits.rate else None
        self._errands: set[asyncio.Task[Answer]] = set()

    def app(self, extra: Sequence[Route] = ()) -> ASGIApp:
        """The ASGI application; `extra` routes come before what is only said in other terms."""
        routes = [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/healthz", self.health),
            Route("/metrics", self.show_metrics),
            *extra,
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
        ]
        failures = (Problem, HTTPException, Exception)
        inside = Starlette(routes=routes, exception_handlers=dict.fromkeys(failures, told))
        return Outside(inside, self.gate, self.metrics)

    def admit(self, request: Request) -> None:
        """The key and the rate, for every path but `/healthz`."""
        client = check_key(request, self.limits.keys)
        if self._rate and request.method == "POST":
            self._rate.take(client)

    async def health(self, request: Request) -> Response:
        state = "shutting down" if self.gate.closed else "ok"
        body = {"status": state, "inside": self.gate.inside, "waiting": self.gate.waiting}
        return json_response(body, 503 if self.gate.closed else 200)

    async def show_metrics(self, request: Request) -> Response:
        self.admit(request)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        self.admit(request)
        async with self.in_time(self.until()):
            return json_response(await self.backend.models(request.headers))

    async def model(self, request: Request) -> Response:
        self.admit(request)
        name = request.path_params["name"]
        async with self.in_time(self.until()):
            listed = await self.backend.models(request.headers)
        for model in listed["data"]:
            if model["id"] == name:
                return json_response(model)
        raise Problem(404, f"there is no model `{name}`", param="model", code="model_not_found")

    async def chat(self, request: Request) -> Response:
        return await self._ask(request, Dialect)

    async def completions(self, request: Request) -> Response:
        return await self._ask(request, Completions)

    async def responses(self, request: Request) -> Response:
        return await self._ask(request, Responses)

    async def _ask(self, request: Request, kind: type[Dialect]) -> Response:
        until = self.until()
        self.admit(request)
        check_json(request)
        raw = await read_body(request, self.limits.body_bytes, self.limits.deadline)
        body = parse_json(raw)
        try:
            return await self._answered(kind(body, request.headers), request, until)
        except Problem as problem:
            if problem.param is None:
                raise
            raise problem.about(kind.field(problem.param, body)) from problem

    async def _answered(self, dialect: Dialect, request: Request, until: float) -> Response:
        chat = dialect.chat
        headers = self._warned(self.backend.check(chat))
        errand = Errand(lambda emit: self._work(chat, emit, until))
        self._errands.add(errand.task)
        errand.task.add_done_callback(self._count)
        first = await errand.first(request.receive)
        if first is None:  # no stream, or none yet: a status can still tell of a failure
            return json_response(dialect.whole((await errand.answer()).body), headers=headers)
        self.metrics.first_chunk(self._since(until))
        return EventStream(first, errand, until, dialect, headers)

    def _warned(self, ignored: list[str]) -> dict[str, str]:
        """The header that names what is left alone, unless that is to be refused."""
        if not ignored:
            return {}
        if self.limits.strict:
            told = f"`{ignored[0]}` has no effect here, and the server is strict: leave it out"
            raise Problem(400, told, param=ignored[0])
        names = [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:40] for name in ignored[:20]]
        return {"x-tacit-ignored": ", ".join(names)}

    async def _work(self, chat: Chat, emit: Emit, until: float) -> Answer:
        async with self.in_time(until), self.gate.place():
            answer = await self.backend.answer(chat, emit)
        self.metrics.answered(answer)
        self.metrics.chat(self._since(until), stream=chat.streams)
        return answer

    @asynccontextmanager
    async def in_time(self, until: float) -> AsyncIterator[None]:
        """What is inside is given up at a moment of the event loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                yield
        except TimeoutError:
            seconds = f"{self.limits.deadline:g}"
            raise Problem(504, f"there was no answer within {seconds} seconds") from None

    def until(self) -> float:
        """A request's deadline, if it came now."""
        return asyncio.get_running_loop().time() + self.limits.deadline

    def _since(self, until: float) -> float:
        return asyncio.get_running_loop().time() - until + self.limits.deadline

    def _count(self, task: asyncio.Task[Answer]) -> None:
        self._errands.discard(task)
        if task.cancelled():
            self.metrics.failed("given up")
        elif error := task.exception():
            self.metrics.failed(str(error.status) if isinstance(error, Problem) else "500")

    def abandon(self) -> int:
        """Give up what is still under way; whoever waits for it is told."""
        for task in self._errands:
            task.cancel()
        return len(self._errands)
