"""The vllm engine: same contract as the local one, generation by vLLM in processes of its own.

The trainer keeps its own copy of what learns and hands it over after each step (`refresh`). One
seed gives one transcript as far as vLLM's kernels compute the same in batches of any size, which on
most machines is not to the last bit. Not covered: saying the text piece by piece.

π(silence) is what the marker's tokens and then the ends have after the prompt, asked for once a
prompt. Speech is first drawn freely, and again where that came out silent, now by choosing where to
leave the marker: π(y) + p·q(y) = q(y), so together it is drawn from q.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig

from tacit.config import ModelConfig
from tacit.engine.base import Account, Completion, Request, Sampling, check_request, derive_seed
from tacit.engine.chat import Chat
from tacit.engine.fitness import point_out_faults
from tacit.engine.load import default_rows, load_tokenizer, model_folder, reading
from tacit.engine.request_state import END_COUNTER, decide
from tacit.engine.sampler import uniform
from tacit.errors import EngineError
from tacit.silence.conditioning import SilenceOdds, along_marker, log_others, marker_odds
from tacit.types import ChatMessage, Choice, Stop, Usage
from tacit.vllm.server import Drawn, Export, Server, VllmServer

_WEIGHED = 4096
"""How many prompts' odds are remembered."""


class ServedModel:
    """A model that vLLM serves, and how to talk to it; engines of other adapters may share it."""

    def __init__(self, server: Server, chat: Chat, *, name: str, context: int) -> None:
        self.server = server
        self.chat = chat
        self.name = name
        self.context = context
        self.engines = 0

    async def leave(self) -> None:
        """The last engine to leave closes the server."""
        self.engines -= 1
        if not self.engines:
            await self.server.close()


class VllmEngine:
    """Serves one set of weights.

    Example: engine = VllmEngine(serve("smol", ModelConfig(engine="vllm", path="models/SmolLM2")))
    """

    def __init__(
        self,
        served: ServedModel,
        *,
        policy: str = "",
        export: Export | None = None,
        whole: bool = False,
    ) -> None:
        """`export`: how what is trained gets out; an adapter, or the `whole` model."""
        self.model = served.name
        self.policy = policy
        self.version = 0
        self.served = served
        self._server = served.server
        self._chat = served.chat
        self._export = export
        self._whole = whole
        self._adapter: Any = None
        self._weighed: dict[tuple[Any, ...], asyncio.Future[SilenceOdds]] = {}
        self._pausing = PauseGate()
        self._closed = False
        served.engines += 1

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        return self._chat.encode(messages)

    def silence_ids(self) -> tuple[int, ...]:
        return self._chat.silence_ids()

    async def generate(self, request: Request) -> Completion:
        if self._closed:
            raise EngineError(f"{self.model}: the engine was closed")
        check_request(request, self.model, self.served.context)
        async with self._pausing.inside():
            odds = await self._odds(request)
            drawn = await self._draw(request, odds)
            return Completion(
                text=self._chat.decode(list(drawn.ids)),
                ids=drawn.ids,
                logprobs=drawn.logprobs,
                stop=drawn.stop,
                usage=Usage(prompt=len(request.prompt_ids), generated=len(drawn.ids)),
                version=self.version,
                silence_logprob=odds.logprob if odds else None,
                model=self.model,
            )

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Calls under way are finished, later ones wait: inside, nothing is generated."""
        async with self._pausing.closed():
            yield

    async def refresh(self, version: int) -> None:
        """Serve the weights as they are now, as this version. To be called inside `paused()`."""
        assert self._export is not None, "a frozen engine has no weights to refresh"
        if self._whole:
            await self._server.replace(self._export)
        else:
            self._adapter = await self._server.adapt(self._export, self._adapter)
        self._weighed.clear()
        self.version = version

    async def close(self) -> None:
        """Fail what is under way, if nobody else needs the server. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            await self.served.leave()

    async def _odds(self, request: Request) -> SilenceOdds | None:
        """What the model makes of silence; None where it may not be silent."""
        rule, how = request.silence, replace(request.sampling, max_tokens=1)
        if rule is None:
            return None
        if rule.choice in (Choice.SPEAK, Choice.FLOOR) and (how.top_p < 1.0 or how.top_k):
            raise EngineError(
                f"{self.model}: vLLM cannot draw speech alone under top-p or top-k; leave them out"
            )
        key = (request.prompt_ids, rule.ids, how)
        if key not in self._weighed:
            if len(self._weighed) >= _WEIGHED:
                self._weighed.clear()
            self._weighed[key] = asyncio.ensure_future(self._weigh(*key))
        weighing = self._weighed[key]
        try:
            return await asyncio.shield(weighing)  # others of its group may wait for it too
        except Exception:
            if self._weighed.get(key) is weighing:  # another try may do better
                del self._weighed[key]
            raise

    async def _weigh(
        self, prompt: tuple[int, ...], marker: tuple[int, ...], sampling: Sampling
    ) -> SilenceOdds:
        marker, ends = marker[:-1], tuple(sorted(self._chat.eos_ids))
        weigh = partial(self._server.weigh, sampling=sampling, adapter=self._adapter)
        logprobs, *last = await asyncio.gather(
            weigh(prompt, marker), *(weigh((*prompt, *marker), (end,)) for end in ends)
        )
        return marker_odds(logprobs, [logprob for (logprob,) in last], marker, ends)

    async def _draw(self, request: Request, odds: SilenceOdds | None) -> Drawn:
        if odds is None:
            return await self._go_on(request, (), request.seed)
        assert request.silence is not None
        choice = decide(request.silence, odds, request.seed)
        if choice is Choice.SILENT:
            return Drawn(*odds.silent(uniform(request.seed, END_COUNTER)), Stop.EOS)
        drawn = await self._go_on(request, (), request.seed)
        spoken = choice is Choice.SPEAK
        if spoken and _must_leave(drawn, odds, request.sampling):
            drawn = await self._leave(request, odds)
        return replace(drawn, logprobs=along_marker(drawn.ids, drawn.logprobs, odds, spoken=spoken))

    async def _leave(self, request: Request, odds: SilenceOdds) -> Drawn:
        """Draw a message given that it is not silence: how far along the marker, and then what."""
        greedy = request.sampling.temperature == 0.0
        for j, aimed in enumerate([*((one,) for one in odds.marker), odds.ends]):
            log_follow = odds.log_q_marker(j)
            if not greedy and uniform(request.seed, j) < math.exp(log_follow):
                continue
            first = await self._other(request, odds.marker[:j], aimed)
            logprob = first.logprobs[0] + log_others(odds.logprobs[j])
            if greedy and log_follow >= logprob - odds.log_rest[j]:
                continue
            break
        begun = Drawn((*odds.marker[:j], first.ids[0]), (*odds.logprobs[:j], logprob), first.stop)
        if begun.stop is Stop.EOS or len(begun.ids) >= request.sampling.max_tokens:
            return begun
        rest = await self._go_on(request, begun.ids, derive_seed(request.seed, "rest"))
        return Drawn((*begun.ids, *rest.ids), (*begun.logprobs, *rest.logprobs), rest.stop)

    async def _other(
        self, request: Request, after: tuple[int, ...], banned: tuple[int, ...]
    ) -> Drawn:
        """One token that is none of the banned ones."""
        return await self._server.draw(
            (*request.prompt_ids, *after),
            replace(request.sampling, max_tokens=1),
            seed=derive_seed(request.seed, "other"),
            stops=self._chat.eos_ids,
            banned=banned,
            adapter=self._adapter,
        )

    async def _go_on(self, request: Request, after: tuple[int, ...], seed: int) -> Drawn:
        most = request.sampling.max_tokens - len(after)
        return await self._server.draw(
            (*request.prompt_ids, *after),
            replace(request.sampling, max_tokens=most),
            seed=seed,
            stops=self._chat.eos_ids,
            adapter=self._adapter,
        )


class PauseGate:
    """Many may be inside at once, until someone closes it and waits for them to leave."""

    def __init__(self) -> None:
        self._inside = 0
        self._closers = 0
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        while self._closers:
            await self._open.wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        self._closers += 1
        self._open.clear()
        try:
            await self._empty.wait()
            yield
        finally:
            self._closers -= 1
            if not self._closers:
                self._open.set()


def open_vllm(name: str, config: ModelConfig, account: Account | None = None) -> VllmEngine:
    """Start a server with the weights as they come."""
    served = serve(name, config)
    point_out_faults(served.chat)
    return VllmEngine(served)


def serve(name: str, config: ModelConfig, *, adapters: int = 0, rank: int = 0) -> ServedModel:
    """Start vLLM with a model; `adapters` of this `rank` will be trained on it."""
    folder = model_folder(config.path)
    with reading(f"the config of `{config.path}` cannot be read"):
        architecture = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    own = getattr(architecture.get_text_config(), "max_position_embeddings", None)
    server = VllmServer(
        str(folder),
        rows=config.rows or default_rows("cuda" if torch.cuda.is_available() else "cpu"),
        context=min(config.context, own or config.context) if config.context else None,
        dtype=config.dtype,
        kv_gib=config.kv_gib,
        adapters=adapters,
        rank=rank,
    )
    chat = Chat(load_tokenizer(config.path), name, _end_ids(folder, architecture))
    return ServedModel(server, chat, name=name, context=server.context)


def _end_ids(folder: Path, architecture: Any) -> Any:
    """Where the model's makers let it stop, as the local engine learns from the model itself."""
    try:
        return GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        return GenerationConfig.from_model_config(architecture).eos_token_id


def _must_leave(drawn: Drawn, odds: SilenceOdds, sampling: Sampling) -> bool:
    """Whether a free draw is not one of speech: silence, or a greedy one that follows the marker.

    Given speech the marker's tokens are less likely, so that the greedy choice may be another.
    """
    if sampling.temperature == 0.0:
        return drawn.ids[:1] == odds.marker[:1]
    return drawn.ids[:-1] == odds.marker and drawn.stop is Stop.EOS
