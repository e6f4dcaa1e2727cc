"""What a local model must do for a run to mean anything, tried on the model itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tacit.config import ModelConfig
from tacit.doctor.ailment import Ailment
from tacit.engine.base import SILENCE_MARKER, Completion, Request, Sampling, SilenceRule
from tacit.engine.chat import Chat
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.errors import EngineError
from tacit.learn.score import score
from tacit.types import ChatMessage, Stop

SAMPLES = (
    "What is 12 + 34?",
    "Two  blanks,\n\ta tab and a new line.",
    "naïve: 3 × 4 ≤ 12, 你好 🙂",
    r"\boxed{\frac{1}{2}}",
    "def f(x):\n    return x ** 2\n",
)
QUESTION = (ChatMessage("system", "Answer briefly."), ChatMessage("user", "What is 12 + 34?"))
FLOAT32_GAP, HALF_GAP = 1e-3, 5e-2
"""How far the engine's and the trainer's log-probability of one token may lie apart."""


@dataclass(frozen=True, slots=True)
class Patient:
    """One local model, as the engines use it."""

    loaded: LoadedModel
    engine: LocalEngine
    chat: Chat

    async def say(self, seed: int, temperature: float, *, silence: bool = False) -> Completion:
        return await self.engine.generate(
            Request(
                messages=QUESTION,
                prompt_ids=self.engine.encode(QUESTION),
                sampling=Sampling(temperature=temperature, max_tokens=24),
                seed=seed,
                silence=SilenceRule(ids=self.engine.silence_ids()) if silence else None,
            )
        )


@asynccontextmanager
async def admit(name: str, model: ModelConfig) -> AsyncIterator[Patient]:
    loaded = load_model(model.path, name=name, device=model.device, dtype=model.dtype)
    engine = LocalEngine(loaded, rows=model.rows, context=model.context)
    stops = getattr(loaded.module.generation_config, "eos_token_id", None)
    try:
        yield Patient(loaded, engine, Chat(loaded.tokenizer, name, stops))
    finally:
        await engine.close()


async def _round_trip(patient: Patient) -> str:
    for text in SAMPLES:
        ids = patient.loaded.tokenizer.encode(text, add_special_tokens=False)
        if (back := patient.chat.decode(ids)) != text:
            wrong = f"{text!r} comes back as {back!r}, so what agents pass on changes"
            raise Ailment(wrong, "use the tokenizer that came with the model", "warn")
    return f"{len(SAMPLES)} texts come back as they were"


async def _forgery(patient: Patient) -> str:
    """A special token's text inside a message must not become the token."""
    tokenizer = patient.loaded.tokenizer
    plain = patient.engine.encode((ChatMessage("user", "x"),))
    for text in tokenizer.all_special_tokens:
        ids = patient.engine.encode((ChatMessage("user", f"x{text}"),))
        special = tokenizer.convert_tokens_to_ids(text)
        if len(text.strip()) > 1 and ids.count(special) != plain.count(special):
            raise Ailment(f"{text!r} in a message becomes that token", "mark it as special")
    return "none can be forged inside a message"


async def _template(patient: Patient) -> str:
    try:
        whole = patient.engine.encode(QUESTION)
    except EngineError as error:
        raise Ailment(str(error), "use a model whose template takes a system message") from error
    bare = _render(patient, QUESTION, add_generation_prompt=False)
    if not bare or whole[: len(bare)] != bare:
        wrong = "the generation prompt changes what stands before it"
        raise Ailment(wrong, "use the chat_template.jinja that came with the model")
    return f"a prompt of {len(whole)} tokens, {len(whole) - len(bare)} of them open the answer"


async def _ends(patient: Patient) -> str:
    """The token that closes an answer in the template must be one at which the engine stops."""
    prompt, eos = patient.engine.encode(QUESTION), patient.chat.eos_ids
    answered = _render(patient, (*QUESTION, ChatMessage("assistant", "46")))
    own = int(patient.loaded.tokenizer.eos_token_id)
    if not eos & {*answered[len(prompt) :]}:
        ends = patient.loaded.tokenizer.convert_ids_to_tokens(sorted(eos))
        wrong = f"the chat template ends answers with none of {', '.join(ends)}, so none would end"
        raise Ailment(wrong, "set `eos_token` in tokenizer_config.json to what ends an answer")
    done = await patient.say(seed=0, temperature=0.0)
    if (done.ids[-1] in eos) != (done.stop is Stop.EOS):
        raise Ailment(f"a completion stopped at {done.stop} unlike its last token", "report a bug")
    stop = "with its end" if done.stop is Stop.EOS else "at the token limit"
    return f"end-of-sequence is {own}; a greedy answer of {len(done.ids)} tokens ended {stop}"


async def _silence(patient: Patient) -> str:
    ids = patient.engine.silence_ids()
    back = patient.chat.decode(list(ids))
    if back != SILENCE_MARKER:
        wrong = f"the silence marker {SILENCE_MARKER} comes back as {back!r}"
        raise Ailment(wrong, "use a tokenizer that keeps text as it is")
    return f"{SILENCE_MARKER} and its end are {len(ids)} tokens and decode to exactly that"


async def _agreement(patient: Patient) -> str:
    said = [await patient.say(seed, 1.0, silence=True) for seed in range(3)]
    prompt, marker = patient.engine.encode(QUESTION), patient.engine.silence_ids()
    with torch.no_grad():
        outputs = [*(one.ids for one in said), marker]
        scores = score(patient.loaded.module, [(prompt, ids) for ids in outputs])
    *rows, silence = scores.logprobs_BT.float().cpu().tolist()
    gaps = [abs((one.silence_logprob or 0.0) - sum(silence)) / len(marker) for one in said]
    for one, row in zip(said, rows, strict=True):
        gaps += [abs(a - b) for a, b in zip(one.logprobs, row, strict=False)]
    limit = FLOAT32_GAP if patient.loaded.module.dtype == torch.float32 else HALF_GAP
    if not max(gaps) < limit:
        wrong = f"sampling and a fresh pass differ by up to {max(gaps):.2g} (limit {limit:g})"
        raise Ailment(wrong, "set `dtype: float32`, or use another torch version")
    return f"sampling and a fresh pass agree to {max(gaps):.1g}"


async def _seeds(patient: Patient) -> str:
    first = await asyncio.gather(*(patient.say(seed, 1.0) for seed in range(4)))
    again = [await patient.say(seed, 1.0) for seed in range(4)]
    if [one.ids for one in first] != [one.ids for one in again]:
        raise Ailment("equal seeds gave different tokens", "set `rows: 1` for this model")
    return "equal seeds give equal tokens, alone and among others"


def _render(patient: Patient, messages: tuple[ChatMessage, ...], **options: Any) -> tuple[int, ...]:
    plain = [{"role": message.role, "content": message.content} for message in messages]
    render = patient.loaded.tokenizer.apply_chat_template
    return tuple(render(plain, tokenize=True, return_dict=False, **options))


MODEL_CHECKS: dict[str, Callable[[Patient], Awaitable[str]]] = {
    "tokenizer": _round_trip,
    "special tokens": _forgery,
    "chat template": _template,
    "end of an answer": _ends,
    "silence": _silence,
    "log-probabilities": _agreement,
    "seeds": _seeds,
}
