"""Three ways to ask for the same: chat completions, and completions and responses in their terms.

A dialect reads a request as a chat completion's, and writes the answer or its chunks its own way.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.serve.http_error import HttpError
from tacit.serve.schema import DONE, MOST_CHOICES, ChatRequest, Json, WireMessage, event, parse_chat


class Dialect:
    """Chat completions, which need no translation."""

    def __init__(self, body: Json, headers: Mapping[str, str]) -> None:
        self.chat = self.read(body, headers)

    def read(self, body: Json, headers: Mapping[str, str]) -> ChatRequest:
        return parse_chat(body, headers)

    @staticmethod
    def field(name: str, body: Json) -> str:
        """What a client that sent this body calls a chat completion's field."""
        return name

    def whole(self, body: Json) -> Json:
        return body

    def piece(self, chunk: Json) -> bytes:
        """The server-sent events of one chunk."""
        return event(chunk)

    def last(self, body: Json) -> bytes:
        """The end of a stream, given the whole completion."""
        return DONE

    def failure(self, body: Json) -> bytes:
        return event(body)


class Completions(Dialect):
    """`/v1/completions`: each prompt is a question of its own."""

    def read(self, body: Json, headers: Mapping[str, str]) -> ChatRequest:
        asked = body.get("prompt")
        prompts = asked if isinstance(asked, list) else [asked]
        if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
            told = "`prompt` must be text, or a list of texts (lm-eval: tokenized_requests=False)"
            raise HttpError(400, told, param="prompt")
        others = {name: value for name, value in body.items() if name != "prompt"}
        chat = parse_chat(others | {"messages": [_user(prompts[0])]}, headers)
        if len(prompts) * (chat.fields.n or 1) > MOST_CHOICES:
            told = f"`prompt` and `n` ask for more than {MOST_CHOICES} answers at once"
            raise HttpError(400, told, param="prompt")
        return replace(chat, prompts=[[WireMessage(role="user", content=p)] for p in prompts])

    @staticmethod
    def field(name: str, body: Json) -> str:
        return "prompt" if name.partition(".")[0] == "messages" else name

    def whole(self, body: Json) -> Json:
        return self._translated(body, "message")

    def piece(self, chunk: Json) -> bytes:
        return event(self._translated(chunk, "delta"))

    def _translated(self, body: Json, said: str) -> Json:
        """`said`: under which name a choice holds its text."""
        choices = [
            {"text": choice[said].get("content") or ""}
            | {name: choice.get(name) for name in ("index", "logprobs", "finish_reason")}
            for choice in body["choices"]
        ]
        name = self.chat.id.replace("chatcmpl-", "cmpl-")
        return body | {"id": name, "object": "text_completion", "choices": choices}


class Responses(Dialect):
    """`/v1/responses`, without what a server would have to remember."""

    def __init__(self, body: Json, headers: Mapping[str, str]) -> None:
        super().__init__(body, headers)
        self._item = f"msg_{uuid.uuid4().hex}"
        self._place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        self._events = 0
        self._text = ""

    def read(self, body: Json, headers: Mapping[str, str]) -> ChatRequest:
        if body.get("n") not in (None, 1):
            raise HttpError(400, "`n` is not supported: a response is one answer", param="n")
        ours = ("input", "instructions", "max_output_tokens", "text")
        rest = {name: value for name, value in body.items() if name not in ours}
        given = body.get("text")
        text: Json = given if isinstance(given, dict) else {}
        rest |= {f"text.{name}": value for name, value in text.items() if name != "format"}
        told, asked = body.get("instructions"), body.get("input")
        system = [{"role": "system", "content": told}] if told else []
        items = asked if isinstance(asked, list) else [_user(asked)]
        chat = {
            "messages": [*system, *(_message(item, place) for place, item in enumerate(items))],
            "max_tokens": body.get("max_output_tokens"),
            "response_format": text.get("format"),
        }
        return parse_chat(rest | chat, headers)

    @staticmethod
    def field(name: str, body: Json) -> str:
        head, *rest = name.split(".")
        if head != "messages":
            names = {"max_tokens": "max_output_tokens", "response_format": "text.format"}
            return names.get(name, name)
        told = bool(body.get("instructions"))
        if told and rest[:1] == ["0"]:
            return "instructions"
        if not rest or not isinstance(body.get("input"), list):
            return "input"
        return ".".join(["input", str(int(rest[0]) - told), *rest[1:]])

    def whole(self, body: Json) -> Json:
        choice, usage = body["choices"][0], body["usage"]
        cut = choice["finish_reason"] == "length"
        status = "incomplete" if cut else "completed"
        return self._response(status) | {
            "output": [self._message(status, _part(choice["message"]["content"]))],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": usage["completion_tokens_details"],
                "total_tokens": usage["total_tokens"],
                **({"tacit_cut": usage["tacit_cut"]} if "tacit_cut" in usage else {}),
            },
            **({"tacit": body["tacit"]} if "tacit" in body else {}),
        }

    def piece(self, chunk: Json) -> bytes:
        events = [] if self._events else self._begin()
        for choice in chunk["choices"]:
            if text := choice["delta"].get("content"):
                self._text += text
                said = self._place | {"delta": text, "logprobs": []}
                events.append(self._event("output_text.delta", said))
        return b"".join(events)

    def last(self, body: Json) -> bytes:
        reply = self.whole(body)
        (item,) = reply["output"]
        done = self._place | {"text": self._text, "logprobs": []}
        events = [
            self._event("output_text.done", done),
            self._event("content_part.done", self._place | {"part": item["content"][0]}),
            self._event("output_item.done", {"output_index": 0, "item": item}),
            self._event(str(reply["status"]), {"response": reply}),
        ]
        return b"".join(events)

    def failure(self, body: Json) -> bytes:
        return self._event("error", body | body["error"] | {"type": "error"})

    def _begin(self) -> list[bytes]:
        reply, item = self._response("in_progress"), self._message("in_progress")
        return [
            self._event("created", {"response": reply}),
            self._event("in_progress", {"response": reply}),
            self._event("output_item.added", {"output_index": 0, "item": item}),
            self._event("content_part.added", self._place | {"part": _part("")}),
        ]

    def _event(self, name: str, data: Json) -> bytes:
        kind = name if name == "error" else f"response.{name}"
        numbered = {"type": kind, **data, "sequence_number": self._events}
        self._events += 1
        return f"event: {kind}\n".encode() + event(numbered)

    def _message(self, status: str, *parts: Json) -> Json:
        head = {"id": self._item, "type": "message", "role": "assistant"}
        return head | {"status": status, "content": list(parts)}

    def _response(self, status: str) -> Json:
        chat = self.chat
        return {
            "id": chat.id.replace("chatcmpl-", "resp_"),
            "object": "response",
            "created_at": chat.created,
            "status": status,
            "model": chat.fields.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": chat.body.get("metadata") or {},
            "parallel_tool_calls": True,
            "temperature": chat.fields.temperature,
            "top_p": chat.fields.top_p,
            "tool_choice": "auto",
            "tools": [],
        }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _user(text: Any) -> Json:
    return {"role": "user", "content": text}


def _message(item: Any, place: int) -> Any:
    """One item of a response's input as a chat message."""
    if not isinstance(item, dict):
        return item
    if item.get("type", "message") != "message":
        told = f"an item of type `{item['type']}` cannot be read: send messages"
        raise HttpError(400, told, param=f"input.{place}.type")
    content, texts = item.get("content"), ("input_text", "output_text")
    if isinstance(content, list):
        content = [
            part | {"type": "text"}
            if isinstance(part, dict) and part.get("type") in texts
            else part
            for part in content
        ]
    return {"role": item.get("role"), "content": content}
