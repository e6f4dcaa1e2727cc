"""The Actor's seat in front of a server of the user's own: one client's request, relayed.

The request goes on unchanged, with the team's words added after its last user message.
"""

from dataclasses import dataclass
from typing import Any

from tacit.engine.base import Completion, Request, TextOnly
from tacit.errors import TacitError
from tacit.serve.backend import Emit
from tacit.serve.http_error import HttpError
from tacit.serve.schema import ChatRequest, Json, chunks_of
from tacit.serve.team_backend import last_user
from tacit.serve.upstream import Upstream, checked, completion_of, failed


@dataclass(eq=False)
class CallsTools(TacitError):
    """The Actor calls tools: its reply is the answer, whoever was to speak next."""

    completion: Completion


class Relay(TextOnly):
    """An engine for one request. It asks the Actor's server, and keeps what came back."""

    policy = ""

    def __init__(self, chat: ChatRequest, emit: Emit, upstream: Upstream, model: str) -> None:
        """`model`: the Actor's name in the ledger."""
        self.model = model
        self.question = ""
        """The client's question, as the team was told it."""
        self.streamed = False
        """True once the client has been sent something."""
        self._chat = chat
        self._emit = emit
        self._upstream = upstream
        self._replies: list[tuple[str, Json]] = []

    async def generate(self, request: Request) -> Completion:
        """Ask with what the team puts after the question: quoted messages and its own requests."""
        said = request.messages[-1].content
        if not said.startswith(self.question):
            told = "the team's topology asks the Actor another question than the client's"
            raise HttpError(500, told)
        system = "".join(f"\n\n{m.content}" for m in request.messages if m.role == "system")
        added = said[len(self.question) :] + system
        return await self.ask(added, final=request.on_text is not None)

    async def close(self) -> None:
        """The connection belongs to whoever opened it."""

    async def ask(self, added: str = "", *, final: bool = True) -> Completion:
        """`final`: the reply is the answer, so a client who wants a stream is sent it at once."""
        body = self._body(added)
        if final and self._chat.streams:
            return await self._stream(body)
        reply = await self._upstream.ask(body, self._chat.headers)
        completion = self._keep(reply)
        if not final and reply["choices"][0]["message"].get("tool_calls"):
            raise CallsTools(completion)
        return completion

    def reply(self, text: str) -> Json:
        """The reply with this text. A client who wants a stream is sent it if it was not yet."""
        said = [reply for known, reply in self._replies if known == text]
        if not said:
            raise HttpError(500, "the team's topology gave an answer that is not the Actor's")
        if self._chat.streams and not self.streamed:
            self._send(said[-1])
        return said[-1]

    def _keep(self, reply: Json) -> Completion:
        completion = completion_of(reply)
        self._replies.append((completion.text, reply))
        return completion

    def _send(self, reply: Json) -> None:
        self.streamed = True
        for chunk in chunks_of(reply):
            self._emit(chunk)

    def _body(self, added: str) -> Json:
        ours = ("tacit", "views", "stream", "stream_options")
        body = {name: value for name, value in self._chat.body.items() if name not in ours}
        place = last_user(self._chat.fields.messages)
        if added and place is not None:
            messages = body["messages"] = [*body["messages"]]
            said: Any = messages[place].get("content") or ""
            part = {"type": "text", "text": added.strip()}
            whole = [*said, part] if isinstance(said, list) else f"{said}{added}"
            messages[place] = messages[place] | {"content": whole}
        return body

    async def _stream(self, body: Json) -> Completion:
        """Send every chunk as it comes; usage is held back, since the team's is sent at the end."""
        options = {**(self._chat.body.get("stream_options") or {}), "include_usage": True}
        body |= {"stream": True, "stream_options": options}
        head: Json = {}
        text, finish, usage = "", None, None
        async for chunk in self._upstream.stream(body, self._chat.headers):
            if "error" in chunk:
                raise failed("the Actor's server refused", said=chunk)
            choices = checked(chunk).choices or []
            if any(choice.message for choice in choices):  # the server does not stream
                completion = self._keep(chunk)
                self._send(chunk)
                return completion
            for choice in choices:
                if not choice.index:
                    text += (choice.delta and choice.delta.content) or ""
                    finish = choice.finish_reason or finish
            usage = chunk.pop("usage", None) or usage
            head = head or {name: value for name, value in chunk.items() if name != "choices"}
            if choices:
                self.streamed = True
                self._emit(chunk)
        if not self.streamed:
            raise failed("the Actor's answer holds no message")
        whole = {"message": {"content": text}, "finish_reason": finish}
        return self._keep(head | {"choices": [whole], "usage": usage})
