"""One agent in one episode: builds its prompts, calls its model and tools, records the calls."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
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
from tacit.errors import Overflow, PromptTooLong
from tacit.team.branch import BRANCH
from tacit.team.prompts import HELPING_PARTS, Context, build, tell_of_silence
from tacit.team.setting import Agent, Answering
from tacit.team.tools import OUT_OF_CALLS, SEARCHED, Tool, ToolContext, observation, shown
from tacit.types import Call, ChatMessage, Choice, Ids, Message, Prompt, Stop, ToolSpec

if TYPE_CHECKING:
    from tacit.team.team import Team

Said = Message | str | Sequence[Message] | None
LONG = 20_000
"""Prompts of this many characters are tokenised in a thread, so as not to block the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One message that an agent is asked for; it takes several calls if the agent uses tools."""

    number: str
    """Number of its first call, which is part of the seed."""
    part: str
    round: int = 0
    may_be_silent: bool
    answering: Answering
    heard_as: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """One agent in one episode."""

    agent: Agent
    team: "Team"

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def view(self) -> str:
        """The task's private text for this agent."""
        views = self.team.task.views
        return views.get(self.agent.name) or views.get(self.agent.role, "")

    async def ask(
        self,
        question: str,
        *,
        part: str | None = None,
        silent: bool = True,
        instruction: str | None = None,
        round: int = 0,
        final: bool = False,
        heard_as: Callable[[str], str] | None = None,
        **context: Said,
    ) -> Message:
        """Make one call. Context is quoted in the prompt; `silent=False` forbids silence.

        The agent's own view of the task, if it has one, is always in its prompt, unless it has the
        tool `lookup` to search it with, or the topology shows it in another form (`view=…`).
        `final` marks the message that the topology returns, which a client may see streamed.
        `heard_as` turns what the agent says into what others read.
        """
        agent, setting = self.agent, self.team.setting
        allowed = silent and agent.may_be_silent
        part = part or agent.part
        number = BRANCH.get().number(agent.name)
        if (self._left_out(round) or self.team.over) and (instead := self._instead(part, final)):
            return instead
        prompt = self._builder(part, instruction, may_be_silent=allowed)
        quoted = {name: self._read(_messages(said)) for name, said in context.items()}
        shown = quoted.pop("view", None)
        private = {"view": shown or _messages(SEARCHED if self._searches else self.view or None)}
        messages = prompt(question, quoted | private)
        answers = final or part not in HELPING_PARTS
        if not (most := setting.guard.most_tokens(self, messages, answers=answers, final=final)):
            return self._instead(part, final) or Message(agent.name, silent=True)
        tools = await agent.toolbox.open() if agent.toolbox and self._calls_left else {}
        if self._searches and not tools and not shown:
            private = {"view": _messages(f"{SEARCHED}\n{OUT_OF_CALLS}")}
            messages = prompt(question, quoted | private)
        turn = _Turn(
            number=number,
            part=part,
            round=round,
            may_be_silent=allowed,
            answering=_at_most(most, setting.answering if final else Answering()),
            heard_as=heard_as,
        )
        try:
            said = await self._say(turn, messages, tools)
        except PromptTooLong as error:
            bare = [prompt(self.team.task.question, shorter) for shorter in (private, {})]
            raise self._blame(error, messages, *bare) from None
        if part not in HELPING_PARTS:
            BRANCH.get().answers[agent.name] = said
        return said

    def _builder(
        self, part: str, instruction: str | None, *, may_be_silent: bool
    ) -> Callable[[str, Context], Prompt]:
        """Builds this agent's prompt from a question and its context."""
        task, agent = self.team.task, self.agent
        return partial(
            build,
            part,
            agent=agent.name,
            instruction=task.instruction if instruction is None else instruction,
            form=agent.form,
            system=agent.config.system,
            may_be_silent=may_be_silent,
        )

    async def reply(
        self, messages: Prompt, *, number: str, max_tokens: int | None = None
    ) -> Message:
        """Make one call with a prompt written elsewhere; `number` is unique among the agent's.

        Without tools: who writes an agent's prompts runs its tools as well.
        """
        agent = self.agent
        if self._left_out(0):
            return Message(agent.name, silent=True)
        if agent.may_be_silent:
            messages = tell_of_silence(messages)
        guard, must = self.team.setting.guard, not agent.may_be_silent
        most = guard.most_tokens(self, messages, answers=must, final=must, foreign=True)
        if not most:
            return Message(agent.name, silent=True)
        answering = _at_most(most, Answering(max_tokens=max_tokens))
        turn = _Turn(number=number, part=agent.part, may_be_silent=not must, answering=answering)
        try:
            return await self._say(turn, messages, {})
        except PromptTooLong as error:
            told = [message for message in messages if message.role == "system"]
            alone = (*told, ChatMessage("user", self.team.task.question))
            raise self._blame(error, messages, alone, alone) from None

    def _left_out(self, round: int) -> bool:
        return any(
            cut.reader is None and self._is(cut.agent) and cut.round in (None, round)
            for cut in self.team.without
        )

    def _instead(self, part: str, final: bool) -> Message | None:
        """The message to use for one that is left out; None if the agent must be asked after all.

        A helper is silent. An answering agent repeats its last answer; without one it is silent
        too, unless its message is the team's final answer, or all other answers agree.
        """
        answers = BRANCH.get().answers
        answer = answers.get(self.agent.name)
        if part not in HELPING_PARTS and not answer and self.team.over:
            answer = next(iter(answers.values()))  # the same for all
        if part not in HELPING_PARTS and (answer or final):
            return answer
        return Message(self.agent.name, silent=True)

    def _read(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages without those that this agent may not read."""
        kept = {cut.agent for cut in self.team.without if cut.reader and self._is(cut.reader)}
        if not kept:
            return messages
        roles = {seat.name: seat.agent.role for seat in self.team.seats}
        return [m for m in messages if not {m.agent, roles.get(m.agent)} & kept]

    def _is(self, name: str | None) -> bool:
        """True for the name of this agent or of its role."""
        return name in (None, self.agent.name, self.agent.role)

    async def _say(self, turn: _Turn, messages: Prompt, tools: Mapping[str, Tool]) -> Message:
        """One message: a call of the model, and one more after each call of tools.

        Only in the first may the agent choose to be silent. The last one's text is the message.
        """
        agent, setting, asked = self.agent, self.team.setting, turn.answering
        draw = setting.sample if setting.draw is None else setting.draw
        seed = partial(derive_seed, setting.seed, setting.step, self.team.task.id, draw, agent.name)
        specs = tuple(tool.spec for tool in tools.values())
        request = Request(
            messages=messages,
            prompt_ids=await _encoded(agent, messages, specs),
            sampling=self._sampling(asked),
            seed=seed(turn.number),
            silence=self._rule() if turn.may_be_silent else None,
            on_text=None if turn.may_be_silent or tools else asked.on_text,
            tools=specs,
        )
        before: Call | None = None
        for again in itertools.count(1):
            before, message = await self._call(turn, request, before)
            if not before.tool_calls:
                return message
            request = replace(
                await self._go_on(request, before, tools),
                seed=seed(f"{turn.number}+{again}"),
                silence=None,
            )
            if not request.may_call:
                request = replace(request, on_text=None if turn.may_be_silent else asked.on_text)
        raise AssertionError("calls are bounded")

    @property
    def _searches(self) -> bool:
        """True if the agent searches its view with our `lookup`, not another tool of that name."""
        return bool(self.view) and "lookup" in self.agent.config.tools

    @property
    def _calls_left(self) -> int:
        left = self.agent.config.max_tool_calls - BRANCH.get().tool_calls[self.name]
        return 0 if left and self.team.setting.guard.withholds_tools(self.name) else left

    async def _go_on(self, request: Request, call: Call, tools: Mapping[str, Tool]) -> Request:
        """Run the tools that a call asks for, and append their results to the request."""
        agent, branch, box = self.agent, BRANCH.get(), self.agent.toolbox
        assert box is not None
        task, timeout = shown(self.team.task), agent.config.tool_timeout
        context = ToolContext(task=task, agent=agent.name, view=self.view, timeout=timeout)
        observed = []
        started = time.perf_counter()
        for one in call.tool_calls:
            if not self._calls_left:
                observed.append(observation(one, "Not run."))
                continue
            branch.tool_calls[agent.name] += 1
            observed.append(await box.observe(tools, one, context))
        branch.path_seconds += time.perf_counter() - started
        may_call = self._calls_left > 0
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

    def _blame(
        self,
        error: PromptTooLong,
        messages: Prompt,
        alone: Prompt,
        bare: Prompt,
    ) -> PromptTooLong:
        """The error that names what made a prompt too long: the question, the view, or the talk.

        `alone` is the prompt with only the task's question and the agent's view, `bare` that
        without the view. A shorter prompt is taken to fit if the limit is not known.
        """

        def fits(shorter: Prompt, than: Prompt) -> bool:
            if error.limit is None:
                return shorter != than
            return len(self.agent.engine.encode(shorter)) <= error.limit

        if not fits(alone, messages):
            what = "the question alone does not fit:"
            if fits(bare, alone):
                what = "its view does not fit beside the question: shorten it or"
            return PromptTooLong(f"{error}; {what} raise that limit")
        if not BRANCH.get().spoke:
            return error
        return Overflow(f"{error}, because of what was said before")

    def _sampling(self, asked: Answering) -> Sampling:
        agent = self.agent
        explores = self.team.setting.training and agent.config.trained
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
        choices = self.team.setting.choices
        return SilenceRule(
            ids=self.agent.engine.silence_ids(),
            choice=choices.get(self.agent.name) or choices.get(self.agent.role, Choice.FREE),
            floor=self.team.setting.floor,
            silent_above=self.agent.config.silent_above,
        )

    async def _call(
        self, turn: _Turn, request: Request, before: Call | None
    ) -> tuple[Call, Message]:
        """One call of the model. `before`: the turn's previous call, if tools were run."""
        done, seconds = await self.team.generate(self.agent, request)
        branch = BRANCH.get()
        branch.path_tokens += done.usage.generated
        branch.path_seconds += seconds
        # A server may cut a character in two, and half of it can be neither stored nor sent on.
        text = done.text.encode(errors="replace").decode()
        silent, said = _heard(request.silence, done, text, turn.may_be_silent)
        heard = turn.heard_as(said) if turn.heard_as and said is not None else None
        call = Call(
            agent=self.agent.name,
            model=self.agent.engine.model,
            messages=request.messages,
            text=text,
            stop=done.stop,
            usage=replace(done.usage, observed=_observed(request, done, before)),
            prompt_ids=request.prompt_ids,
            output_ids=done.ids,
            logprobs=done.logprobs,
            policy=self.agent.engine.policy if self.agent.config.trained else "",
            version=done.version,
            silent=silent,
            may_be_silent=request.silence is not None,
            unheard=said is None and not silent,
            heard=heard,
            choice=request.silence.choice if request.silence else Choice.FREE,
            silence_logprob=done.silence_logprob,
            part=turn.part,
            round=turn.round,
            seconds=seconds,
            path_tokens=branch.path_tokens,
            served=done.model,
            fingerprint=done.fingerprint,
            reused=done.reused,
            logprob=done.logprob,
            tool_calls=done.tool_calls if request.tools and request.may_call and not silent else (),
        )
        self.team.record(call)
        delivered = said if heard is None else heard
        return call, Message(self.agent.name, delivered or "", said is None)


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


def _at_most(tokens: int, asked: Answering) -> Answering:
    return replace(asked, max_tokens=min(tokens, asked.max_tokens or tokens))


def _messages(said: Said) -> Sequence[Message]:
    if isinstance(said, str):
        said = Message("", said)
    return (said,) if isinstance(said, Message) else said or ()


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
