"""What Prometheus is told: requests, seconds, tokens by agent, silence. No text and no key."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from tacit.serve.admission import Gate
from tacit.serve.backend import Answer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)


class Metrics:
    def __init__(self, gate: Gate) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tacit_requests", "Requests answered", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "tacit_chat_seconds",
            "Seconds to the end of a chat completion that succeeded",
            ["stream"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._first = Histogram(
            "tacit_first_chunk_seconds",
            "Seconds to a stream's first chunk",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter(
            "tacit_tokens", "Tokens by agent", ["agent", "model", "kind"], registry=self._registry
        )
        self._calls = Counter("tacit_calls", "Model calls", ["agent"], registry=self._registry)
        self._silent = Counter(
            "tacit_silences",
            "Calls in which an agent was silent",
            ["agent"],
            registry=self._registry,
        )
        self._failed = Counter(
            "tacit_chats_failed",
            "Chat completions that came to nothing, streams begun included",
            ["why"],
            registry=self._registry,
        )
        self._unhelped = Counter(
            "tacit_unhelped",
            "Requests passed to the Actor without help, because the Collaborator failed",
            registry=self._registry,
        )
        inside = Gauge("tacit_requests_inside", "Under way or waiting", registry=self._registry)
        inside.set_function(lambda: gate.inside)
        waiting = Gauge("tacit_requests_waiting", "Accepted and waiting", registry=self._registry)
        waiting.set_function(lambda: gate.waiting)

    def request(self, path: str, status: int) -> None:
        self._requests.labels(path, str(status)).inc()

    def chat(self, seconds: float, *, stream: bool) -> None:
        self._seconds.labels(str(stream).lower()).observe(seconds)

    def first_chunk(self, seconds: float) -> None:
        self._first.observe(seconds)

    def failed(self, why: str) -> None:
        self._failed.labels(why).inc()

    def answered(self, answer: Answer) -> None:
        self._unhelped.inc(answer.unhelped)
        for call in answer.calls:
            self._calls.labels(call.agent).inc()
            self._silent.labels(call.agent).inc(call.silent)
            for kind, tokens in (
                ("prompt", call.usage.prompt),
                ("generated", call.usage.generated),
            ):
                self._tokens.labels(call.agent, call.model, kind).inc(tokens)

    def text(self) -> bytes:
        return generate_latest(self._registry)
