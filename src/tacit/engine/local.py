"""The local engine: transformers models that decode many requests together, repeatably by seed.

On a CPU a request's ids and log-probabilities are the same to the bit whatever runs beside it; on a
GPU they are the same up to how kernels round for different shapes. Several engines may share a
model, each with its own adapter.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import torch

from tacit.config import ModelConfig
from tacit.engine.base import Account, Completion, Request, check_request
from tacit.engine.chat import ByTemplate, chat_of
from tacit.engine.fitness import point_out_faults
from tacit.engine.forward import Scheduler, forward_of
from tacit.engine.load import LoadedModel, default_rows, load_model, on_device
from tacit.engine.request_state import RequestState
from tacit.engine.streaming import Listeners
from tacit.errors import EngineError
from tacit.types import Usage

GATHERING_S = 0.002

Activate = Callable[[], AbstractContextManager[Any]]


class LocalEngine(ByTemplate):
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
        """`rows`: how many sequences decode together. `activate`: wraps every forward pass."""
        self.model = loaded.name
        self.policy = policy
        self.version = 0
        """How many updates the weights have seen; the learner sets it inside `paused()`."""
        self._loaded = loaded
        rows = rows or default_rows(loaded.module.device.type)
        # a multiple of eight, so that torch's vector instructions end at the end of a block
        self._rows = rows if rows == 1 else -(-rows // 8) * 8
        self._context = _context(loaded.module, context)
        self._activate = activate
        self._chat = chat_of(loaded)
        self._listeners = Listeners(self._chat)
        self._inbox: deque[RequestState] = deque()
        self._scheduler: Scheduler | None = None
        self._weights = (0, 0)
        self._closed = False
        loaded.worker.add(self._step)

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
        """Fail requests in progress and leave the worker. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._loaded.worker.remove, self._step)
        self._fail(EngineError(f"{self.model}: the engine was closed"))
        self._scheduler = None

    async def refresh(self, version: int) -> None:
        """The weights now have this version. Call it inside `paused()`."""
        self.version = version

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No forward pass of this model runs inside this block: the place to change its weights.

        Requests in progress wait, and keep what they have drawn.
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
        text, tools = self._chat.decode(state.ids), state.request.tools
        return Completion(
            text=text,
            ids=tuple(state.ids),
            logprobs=tuple(state.logprobs),
            stop=state.stop,
            usage=Usage(prompt=len(state.request.prompt_ids), generated=len(state.ids)),
            version=state.version,
            silence_logprob=state.odds.logprob if state.odds else None,
            model=self.model,
            tool_calls=self._chat.tool_calls(text, state.stop, tools) if tools else (),
        )

    def _step(self) -> bool:
        """One step of the scheduler, in the worker's thread; True if there is more to do."""
        if not (self._inbox or self._busy):
            return False
        self._gather()
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

    def _gather(self) -> None:
        """Wait for more requests: they come in bursts, and a GPU step costs the same for many."""
        cuda = self._loaded.module.device.type == "cuda"
        if cuda and self._inbox and not self._busy:
            time.sleep(GATHERING_S)

    def _opened(self) -> Scheduler:
        """The scheduler, created at first use and refreshed after each change of weights."""
        if self._scheduler is None:
            self._scheduler = forward_of(self._loaded.module).scheduler(
                self.model, self._chat.eos_ids, self._rows, self._context
            )
        weights = (self.version, self._loaded.worker.epoch)
        if weights != self._weights:
            self._weights = weights
            self._scheduler.refresh(self.version)
        return self._scheduler

    def _fail(self, error: Exception) -> None:
        for _ in range(len(self._inbox)):  # not requests that arrive meanwhile
            self._inbox.popleft().answer(error)
        if self._scheduler:
            self._scheduler.fail(error)


def open_local(name: str, config: ModelConfig, account: Account | None = None) -> LocalEngine:
    """Load a model, and warn of faults in its chat template."""
    loaded = load_model(config.path, name=name, device=config.device, dtype=config.dtype)
    point_out_faults(chat_of(loaded))
    return LocalEngine(loaded, rows=config.rows, context=config.context)


def _context(module: Any, asked: int | None) -> int:
    """The longest sequence: the model's own limit, or the configured one if that is shorter."""
    config = module.config.get_text_config()
    own = getattr(config, "max_position_embeddings", None) or asked or 2**31
    return min(own, asked or own)
