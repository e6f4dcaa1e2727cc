"""A team as one model: its question goes in, its answer comes out, its tokens are all counted.

Client settings reach the call that gives the answer, where the topology names one (`final=True`);
helpers speak as they were trained. What a team cannot do is refused by name; fields that nobody
knows are left alone, as clients expect of such servers.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from tacit.errors import EngineError, PromptTooLong, TopologyError
from tacit.registry import did_you_mean
from tacit.serve.backend import Answer, Emit
from tacit.serve.conversation import question_of
from tacit.serve.outside import log_failure
from tacit.serve.problem import Problem
from tacit.serve.schema import (
    FINISH,
    Chat,
    Json,
    account,
    chunk,
    completion,
    models_json,
)
from tacit.team.roster import Roster
from tacit.team.team import Answering, Setting
from tacit.types import Call, Message, Stop, Task, Usage

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "stop": ("", []),
    "logprobs": (False,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
"""What would change the answer but a team cannot do, and the values that ask for nothing."""


class TeamBackend:
    def __init__(self, name: str, roster: Roster, instruction: str) -> None:
        """`instruction`: how the answer must be given, as the team's tasks had it."""
        self._name = name
        self._roster = roster
        self._instruction = instruction
        self._opened = int(time.time())

    async def models(self, headers: Mapping[str, str]) -> Json:
        return models_json([self._name], self._opened)

    def check(self, chat: Chat) -> None:
        if chat.fields.model != self._name:
            hint = did_you_mean(chat.fields.model, [self._name])
            raise Problem(
                404,
                f"there is no model `{chat.fields.model}`; {hint}",
                param="model",
                code="model_not_found",
            )
        for field, nothing in UNSUPPORTED.items():
            value = chat.body.get(field)
            if value is not None and value not in nothing:
                raise Problem(400, f"`{field}` is not supported by a team", param=field)
        _check_text(chat)

    async def answer(self, chat: Chat, emit: Emit) -> Answer:
        said = _Said(chat, emit)
        task = Task(
            id="serve",
            question=question_of(chat.fields.messages, with_system=True),
            answer="",
            grader="",
            instruction=self._instruction,
        )
        team = self._roster.seat(task, _setting(chat, said))
        try:
            message = await self._roster.play(team)
        except PromptTooLong as error:
            raise Problem(
                400, str(error), param="messages", code="context_length_exceeded"
            ) from error
        except EngineError as error:
            raise Problem(502, str(error), code="model_failed") from error
        except TopologyError as error:
            cause = error.__cause__
            log_failure(cause if isinstance(cause, Exception) else error, self._name)
            reason = f"the team's topology failed: {error.place}"
            raise Problem(502, reason, code="team_failed") from error
        calls = tuple(team.whole.calls)
        body = completion(chat, message.text, _finish(message, calls), _usage(calls))
        body |= {"tacit": account(calls)} if chat.fields.tacit else {}
        said.end(body)
        return Answer(body, calls)

    async def close(self) -> None:
        """The engines belong to whoever opened them."""


class _Said:
    """What a stream's client has heard of the answer so far."""

    def __init__(self, chat: Chat, emit: Emit) -> None:
        self._chat = chat
        self._emit = emit
        self._text = ""

    def hear(self, piece: str) -> None:
        if not self._text:
            self._emit(chunk(self._chat, {"role": "assistant", "content": ""}))
        self._text += piece
        self._emit(chunk(self._chat, {"content": piece}))

    def end(self, body: Json) -> None:
        """Say what is left, why it ended, and what it cost."""
        if not self._chat.streams:
            return
        choice = body["choices"][0]
        whole: str = choice["message"]["content"]
        if not whole.startswith(self._text):
            raise Problem(500, "the topology announced another answer than it gave")
        if rest := whole[len(self._text) :]:
            self.hear(rest)
        elif not self._text:
            self._emit(chunk(self._chat, {"role": "assistant", "content": ""}))
        self._emit(chunk(self._chat, {}, choice["finish_reason"]))
        if last := self._chat.last_fields(body):
            self._emit(chunk(self._chat, {}) | {"choices": []} | last)


def _setting(chat: Chat, said: _Said) -> Setting:
    fields = chat.fields
    return Setting(
        seed=secrets.randbits(63) if fields.seed is None else fields.seed,
        answering=Answering(
            temperature=fields.temperature,
            top_p=fields.top_p,
            max_tokens=chat.max_tokens,
            on_text=said.hear if chat.streams else None,
        ),
    )


def _check_text(chat: Chat) -> None:
    """A team reads words only."""
    for place, message in enumerate(chat.fields.messages):
        parts = message.content if isinstance(message.content, list) else []
        for number, part in enumerate(parts):
            if part.get("type") != "text":
                raise Problem(
                    400,
                    "a team reads text only",
                    param=f"messages.{place}.content.{number}.type",
                )
    question_of(chat.fields.messages, with_system=True)


def _finish(answer: Message, calls: tuple[Call, ...]) -> str:
    """Why the call that gave the answer ended."""
    stops = [c.stop for c in calls if c.agent == answer.agent and c.text == answer.text]
    return FINISH[stops[-1] if stops else Stop.EOS]


def _usage(calls: tuple[Call, ...]) -> Usage:
    return sum((call.usage for call in calls), Usage())
