"""The seam to whoever generates text: `async generate(Request) -> Completion`.

An engine batches concurrent requests itself. Token engines take prompt ids and return sampled ids
with their log-probabilities; text-only engines (APIs) take the chat messages and return text alone.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tacit.errors import EngineError, PromptTooLong
from tacit.types import ChatMessage, Choice, Receipt, Stop, Usage

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRule:
    """That an agent may be silent in this call, and how the choice is made."""

    ids: tuple[int, ...] = ()
    """The marker's canonical ids, then the end of a turn; empty for text-only engines.

    The marker and any other id at which the engine stops is silence too."""
    choice: Choice = Choice.FREE
    floor: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    messages: tuple[ChatMessage, ...]
    prompt_ids: tuple[int, ...] = ()
    sampling: Sampling
    seed: int = 0
    silence: SilenceRule | None = None
    """None where the agent may not be silent."""
    on_text: Callable[[str], None] | None = None
    """Hears the text piece by piece, in the event loop, from engines that can say it before the
    end. What it heard by then is the beginning of the completion's text, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    """The decoded ids without the end-of-sequence token."""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    stop: Stop
    usage: Usage
    version: int = 0
    silence_logprob: float | None = None
    model: str = ""
    """The model id that served it, where that can differ from the one asked for."""
    fingerprint: str = ""
    """What the server calls its present configuration, where it says."""
    logprob: float | None = None
    """Of the whole text, where a text-only engine is told it."""
    reused: bool = False
    """Whether it is an answer kept from before, for which nothing was paid."""


class Engine(Protocol):
    """Who generates. One engine is one model with one set of weights."""

    model: str
    """Name in the ledger and the price table."""
    policy: str
    """Name of the trained weights it serves; empty when they are frozen."""

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """The prompt's ids through the chat template; empty for text-only engines."""
        ...

    def silence_ids(self) -> tuple[int, ...]:
        """The marker's canonical ids, then the end of a turn; empty if text-only."""
        ...

    async def generate(self, request: Request) -> Completion: ...

    async def close(self) -> None: ...


class TrainedEngine(Engine, Protocol):
    """One whose weights learn: the learner tells it, while it rests, that they have changed."""

    version: int
    """How many updates the weights it serves have seen; stamped on every completion."""

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing is generated: the place to change weights."""
        ...

    async def refresh(self, version: int) -> None:
        """Serve the weights as they are now, as this version. To be called inside `paused()`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How a run deals with the servers it asks: where answers, receipts and warnings go."""

    cache: Path | None = None
    """The folder for kept answers; None keeps none."""
    on_receipt: Callable[[Receipt], None] = lambda receipt: None
    warn: Callable[[str], None] = log.warning
    served: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Model → the id and fingerprint under which it last answered this run."""


def check_request(request: Request, model: str, context: int) -> None:
    """Refuse what cannot be served, in one sentence that says why."""
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
    """Whether a message is exactly the marker. Empty or garbled text is not silence."""
    return text == SILENCE_MARKER


def without_marker(text: str) -> str:
    """The text up to the markers that it ends in; as it is where it ends in none."""
    while (bare := text.rstrip()).endswith(SILENCE_MARKER):
        text = bare.removesuffix(SILENCE_MARKER).rstrip()
    return text


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from (run seed, step, task, sample, agent, call number), the same anywhere."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
