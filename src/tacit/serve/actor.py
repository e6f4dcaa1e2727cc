"""The Actor in its seat, when it is a server of the user's own: one client's request, relayed.

What the client sent goes on unchanged but for the team's words, which follow its last user message.
"""

from contextvars import ContextVar

from tacit.engine.base import Completion, Request
from tacit.errors import TacitError
from tacit.serve.backend import Emit
from tacit.serve.conversation import last_user
from tacit.serve.problem import Problem
from tacit.serve.reply import Chunk, chunks_of, completion_of, is_whole, read
from tacit.serve.schema import Chat, Json
from tacit.serve.upstream import Refusal, Upstream
from tacit.types import ChatMessage

_RELAY: ContextVar["Relay"] = ContextVar("relay")


class ActorEngine:
    """Asks for whichever client is being answered in the asyncio task that calls it."""

    policy = ""

    def __init__(self, model: str) -> None:
        self.model = model

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        return ()

    def silence_ids(self) -> tuple[int, ...]:
        return ()

    async def generate(self, request: Request) -> Completion:
        relay = _RELAY.get()
        return await relay.ask(_added(request, relay.question), final=request.on_text is not None)

    async def close(self) -> None:
        """The connection belongs to whoever opened it."""


class CallsTools(TacitError):
    """The Actor wants tools called, so that its reply is the answer, whoever was to speak next."""

    def __init__(self, completion: Completion) -> None:
        super().__init__("the Actor calls tools")
        self.completion = completion


class Relay:
    """One client's request on its way to the Actor, and what came back."""

    def __init__(self, chat: Chat, emit: Emit, upstream: Upstream, model: str | None) -> None:
        """`model`: what to ask the Actor's server for, if not what the client asks for."""
        self.question = ""
        """The client's question, as the team was told it."""
        self.streamed = False
        """Whether the client has heard something."""
        self._chat = chat
        self._emit = emit
        self._upstream = upstream
        self._model = model
        self._replies: list[tuple[str, Json]] = []
        _RELAY.set(self)

    async def ask(self, added: str, *, final: bool) -> Completion:
        """`final`: the reply is the answer, and a client who wants a stream hears it at once."""
        if final and self._chat.streams:
            return await self._stream(self._body(added))
        reply = await self._upstream.ask(self._body(added), self._chat.headers)
        completion = completion_of(reply)
        self._replies.append((completion.text, reply))
        if not final and reply["choices"][0]["message"].get("tool_calls"):
            raise CallsTools(completion)
        return completion

    def reply(self, text: str) -> Json:
        """The reply that said this. A client who wants a stream and heard nothing yet hears it."""
        said = [reply for reply_text, reply in self._replies if reply_text == text]
        if not said:
            raise Problem(500, "the team's topology gave an answer that is not the Actor's")
        reply = said[-1]
        if self._chat.streams and not self.streamed:
            self._hear_whole(reply)
        return reply

    def _body(self, added: str) -> Json:
        ours = ("tacit", "stream", "stream_options")
        body = {name: value for name, value in self._chat.body.items() if name not in ours}
        if self._model:
            body["model"] = self._model
        place = last_user(self._chat.fields.messages)
        if added and place is not None:
            body["messages"] = [*body["messages"]]
            body["messages"][place] = _with(body["messages"][place], added)
        return body

    async def _stream(self, body: Json) -> Completion:
        """Every chunk as it comes; usage is held back, since the team's is told at the end."""
        options = {**(self._chat.body.get("stream_options") or {}), "include_usage": True}
        body |= {"stream": True, "stream_options": options}
        head: Json = {}
        text, finish, usage = "", None, None
        async for chunk in self._upstream.stream(body, self._chat.headers):
            if "error" in chunk:
                raise Refusal(502, chunk)
            if is_whole(chunk):  # the server does not stream
                completion = completion_of(chunk)
                self._replies.append((completion.text, chunk))
                self._hear_whole(chunk)
                return completion
            for choice in read(Chunk, chunk).choices or ():
                if not choice.index:
                    text += (choice.delta and choice.delta.content) or ""
                    finish = choice.finish_reason or finish
            usage = chunk.pop("usage", None) or usage
            head = head or {name: value for name, value in chunk.items() if name != "choices"}
            if chunk.get("choices"):
                self._hear(chunk)
        if not self.streamed:
            raise Problem(502, "the Actor's answer holds no message", code="actor_failed")
        message = {"content": text}
        whole = head | {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}
        completion = completion_of(whole)
        self._replies.append((completion.text, whole))
        return completion

    def _hear_whole(self, reply: Json) -> None:
        for chunk in chunks_of(reply):
            self._hear(chunk)

    def _hear(self, chunk: Json) -> None:
        self.streamed = True
        self._emit(chunk)


def _added(request: Request, question: str) -> str:
    """What the team puts after the question: quoted messages, and what it asks of the Actor."""
    said = request.messages[-1].content
    if not said.startswith(question):
        raise Problem(500, "the team's topology asks the Actor another question than the client's")
    told = [message.content for message in request.messages if message.role == "system"]
    return said[len(question) :] + "".join(f"\n\n{text}" for text in told)


def _with(message: Json, added: str) -> Json:
    content = message.get("content")
    if isinstance(content, list):
        return message | {"content": [*content, {"type": "text", "text": added.strip()}]}
    return message | {"content": f"{content or ''}{added}"}
