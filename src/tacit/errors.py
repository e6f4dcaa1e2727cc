"""One error tree. Every message names the place and the fix.

TacitError
├── ConfigError      the user's input is wrong: said before any model loads, exit code 2
│   └── DataError    a benchmark or JSONL file is missing or malformed
├── EngineError      a model call failed for good: the episode is recorded as failed and left out
│   └── PromptTooLong
├── GradingError     a grader broke (never the same as "wrong answer")
│   └── SandboxError no isolation could be had for running model-written code
└── RunError         a run cannot go on: the reason, and what was saved
"""


class TacitError(Exception):
    """Base of everything Tacit raises on purpose."""


class ConfigError(TacitError, ValueError):
    """The user's input is wrong; the message says where and how to mend it."""


class DataError(ConfigError):
    """A task file is missing or malformed."""


class EngineError(TacitError, RuntimeError):
    """A model call failed for good."""


class PromptTooLong(EngineError):
    """A prompt does not fit the agent's or the model's input limit."""


class GradingError(TacitError, RuntimeError):
    """A grader failed; the episode has no grade, which is not a wrong answer."""


class SandboxError(GradingError):
    """Model-written code could not be run in isolation."""


class RunError(TacitError, RuntimeError):
    """A run cannot go on."""
