"""The vllm engine: the local engine's contract, with vLLM generating in its own processes.

The trainer keeps its own copy of the weights and exports them after each step (`refresh`). A seed
repeats its transcript only as far as vLLM's kernels do not depend on the batch, which on most
machines is not to the last bit. Not covered: streaming.

π(silence) is the probability of the marker's tokens and then an end after the prompt, computed once
for each prompt. Speech is first drawn freely. If that comes out silent, it is drawn again by
choosing where to leave the marker: π(y) + p·q(y) = q(y), so the result is drawn from q.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig

from tacit.config import ModelConfig
from tacit.engine.base import Account, Completion, Request, Sampling, check_request, derive_seed
from tacit.engine.chat import ByTemplate, Chat
from tacit.engine.fitness import point_out_faults
from tacit.engine.load import default_rows, load_tokenizer, model_folder, reading
from tacit.engine.request_state import decide, drawn_silence
from tacit.engine.sampler import uniform
from tacit.errors import EngineError
from tacit.silence.conditioning import SilenceOdds, along_marker, log_others, marker_odds
from tacit.types import Choice, Stop, Usage
from tacit.vllm.server import Drawn, Export, VllmServer

_WEIGHED = 4096
"""How many prompts' odds are kept."""


class ServedModel:
    """A model served by vLLM, with its chat template; engines of several adapters may share it."""

    def __init__(self, server: VllmServer, chat: Chat, *, name: str, context: int) -> None:
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


class VllmEngine(ByTemplate):
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
        """`export` writes the trained weights: an adapter, or the `whole` model."""
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

    async def generate(self, request: Request) -> Completion:
        if self._closed:
            raise EngineError(f"{self.model}: the engine was closed")
        check_request(request, self.model, self.served.context)
        async with self._pausing.inside():
            odds = await self._odds(request)
            drawn = await self._draw(request, odds)
            text, tools = self._chat.decode(list(drawn.ids)), request.tools
            return Completion(
                text=text,
                ids=drawn.ids,
                logprobs=drawn.logprobs,
                stop=drawn.stop,
                usage=Usage(prompt=len(request.prompt_ids), generated=len(drawn.ids)),
                version=self.version,
                silence_logprob=odds.logprob if odds else None,
                model=self.model,
                tool_calls=self._chat.tool_calls(text, drawn.stop, tools) if tools else (),
            )

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Nothing is generated inside: calls in progress are finished first, later ones wait."""
        return self._pausing.closed()

    async def refresh(self, version: int) -> None:
        """Serve the current weights as this version. Call it inside `paused()`."""
        assert self._export is not None, "a frozen engine has no weights to refresh"
        if self._whole:
            await self._server.replace(self._export)
        else:
            self._adapter = await self._server.adapt(self._export, self._adapter)
        self._weighed.clear()
        self.version = version

    async def close(self) -> None:
        """Leave the server, which ends with its last engine. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            await self.served.leave()

    async def _odds(self, request: Request) -> SilenceOdds | None:
        """The odds of silence; None if the agent may not be silent."""
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
            return await asyncio.shield(weighing)  # requests of the same group wait for it too
        except Exception:
            if self._weighed.get(key) is weighing:  # so that the next request tries again
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
        choice = decide(request.silence, odds, request)
        if choice is Choice.SILENT:
            return Drawn(*drawn_silence(odds, request), Stop.EOS)
        drawn = await self._go_on(request, (), request.seed)
        spoken = choice is Choice.SPEAK
        if spoken and _must_leave(drawn, odds, request.sampling):
            drawn = await self._leave(request, odds)
        return replace(drawn, logprobs=along_marker(drawn.ids, drawn.logprobs, odds, spoken=spoken))

    async def _leave(self, request: Request, odds: SilenceOdds) -> Drawn:
        """Draw a message that is not silence: how far it follows the marker, and then the rest."""
        greedy = request.sampling.greedy
        for j, aimed in enumerate([*((one,) for one in odds.marker), odds.ends]):
            log_follow = odds.log_q_marker(j)
            if not greedy and uniform(request.seed, j) < math.exp(log_follow):
                continue
            first = await self._go_on(
                request,
                odds.marker[:j],
                derive_seed(request.seed, "other"),
                tokens=1,
                banned=aimed,
            )
            logprob = first.logprobs[0] + log_others(odds.logprobs[j])
            if greedy and log_follow >= logprob - odds.log_rest[j]:
                continue
            break
        begun = Drawn((*odds.marker[:j], first.ids[0]), (*odds.logprobs[:j], logprob), first.stop)
        if begun.stop is Stop.EOS or len(begun.ids) >= request.sampling.max_tokens:
            return begun
        rest = await self._go_on(request, begun.ids, derive_seed(request.seed, "rest"))
        return Drawn((*begun.ids, *rest.ids), (*begun.logprobs, *rest.logprobs), rest.stop)

    async def _go_on(
        self,
        request: Request,
        after: tuple[int, ...],
        seed: int,
        *,
        tokens: int | None = None,
        banned: tuple[int, ...] = (),
    ) -> Drawn:
        """Continue the prompt and these ids, up to the request's limit if `tokens` is None."""
        most = tokens or request.sampling.max_tokens - len(after)
        return await self._server.draw(
            (*request.prompt_ids, *after),
            replace(request.sampling, max_tokens=most),
            seed=seed,
            stops=self._chat.eos_ids,
            banned=banned,
            adapter=self._adapter,
        )


class PauseGate:
    """Admits any number of callers until it is closed, which waits for all of them to leave."""

    def __init__(self) -> None:
        self._entrance = asyncio.Lock()
        """Held while the gate is closed."""
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        async with self._entrance:
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
        async with self._entrance:
            await self._empty.wait()
            yield


def open_vllm(name: str, config: ModelConfig, account: Account | None = None) -> VllmEngine:
    """Start a server with the model's original weights."""
    served = serve(name, config)
    point_out_faults(served.chat)
    return VllmEngine(served)


def serve(name: str, config: ModelConfig, *, adapters: int = 0, rank: int = 0) -> ServedModel:
    """Start vLLM with a model, on which this many `adapters` of this `rank` will be trained."""
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
    """The end-of-sequence ids of the generation config, as the local engine gets them."""
    try:
        return GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:
        return GenerationConfig.from_model_config(architecture).eos_token_id


def _must_leave(drawn: Drawn, odds: SilenceOdds, sampling: Sampling) -> bool:
    """True if a free draw cannot stand for speech: silence, or a greedy one along the marker.

    Given speech the marker's tokens are less likely, so the greedy choice may differ.
    """
    if sampling.greedy:
        return drawn.ids[:1] == odds.marker[:1]
    return drawn.ids[:-1] == odds.marker and drawn.stop is Stop.EOS
