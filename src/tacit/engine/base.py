"""The seam to what generates text: `async generate(Request) -> Completion`.

An engine batches concurrent requests itself. Token engines take prompt ids and return sampled ids
with their log-probabilities; text-only engines (APIs) take chat messages and return only text.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tacit.errors import EngineError, PromptTooLong
from tacit.types import (
    Choice,
    Ids,
    Prompt,
    Receipt,
    Stop,
    ToolCall,
    ToolSpec,
    Usage,
)

log = logging.getLogger(__name__)

SILENCE_MARKER = "<silent>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw tokens. Temperature 0 is greedy; its log-probabilities are the model's own."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""
    max_tokens: int = 256

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def filtered(self) -> bool:
        """True if top-p or top-k leaves some tokens out."""
        return not self.greedy and (self.top_p < 1.0 or self.top_k > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRule:
    """Allows silence in this call, and says how that choice is made."""

    ids: Ids = ()
    """The marker's canonical ids, then the end of a turn; empty for text-only engines.

    The marker followed by any other id at which the engine stops is silence too."""
    choice: Choice = Choice.FREE
    floor: float = 0.0
    silent_above: float = 0.5
    """A free choice of an agent that answers greedily is silence from this π(silence) on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    messages: Prompt
    prompt_ids: Ids = ()
    sampling: Sampling
    seed: int = 0
    silence: SilenceRule | None = None
    """None if the agent may not be silent."""
    on_text: Callable[[str], None] | None = None
    """Called in the event loop with each new piece of text, by engines that can stream. The pieces
    add up to a prefix of the completion's text."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call; for token engines the prompt's ids describe them too."""
    may_call: bool = True
    """False once the agent has used up its tool calls: whatever it says is then its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    """The decoded ids without the end-of-sequence token."""
    ids: Ids = ()
    logprobs: tuple[float, ...] = ()
    stop: Stop
    usage: Usage
    version: int = 0
    silence_logprob: float | None = None
    model: str = ""
    """The model id that served it, which can differ from the one requested."""
    fingerprint: str = ""
    """The server's name for its current configuration, if it gives one."""
    logprob: float | None = None
    """Log-probability of the whole text, if a text-only engine's server reports it."""
    reused: bool = False
    """True for an answer from the cache, for which nothing was paid."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the text calls. A message that was cut off calls none."""


class Engine(Protocol):
    """Generates text with one model and one set of weights."""

    model: str
    """Name in the ledger and the price table."""
    policy: str
    """Name of the trained weights it serves; empty if they are frozen."""

    def encode(self, messages: Prompt, tools: tuple[ToolSpec, ...] = ()) -> Ids:
        """The prompt's ids by the chat template; empty for text-only engines."""
        ...

    def encode_more(self, observations: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
        """The ids of tool results, up to where the next answer begins.

        To be appended to a prompt and the ids that were sampled after it; empty if text-only.
        """
        ...

    def silence_ids(self) -> Ids:
        """The marker's canonical ids, then the end of a turn; empty if text-only."""
        ...

    async def generate(self, request: Request) -> Completion: ...

    async def close(self) -> None: ...


class TextOnly:
    """Mixin for text-only engines, which have no ids."""

    def encode(self, messages: Prompt, tools: tuple[ToolSpec, ...] = ()) -> Ids:
        return ()

    def encode_more(self, observations: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
        return ()

    def silence_ids(self) -> Ids:
        return ()


class TrainedEngine(Engine, Protocol):
    """An engine whose weights learn: the learner pauses it and tells it of the new version."""

    version: int
    """How many updates the weights it serves have seen; stamped on every completion."""

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Nothing is generated inside this block: the place to change weights."""
        ...

    async def refresh(self, version: int) -> None:
        """Serve the current weights as this version. Call it inside `paused()`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where API engines put the answers they cache, their receipts and their warnings."""

    cache: Path | None = None
    """The folder of the answer cache; None for no cache."""
    on_receipt: Callable[[Receipt], None] = lambda receipt: None
    warn: Callable[[str], None] = log.warning
    served: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Model → the id and fingerprint under which it last answered this run."""


def check_request(request: Request, model: str, context: int) -> None:
    """Raise for a request that cannot be served, with one sentence that says why."""
    if not request.prompt_ids:
        raise EngineError(f"{model}: a token engine needs prompt ids; see `encode`")
    if request.silence and not request.silence.ids:
        raise EngineError(f"{model}: a silence rule needs ids; see `silence_ids`")
    room = request.sampling.max_tokens
    marker = len(request.silence.ids) if request.silence else 0
    if room < max(1, marker):
        raise EngineError(f"{model}: max_tokens is {room}, but silence alone takes {marker} tokens")
    if len(request.prompt_ids) + room > context:
        raise PromptTooLong(
            f"{model}: a prompt of {len(request.prompt_ids)} tokens and max_tokens {room} "
            f"exceed the context of {context}",
            limit=context - room,
        )


def is_silence(text: str) -> bool:
    """True if a message is exactly the marker. Empty or garbled text is not silence."""
    return text == SILENCE_MARKER


def without_marker(text: str) -> str:
    """The text without the markers at its end."""
    while (bare := text.rstrip()).endswith(SILENCE_MARKER):
        text = bare.removesuffix(SILENCE_MARKER).rstrip()
    return text


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from (run seed, step, task, sample, agent, call number), the same anywhere."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
