"""The outermost layer of every request: its id, its line in the log, its count, its errors' shape.

A log line says what happened and never what was said: no text, no key, no path of a client's own.
"""

import logging
import time
import traceback
import uuid

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.serve.admission import Admission
from tacit.serve.problem import Problem
from tacit.serve.prometheus import Metrics
from tacit.serve.schema import json_response

log = logging.getLogger(__name__)

PROBES = ("/healthz", "/metrics")
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", *PROBES)
_WORDS = {
    404: "there is nothing at this path: the server has /v1/chat/completions, /v1/completions, "
    "/v1/responses and /v1/models",
    405: "this path does not take this method",
}


class RequestLog:
    def __init__(self, inside: ASGIApp, admission: Admission, metrics: Metrics) -> None:
        self._inside = inside
        self._admission = admission
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        name = f"req-{uuid.uuid4().hex}"

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", name.encode())]
                more += [(b"connection", b"close")] if self._admission.closed else []
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            with self._admission.counted():
                await self._inside(scope, receive, reply)
        except Exception as error:  # the client has an `error_response`, or half a reply
            if isinstance(error.__cause__, Problem):
                log.warning("%s was cut off: %s", name, error.__cause__)
            else:
                log_failure(error, name)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self._metrics.requests.labels(path, str(status)).inc()
            took = time.perf_counter() - began
            level = logging.DEBUG if path in PROBES else logging.INFO
            log.log(level, "%s %s %d %.3f s %s", scope["method"], path, status, took, name)


async def error_response(request: Request, error: Exception) -> Response:
    """Any failure in OpenAI's shape."""
    if isinstance(error, HTTPException):
        error = Problem(error.status_code, _WORDS.get(error.status_code, error.detail))
    elif not isinstance(error, Problem):
        error = Problem(500, "an internal error")
    return json_response(error.body(), error.status, error.headers)


def log_failure(error: Exception, name: str = "") -> None:
    """A bug's place and kind. Its message is left out, since it may quote what a client sent."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed with %s at\n%s", name or "a stream", type(error).__name__, frames)
