"""The data types that all modules share: tasks, messages, calls, episodes."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Ids = tuple[int, ...]
"""Token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to solve.

    Example: Task(id="gsm8k/test/0", question="Janet's ducks lay …", answer="18", grader="math")
    """

    id: str
    question: str
    answer: str
    grader: str
    """A name of `tacit.grading.GRADERS`, or `module:name`."""
    instruction: str = ""
    """How the answer must be given, e.g. within \\boxed{}; shown to agents that answer."""
    level: str = ""
    subject: str = ""
    views: Mapping[str, str] = field(default_factory=dict)
    """Private text by agent (`hinter`, `holder 2`) or by role: only that agent is shown it."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """For the grader only (tests, entry point, position). Never shown to a model."""

    def digest(self) -> str:
        """A hash of everything that decides a grade."""
        data = sorted(self.data.items())
        whole: tuple[Any, ...] = (self.question, self.answer, self.grader, self.instruction, data)
        if self.views:
            whole = (*whole, sorted(self.views.items()))
        return hashlib.blake2b(repr(whole).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that an agent asks for.

    Example: ToolCall("python", '{"code": "print(6 * 7)"}')
    """

    name: str
    arguments: str = "{}"
    """JSON as the model wrote it, malformed or not."""
    id: str = ""
    """Tells the calls of one message apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool's description, as the model is given it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema of an object."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a prompt, as in chat templates and OpenAI-style APIs."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """role `assistant`: the calls it makes; role `tool`: the one that it answers."""


Prompt = tuple[ChatMessage, ...]
"""A prompt or a part of one."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the other agents. A silent one has no text and is shown to nobody."""

    agent: str
    text: str = ""
    silent: bool = False


class Stop(StrEnum):
    """Why a completion ended."""

    EOS = "eos"
    LENGTH = "length"


class Choice(StrEnum):
    """How the choice between speaking and silence is made in one call."""

    FREE = "free"  # sampled from the policy, which may sample silence
    SPEAK = "speak"  # sampled from the policy conditioned on not being silent
    SILENT = "silent"  # silence, without sampling
    FLOOR = "floor"  # sampled, but each choice with at least a floor's probability


MOST_TOKENS = 10**9
"""No answer has more; a larger number from a server or a file is an error."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of calls, summed.

    `cached` and `observed` (tool results) are part of `prompt`, `reasoning` of `generated`.
    """

    prompt: int = 0
    generated: int = 0
    cached: int = 0
    reasoning: int = 0
    observed: int = 0
    """Counted once, in the call that read it first."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt + other.prompt,
            self.generated + other.generated,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.observed + other.observed,
        )

    @property
    def spent(self) -> int:
        """The tokens that budgets count: what agents generated, and the results of their tools."""
        return self.generated + self.observed

    @property
    def total(self) -> int:
        return self.prompt + self.generated


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One model call exactly as served. Training uses its ids; the text is only their decoding."""

    agent: str
    model: str
    messages: Prompt
    text: str
    stop: Stop
    usage: Usage
    prompt_ids: Ids = ()
    """Empty for text-only engines, as are the next two."""
    output_ids: Ids = ()
    """Every sampled id, the end-of-sequence token included."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each output id under the distribution it was drawn from."""
    policy: str = ""
    """Name of the trained weights that spoke; empty for a frozen agent."""
    version: int = 0
    """Number of updates of those weights."""
    silent: bool = False
    may_be_silent: bool | None = None
    """Whether silence was allowed; None, as in older run folders, is inferred."""
    unheard: bool = False
    """True if the silence marker was spelled in other tokens: speech, but shown to nobody."""
    heard: str | None = None
    """What other agents read if that is not `text`, such as the sentence that a number quotes."""
    choice: Choice = Choice.FREE
    silence_logprob: float | None = None
    """log π(silence | prompt), if silence was allowed and the engine knows it."""
    part: str = ""
    """The agent's part in this call: `solver`, `hinter`, …; see team/prompts.py."""
    round: int = 0
    seconds: float = 0.0
    path_tokens: int = 0
    """Generated tokens on the longest chain of calls that ends with this one."""
    served: str = ""
    """The model id that the server says answered, and the server's fingerprint of its build."""
    fingerprint: str = ""
    reused: bool = False
    """Answered from the cache: its tokens count as usual, but nothing was paid."""
    logprob: float | None = None
    """Log-probability of the whole output: the sum of `logprobs`, or the server's number."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Tools that were run. Their results are in the prompt of the agent's next call."""

    @property
    def is_turn(self) -> bool:
        """True for a message that other agents could read; silence and tool calls are not."""
        return not (self.withheld or self.tool_calls)

    @property
    def delivered(self) -> str:
        """The text that other agents read."""
        return self.text if self.heard is None else self.heard

    @property
    def withheld(self) -> bool:
        """True if the agent was silent, or its message is shown to nobody."""
        return self.silent or self.unheard

    def __post_init__(self) -> None:
        if self.may_be_silent is None:
            told = told_of_silence(message.content for message in self.messages)
            chose = self.silent or self.silence_logprob is not None
            object.__setattr__(self, "may_be_silent", chose or told)
        if len(self.logprobs) != len(self.output_ids):
            raise ValueError(
                f"{self.agent}: {len(self.output_ids)} output ids "
                f"but {len(self.logprobs)} log-probabilities"
            )
        if self.logprobs and math.isfinite(total := math.fsum(self.logprobs)):
            object.__setattr__(self, "logprob", total)


def told_of_silence(prompt: Iterable[str]) -> bool:
    """True if a prompt says how to be silent, as it does for every agent that may be."""
    return any("reply with exactly <silent>" in text for text in prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One answer that a server charged for, without its text."""

    model: str
    """The id that was requested, which has the price."""
    served: str
    fingerprint: str
    usage: Usage
    time: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grader's verdict: the reward in [0, 1], and whether the task counts as solved."""

    reward: float
    right: bool
    answer: str = ""
    """The answer as the grader read it; empty if it found none."""
    note: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.reward) and 0.0 <= self.reward <= 1.0):
            raise ValueError(f"a task reward must lie in [0, 1], got {self.reward}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One play of one task. A failed one has `error` and no grade, and never counts as wrong.

    With both `error` and a grade it counts as wrong: the team's own messages overflowed a prompt,
    or an app broke without the agent that was left out.
    """

    task_id: str
    sample: int
    level: str = ""
    views: Mapping[str, str] = field(default_factory=dict)
    """The task's private texts by agent; see `Task.views`."""
    needed: Mapping[str, bool] = field(default_factory=dict)
    """Agent → whether it held information that the others needed, if the task says so."""
    calls: tuple[Call, ...] = ()
    answer: str = ""
    grade: Grade | None = None
    error: str | None = None
    seconds: float = 0.0
    """Wall time of the critical path of calls."""

    @property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    @property
    def right(self) -> bool:
        return bool(self.grade and self.grade.right)

    @property
    def overflowed(self) -> bool:
        """True if the team's own messages made a prompt too long."""
        return self.error is not None and self.grade is not None

    @property
    def turns(self) -> int:
        return sum(call.is_turn for call in self.calls)

    @property
    def path_tokens(self) -> int:
        return max((call.path_tokens for call in self.calls), default=0)
