"""One vLLM process: draws from prompts, scores ids, and takes new weights.

Knows nothing of chat, silence or versions; `vllm_engine.py` does. vLLM takes seconds to import and
each release is tied to one torch, so it is an extra and is imported only when a server starts.
"""

import asyncio
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from tacit.engine.base import Sampling
from tacit.errors import ConfigError, EngineError, one_line
from tacit.types import Stop

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The maximal ranks that vLLM can be started with."""
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for `--json`
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # we have threads, which a fork would lose
}

Export = Callable[[Path], None]
"""Writes a policy's current weights into a folder: an adapter, or a whole model."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Sampled ids, with log-probabilities under the distribution they were sampled from."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop


class VllmServer:
    """Everything an engine needs of vLLM. An `adapter` is what `adapt` returned.

    Example: VllmServer("models/SmolLM2", rows=32, context=None, dtype="auto", kv_gib=1.0)
    """

    def __init__(
        self,
        folder: str,
        *,
        rows: int,
        context: int | None,
        dtype: str,
        kv_gib: float,
        adapters: int = 0,
        rank: int = 0,
    ) -> None:
        """Start the process, with room for this many `adapters` of this `rank`."""
        vllm = import_vllm()
        self._SamplingParams = vllm.SamplingParams
        self._tokens_input = vllm.inputs.tokens_input
        self._final = vllm.sampling_params.RequestOutputKind.FINAL_ONLY
        gpu = torch.cuda.is_available()
        arguments = {
            "model": folder,
            "dtype": ("bfloat16" if gpu else "float32") if dtype == "auto" else dtype,
            "max_model_len": context,
            "max_num_seqs": rows,
            "kv_cache_memory_bytes": int(kv_gib * 2**30),
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "enforce_eager": not gpu,
            "disable_log_stats": True,
            "worker_extension_cls": "tacit.vllm.worker_extension.Taker",
            **_lora_arguments(adapters, rank),
        }
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            self._llm: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        except Exception as error:  # vLLM's processes may raise anything
            raise ConfigError(
                f"vLLM could not start with `{folder}` (the memory it takes follows from `kv_gib`, "
                f"`context` and `rows`): {one_line(error)}"
            ) from error
        self.context: int = self._llm.model_config.max_model_len
        self._numbers = count(1)
        self._scratch = Path(tempfile.mkdtemp(prefix="tacit-vllm-"))

    async def draw(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        stops: frozenset[int],
        banned: Sequence[int] = (),
        adapter: Any = None,
    ) -> Drawn:
        """Continue these ids. Each of the `banned` ids has probability 0 throughout."""
        params = self._params(
            sampling,
            max_tokens=sampling.max_tokens,
            seed=seed,
            stop_token_ids=sorted(stops),
            logit_bias=dict.fromkeys(banned, -math.inf) or None,
            logprobs=0,
        )
        output = (await self._ask(ids, params, adapter)).outputs[0]
        drawn = tuple(output.token_ids)
        logprobs = tuple(
            _number(at[i].logprob) for at, i in zip(output.logprobs, drawn, strict=True)
        )
        stop = Stop.EOS if drawn[-1] in stops else Stop.LENGTH
        return Drawn(drawn, logprobs, stop)

    async def weigh(
        self, ids: Sequence[int], then: Sequence[int], sampling: Sampling, *, adapter: Any = None
    ) -> tuple[float, ...]:
        """The log-probabilities of drawing the ids in `then` one by one after `ids`."""

        # not by `prompt_logprobs`, which is unreliable with an adapter (vLLM issue 51594)
        async def one(after: Sequence[int], token: int) -> float:
            params = self._params(sampling, max_tokens=1, seed=0, logprob_token_ids=[token])
            output = (await self._ask([*ids, *after], params, adapter)).outputs[0]
            return _number(output.logprobs[0][token].logprob)

        return tuple(await asyncio.gather(*(one(then[:j], token) for j, token in enumerate(then))))

    async def adapt(self, export: Export, old: Any = None) -> Any:
        """Load an adapter, and drop an old one that is no longer used."""
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        folder = self._scratch / f"adapter-{number}"
        await _write(export, folder)
        # a new number each time, because vLLM caches prefixes by the adapter's number
        new = LoRARequest(f"adapter-{number}", number, str(folder))
        await self._do(self._llm.add_lora(new))
        if old is not None:
            await self._do(self._llm.remove_lora(old.lora_int_id))
            shutil.rmtree(old.lora_path, ignore_errors=True)
        return new

    async def replace(self, export: Export) -> None:
        """Serve other weights of the same model from now on."""
        folder = self._scratch / f"model-{next(self._numbers)}"
        await _write(export, folder)
        await self._do(self._llm.pause_generation(mode="wait", clear_cache=True))
        try:
            await self._do(self._llm.collective_rpc("take_weights", args=(str(folder),)))
        finally:
            await self._llm.resume_generation()
        shutil.rmtree(folder, ignore_errors=True)

    async def close(self) -> None:
        """End vLLM's processes."""
        await asyncio.to_thread(self._llm.shutdown)
        self._llm = None  # or it would shut down again while the interpreter exits
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _params(self, sampling: Sampling, **more: Any) -> Any:
        return self._SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            ignore_eos=True,  # `stop_token_ids` say where to stop
            detokenize=False,
            output_kind=self._final,
            **more,
        )

    async def _ask(self, ids: Sequence[int], params: Any, adapter: Any) -> Any:
        prompt, number = self._tokens_input(list(ids)), str(next(self._numbers))

        async def last() -> Any:
            answers = self._llm.generate(prompt, params, number, lora_request=adapter)
            return [answer async for answer in answers][-1]

        return await self._do(last())

    async def _do(self, work: Any) -> Any:
        try:
            return await work
        except Exception as error:  # vLLM's processes may raise anything
            raise EngineError(f"vLLM: {one_line(error)}") from error


def import_vllm() -> Any:
    """The vLLM module with its logging turned down, or one sentence on how to install it."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise ConfigError(
            f"`engine: vllm` needs vLLM: pip install 'tacit[vllm]' ({one_line(error)})"
        ) from error
    return vllm


def _lora_arguments(adapters: int, rank: int) -> Mapping[str, Any]:
    if not adapters:
        return {}
    room = next((size for size in LORA_RANKS if size >= rank), None)
    if room is None:
        raise ConfigError(f"policy.rank: vLLM serves adapters of rank {LORA_RANKS[-1]} at most")
    # one more, so that a new adapter can be loaded before the old one is dropped
    return {"enable_lora": True, "max_loras": adapters + 1, "max_lora_rank": room}


async def _write(export: Export, folder: Path) -> None:
    folder.mkdir()
    try:
        await asyncio.to_thread(export, folder)
    except OSError as error:
        raise EngineError(f"weights for vLLM could not be written: {error}") from error


def _number(logprob: float) -> float:
    if math.isnan(logprob):
        raise EngineError("the model returned logits that are not numbers")
    return logprob
