"""Checks of a local model: what it must be able to do for a run's results to mean anything."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import exp

import torch

from tacit.config import ModelConfig
from tacit.engine.base import Completion, Request, Sampling, SilenceRule
from tacit.engine.chat import Chat, chat_of
from tacit.engine.fitness import CHAT_CHECKS, QUESTION
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.errors import Unfit
from tacit.learn.score import score
from tacit.silence.conditioning import any_end, spelled
from tacit.team.prompts import build
from tacit.types import ChatMessage, Stop

SAMPLES = (
    "What is 12 + 34?",
    "Two  blanks,\n\ta tab and a new line.",
    "naïve: 3 × 4 ≤ 12, 你好 🙂",
    r"\boxed{\frac{1}{2}}",
    "def f(x):\n    return x ** 2\n",
)
HINTING = build(
    "hinter", "What is 12 + 34?", {}, agent="hinter", instruction="", may_be_silent=True
)
FLOAT32_GAP, HALF_GAP = 1e-3, 5e-2
"""Largest difference between the engine's and the trainer's log-probability of one token."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """One local model, as the engines use it."""

    loaded: LoadedModel
    engine: LocalEngine
    chat: Chat

    async def say(
        self,
        seed: int,
        temperature: float,
        *,
        silence: bool = False,
        messages: tuple[ChatMessage, ...] = QUESTION,
    ) -> Completion:
        return await self.engine.generate(
            Request(
                messages=messages,
                prompt_ids=self.engine.encode(messages),
                sampling=Sampling(temperature=temperature, max_tokens=24),
                seed=seed,
                silence=SilenceRule(ids=self.engine.silence_ids()) if silence else None,
            )
        )


@asynccontextmanager
async def open_model(name: str, model: ModelConfig) -> AsyncIterator[OpenModel]:
    loaded = load_model(model.path, name=name, device=model.device, dtype=model.dtype)
    engine = LocalEngine(loaded, rows=model.rows, context=model.context)
    try:
        yield OpenModel(loaded, engine, chat_of(loaded))
    finally:
        await engine.close()


async def _round_trip(model: OpenModel) -> str:
    for text in SAMPLES:
        ids = model.loaded.tokenizer.encode(text, add_special_tokens=False)
        if (back := model.chat.decode(ids)) != text:
            wrong = f"{text!r} comes back as {back!r}, so what agents pass on changes"
            raise Unfit(wrong, "use the tokenizer that came with the model", "warn")
    return f"{len(SAMPLES)} texts come back as they were"


async def _stops(model: OpenModel) -> str:
    done = await model.say(seed=0, temperature=0.0)
    if (done.ids[-1] in model.chat.eos_ids) != (done.stop is Stop.EOS):
        raise Unfit(f"a completion stopped at {done.stop} unlike its last token", "report a bug")
    stop = "with its end" if done.stop is Stop.EOS else "at the token limit"
    return f"a greedy answer of {len(done.ids)} tokens ended {stop}"


async def _choice(model: OpenModel) -> str:
    """What a helper that may be silent would say, and the probability of silence."""
    done = await model.say(0, 0.0, silence=True, messages=HINTING)
    said = repr(model.chat.decode(list(done.ids[:8]))) + (" …" if len(done.ids) > 8 else "")
    return (
        f"untrained, π(silence) is {exp(done.silence_logprob or 0.0):.2g}; greedily it says {said}"
    )


async def _agreement(model: OpenModel) -> str:
    said = [await model.say(seed, 1.0, silence=True) for seed in range(3)]
    prompt, ends = model.engine.encode(QUESTION), sorted(model.chat.eos_ids)
    silences = spelled(model.engine.silence_ids(), ends)
    with torch.no_grad():
        outputs = [*(one.ids for one in said), *silences]
        scores = score(model.loaded.module, [(prompt, ids) for ids in outputs])
    logprobs_BT = scores.logprobs_BT.float().cpu()
    marker_M = any_end(logprobs_BT[len(said) :, : len(silences[0])], len(ends))[0]
    log_p = float(marker_M.sum())
    gaps = [abs((one.silence_logprob or 0.0) - log_p) / len(marker_M) for one in said]
    for one, row in zip(said, logprobs_BT.tolist(), strict=False):
        gaps += [abs(a - b) for a, b in zip(one.logprobs, row, strict=False)]
    limit = FLOAT32_GAP if model.loaded.module.dtype == torch.float32 else HALF_GAP
    if not max(gaps) < limit:
        wrong = f"sampling and a fresh pass differ by up to {max(gaps):.2g} (limit {limit:g})"
        raise Unfit(wrong, "set `dtype: float32`, or use another torch version")
    return f"sampling and a fresh pass agree to {max(gaps):.1g}"


async def _seeds(model: OpenModel) -> str:
    first = await asyncio.gather(*(model.say(seed, 1.0) for seed in range(4)))
    again = [await model.say(seed, 1.0) for seed in range(4)]
    if [one.ids for one in first] != [one.ids for one in again]:
        raise Unfit("equal seeds gave different tokens", "set `rows: 1` for this model")
    return "equal seeds give equal tokens, alone and among others"


async def _without_weights(check: Callable[[Chat], str], model: OpenModel) -> str:
    return check(model.chat)


MODEL_CHECKS: dict[str, Callable[[OpenModel], Awaitable[str]]] = {
    "tokenizer": _round_trip,
    **{name: partial(_without_weights, check) for name, check in CHAT_CHECKS.items()},
    "stopping": _stops,
    "the choice to be silent": _choice,
    "log-probabilities": _agreement,
    "seeds": _seeds,
}
