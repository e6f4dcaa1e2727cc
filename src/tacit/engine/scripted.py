"""A deterministic engine with prepared replies, for tests and docs.

Text only: it counts words as tokens and has no log-probabilities.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tacit.engine.base import SILENCE_MARKER, Completion, Request, TextOnly, is_silence
from tacit.errors import EngineError, TacitError
from tacit.types import Choice, Stop, ToolCall, Usage

Reply = str | ToolCall | Sequence[ToolCall] | Exception
Script = Callable[[Request], Reply | Awaitable[Reply]] | Mapping[str, Reply] | Sequence[Reply]


class ScriptedEngine(TextOnly):
    """Replies by a function of the request, by what the last message contains, or in order.

    Example: ScriptedEngine({"2 + 2": "4", "": "I do not know."}) answers "4" to any message with
    "2 + 2" in it; the first matching key wins. A reply that is an exception is raised, and a
    ToolCall calls that tool.
    """

    def __init__(
        self, script: Script, *, model: str = "scripted", policy: str = "", delay: float = 0.0
    ) -> None:
        self.model = model
        self.policy = policy
        self.version = 0
        self.calls = 0
        self._script = script
        self._delay = delay

    async def generate(self, request: Request) -> Completion:
        call, self.calls = self.calls, self.calls + 1
        if self._delay:
            await asyncio.sleep(self._delay)
        reply = await self._said(request, call)
        text, stop = _cut(_written(reply), request.sampling.max_tokens)
        if request.on_text:
            for word in re.findall(r"\s*\S+", text):
                request.on_text(word)
        return Completion(
            text=text,
            stop=stop,
            usage=Usage(
                prompt=sum(len(message.content.split()) for message in request.messages),
                generated=len(text.split()),
            ),
            version=self.version,
            model=self.model,
            tool_calls=() if isinstance(reply, str) or stop is Stop.LENGTH else tuple(reply),
        )

    async def close(self) -> None:
        """Nothing to close."""

    async def _said(self, request: Request, call: int) -> str | Sequence[ToolCall]:
        choice = request.silence.choice if request.silence else Choice.FREE
        if choice is Choice.SILENT:
            return SILENCE_MARKER
        try:
            reply = self._reply(request, call)
            if inspect.isawaitable(reply):
                reply = await reply
        except TacitError:
            raise
        except Exception as error:
            raise EngineError(f"{self.model}: {type(error).__name__}: {error}") from error
        if isinstance(reply, Exception):
            raise EngineError(f"{self.model}: {reply}") from reply
        if isinstance(reply, ToolCall):
            return (reply,)
        if choice is Choice.SPEAK and isinstance(reply, str) and is_silence(reply):
            raise EngineError(f"{self.model}: the script is silent where it was asked to speak")
        return reply

    def _reply(self, request: Request, call: int) -> Reply | Awaitable[Reply]:
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, Mapping):
            message = request.messages[-1].content
            for part, reply in self._script.items():
                if part in message:
                    return reply
            raise EngineError(f"{self.model}: the script has no reply to {message!r}")
        if call >= len(self._script):
            raise EngineError(f"{self.model}: the script ends after {len(self._script)} replies")
        return self._script[call]


def _written(reply: str | Sequence[ToolCall]) -> str:
    """The text of a reply; tool calls as in the plain form."""
    if isinstance(reply, str):
        return reply
    return "\n".join(
        f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>'
        for call in reply
    )


def _cut(text: str, words: int) -> tuple[str, Stop]:
    """The text cut to this many words, with its blanks as they are."""
    cut = text.split(maxsplit=words)
    if len(cut) <= words:
        return text, Stop.EOS
    return text[: len(text) - len(cut[-1])].rstrip(), Stop.LENGTH
