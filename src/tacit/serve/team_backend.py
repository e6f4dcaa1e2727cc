"""A team as one model: its question goes in, its answer comes out, its tokens are all counted.

A lone user message is the question as it stands. Earlier messages are quoted above it, as agents'
messages are, so that nothing in them can pass for the question. Client settings reach the call that
gives the answer, if the topology names one (`final=True`); helpers speak as they were trained. A
field that a team cannot honour is refused by name, and the client is told which others are ignored.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit.errors import ConfigError, EngineError, PromptTooLong, TopologyError
from tacit.registry import did_you_mean
from tacit.serve.backend import Answer, Emit, Heard, finished
from tacit.serve.budgets import Budgets
from tacit.serve.guard import BudgetGuard
from tacit.serve.http_error import HttpError
from tacit.serve.monitoring import log_failure
from tacit.serve.schema import FINISH, ChatRequest, Json, Messages, chunk, completion, models_json
from tacit.team.prompts import INTRODUCTIONS, quote
from tacit.team.roster import Roster
from tacit.team.setting import Answering, Setting
from tacit.types import Call, Message, Stop, Task

log = logging.getLogger(__name__)

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "tools": ([],), "functions": ([],), "logprobs": (False,), "logit_bias": ({},),
    "presence_penalty": (0,), "frequency_penalty": (0,), "response_format": ({"type": "text"},),
    "modalities": (["text"],), "audio": (), "echo": (False,), "suffix": ("",), "best_of": (1,),
    "prompt": (), "previous_response_id": (), "conversation": (), "background": (False,),
}  # fmt: skip
"""Fields that would change the answer in a way a team cannot → the values that ask for nothing."""
INDIFFERENT = {
    "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store", "tool_choice", "user",
}  # fmt: skip
"""Fields on which no answer depends as long as there are no tools."""


class TeamBackend:
    def __init__(
        self, name: str, roster: Roster, instruction: str, budgets: Budgets | None = None
    ) -> None:
        """`instruction`: how the answer must be given, as in the team's tasks."""
        self._name = name
        self._roster = roster
        self._instruction = instruction
        self._budgets = budgets or Budgets()

    async def models(self, headers: Mapping[str, str]) -> Json:
        return models_json([self._name])

    def check(self, chat: ChatRequest) -> list[str]:
        model = chat.fields.model
        if model != self._name:
            told = f"there is no model `{model}`; {did_you_mean(model, [self._name])}"
            raise HttpError(404, told, param="model", code="model_not_found")
        if field := unsupported(chat, UNSUPPORTED):
            raise HttpError(400, f"`{field}` is not supported by a team", param=field)
        if len(chat.stops) > 16 or any(len(stop) > 1000 for stop in chat.stops):
            told = "`stop` may be at most 16 texts of at most 1,000 characters each"
            raise HttpError(400, told, param="stop")
        self._budgets.check(chat)
        check_views(chat, self._roster)
        for messages in chat.prompts:
            check_messages(messages)
        return _ignored(chat)

    async def answer(self, chat: ChatRequest, emit: Emit, heard: Heard) -> Answer:
        """Answer each prompt as often as it is asked for, all at once."""
        seed = secrets.randbits(63) if chat.fields.seed is None else chat.fields.seed
        asked = [(p, sample) for p in chat.prompts for sample in range(chat.fields.n or 1)]
        choices = [_Choice(chat, emit, index) for index in range(len(asked))]
        with self._budgets.opened(chat, len(asked)) as allowance:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(
                            self._play(
                                self._task(chat, question_of(messages)),
                                choice,
                                Setting(seed=seed, sample=sample),
                                BudgetGuard(allowance, self._budgets.reader, listen=heard),
                            )
                        )
                        for choice, (messages, sample) in zip(choices, asked, strict=True)
                    ]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        calls = [call for task in tasks for call in task.result()]
        body = completion(chat, [(choice.text, choice.finish) for choice in choices], calls)
        return finished(chat, body, calls, emit, allowance=allowance)

    def _task(self, chat: ChatRequest, question: str) -> Task:
        return Task(
            id="serve",
            question=question,
            answer="",
            grader=self._budgets.reader,
            instruction=self._instruction,
            views=chat.views,
        )

    async def _play(
        self, task: Task, choice: "_Choice", setting: Setting, guard: BudgetGuard
    ) -> list[Call]:
        setting = replace(setting, answering=choice.answering(), guard=guard)
        team = self._roster.seat(task, setting, guard.heard)
        try:
            message = guard.answer(await self._roster.play(team))
        except PromptTooLong as error:
            code = "context_length_exceeded"
            raise HttpError(400, str(error), param="messages", code=code) from error
        except EngineError as error:
            raise HttpError(502, str(error), code="model_failed") from error
        except ConfigError as error:  # an MCP server that is not there, or not yet
            log.error("%s: %s", self._name, error)
            reason = "the team's tools cannot be used now: the server's log says why"
            raise HttpError(502, reason, code="tool_failed") from error
        except TopologyError as error:
            cause = error.__cause__
            log_failure(cause if isinstance(cause, Exception) else error, self._name)
            reason = f"the team's topology failed: {error.place}"
            raise HttpError(502, reason, code="team_failed") from error
        guard.allowance.answered()
        calls, said = team.whole.calls, (message.agent, message.text)
        stops = [call.stop for call in calls if (call.agent, call.text) == said]
        choice.end(message.text, FINISH[stops[-1] if stops else Stop.EOS])
        return calls


class _Choice:
    """One answer: what a streaming client has been sent of it so far, and how it ended."""

    def __init__(self, chat: ChatRequest, emit: Emit, index: int) -> None:
        self.text, self.finish = "", ""
        self._chat = chat
        self._emit = emit
        self._index = index
        self._heard = ""
        """What the team has said, including a stop and what may become one."""

    def answering(self) -> Answering:
        fields = self._chat.fields
        return Answering(
            temperature=fields.temperature,
            top_p=fields.top_p,
            max_tokens=self._chat.max_tokens,
            on_text=self._hear if self._chat.streams else None,
        )

    def _hear(self, piece: str) -> None:
        self._begin()
        self._heard += piece
        self._tell_more(before_stop(self._heard, self._chat.stops, ended=False))

    def end(self, whole: str, finish: str) -> None:
        """Send the rest, and why it ended."""
        text = before_stop(whole, self._chat.stops, ended=True)
        self.finish = finish if text == whole else FINISH[Stop.EOS]
        if not self._chat.streams:
            self.text = text
            return
        if not text.startswith(self.text):
            raise HttpError(500, "the topology announced another answer than it gave")
        self._begin()
        self._tell_more(text)
        self._tell({}, self.finish)

    def _begin(self) -> None:
        if not self._heard:
            self._tell({"role": "assistant", "content": ""})

    def _tell_more(self, text: str) -> None:
        if more := text[len(self.text) :]:
            self.text = text
            self._tell({"content": more})

    def _tell(self, delta: Json, finish: str | None = None) -> None:
        self._emit(chunk(self._chat, delta, finish, self._index))


def before_stop(text: str, stops: Sequence[str], *, ended: bool) -> str:
    """The text before the stop that ends first.

    While the text goes on, also without an ending that may become a stop.
    """
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    if found or ended:
        return text[: min(found, default=(0, len(text)))[1]]
    return text[: len(text) - max((_begun(text, stop) for stop in stops), default=0)]


def _begun(text: str, stop: str) -> int:
    """How many characters of a stop the text ends with."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


def unsupported(chat: ChatRequest, fields: Mapping[str, tuple[Any, ...]]) -> str | None:
    """The first of the fields whose value asks for something; 0 does not count as False."""

    def asks(value: Any, nothing: tuple[Any, ...]) -> bool:
        kind = isinstance(value, bool)
        same = (value == one and kind == isinstance(one, bool) for one in nothing)
        return value is not None and not any(same)

    return next((f for f, nothing in fields.items() if asks(chat.body.get(f), nothing)), None)


def _ignored(chat: ChatRequest) -> list[str]:
    """The fields that ask for something and have no effect."""
    known = {*type(chat.fields).model_fields, *UNSUPPORTED, *INDIFFERENT}
    fields = [name for name, value in chat.body.items() if name not in known and value]
    calls = [
        f"messages.{place}.{name}"
        for messages in chat.prompts
        for place, message in enumerate(messages)
        for name in ("tool_calls", "function_call")
        if (message.model_extra or {}).get(name)
    ]
    return fields + calls


def question_of(messages: Messages, *, with_system: bool = True) -> str:
    """What the last user message asks, below the messages before it."""
    last = last_user(messages)
    if last is None:
        raise HttpError(400, "`messages` holds no message of role `user`", param="messages")
    asked = messages[last].text
    if not asked.strip():
        place = f"messages.{last}.content"
        raise HttpError(400, "the last user message holds no text", param=place)
    earlier = [
        quote("message", Message(message.role, said))
        for message in messages[:last]
        if (with_system or message.role not in ("system", "developer")) and (said := message.text)
    ]
    if not earlier:
        return asked
    return "\n\n".join(["\n".join([INTRODUCTIONS["messages"], *earlier]), asked])


def last_user(messages: Messages) -> int | None:
    """The place of the last user message; tools' results may follow it."""
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    return users[-1] if users else None


def check_views(chat: ChatRequest, roster: Roster) -> None:
    known = dict.fromkeys(name for agent in roster.agents for name in (agent.role, agent.name))
    if unknown := [agent for agent in chat.views if agent not in known]:
        names = ", ".join(f"`{name}`" for name in known)
        told = f"`views`: the team has no agent `{unknown[0]}`; it has {names}"
        raise HttpError(400, told, param="views")


def check_messages(messages: Messages) -> None:
    """Refuse anything but text, and a conversation in which the user is not the last to speak."""
    for place, message in enumerate(messages):
        if (odd := message.odd_part) is not None:
            param = f"messages.{place}.content.{odd}.type"
            raise HttpError(400, "a team reads text only", param=param)
    question_of(messages)
    if messages[-1].role != "user":
        told = f"a team answers the user, and the last message is of role `{messages[-1].role}`"
        raise HttpError(400, told, param=f"messages.{len(messages) - 1}.role")
