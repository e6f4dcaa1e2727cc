"""A real HTTP server on the loopback that answers chat completions as a test tells it to."""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
Sent = dict[str, Any]


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


def by_hash(sent: Sent) -> Answer:
    """A deterministic model: what it says and what that costs depends on what was asked, alone.

    It knows sums, and gets two out of three right.
    """
    asked = json.dumps(sent["messages"]).encode()
    digest = int.from_bytes(hashlib.blake2b(asked, digest_size=4).digest(), "big")
    words = sum(len(message["content"].split()) for message in sent["messages"])
    usage = {"prompt_tokens": words, "completion_tokens": 1 + digest % 7}
    usage["total_tokens"] = sum(usage.values())
    found = re.search(r"What is ([\d +-]+)\?", sent["messages"][-1]["content"])
    right = sum(map(int, found[1].replace("- ", "-").replace("+ ", "").split())) if found else 0
    text = f"\\boxed{{{right + (digest % 3 == 0)}}}"
    return completion(text, usage=usage, model=sent["model"], system_fingerprint="fp_1")


class Server:
    """Gives the answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(
        self, answers: Sequence[Answer] | Callable[[Sent], Answer], delay: float = 0.0
    ) -> None:
        self.asked: list[Sent] = []
        self.times: list[float] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self.delay = delay
        self._at_once = 0
        self._answers = answers
        self._lock = threading.Lock()
        self.http = _Http(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def answer(self, sent: Sent, headers: dict[str, str]) -> Answer:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            number = len(self.asked)
            self.asked.append(sent)
            self.headers.append(headers)
            self.times.append(time.monotonic())
        time.sleep(self.delay)
        with self._lock:
            self._at_once -= 1
        if callable(self._answers):
            return self._answers(sent)
        return self._answers[min(number, len(self._answers) - 1)]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *args: object) -> None:
        """A client that no longer waits is part of the tests."""


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"] or 0)
            sent = json.loads(self.rfile.read(length) or b"{}")
            named = {name.lower(): value for name, value in self.headers.items()}
            status, headers, body = server.answer(sent, named)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            pass

    return Handler
