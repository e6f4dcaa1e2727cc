"""What an operator sees of each request: an id, a line in the log, and numbers for Prometheus.

Neither says what was said: no text, no key, no path of a client's own.
"""

import logging
import time
import traceback
import uuid
from functools import partial

import prometheus_client as prometheus
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.serve.admission import Admission
from tacit.serve.backend import Answer
from tacit.serve.http_error import HttpError
from tacit.types import Call

log = logging.getLogger(__name__)

PROBES = ("/healthz", "/metrics")
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/models", *PROBES)
_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self, admission: Admission) -> None:
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = prometheus.CollectorRegistry()
        counter = partial(prometheus.Counter, registry=self._registry)
        histogram = partial(prometheus.Histogram, buckets=_SECONDS, registry=self._registry)
        gauge = partial(prometheus.Gauge, registry=self._registry)
        self.requests = counter("tacit_requests", "Requests answered", ["path", "status"])
        self.seconds = histogram(
            "tacit_chat_seconds",
            "Seconds to the end of a chat completion that succeeded",
            ["stream"],
        )
        self.first_chunk = histogram(
            "tacit_first_chunk_seconds", "Seconds to a stream's first chunk"
        )
        self.failed = counter(
            "tacit_chats_failed",
            "Chat completions that came to nothing, streams begun included",
            ["why"],
        )
        self._tokens = counter("tacit_tokens", "Tokens by agent", ["agent", "model", "kind"])
        self._calls = counter("tacit_calls", "Model calls", ["agent"])
        self._silent = counter("tacit_silences", "Calls in which an agent was silent", ["agent"])
        self._unhelped = counter(
            "tacit_unhelped",
            "Requests passed to the Actor without help, because the Collaborator failed",
        )
        why = ["agent", "reason"]
        self._cut = {
            "unasked": counter("tacit_unasked", "Messages that agents were not asked for", why),
            "shortened": counter("tacit_shortened", "Messages that ended where a budget did", why),
            "without_tools": counter("tacit_without_tools", "Requests without their tools", why),
        }
        self._left = prometheus.Histogram(
            "tacit_conversation_left",
            "Share of a conversation's budget that is left after an answer",
            ["kind"],
            buckets=_SHARES,
            registry=self._registry,
        )
        for name, what in (("inside", "Under way or waiting"), ("waiting", "Accepted and waiting")):
            gauge(f"tacit_requests_{name}", what).set_function(partial(getattr, admission, name))

    def heard(self, call: Call) -> None:
        """Count a call as soon as it is over: it was paid for, whatever becomes of the answer."""
        self._calls.labels(call.agent).inc()
        self._silent.labels(call.agent).inc(call.silent)
        for kind in ("prompt", "generated", "observed"):
            self._tokens.labels(call.agent, call.model, kind).inc(getattr(call.usage, kind))

    def answered(self, answer: Answer) -> None:
        self._unhelped.inc(answer.unhelped)
        if answer.allowance:
            for name, rows in answer.allowance.cut().items():
                for row in rows:
                    cut = self._cut[name].labels(row["agent"], row["reason"])
                    cut.inc(row.get("messages", 1))
            for kind, share in answer.allowance.shares_left().items():
                self._left.labels(kind).observe(share)

    def text(self) -> bytes:
        return prometheus.generate_latest(self._registry)


def logged(inside: ASGIApp, admission: Admission, metrics: Metrics) -> ASGIApp:
    """The application with an id, a line in the log and a count for every request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began, status, name = time.perf_counter(), 0, f"req-{uuid.uuid4().hex}"

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                more = [(b"x-request-id", name.encode())]
                more += [(b"connection", b"close")] if admission.closed else []
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            with admission.counted():
                await inside(scope, receive, reply)
        except Exception as error:  # the client has an `error_response`, or half a reply
            if isinstance(error.__cause__, HttpError):
                log.warning("%s was cut off: %s", name, error.__cause__)
            else:
                log_failure(error, name)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            metrics.requests.labels(path, str(status)).inc()
            took = time.perf_counter() - began
            level = logging.DEBUG if path in PROBES else logging.INFO
            log.log(level, "%s %s %d %.3f s %s", scope["method"], path, status, took, name)

    return app


def log_failure(error: Exception, name: str = "") -> None:
    """A bug's place and kind. Its message is left out, since it may quote what a client sent."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed with %s at\n%s", name or "a stream", type(error).__name__, frames)
