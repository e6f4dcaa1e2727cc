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
from typing import Any, Protocol

import torch

from tacit.engine.base import Completion, Request
from tacit.engine.chat import chat_of
from tacit.engine.check import check_request
from tacit.engine.kv_cache import Prefills, cache_length
from tacit.engine.kv_check import why_not_slots
from tacit.engine.load import LoadedModel, default_rows, on_device
from tacit.engine.one_at_a_time import PlainLane
from tacit.engine.request_state import Ticket
from tacit.engine.scheduler import Lane
from tacit.engine.streaming import Listeners
from tacit.errors import EngineError
from tacit.types import ChatMessage, Usage

log = logging.getLogger(__name__)

GATHERING_S = 0.002

Activate = Callable[[], AbstractContextManager[Any]]


class AnyLane(Protocol):
    """Requests on their way through a model, by whichever means."""

    waiting: deque[Ticket]

    @property
    def busy(self) -> bool: ...

    def step(self) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def shrink(self) -> None:
        """Give back what is of no use once the weights have changed."""

    def refresh(self) -> None:
        """The weights may have changed."""


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
        self._inbox: deque[Ticket] = deque()
        self._lanes: dict[int, AnyLane] = {}
        self._prefills = Prefills(loaded.module, keep=self._rows)
        self._new_lane: Callable[[int], AnyLane] | None = None
        self._buckets = False
        """Whether there is a lane for each cache length, rather than one for all."""
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
        return self._prefills.computed_tokens, self._prefills.shared_tokens

    async def generate(self, request: Request) -> Completion:
        if self._closed:
            raise EngineError(f"{self.model}: the engine was closed")
        check_request(request, self.model, self._context)
        answered = asyncio.get_running_loop().create_future()
        ticket = Ticket(request, self._chat.eos_ids, answered)
        self._inbox.append(ticket)
        self._loaded.worker.wake()
        try:
            with self._listeners.listening(ticket):
                await answered
        except asyncio.CancelledError:
            ticket.cancelled = True
            raise
        return self._completion(ticket)

    async def close(self) -> None:
        """Fail what is under way and let go of the worker. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._loaded.worker.leave, self._step)
        self._fail(EngineError(f"{self.model}: the engine was closed"))
        self._lanes.clear()
        self._prefills.clear()

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
            self._prefills.clear()
            for lane in self._lanes.values():
                lane.shrink()
            yield
        finally:
            worker.release()

    def _completion(self, ticket: Ticket) -> Completion:
        assert ticket.stop is not None
        return Completion(
            text=self._chat.decode(ticket.ids),
            ids=tuple(ticket.ids),
            logprobs=tuple(ticket.logprobs),
            stop=ticket.stop,
            usage=Usage(prompt=len(ticket.request.prompt_ids), generated=len(ticket.ids)),
            version=ticket.version,
            silence_logprob=ticket.odds.logprob if ticket.odds else None,
            model=self.model,
        )

    def _step(self) -> bool:
        """One step of every lane with work, in the worker's thread."""
        self._let_a_crowd_gather()
        try:
            with torch.no_grad(), on_device(self._loaded.module), self._activate():
                if self._loaded.module.training:
                    self._loaded.module.eval()
                self._refresh()
                while self._inbox:
                    self._assign(self._inbox[0])
                    self._inbox.popleft()  # only now, so that it is told if there is no room
                for lane in [lane for lane in self._lanes.values() if lane.busy]:
                    lane.step()
            self._listeners.call()
        except Exception as error:
            self._fail(error)
        return bool(self._inbox) or any(lane.busy for lane in self._lanes.values())

    def _let_a_crowd_gather(self) -> None:
        """On a GPU a step costs the same for one as for many, and requests come in crowds."""
        idle = not any(lane.busy for lane in self._lanes.values())
        if idle and self._inbox and self._loaded.module.device.type == "cuda":
            time.sleep(GATHERING_S)

    def _refresh(self) -> None:
        """Drop what other weights computed."""
        weights = (self.version, self._loaded.worker.epoch)
        if weights != self._weights:
            self._weights = weights
            self._prefills.refresh(self.version)
            for lane in self._lanes.values():
                lane.refresh()

    def _assign(self, ticket: Ticket) -> None:
        if self._new_lane is None:
            self._new_lane = self._way()
        tokens = len(ticket.request.prompt_ids) + ticket.request.sampling.max_tokens
        length = cache_length(tokens) if self._buckets else 0
        if length not in self._lanes:
            self._lanes[length] = self._new_lane(length)
        self._lanes[length].waiting.append(ticket)

    def _way(self) -> Callable[[int], AnyLane]:
        """How this model decodes: graphs on a GPU, rows in slots, or one request at a time."""
        module = self._loaded.module
        if module.device.type == "cuda":
            from tacit.fast.decode.check_gpu import why_not_graphs

            if (reason := why_not_graphs(module, self._context)) is None:
                return self._graph_lane
            log.warning("%s decodes without graphs: %s", self.model, reason)
        if reason := why_not_slots(module, self._rows, self._context):
            log.warning("%s serves one request at a time: %s", self.model, reason)
            return lambda _: PlainLane(module, lambda: self.version)
        self._buckets = True
        return lambda length: Lane(module, self._prefills, self._rows, length)

    def _graph_lane(self, _: int) -> AnyLane:
        from tacit.fast.decode.scheduler_gpu import GraphLane

        return GraphLane(
            self._loaded.module,
            self.model,
            self._chat.eos_ids,
            self._rows,
            self._context,
            lambda: self.version,
        )

    def _fail(self, error: Exception) -> None:
        for _ in range(len(self._inbox)):  # not those who come meanwhile
            self._inbox.popleft().answer(error)
        for lane in self._lanes.values():
            lane.fail(error)


def _context(module: Any, asked: int | None) -> int:
    """The longest sequence: the model's own limit, or a shorter one that was asked for."""
    config = module.config.get_text_config()
    own = getattr(config, "max_position_embeddings", None) or asked or 2**31
    return min(own, asked or own)
