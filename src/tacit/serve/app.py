"""The HTTP side: routes, keys, limits, deadlines and streams around a backend.

Every reply that is not a success has OpenAI's error shape. Logs hold no text and no key.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tacit.serve.admission import Admission, RateLimit, ServerLimits, check_key, read_body
from tacit.serve.backend import Answer, Backend, Emit
from tacit.serve.dialects import Completions, Dialect, Responses
from tacit.serve.http_error import HttpError
from tacit.serve.in_flight import EventStream, InFlight
from tacit.serve.monitoring import Metrics, logged
from tacit.serve.schema import ChatRequest, json_response, parse_json

_WORDS = {
    404: "there is nothing at this path: the server has /v1/chat/completions, /v1/completions, "
    "/v1/responses and /v1/models",
    405: "this path does not take this method",
}


class Service:
    """A backend behind its limits."""

    def __init__(self, backend: Backend, limits: ServerLimits) -> None:
        self.backend = backend
        self.limits = limits
        self.admission = Admission(limits.places, limits.waiting)
        self.metrics = Metrics(self.admission)
        self._rate = RateLimit(limits.rate) if limits.rate else None
        self._tasks: set[asyncio.Task[Answer]] = set()

    def app(self, forwards: Sequence[Route] = ()) -> ASGIApp:
        """The ASGI application; a path that is forwarded is not answered here."""
        post = partial(Route, methods=["POST"])
        routes = [
            *forwards,
            post("/v1/chat/completions", partial(self._ask, Dialect)),
            post("/v1/completions", partial(self._ask, Completions)),
            post("/v1/responses", partial(self._ask, Responses)),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._models),
            Route("/healthz", self._health),
            Route("/metrics", self._metrics),
        ]
        handlers = dict.fromkeys((HttpError, HTTPException, Exception), error_response)
        inside = Starlette(routes=routes, exception_handlers=handlers)
        return logged(inside, self.admission, self.metrics)

    def admit(self, request: Request) -> None:
        """Check the key and the rate; every path but `/healthz` does."""
        client = check_key(request, self.limits.keys)
        if self._rate and request.method == "POST":
            self._rate.take(client)

    async def _health(self, request: Request) -> Response:
        admission = self.admission
        state = "shutting down" if admission.closed else "ok"
        body = {"status": state, "inside": admission.inside, "waiting": admission.waiting}
        return json_response(body, 503 if admission.closed else 200)

    async def _metrics(self, request: Request) -> Response:
        self.admit(request)
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _models(self, request: Request) -> Response:
        """The list, or the one model that the path names."""
        self.admit(request)
        async with self.in_time(now()):
            listed = await self.backend.models(request.headers)
        if (name := request.path_params.get("name")) is None:
            return json_response(listed)
        for model in listed["data"]:
            if model["id"] == name:
                return json_response(model)
        raise HttpError(404, f"there is no model `{name}`", param="model", code="model_not_found")

    async def _ask(self, kind: type[Dialect], request: Request) -> Response:
        began = now()
        self.admit(request)
        body = parse_json(await read_body(request, self.limits))
        try:
            return await self._answered(kind(body, request.headers), request, began)
        except HttpError as problem:
            if problem.param is None:
                raise
            raise problem.about(kind.field(problem.param, body)) from problem

    async def _answered(self, dialect: Dialect, request: Request, began: float) -> Response:
        chat = dialect.chat
        headers = self._warned(self.backend.check(chat))
        flight = InFlight(lambda emit: self._work(chat, emit, began))
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._count)
        first = await flight.first(request.receive)
        if first is None:  # no stream, or none yet: a status can still tell of a failure
            return json_response(dialect.whole(flight.answer().body), headers=headers)
        self.metrics.first_chunk.observe(now() - began)
        return EventStream(first, flight, began + self.limits.deadline, dialect, headers)

    def _warned(self, ignored: list[str]) -> dict[str, str]:
        """The header that names the ignored fields; a strict server refuses them."""
        if not ignored:
            return {}
        if self.limits.strict:
            told = f"`{ignored[0]}` has no effect here, and the server is strict: leave it out"
            raise HttpError(400, told, param=ignored[0])
        names = [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:40] for name in ignored[:20]]
        return {"x-tacit-ignored": ", ".join(names)}

    async def _work(self, chat: ChatRequest, emit: Emit, began: float) -> Answer:
        async with self.in_time(began), self.admission.place():
            answer = await self.backend.answer(chat, emit, self.metrics.heard)
        self.metrics.answered(answer)
        self.metrics.seconds.labels(str(chat.streams).lower()).observe(now() - began)
        return answer

    @asynccontextmanager
    async def in_time(self, began: float) -> AsyncIterator[None]:
        """Give up what is inside at the deadline of a request that began then."""
        seconds = self.limits.deadline
        try:
            async with asyncio.timeout_at(began + seconds):
                yield
        except TimeoutError:
            raise HttpError(504, f"there was no answer within {seconds:g} seconds") from None

    def _count(self, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.metrics.failed.labels("given up").inc()
        elif error := task.exception():
            why = str(error.status) if isinstance(error, HttpError) else "500"
            self.metrics.failed.labels(why).inc()

    def abandon(self) -> int:
        """Cancel what is still under way, and tell its clients; returns how many there were."""
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)


def now() -> float:
    """The event loop's clock, by which deadlines are kept."""
    return asyncio.get_running_loop().time()


async def error_response(request: Request, error: Exception) -> Response:
    """Any failure in OpenAI's shape."""
    if isinstance(error, HTTPException):
        error = HttpError(error.status_code, _WORDS.get(error.status_code, error.detail))
    elif not isinstance(error, HttpError):
        error = HttpError(500, "an internal error")
    return json_response(error.body(), error.status, error.headers)
