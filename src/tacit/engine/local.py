"""The local engine: transformers models, many requests decoded together, same seed same transcript.

On a CPU what a request draws does not depend on what else is under way: not its ids and not one bit
of its log-probabilities. On a GPU it is the same up to how its kernels round for other shapes.
Several engines may share a model, each with its own adapter on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import torch

from tacit.config import ModelConfig
from tacit.engine.base import Account, Completion, Request, check_request
from tacit.engine.chat import chat_of
from tacit.engine.fitness import point_out_faults
from tacit.engine.forward import forward_of
from tacit.engine.generating import Generating
from tacit.engine.kv_check import why_not_rows
from tacit.engine.load import LoadedModel, default_rows, load_model, on_device
from tacit.engine.request_state import RequestState
from tacit.engine.scheduler import RowScheduler, Scheduler
from tacit.engine.streaming import Listeners
from tacit.errors import EngineError
from tacit.types import ChatMessage, Usage

log = logging.getLogger(__name__)

GATHERING_S = 0.002

Activate = Callable[[], AbstractContextManager[Any]]


class LocalEngine:
    """Serves one set of weights.

    Example: engine = LocalEngine(load_model("pocket")); ids = engine.encode(messages)
    await engine.generate(Request(messages=messages, prompt_ids=ids, sampling=Sampling()))
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        policy: str = "",
        rows: int | None = None,
        context: int | None = None,
        activate: Activate = nullcontext,
    ) -> None:
        """`rows`: how many sequences decode together. `activate`: entered around forward passes."""
        self.model = loaded.name
        self.policy = policy
        self.version = 0
        """How many updates the weights have seen; the learner sets it inside `paused()`."""
        self._loaded = loaded
        rows = rows or default_rows(loaded.module.device.type)
        # in eights, or torch's vector instructions would end inside a block of narrow rows
        self._rows = rows if rows == 1 else -(-rows // 8) * 8
        self._context = _context(loaded.module, context)
        self._activate = activate
        self._chat = chat_of(loaded)
        self._listeners = Listeners(self._chat)
        self._inbox: deque[RequestState] = deque()
        self._scheduler: Scheduler | None = None
        self._weights = (0, 0)
        self._closed = False
        loaded.worker.join(self._step)

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        return self._chat.encode(messages)

    def silence_ids(self) -> tuple[int, ...]:
        return self._chat.silence_ids()

    @property
    def prefilled_tokens(self) -> tuple[int, int]:
        """Prompt tokens computed, and served from a prompt already computed; not counted on a GPU.

        Which of two equal prompts comes first is a matter of timing, so a call's own usage, which
        equal runs must repeat, does not say it.
        """
        if not isinstance(self._scheduler, RowScheduler):
            return 0, 0
        prefills = self._scheduler.prefills
        return prefills.computed_tokens, prefills.shared_tokens

    async def generate(self, request: Request) -> Completion:
        if self._closed:
            raise EngineError(f"{self.model}: the engine was closed")
        check_request(request, self.model, self._context)
        answered = asyncio.get_running_loop().create_future()
        state = RequestState(request, self._chat.eos_ids, answered)
        self._inbox.append(state)
        self._loaded.worker.wake()
        try:
            with self._listeners.listening(state):
                await answered
        except asyncio.CancelledError:
            state.cancelled = True
            raise
        return self._completion(state)

    async def close(self) -> None:
        """Fail what is under way and let go of the worker. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._loaded.worker.leave, self._step)
        self._fail(EngineError(f"{self.model}: the engine was closed"))
        self._scheduler = None

    async def refresh(self, version: int) -> None:
        """The weights are another version now. Inside `paused()`."""
        self.version = version

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No forward pass of this model runs inside this block: the place to change its weights.

        Requests under way wait, and go on afterwards with what they had computed before.
        """
        worker = self._loaded.worker
        worker.hold()
        try:
            await asyncio.to_thread(worker.wait_idle)
            if self._scheduler:
                self._scheduler.shrink()
            yield
        finally:
            worker.release()

    def _completion(self, state: RequestState) -> Completion:
        assert state.stop is not None
        return Completion(
            text=self._chat.decode(state.ids),
            ids=tuple(state.ids),
            logprobs=tuple(state.logprobs),
            stop=state.stop,
            usage=Usage(prompt=len(state.request.prompt_ids), generated=len(state.ids)),
            version=state.version,
            silence_logprob=state.odds.logprob if state.odds else None,
            model=self.model,
        )

    def _step(self) -> bool:
        """One step of the scheduler, in the worker's thread."""
        if not (self._inbox or self._busy):
            return False
        self._let_a_crowd_gather()
        try:
            with torch.no_grad(), on_device(self._loaded.module), self._activate():
                if self._loaded.module.training:
                    self._loaded.module.eval()
                scheduler = self._opened()
                while self._inbox:
                    scheduler.add(self._inbox.popleft())
                scheduler.step()
            self._listeners.call()
        except Exception as error:
            self._fail(error)
        return bool(self._inbox) or self._busy

    @property
    def _busy(self) -> bool:
        return self._scheduler is not None and self._scheduler.busy

    def _let_a_crowd_gather(self) -> None:
        """On a GPU a step costs the same for one as for many, and requests come in crowds."""
        cuda = self._loaded.module.device.type == "cuda"
        if cuda and self._inbox and not self._busy:
            time.sleep(GATHERING_S)

    def _opened(self) -> Scheduler:
        """The scheduler, made at first use; it drops what other weights computed."""
        if self._scheduler is None:
            self._scheduler = self._new_scheduler()
        weights = (self.version, self._loaded.worker.epoch)
        if weights != self._weights:
            self._weights = weights
            self._scheduler.refresh(self.version)
        return self._scheduler

    def _new_scheduler(self) -> Scheduler:
        """How this model decodes: as its forward pass offers, in rows, or one at a time."""
        module, forward = self._loaded.module, forward_of(self._loaded.module)
        own = forward.scheduler(self.model, self._chat.eos_ids, self._rows, self._context)
        if own is not None:
            return own
        if reason := why_not_rows(forward, self._rows, self._context):
            log.warning("%s serves one request at a time: %s", self.model, reason)
            return Generating(module)
        return RowScheduler(forward, self._rows)

    def _fail(self, error: Exception) -> None:
        for _ in range(len(self._inbox)):  # not those who come meanwhile
            self._inbox.popleft().answer(error)
        if self._scheduler:
            self._scheduler.fail(error)


def open_local(name: str, config: ModelConfig, account: Account | None = None) -> LocalEngine:
    """Load a model; faults of its chat template are pointed out."""
    loaded = load_model(config.path, name=name, device=config.device, dtype=config.dtype)
    point_out_faults(chat_of(loaded))
    return LocalEngine(loaded, rows=config.rows, context=config.context)


def _context(module: Any, asked: int | None) -> int:
    """The longest sequence: the model's own limit, or a shorter one that was asked for."""
    config = module.config.get_text_config()
    own = getattr(config, "max_position_embeddings", None) or asked or 2**31
    return min(own, asked or own)
