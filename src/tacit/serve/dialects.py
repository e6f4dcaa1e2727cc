"""Three ways to ask for the same: chat completions, and completions and responses in their terms.

A dialect reads a request as a chat completion's and says the answer, or its chunks, in its own way.
"""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.serve.problem import Problem
from tacit.serve.schema import (
    DONE,
    MOST_CHOICES,
    Chat,
    Json,
    WireMessage,
    event,
    parse_chat,
)


class Dialect:
    """Chat completions, which need no translation."""

    def __init__(self, body: Json, headers: Mapping[str, str]) -> None:
        self.chat = self.read(body, headers)

    def read(self, body: Json, headers: Mapping[str, str]) -> Chat:
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
        """What ends a stream, given the whole completion."""
        return DONE

    def failure(self, body: Json) -> bytes:
        return event(body)


class Completions(Dialect):
    """`/v1/completions`: each prompt is a question of its own."""

    def read(self, body: Json, headers: Mapping[str, str]) -> Chat:
        asked = body.get("prompt")
        prompts = asked if isinstance(asked, list) else [asked]
        if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
            told = "`prompt` must be text, or a list of texts (lm-eval: tokenized_requests=False)"
            raise Problem(400, told, param="prompt")
        others = {name: value for name, value in body.items() if name != "prompt"}
        chat = parse_chat(others | {"messages": [_user(prompts[0])]}, headers)
        if len(prompts) * (chat.fields.n or 1) > MOST_CHOICES:
            told = f"`prompt` and `n` ask for more than {MOST_CHOICES} answers at once"
            raise Problem(400, told, param="prompt")
        return replace(chat, prompts=[[WireMessage(role="user", content=p)] for p in prompts])

    @staticmethod
    def field(name: str, body: Json) -> str:
        return "prompt" if name.partition(".")[0] == "messages" else name

    def whole(self, body: Json) -> Json:
        choices = [_text(choice, choice["message"]) for choice in body["choices"]]
        return self._named(body, choices)

    def piece(self, chunk: Json) -> bytes:
        choices = [_text(choice, choice["delta"]) for choice in chunk["choices"]]
        return event(self._named(chunk, choices))

    def _named(self, body: Json, choices: list[Json]) -> Json:
        name = self.chat.id.replace("chatcmpl-", "cmpl-")
        return body | {"id": name, "object": "text_completion", "choices": choices}


class Responses(Dialect):
    """`/v1/responses`, without what a server would have to remember."""

    def __init__(self, body: Json, headers: Mapping[str, str]) -> None:
        super().__init__(body, headers)
        self._item = f"msg_{uuid.uuid4().hex}"
        self._said = 0
        self._text = ""

    def read(self, body: Json, headers: Mapping[str, str]) -> Chat:
        if body.get("n") not in (None, 1):
            raise Problem(400, "`n` is not supported: a response is one answer", param="n")
        ours = ("input", "instructions", "max_output_tokens", "text")
        rest = {name: value for name, value in body.items() if name not in ours}
        given = body.get("text")
        text: Json = given if isinstance(given, dict) else {}
        rest |= {f"text.{name}": value for name, value in text.items() if name != "format"}
        told = body.get("instructions")
        system = [{"role": "system", "content": told}] if told else []
        asked = {
            "messages": [*system, *_messages(body.get("input"))],
            "max_tokens": body.get("max_output_tokens"),
            "response_format": text.get("format"),
        }
        return parse_chat(rest | asked, headers)

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
        choice = body["choices"][0]
        cut = choice["finish_reason"] == "length"
        status = "incomplete" if cut else "completed"
        usage = body["usage"]
        return self._response(status) | {
            "output": [self._message(choice["message"]["content"], status)],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": usage["completion_tokens_details"],
                "total_tokens": usage["total_tokens"],
            },
            **({"tacit": body["tacit"]} if "tacit" in body else {}),
        }

    def piece(self, chunk: Json) -> bytes:
        begun = b"" if self._said else self._begin()
        texts = [choice["delta"].get("content") for choice in chunk["choices"]]
        deltas = [
            self._event("output_text.delta", self._part() | {"delta": text, "logprobs": []})
            for text in texts
            if text
        ]
        self._text += "".join(text for text in texts if text)
        return begun + b"".join(deltas)

    def last(self, body: Json) -> bytes:
        reply, part = self.whole(body), self._part()
        (item,) = reply["output"]
        done = {"output_index": 0, "item": item}
        return b"".join(
            [
                self._event("output_text.done", part | {"text": self._text, "logprobs": []}),
                self._event("content_part.done", part | {"part": item["content"][0]}),
                self._event("output_item.done", done),
                self._event(str(reply["status"]), {"response": reply}),
            ]
        )

    def failure(self, body: Json) -> bytes:
        return self._event("error", body | body["error"] | {"type": "error"})

    def _begin(self) -> bytes:
        reply = self._response("in_progress")
        item = self._message("", "in_progress") | {"content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return b"".join(
            [
                self._event("created", {"response": reply}),
                self._event("in_progress", {"response": reply}),
                self._event("output_item.added", {"output_index": 0, "item": item}),
                self._event("content_part.added", self._part() | {"part": part}),
            ]
        )

    def _part(self) -> Json:
        return {"item_id": self._item, "output_index": 0, "content_index": 0}

    def _event(self, name: str, data: Json) -> bytes:
        kind = name if name == "error" else f"response.{name}"
        numbered = {"type": kind, **data, "sequence_number": self._said}
        self._said += 1
        return f"event: {kind}\n".encode() + event(numbered)

    def _message(self, text: str, status: str) -> Json:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [part],
        }

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


def _user(text: Any) -> Json:
    return {"role": "user", "content": text}


def _text(choice: Json, said: Json) -> Json:
    kept = {name: choice[name] for name in ("index", "logprobs", "finish_reason")}
    return {"text": said.get("content") or "", **kept}


def _messages(asked: Any) -> list[Any]:
    """A response's input as messages."""
    if not isinstance(asked, list):
        return [_user(asked)]
    return [_message(item, place) for place, item in enumerate(asked)]


def _message(item: Any, place: int) -> Any:
    if not isinstance(item, dict):
        return item
    if item.get("type", "message") != "message":
        told = f"an item of type `{item['type']}` cannot be read: send messages"
        raise Problem(400, told, param=f"input.{place}.type")
    content = item.get("content")
    if isinstance(content, list):
        content = [_plain(part) for part in content]
    return {"role": item.get("role"), "content": content}


def _plain(part: Any) -> Any:
    texts = ("input_text", "output_text")
    if isinstance(part, dict) and part.get("type") in texts:
        return {"type": "text", "text": part.get("text")}
    return part
