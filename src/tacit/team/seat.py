"""One agent in one episode: what it is asked, and what it may read and say.

Not covered: how one message comes about (`turn`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tacit.errors import Overflow, PromptTooLong
from tacit.team.branch import BRANCH
from tacit.team.prompts import HELPING_PARTS, Context, build, tell_of_silence
from tacit.team.setting import Agent, Answering
from tacit.team.tools import OUT_OF_CALLS, SEARCHED
from tacit.team.turn import Turn
from tacit.types import ChatMessage, Message, Prompt

if TYPE_CHECKING:
    from tacit.team.team import Team

Said = Message | str | Sequence[Message] | None


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
        tools = await agent.toolbox.open() if agent.toolbox and self.calls_left else {}
        if self._searches and not tools and not shown:
            private = {"view": _messages(f"{SEARCHED}\n{OUT_OF_CALLS}")}
            messages = prompt(question, quoted | private)
        turn = Turn(
            seat=self,
            number=number,
            part=part,
            round=round,
            may_be_silent=allowed,
            answering=_at_most(most, setting.answering if final else Answering()),
            heard_as=heard_as,
        )
        try:
            said = await turn.say(messages, tools)
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
        turn = Turn(
            seat=self,
            number=number,
            part=agent.part,
            may_be_silent=not must,
            answering=answering,
        )
        try:
            return await turn.say(messages, {})
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

    @property
    def _searches(self) -> bool:
        """True if the agent searches its view with our `lookup`, not another tool of that name."""
        return bool(self.view) and "lookup" in self.agent.config.tools

    @property
    def calls_left(self) -> int:
        """How many more tool calls the agent may make in this episode."""
        left = self.agent.config.max_tool_calls - BRANCH.get().tool_calls[self.name]
        return 0 if left and self.team.setting.guard.withholds_tools(self.name) else left

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


def _at_most(tokens: int, asked: Answering) -> Answering:
    return replace(asked, max_tokens=min(tokens, asked.max_tokens or tokens))


def _messages(said: Said) -> Sequence[Message]:
    if isinstance(said, str):
        said = Message("", said)
    return (said,) if isinstance(said, Message) else said or ()
