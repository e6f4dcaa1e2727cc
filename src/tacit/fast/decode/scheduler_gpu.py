"""Batches requests on a GPU: a fixed set of rows, each given to the next request when it is free.

The device draws a few tokens before the host looks at them. Waiting prompts are packed into one
pass without padding, and the pages with which several of them begin are computed once.
"""

import logging
import sys
from collections import deque
from typing import Any

import torch

from tacit.engine.memory import ran_out
from tacit.engine.request_state import RequestState
from tacit.errors import EngineError
from tacit.fast.decode.draw_gpu import MARKER
from tacit.fast.decode.layers_gpu import FusedModel
from tacit.fast.decode.pages import Key, Prompt, pages_for
from tacit.fast.decode.rows_gpu import CAPTURING, STEPS, Block

log = logging.getLogger(__name__)

LEAST_ROWS = 8
LONGER = 1.5
"""New rows are made for requests this many times longer than the rows were made for."""
SWITCH_INTERVAL = 2e-4


class GraphScheduler:
    def __init__(
        self, module: Any, name: str, ends: frozenset[int], rows: int, context: int
    ) -> None:
        self.waiting: deque[RequestState] = deque()
        self._module, self._name, self._ends = module, name, sorted(ends)
        self._count, self._context, self._version = rows, context, 0
        self._rows: list[RequestState | None] = []
        self._block: Block | None = None
        self._outgrown = False
        """True if pages ran out for a request longer than those the rows were made for."""
        # the thread that launches kernels releases the interpreter's lock at each launch, and
        # would wait five milliseconds to get it back from a busy thread
        sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self._rows)

    def add(self, state: RequestState) -> None:
        self.waiting.append(state)

    def step(self) -> None:
        """Give free rows to waiting requests, then draw some tokens in every row."""
        if not self.busy:
            return
        try:
            self._drop_cancelled()
            block = self._opened()
            block.begin()
            while picked := self._pick(block):
                self._start(block, picked)
            if any(self._rows):
                self._shorten(block)
                self._advance(block)
            self._collect(block)
        except Exception as error:
            if ran_out(error):
                self._use_fewer_rows()
            else:
                self.fail(error)

    def fail(self, error: Exception) -> None:
        for state in (*self.waiting, *self._rows):
            if state:
                state.answer(error)
        self.waiting.clear()
        self._close()

    def shrink(self) -> None:
        """The weights are about to change: computed prompts become useless."""
        if self._block:
            self._block.prompts.clear()

    def refresh(self, version: int) -> None:
        """The weights may have changed."""
        self._version = version
        if self._block:
            self._block.prompts.clear()
            self._block.model.refresh()

    def _close(self) -> None:
        self._rows = []
        self._block = None
        if torch.cuda.is_available():
            with CAPTURING:
                torch.cuda.empty_cache()

    def _use_fewer_rows(self) -> None:
        """Out of memory: halve the rows. Requests keep their tokens, which are computed again."""
        running = [state for state in self._rows if state]
        self._close()
        if self._count <= LEAST_ROWS:
            self.waiting.extendleft(reversed(running))
            self.fail(
                EngineError(
                    f"{self._name}: out of memory even with {self._count} rows: "
                    "lower the agents' max_tokens, or use a smaller model"
                )
            )
            return
        self._count = max(LEAST_ROWS, self._count // 2)
        log.warning("%s: out of GPU memory; going on with %d rows", self._name, self._count)
        self.waiting.extendleft(reversed(running))

    def _drop_cancelled(self) -> None:
        for row, state in enumerate(self._rows):
            if state and state.cancelled and self._block:
                self._block.rest(row)
                self._rows[row] = None

    def _opened(self) -> Block:
        """The rows and their cache, large enough for the waiting requests."""
        if self._block and any(self._rows):
            return self._block
        need = max((pages_for(_reach(state)) for state in self.waiting), default=1)
        if self._block and need > LONGER * self._block.pages_a_row:
            self._close()
        self._outgrown = False
        if self._block is None:
            model = FusedModel(self._module, self._context)
            self._block = Block(model, self._count, need, pages_for(self._context), self._ends)
            self._rows = [None] * self._count
        return self._block

    def _pick(self, block: Block) -> list[tuple[int, RequestState, Prompt]]:
        """Give free rows to waiting requests, with pages for all the tokens they may draw."""
        picked: list[tuple[int, RequestState, Prompt]] = []
        free = [row for row, state in enumerate(self._rows) if state is None]
        if self._outgrown and any(self._rows):
            return picked  # until all rows are free and can be made anew
        while self.waiting and len(picked) < len(free):
            state, row, reach = self.waiting[0], free[len(picked)], _reach(self.waiting[0])
            prompt = None
            if not state.cancelled:
                prompt = block.reserve(row, _key(state), reach, [p for _, _, p in picked])
            if prompt is not None:
                self._rows[row] = state
                picked.append((row, state, prompt))
            elif not state.cancelled and any(self._rows):
                longer = pages_for(reach) > LONGER * block.pages_a_row
                self._outgrown = longer and not block.memory_is_full
                break  # until pages come back
            else:
                memory = f"{self._name}: {reach} tokens do not fit into the GPU's memory"
                state.answer(EngineError(f"{memory}: lower the agent's max_tokens"))
            self.waiting.popleft()
        return picked

    def _start(self, block: Block, picked: list[tuple[int, RequestState, Prompt]]) -> None:
        """Compute the prompts, make the choices of silence, and draw the others' first token."""
        fresh = {id(prompt): prompt for _, _, prompt in picked if prompt.logits_NV is None}
        block.compute(list(fresh.values()))
        starting = []
        for row, state, prompt in picked:
            try:
                if not state.ids:
                    state.version = self._version
                if len(state.marker) > MARKER:
                    raise EngineError(f"the silence marker has more than {MARKER} tokens")
                if state.marker and state.odds is None:
                    state.settle(block.odds(prompt, state.request.sampling))
            except EngineError as error:
                state.answer(error)
            else:
                if not state.done:
                    starting.append((row, state, prompt))
                    continue
                state.answer()
            self._rows[row] = None
            block.release(row)
        if starting:
            block.start(starting)

    def _shorten(self, block: Block) -> None:
        """Move the last few rows together, so that a smaller graph is enough."""
        busy = [row for row, state in enumerate(self._rows) if state]
        if self.waiting or block.size_for(len(busy)) >= block.size_for(busy[-1] + 1):
            return
        order = busy + [row for row in range(len(self._rows)) if self._rows[row] is None]
        block.reorder(order)
        self._rows = [self._rows[row] for row in order]

    def _advance(self, block: Block) -> None:
        running = [(row, state) for row, state in enumerate(self._rows) if state]
        left = max(t.request.sampling.max_tokens - len(t.ids) for _, t in running)
        filtered = [(row, t.request.sampling) for row, t in running if t.request.sampling.filtered]
        block.advance(min(STEPS, left), running[-1][0] + 1, filtered)

    def _collect(self, block: Block) -> None:
        """Fetch the drawn tokens from the device, and answer the requests that are done."""
        drawn = block.drawn()
        for row, state in enumerate(self._rows):
            if state is None:
                continue
            try:
                state.extend(*drawn[row])
            except EngineError as error:
                state.answer(error)
                block.rest(row)
                self._rows[row] = None
                continue
            if state.done:
                state.answer()
                block.release(row)
                self._rows[row] = None


def _key(state: RequestState) -> Key:
    """What must be computed before a request can draw."""
    marker = state.marker if state.odds is None else ()
    prompt = state.request.prompt_ids
    return (*prompt, *state.ids) if state.ids else prompt, marker


def _reach(state: RequestState) -> int:
    """The most tokens that a request's row may hold."""
    return len(state.request.prompt_ids) + state.request.sampling.max_tokens
