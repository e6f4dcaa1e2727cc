"""The agents of one episode; a `Roster` is built once, a `Team` is made for each episode.

A topology is an async function `(task, team) -> Message`; its control flow is who speaks when.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager

from tacit.config import Cut
from tacit.engine.base import Completion, Request
from tacit.errors import Overflow, first_error
from tacit.grading import read_answer
from tacit.team.branch import BRANCH, Branch
from tacit.team.seat import Seat
from tacit.team.setting import Agent, Setting
from tacit.types import Call, Message, Prompt, Task


class Team:
    """The agents of one episode: `team.hinter` is the agent of that role, `team.all(role)` are all.

    Must be created inside the asyncio task that plays the episode.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        task: Task,
        setting: Setting,
        on_call: Callable[[Call], None] | None = None,
        without: frozenset[Cut] = frozenset(),
        stop: str | None = None,
    ) -> None:
        self.task = task
        self.setting = setting
        self.without = without | setting.without
        self._stop = stop
        self._recorded = Recorded(setting.recorded)
        self.whole = Branch()
        BRANCH.set(self.whole)
        self._on_call = on_call
        self.needed: dict[str, bool] = dict(task.data.get("speak", {}))
        """Agent → whether it holds information that others need; a topology may add to it."""
        self.seats = [Seat(agent, self) for agent in agents]

    def __getattr__(self, role: str) -> Seat:
        seats = self.all(role)
        if not seats:
            raise AttributeError(f"this team has no `{role}`")
        return seats[0]

    def all(self, role: str) -> list[Seat]:
        return [seat for seat in self.seats if seat.agent.role == role]

    def has(self, role: str) -> bool:
        return bool(self.all(role))

    @property
    def heard(self) -> list[Call]:
        """The calls made before this point: the current branch's and all joined ones."""
        here = BRANCH.get()
        return self.whole.calls + (here.calls if here is not self.whole else [])

    async def together(self, *asks: Coroutine[None, None, Message]) -> list[Message]:
        """Ask several agents at once; the slowest chain of calls is the critical path."""
        here = BRANCH.get()
        branches = here.split(len(asks))

        async def follow(branch: Branch, ask: Coroutine[None, None, Message]) -> Message | Overflow:
            BRANCH.set(branch)
            try:
                return await ask
            except Overflow as error:  # the others go on, and their calls count too
                return error

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(follow(branch, ask))
                    for branch, ask in zip(branches, asks, strict=True)
                ]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            here.join(branches)
            for ask in asks:
                ask.close()  # a coroutine cancelled before it began would warn
        said = [task.result() for task in tasks]
        for one in said:
            if isinstance(one, Overflow):
                raise one
        return [one for one in said if isinstance(one, Message)]

    @contextmanager
    def strand(self) -> Iterator[Branch]:
        """A branch for calls from outside the topology's own flow, each in its own asyncio task.

        Calls made inside follow everything that was said before it was entered.
        """
        (branch,) = self.whole.split(1)
        BRANCH.set(branch)
        try:
            yield branch
        finally:
            self.whole.join([branch])

    @property
    def over(self) -> bool:
        """True if `stop` ends the talk here: all agents that have answered agree."""
        answers = BRANCH.get().answers.values() if self._stop == "agreed" else ()
        read = [read_answer(self.task, answer.text) for answer in answers]
        return len(read) > 1 and bool(read[0]) and len(set(read)) == 1

    async def generate(self, agent: Agent, request: Request) -> tuple[Completion, float]:
        """The engine's completion and how many seconds it took, or the recorded ones."""
        if known := self._recorded.take(agent.name, request.messages):
            return known
        started = time.perf_counter()
        done = await agent.engine.generate(request)
        return done, time.perf_counter() - started

    def record(self, call: Call) -> None:
        branch = BRANCH.get()
        branch.calls.append(call)
        branch.spoke |= not call.silent
        if self._on_call:
            self._on_call(call)


class Recorded:
    """The calls of an earlier play by agent and prompt; each is used once."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls: dict[tuple[str, Prompt], list[Call]] = {}
        for call in reversed(calls):
            self._calls.setdefault((call.agent, call.messages), []).append(call)

    def take(self, agent: str, messages: Prompt) -> tuple[Completion, float] | None:
        """The recorded completion for this prompt and its seconds, or None."""
        if not (left := self._calls.get((agent, messages))):
            return None
        call = left.pop()
        done = Completion(
            text=call.text,
            ids=call.output_ids,
            logprobs=call.logprobs,
            stop=call.stop,
            usage=call.usage,
            version=call.version,
            silence_logprob=call.silence_logprob,
            model=call.served,
            fingerprint=call.fingerprint,
            logprob=call.logprob,
            reused=True,
            tool_calls=call.tool_calls,
        )
        return done, call.seconds
