"""Writes replies as a model server would: a text as a whole reply, and that as a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from tacit.external.passing import Local
from tacit.external.wire_formats import CHAT, GENERATING, RESPONSES, Json
from tacit.serve.schema import DONE, chunk_head, chunks_of, encoded, event

NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
MOST_CHOICES = 128
"""OpenAI's limit of `n`."""


def local_reply(path: str, request: Mapping[str, Any], response: Json, source: str) -> Local:
    """A reply in the form that the request asks for."""
    if path not in GENERATING or not request.get("stream"):
        return Local(encoded(response), source)
    if path == RESPONSES:
        return Local(b"".join(_response_events(response)), source, "text/event-stream")
    chunks = [*(chunks_of(response) if path == CHAT else _pieces(response))]
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        head = chunk_head(response) | ({} if path == CHAT else {"object": response.get("object")})
        chunks.append(head | {"choices": [], "usage": response.get("usage") or NOTHING})
    return Local(b"".join(map(event, chunks)) + DONE, source, "text/event-stream")


def spoken(path: str, request: Mapping[str, Any], text: str) -> Json:
    """A whole reply in which the model says this text, calls no tool and spends no token."""
    now, model = int(time.time()), request.get("model")
    name = f"tacit-{uuid.uuid4().hex}"
    if path == RESPONSES:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{name}", "type": "message", "role": "assistant"}
        return _RESPONSE | {
            "id": f"resp_{name}",
            "created_at": now,
            "model": model,
            "output": [message | {"status": "completed", "content": [part]}],
        }
    ends, n = {"finish_reason": "stop", "logprobs": None}, request.get("n")
    said = {"message": {"role": "assistant", "content": text}} if path == CHAT else {"text": text}
    return {
        "id": name,
        "object": "chat.completion" if path == CHAT else "text_completion",
        "created": now,
        "model": model,
        "choices": [
            {"index": k} | ends | said
            for k in range(n if isinstance(n, int) and 0 < n <= MOST_CHOICES else 1)
        ],
        "usage": NOTHING,
    }


_RESPONSE: Json = {
    "object": "response", "status": "completed", "error": None, "incomplete_details": None,
    "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
    "top_p": None, "tool_choice": "auto", "tools": [],
    "usage": {
        "input_tokens": 0, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0,
    },
}  # fmt: skip


def _pieces(response: Json) -> Iterator[Json]:
    """A completion's choices, each in one chunk."""
    head = chunk_head(response) | {"object": "text_completion"}
    for choice in response["choices"]:
        yield head | {"choices": [choice]}


def _response_events(response: Json) -> Iterator[bytes]:
    """The events of a response; each text and each tool call's arguments in one piece."""
    number = 0

    def sent(kind: str, data: Mapping[str, Any]) -> bytes:
        nonlocal number
        line = {"type": f"response.{kind}", "sequence_number": number, **data}
        number += 1
        return f"event: response.{kind}\ndata: {json.dumps(line)}\n\n".encode()

    begun = response | {"status": "in_progress", "output": [], "usage": None}
    yield sent("created", {"response": begun})
    yield sent("in_progress", {"response": begun})
    for index, item in enumerate(response.get("output") or []):
        place = {"output_index": index}
        empty: Json = {"content": []} if item.get("type") == "message" else {}
        empty |= {"arguments": ""} if item.get("type") == "function_call" else {}
        yield sent("output_item.added", place | {"item": item | empty})
        place |= {"item_id": item.get("id")}
        if item.get("type") == "function_call":
            said = item.get("arguments") or ""
            yield sent("function_call_arguments.delta", place | {"delta": said})
            done = {"arguments": said, "name": item.get("name")}
            yield sent("function_call_arguments.done", place | done)
        for part_index, part in enumerate(item.get("content") or [] if "content" in empty else ()):
            here = place | {"content_index": part_index}
            text = part.get("text") or ""
            yield sent("content_part.added", here | {"part": part | {"text": ""}})
            yield sent("output_text.delta", here | {"delta": text, "logprobs": []})
            yield sent("output_text.done", here | {"text": text, "logprobs": []})
            yield sent("content_part.done", here | {"part": part})
        yield sent("output_item.done", {"output_index": index, "item": item})
    yield sent(str(response.get("status", "completed")), {"response": response})
