"""One error tree. Every message names the place and the fix.

TacitError
├── ConfigError      the user's input is wrong: said before any model loads, exit code 2
│   ├── DataError    a benchmark or JSONL file is missing or malformed
│   └── Unfit        a model, or this machine, cannot do what a run relies on
├── EngineError      a model call failed for good: the episode is recorded as failed and left out
│   ├── PromptTooLong
│   │   └── Overflow the team's own words no longer fit: graded 0, with what they cost
│   └── Refused      the server will answer nobody with this key, model or account: the run stops
├── TopologyError    a topology's code broke: the episode is recorded as failed and left out
├── GradingError     a grader broke (never the same as "wrong answer")
│   └── SandboxError no isolation could be had for running model-written code
└── RunError         a run cannot go on: the reason, and what was saved
    └── SpendCap     its API calls have cost as much as they may
"""


class TacitError(Exception):
    """Base of everything Tacit raises on purpose."""


class ConfigError(TacitError, ValueError):
    """The user's input is wrong; the message says where and how to mend it."""


class DataError(ConfigError):
    """A task file is missing or malformed."""


class Unfit(ConfigError):
    """What is wrong and how to mend it; in state `warn` a run still means what it says."""

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
        """`limit`: how many tokens the prompt may have, where that is known."""
        super().__init__(message)
        self.limit = limit


class Overflow(PromptTooLong):
    """What the team said made a prompt too long: its own doing, and no fault of an engine."""


class Refused(EngineError):
    """A server said that asking again is of no use: wrong key, no such model, no money left."""


class TopologyError(TacitError, RuntimeError):
    """The code of a topology raised what nobody meant to be raised."""

    def __init__(self, place: str, said: str) -> None:
        """`place` is where and what kind; `said` may quote what a client of a server sent."""
        super().__init__(f"{place}: {said}")
        self.place = place


class GradingError(TacitError, RuntimeError):
    """A grader failed; the episode has no grade, which is not a wrong answer."""


class SandboxError(GradingError):
    """Model-written code could not be run in isolation."""


class RunError(TacitError, RuntimeError):
    """A run cannot go on."""


class SpendCap(RunError):
    """The run's spend cap is reached; it goes on with a larger one."""
