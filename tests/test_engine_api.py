"""Against a real HTTP server on the loopback, which answers from a list."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tacit.engine import api
from tacit.engine.api import ApiEngine
from tacit.engine.base import Request, Sampling, SilenceRule
from tacit.errors import ConfigError, EngineError
from tacit.types import ChatMessage, Choice, Stop, Usage

Answer = tuple[int, dict[str, str], bytes]


def completion(text: str = "four", finish: str = "stop", **changed: Any) -> Answer:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "served-model-0613",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        **changed,
    }
    return 200, {}, json.dumps(body).encode()


def failure(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return status, headers, body


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """A client that no longer waits is part of the tests."""


class Server:
    """Gives the answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, answers: list[Answer], delay: float = 0.0) -> None:
        self.asked: list[dict[str, Any]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer._lock:
                    outer._at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer._at_once)
                    status, headers, answer = answers[min(len(outer.asked), len(answers) - 1)]
                    outer.asked.append(body)
                time.sleep(delay)
                with outer._lock:
                    outer._at_once -= 1
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                pass

        self.http = _QuietServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: Answer, delay: float = 0.0) -> Server:
        servers.append(Server(list(answers), delay))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def key_and_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "secret")
    monkeypatch.setattr(api, "_FIRST_WAIT", 0.01)


@asynccontextmanager
async def connected(server: Server, **settings: Any) -> AsyncIterator[ApiEngine]:
    settings = {"base_url": server.url, "api_key_env": "TACIT_TEST_KEY", "timeout": 10, **settings}
    engine = ApiEngine("asked-model", **settings)
    try:
        yield engine
    finally:
        await engine.close()


def ask(**sampling: Any) -> Request:
    return Request(
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", "2 + 2?")),
        sampling=Sampling(**sampling),
        seed=2**62 + 1,
    )


async def test_a_call_carries_the_settings_and_brings_back_the_usage(
    serve: Callable[..., Server],
) -> None:
    server = serve(completion())
    async with connected(server) as engine:
        got = await engine.generate(ask(temperature=0.5, top_p=0.9, top_k=5, max_tokens=20))
    assert (got.text, got.stop, got.model) == ("four", Stop.EOS, "served-model-0613")
    assert got.usage == Usage(prompt=11, generated=7, cached=5, reasoning=3)
    assert (got.ids, got.logprobs) == ((), ())
    (sent,) = server.asked
    assert sent["model"] == "asked-model"
    assert sent["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "2 + 2?"},
    ]
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.5, 0.9, 5)
    assert (sent["max_tokens"], sent["seed"]) == (20, 2**62 + 1)


async def test_a_cut_answer_and_one_without_details(serve: Callable[..., Server]) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    server = serve(completion("fo", "length", usage=usage))
    async with connected(server) as engine:
        got = await engine.generate(ask())
    assert (got.stop, got.usage) == (Stop.LENGTH, Usage(prompt=1, generated=2))


@pytest.mark.parametrize(
    "broken",
    [
        failure(429, "slow down", retry_after="0"),
        failure(429, "slow down", retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
        failure(500, "oops"),
        failure(503, "busy"),
        completion(choices=[]),
        (200, {}, b'{"id": "1", "choi'),
    ],
    ids=["429", "429-date", "500", "503", "no-choices", "cut-json"],
)
async def test_passing_troubles_are_tried_again(
    serve: Callable[..., Server], broken: Answer
) -> None:
    server = serve(broken, broken, completion())
    async with connected(server) as engine:
        assert (await engine.generate(ask())).text == "four"
    assert len(server.asked) == 3


async def test_the_server_is_given_the_time_it_asks_for(serve: Callable[..., Server]) -> None:
    server = serve(failure(429, "slow down", retry_after="0.3"), completion())
    async with connected(server) as engine:
        begun = time.monotonic()
        await engine.generate(ask())
    assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    "final",
    [
        failure(401, "Incorrect API key provided"),
        failure(400, "no such parameter"),
        failure(404, "no such model"),
        failure(429, "you have no money left", "insufficient_quota"),
    ],
    ids=["401", "400", "404", "quota"],
)
async def test_final_errors_are_not_tried_again_and_keep_the_servers_words(
    serve: Callable[..., Server], final: Answer
) -> None:
    server = serve(final)
    said = json.loads(final[2])["error"]["message"]
    async with connected(server) as engine:
        with pytest.raises(EngineError, match=f"asked-model: {said}.*HTTP {final[0]}"):
            await engine.generate(ask())
    assert len(server.asked) == 1


async def test_retries_end(serve: Callable[..., Server]) -> None:
    server = serve(failure(500, "oops"))
    async with connected(server, retries=2) as engine:
        with pytest.raises(EngineError, match="oops"):
            await engine.generate(ask())
    assert len(server.asked) == 3


async def test_a_server_that_is_not_there_or_too_slow(serve: Callable[..., Server]) -> None:
    server = serve(completion(), delay=0.5)
    async with connected(server, retries=0, timeout=0.1) as engine:
        with pytest.raises(EngineError, match="timed out"):
            await engine.generate(ask())
    async with connected(server, base_url="http://127.0.0.1:9/v1", retries=1) as engine:
        with pytest.raises(EngineError, match=r"(?i)connect"):
            await engine.generate(ask())


async def test_no_more_calls_at_once_than_allowed(serve: Callable[..., Server]) -> None:
    server = serve(completion(), delay=0.05)
    async with connected(server, concurrency=3) as engine:
        await asyncio.gather(*(engine.generate(ask()) for _ in range(12)))
    assert server.most_at_once == 3
    assert len(server.asked) == 12


async def test_an_answer_without_usage_is_an_error(serve: Callable[..., Server]) -> None:
    async with connected(serve(completion(usage=None))) as engine:
        with pytest.raises(EngineError, match="reports no usage"):
            await engine.generate(ask())


async def test_it_cannot_be_told_to_speak(serve: Callable[..., Server]) -> None:
    request = Request(messages=(), sampling=Sampling(), silence=SilenceRule(choice=Choice.SPEAK))
    async with connected(serve(completion())) as engine:
        with pytest.raises(EngineError, match="cannot be told"):
            await engine.generate(request)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_TEST_KEY")
    with pytest.raises(ConfigError, match="TACIT_TEST_KEY"):
        ApiEngine("some-model", api_key_env="TACIT_TEST_KEY")
