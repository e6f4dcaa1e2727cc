"""What Prometheus is told: requests, seconds, tokens by agent, silence. No text and no key."""

from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from tacit.serve.admission import Admission
from tacit.serve.backend import Answer

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)


class Metrics:
    """The counters of one server, in a registry of its own."""

    def __init__(self, admission: Admission) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
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
        inside = gauge("tacit_requests_inside", "Under way or waiting")
        inside.set_function(lambda: admission.inside)
        waiting = gauge("tacit_requests_waiting", "Accepted and waiting")
        waiting.set_function(lambda: admission.waiting)

    def answered(self, answer: Answer) -> None:
        self._unhelped.inc(answer.unhelped)
        for call in answer.calls:
            self._calls.labels(call.agent).inc()
            self._silent.labels(call.agent).inc(call.silent)
            for kind in ("prompt", "generated"):
                tokens = getattr(call.usage, kind)
                self._tokens.labels(call.agent, call.model, kind).inc(tokens)

    def text(self) -> bytes:
        return generate_latest(self._registry)
