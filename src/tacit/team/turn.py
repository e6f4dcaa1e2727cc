"""One message of an agent: a call of its model, and one more after each use of tools."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tacit.engine.base import (
    Completion,
    Request,
    Sampling,
    SilenceRule,
    derive_seed,
    is_silence,
    without_marker,
)
from tacit.errors import PromptTooLong
from tacit.team.branch import BRANCH
from tacit.team.setting import Agent, Answering
from tacit.team.tools import OUT_OF_CALLS, Tool, ToolContext, observation, shown
from tacit.types import Call, ChatMessage, Choice, Ids, Message, Prompt, Stop, ToolSpec

if TYPE_CHECKING:
    from tacit.team.seat import Seat

LONG = 20_000
"""Prompts of this many characters are tokenised in a thread, so as not to block the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message that an agent is asked for."""

    seat: "Seat"
    number: str
    """Number of its first call, which is part of the seed."""
    part: str
    round: int = 0
    may_be_silent: bool
    answering: Answering
    heard_as: Callable[[str], str] | None = None
    """Turns what the agent says into what others read."""

    async def say(self, messages: Prompt, tools: Mapping[str, Tool]) -> Message:
        """Call the model, and once more after each call of tools; the last text is the message.

        Only in the first call may the agent choose to be silent.
        """
        agent, task, setting = self.seat.agent, self.seat.team.task, self.seat.team.setting
        draw = setting.sample if setting.draw is None else setting.draw
        seed = partial(derive_seed, setting.seed, setting.step, task.id, draw, agent.name)
        specs = tuple(tool.spec for tool in tools.values())
        on_text = None if self.may_be_silent else self.answering.on_text
        request = Request(
            messages=messages,
            prompt_ids=await _encoded(agent, messages, specs),
            sampling=self._sampling(),
            seed=seed(self.number),
            silence=self._rule() if self.may_be_silent else None,
            on_text=None if tools else on_text,
            tools=specs,
        )
        call, message = await self._call(request, None)
        again = 0
        while call.tool_calls:
            again += 1
            request = await self._after_tools(request, call, tools)
            request = replace(
                request,
                seed=seed(f"{self.number}+{again}"),
                silence=None,
                on_text=None if request.may_call else on_text,
            )
            call, message = await self._call(request, call)
        return message

    async def _after_tools(
        self, request: Request, call: Call, tools: Mapping[str, Tool]
    ) -> Request:
        """Run the tools that a call asks for, and append their results to the request."""
        seat, agent, branch = self.seat, self.seat.agent, BRANCH.get()
        assert agent.toolbox is not None
        context = ToolContext(
            task=shown(seat.team.task),
            agent=agent.name,
            view=seat.view,
            timeout=agent.config.tool_timeout,
        )
        observed = []
        started = time.perf_counter()
        for one in call.tool_calls:
            if not seat.calls_left:
                observed.append(observation(one, "Not run."))
                continue
            branch.tool_calls[agent.name] += 1
            observed.append(await agent.toolbox.observe(tools, one, context))
        branch.path_seconds += time.perf_counter() - started
        may_call = seat.calls_left > 0
        if not may_call:
            last = observed[-1]
            observed[-1] = replace(last, content=f"{last.content}\n{OUT_OF_CALLS}")
        ids = request.prompt_ids
        if ids:
            ids += call.output_ids + agent.engine.encode_more(tuple(observed), request.tools)
            _check_length(agent, ids)
        said = ChatMessage("assistant", call.text, call.tool_calls)
        return replace(
            request,
            messages=(*request.messages, said, *observed),
            prompt_ids=ids,
            may_call=may_call,
        )

    def _sampling(self) -> Sampling:
        agent, asked = self.seat.agent, self.answering
        explores = self.seat.team.setting.training and agent.config.trained
        temperature = agent.config.temperature
        if temperature is None:
            temperature = 1.0 if explores else agent.temperature
        elif agent.config.trained and not explores:
            temperature = agent.temperature
        most = agent.config.max_tokens
        return Sampling(
            temperature=temperature if asked.temperature is None else asked.temperature,
            top_p=agent.config.top_p if asked.top_p is None else asked.top_p,
            top_k=agent.config.top_k,
            max_tokens=most if asked.max_tokens is None else min(most, asked.max_tokens),
        )

    def _rule(self) -> SilenceRule:
        agent, setting = self.seat.agent, self.seat.team.setting
        return SilenceRule(
            ids=agent.engine.silence_ids(),
            choice=setting.choices.get(agent.name) or setting.choices.get(agent.role, Choice.FREE),
            floor=setting.floor,
            silent_above=agent.config.silent_above,
        )

    async def _call(self, request: Request, before: Call | None) -> tuple[Call, Message]:
        """One call of the model. `before`: the turn's previous call, if tools were run."""
        agent, team = self.seat.agent, self.seat.team
        done, seconds = await team.generate(agent, request)
        branch = BRANCH.get()
        branch.path_tokens += done.usage.generated
        branch.path_seconds += seconds
        # A server may cut a character in two, and half of it can be neither stored nor sent on.
        text = done.text.encode(errors="replace").decode()
        silent, said = _heard(request.silence, done, text, self.may_be_silent)
        heard = self.heard_as(said) if self.heard_as and said is not None else None
        call = Call(
            agent=agent.name,
            model=agent.engine.model,
            messages=request.messages,
            text=text,
            stop=done.stop,
            usage=replace(done.usage, observed=_observed(request, done, before)),
            prompt_ids=request.prompt_ids,
            output_ids=done.ids,
            logprobs=done.logprobs,
            policy=agent.engine.policy if agent.config.trained else "",
            version=done.version,
            silent=silent,
            may_be_silent=request.silence is not None,
            unheard=said is None and not silent,
            heard=heard,
            choice=request.silence.choice if request.silence else Choice.FREE,
            silence_logprob=done.silence_logprob,
            part=self.part,
            round=self.round,
            seconds=seconds,
            path_tokens=branch.path_tokens,
            served=done.model,
            fingerprint=done.fingerprint,
            reused=done.reused,
            logprob=done.logprob,
            tool_calls=done.tool_calls if request.tools and request.may_call and not silent else (),
        )
        team.record(call)
        delivered = said if heard is None else heard
        return call, Message(agent.name, delivered or "", said is None)


def _observed(request: Request, done: Completion, before: Call | None) -> int:
    """Tokens that tools added to a prompt; for text-only engines by the server's counts."""
    if before is None:
        return 0
    if request.prompt_ids:
        return len(request.prompt_ids) - len(before.prompt_ids) - len(before.output_ids)
    said = before.usage.generated - before.usage.reasoning
    return max(0, done.usage.prompt - before.usage.prompt - said)


def _heard(
    rule: SilenceRule | None, done: Completion, text: str, allowed: bool
) -> tuple[bool, str | None]:
    """Whether a message is silence, and the text that other agents see, if any.

    If ids are known they alone decide: the marker's ids, then an end. The marker spelled in other
    tokens is not part of π(silence), so it counts as speech; but other agents are never shown a
    marker, alone or at the end of a message.
    """
    if not allowed:
        return False, text
    if rule is not None:
        by_ids = done.ids[:-1] == rule.ids[:-1] and done.stop is Stop.EOS
        if by_ids if rule.ids else is_silence(text):
            return True, None
    said = without_marker(text)
    return False, None if said != text and not said else said


async def _encoded(agent: Agent, messages: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
    """The prompt's ids, if there are no more than the agent may read."""
    encode = partial(agent.engine.encode, messages, tools)
    if sum(len(message.content) for message in messages) < LONG:
        prompt_ids = encode()
    else:
        prompt_ids = await asyncio.to_thread(encode)
    _check_length(agent, prompt_ids)
    return prompt_ids


def _check_length(agent: Agent, prompt_ids: Ids) -> None:
    limit = agent.config.max_input_tokens
    if limit is not None and len(prompt_ids) > limit:
        size = f"a prompt of {len(prompt_ids)} tokens"
        raise PromptTooLong(f"{agent.name}: {size} is over its max_input_tokens {limit}", limit)
