"""One error tree. Every message names the place and the fix.

TacitError
├── ConfigError      the user's input is wrong: raised before any model loads, exit code 2
│   ├── DataError    a benchmark or JSONL file is missing or malformed
│   └── Unfit        a model, or this machine, cannot do what a run relies on
├── EngineError      a model call failed for good: the episode is recorded as failed and left out
│   ├── PromptTooLong
│   │   └── Overflow the team's own messages no longer fit: graded 0, with what they cost
│   └── Refused      the server refuses this key, model or account: the run stops
├── TopologyError    a topology's code failed: the episode is recorded as failed and left out
├── GradingError     a grader failed (never the same as "wrong answer")
│   └── SandboxError model-written code could not be run in isolation
└── RunError         a run cannot go on: the reason, and what was saved
    └── SpendCap     its API calls have reached the spend cap
"""


class TacitError(Exception):
    """Base of everything Tacit raises on purpose."""


class ConfigError(TacitError, ValueError):
    """The user's input is wrong; the message says where and how to fix it."""


class DataError(ConfigError):
    """A task file is missing or malformed."""


class Unfit(ConfigError):
    """What is wrong and how to fix it. In state `warn` a run's results are still valid."""

    def __init__(self, wrong: str, fix: str, state: str = "fail") -> None:
        super().__init__(f"{wrong}; fix: {fix}")
        self.wrong = wrong
        self.fix = fix
        self.state = state


class EngineError(TacitError, RuntimeError):
    """A model call failed for good."""


class PromptTooLong(EngineError):
    """A prompt does not fit the agent's or the model's input limit."""

    def __init__(self, message: str, limit: int | None = None) -> None:
        """`limit`: most tokens that the prompt may have, if known."""
        super().__init__(message)
        self.limit = limit


class Overflow(PromptTooLong):
    """The team's own messages made a prompt too long."""


class Refused(EngineError):
    """A server's error that no retry can help: wrong key, no such model, no money left."""


class TopologyError(TacitError, RuntimeError):
    """The code of a topology raised an unexpected exception."""

    def __init__(self, place: str, said: str) -> None:
        """`place`: line and type of the error. `said`: its text, which may quote a client."""
        super().__init__(f"{place}: {said}")
        self.place = place


class GradingError(TacitError, RuntimeError):
    """A grader failed; the episode has no grade, which is not a wrong answer."""


class SandboxError(GradingError):
    """Model-written code could not be run in isolation."""


class RunError(TacitError, RuntimeError):
    """A run cannot go on."""


class SpendCap(RunError):
    """The run has reached its spend cap; it resumes with a larger one."""


def first_error(error: BaseException) -> BaseException:
    """The first error inside an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def one_line(error: BaseException) -> str:
    """What an error says, in one line; its type if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
