"""An OpenAI-compatible server on the loopback that answers by the prompt, with tools and streams.

The same request always has the same reply, to the byte, unless the script counts.
"""

import hashlib
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tacit.serve.http_server import bind
from tests.helpers.waiting import wait_for

Json = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool call that the model makes."""

    name: str
    arguments: Json = field(default_factory=dict)


Script = Callable[[str, Json], "str | Tool"]
"""What the model says to a request's path and body."""


def by_prompt(path: str, body: Json) -> str | Tool:
    """Calls each of its tools once, with what fits; then says what came of the last one."""
    items = body.get("messages") or body.get("input") or body.get("prompt")
    items = items if isinstance(items, list) else [{"role": "user", "content": items}]
    items = [item for item in items if isinstance(item, dict)]
    called = [call["function"]["name"] for item in items for call in item.get("tool_calls") or ()]
    called += [item["name"] for item in items if item.get("type") == "function_call"]
    outputs = [
        str(item.get("content") or item.get("output"))
        for item in items
        if item.get("role") == "tool" or item.get("type") == "function_call_output"
    ]
    for tool in body.get("tools") or ():
        function = tool.get("function") or tool
        if function["name"] not in called:
            return Tool(function["name"], _arguments(function, items))
    if outputs:
        return f"The result is {outputs[-1].strip('.')}."
    asked = json.dumps([path, body], sort_keys=True)
    digest = hashlib.blake2b(asked.encode(), digest_size=3).hexdigest()
    return f"Remark {digest}: think of the tens first, then of the ones."


def _arguments(function: Json, items: list[Json]) -> Json:
    """Numbers of the question for numbers, and the question itself for texts."""
    asked = [item.get("content") for item in items if item.get("role") == "user"]
    question = json.dumps(asked[-1]) if asked else ""
    numbers = iter(re.findall(r"\d+", question))
    wanted = (function.get("parameters") or {}).get("properties") or {}
    return {
        name: int(next(numbers, "0")) if "integer" in json.dumps(schema) else question.strip('"')
        for name, schema in wanted.items()
    }


@dataclass
class ModelServer:
    """What was asked, as it came, and what was answered."""

    url: str
    script: Script
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)

    @property
    def bodies(self) -> list[Json]:
        return [json.loads(body) for _, body in self.asked if body]

    def forget(self) -> None:
        self.asked.clear()
        self.headers.clear()
        self.replies.clear()

    async def answer(self, request: Request) -> Response:
        path, raw = request.url.path.partition("/v1/")[2], await request.body()
        self.asked.append((path, raw))
        self.headers.append(dict(request.headers))
        if path == "models":
            return self._sent({"object": "list", "data": [{"id": "small", "object": "model"}]})
        body = json.loads(raw)
        if path == "embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25, 1e-9]}]
            return self._sent({"object": "list", "data": data, "model": body["model"]})
        said = self.script(path, body)
        tag = hashlib.blake2b(raw, digest_size=6).hexdigest()
        if path == "responses":
            reply = _response(body, said, tag)
            return (
                self._stream(_response_events(reply)) if body.get("stream") else self._sent(reply)
            )
        reply = _completion(body, said, tag, chat=path == "chat/completions")
        return self._stream(_chunks(reply, body)) if body.get("stream") else self._sent(reply)

    def _sent(self, reply: Json) -> Response:
        response = JSONResponse(reply, headers={"x-request-id": "req-of-the-server"})
        self.replies.append(bytes(response.body))
        return response

    def _stream(self, events: list[bytes]) -> Response:
        self.replies.append(b"".join(events))

        async def pieces() -> AsyncIterator[bytes]:
            for event in events:
                yield event

        return StreamingResponse(pieces(), media_type="text/event-stream")


def usage_of(body: Json, said: str | Tool) -> tuple[int, int]:
    words = str(said) if isinstance(said, Tool) else said
    return len(json.dumps(body).split()), len(words.split())


def _completion(body: Json, said: str | Tool, tag: str, chat: bool) -> Json:
    read, wrote = usage_of(body, said)
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": "stop"}
    if not chat:
        choice |= {"text": said}
    elif isinstance(said, Tool):
        function = {"name": said.name, "arguments": json.dumps(said.arguments)}
        call = {"id": f"call_{tag}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice |= {"message": message, "finish_reason": "tool_calls"}
    else:
        choice |= {"message": {"role": "assistant", "content": said, "refusal": None}}
    return {
        "id": f"chatcmpl-{tag}",
        "object": "chat.completion" if chat else "text_completion",
        "created": 1_700_000_000,
        "model": f"{body['model']}-0613",
        "system_fingerprint": "fp_1",
        "choices": [choice] * (body.get("n") or 1),
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": wrote,
            "total_tokens": read + wrote,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


def _chunks(reply: Json, body: Json) -> list[bytes]:
    """Word by word, arguments letter by letter, as servers do."""
    head = {k: v for k, v in reply.items() if k not in ("choices", "usage")}
    (choice,) = reply["choices"]
    deltas: list[Json] = []
    if "text" in choice:
        pieces = [
            {"text": word, "finish_reason": None} for word in re.findall(r"\S+\s*", choice["text"])
        ]
        pieces.append({"text": "", "finish_reason": "stop"})
    else:
        head |= {"object": "chat.completion.chunk"}
        message = choice["message"]
        deltas.append({"role": "assistant", "content": message["content"] and ""})
        deltas += [{"content": word} for word in re.findall(r"\S+\s*", message["content"] or "")]
        for call in message.get("tool_calls", ()):
            first = call | {"function": {"name": call["function"]["name"], "arguments": ""}}
            deltas.append({"tool_calls": [{"index": 0, **first}]})
            letters = call["function"]["arguments"]
            deltas += [
                {"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in letters
            ]
        pieces = [{"delta": delta, "finish_reason": None} for delta in deltas]
        pieces.append({"delta": {}, "finish_reason": choice["finish_reason"]})
    events = [head | {"choices": [{"index": 0, **piece}]} for piece in pieces]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(head | {"choices": [], "usage": reply["usage"]})
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return [*lines, b"data: [DONE]\n\n"]


def _response(body: Json, said: str | Tool, tag: str) -> Json:
    read, wrote = usage_of(body, said)
    if isinstance(said, Tool):
        item: Json = {"type": "function_call", "id": f"fc_{tag}", "call_id": f"call_{tag}"}
        item |= {"name": said.name, "arguments": json.dumps(said.arguments), "status": "completed"}
    else:
        part = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{tag}", "role": "assistant"}
        item |= {"status": "completed", "content": [part]}
    return {
        "id": f"resp_{tag}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "model": f"{body['model']}-0613",
        "output": [item],
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": wrote,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": read + wrote,
        },
    }


def _response_events(reply: Json) -> list[bytes]:
    (item,) = reply["output"]
    begun = {"response": reply | {"status": "in_progress", "output": [], "usage": None}}
    place = {"output_index": 0, "item_id": item["id"]}
    events: list[tuple[str, Json]] = [("created", begun), ("in_progress", begun)]
    if item["type"] == "function_call":
        events.append(("output_item.added", {"output_index": 0, "item": item | {"arguments": ""}}))
        events.append(("function_call_arguments.delta", place | {"delta": item["arguments"]}))
        events.append(("function_call_arguments.done", place | {"arguments": item["arguments"]}))
    else:
        (part,) = item["content"]
        place |= {"content_index": 0}
        events.append(("output_item.added", {"output_index": 0, "item": item | {"content": []}}))
        events.append(("content_part.added", place | {"part": part | {"text": ""}}))
        for word in re.findall(r"\S+\s*", part["text"]):
            events.append(("output_text.delta", place | {"delta": word, "logprobs": []}))
        events.append(("output_text.done", place | {"text": part["text"], "logprobs": []}))
        events.append(("content_part.done", place | {"part": part}))
    events.append(("output_item.done", {"output_index": 0, "item": item}))
    events.append(("completed", {"response": reply}))
    lines = []
    for number, (name, data) in enumerate(events):
        line = {"type": f"response.{name}", "sequence_number": number, **data}
        lines.append(f"event: response.{name}\ndata: {json.dumps(line)}\n\n".encode())
    return lines


@contextmanager
def model_server(script: Script = by_prompt) -> Iterator[ModelServer]:
    sock = bind("127.0.0.1", 0)
    server = ModelServer(f"http://127.0.0.1:{sock.getsockname()[1]}/v1", script)
    app = Starlette(routes=[Route("/v1/{path:path}", server.answer, methods=["GET", "POST"])])
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([sock],), daemon=True)
    thread.start()
    wait_for(lambda: running.started)
    try:
        yield server
    finally:
        running.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the model server hangs"
