"""Batches requests: each waits for a free row, then draws one token per forward pass.

Knows nothing of threads or event loops; the engine calls `step` while there is work.
"""

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch

from tacit.engine.request_state import RequestState
from tacit.engine.sampler import RowSettings, draw, log_distribution
from tacit.fast.kv_cache import Prefill, RowBlock, cache_length

if TYPE_CHECKING:
    from tacit.fast.forward_rows import RowForward

Prompt = tuple[int, ...]


class RowScheduler:
    """A `Scheduler` with a block of rows for each cache length that requests need."""

    def __init__(self, forward: "RowForward", rows: int) -> None:
        self._forward, self._rows = forward, rows
        self._blocks: dict[int, _Block] = {}
        self.refresh(0)

    @property
    def busy(self) -> bool:
        return any(block.busy for block in self._blocks.values())

    def add(self, state: RequestState) -> None:
        request = state.request
        length = cache_length(len(request.prompt_ids) + request.sampling.max_tokens)
        if length not in self._blocks:
            self._blocks[length] = _Block(self._forward, self._shared, self._rows, length)
        self._blocks[length].waiting.append(state)

    def step(self) -> None:
        for block in [block for block in self._blocks.values() if block.busy]:
            block.step()

    def fail(self, error: Exception) -> None:
        for block in self._blocks.values():
            block.fail(error)

    def shrink(self) -> None:
        self._prefill.cache_clear()
        for block in self._blocks.values():
            block.shrink()

    def refresh(self, version: int) -> None:
        prefill = partial(self._forward.prefill, version=version)
        self._prefill = lru_cache(maxsize=self._rows)(prefill)

    def _shared(self, prompt: Prompt, marker: Prompt) -> Prefill:
        """A prompt's prefill, computed once for all requests with the same prompt."""
        return self._prefill(prompt, marker)


class _Block:
    """The requests of one cache length."""

    def __init__(
        self,
        forward: "RowForward",
        prefill: Callable[[Prompt, Prompt], Prefill],
        rows: int,
        length: int,
    ) -> None:
        self.waiting: deque[RequestState] = deque()
        self._forward = forward
        self._prefill = prefill
        self._length = length
        self._settings = RowSettings(rows, forward.module.device)
        self._rows: RowBlock | None = None
        self._states: list[RequestState | None] = [None] * rows

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self._states)

    def step(self) -> None:
        """Each row draws one token, finished rows go to waiting requests, then one forward pass."""
        try:
            self._states = [None if state and state.cancelled else state for state in self._states]
            fresh = [row for row, state in enumerate(self._states) if state]
            while fresh or self.waiting:
                self._draw(fresh)
                fresh = self._admit()
                if not fresh:
                    break
            self._advance()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        for state in (*self.waiting, *self._states):
            if state:
                state.answer(error)
        self.waiting.clear()
        self._states = [None] * len(self._states)
        self._rows = None

    def shrink(self) -> None:
        """Free the caches if no row is in use."""
        if not any(self._states):
            self._rows = None

    def _admit(self) -> list[int]:
        """Give free rows to waiting requests; returns those rows, whose first token is next."""
        admitted = []
        for row, taken in enumerate(self._states):
            if taken:
                continue
            if (started := self._next_ready()) is None:
                break
            state, prompt = started
            self._states[row] = state  # first, so that it is answered if memory runs out below
            if self._rows is None:
                shape = len(self._states), self._length
                decoder = self._forward.decoder(prompt, *shape)
                self._rows = RowBlock(decoder, prompt, *shape)
            self._rows.fill(row, prompt)
            self._settings.put(row, state.request.sampling, state.request.seed)
            admitted.append(row)
        return admitted

    def _next_ready(self) -> tuple[RequestState, Prefill] | None:
        """The next request that needs a row; one that fails or chooses silence needs none."""
        while self.waiting:
            state = self.waiting.popleft()
            if state.cancelled:
                continue
            try:
                prompt = self._prefill(state.request.prompt_ids, state.marker)
                state.begin(prompt.logits_NV, prompt.version)
            except Exception as error:
                state.answer(error)
                continue
            if not state.done:
                return state, prompt
            state.answer()
        return None

    def _draw(self, rows: list[int]) -> None:
        """The given rows draw. All rows are computed, to keep the tensors' shape the same."""
        if not rows or self._rows is None:
            return
        states = [(row, state) for row in rows if (state := self._states[row])]
        for row, state in states:
            if (known := state.marker_logits()) is not None:
                self._rows.logits_RV[row] = known
        logp_RV = log_distribution(self._rows.logits_RV, self._settings)
        for row, state in states:
            state.condition(logp_RV[row])
        counters_R = torch.tensor(
            [len(state.ids) if state else 0 for state in self._states], device=logp_RV.device
        )
        ids_R, logprobs_R = draw(logp_RV, self._settings, counters_R)
        ids, logprobs = ids_R.tolist(), logprobs_R.tolist()
        for row, state in states:
            self._take(row, state, ids[row], logprobs[row])

    def _take(self, row: int, state: RequestState, token: int, logprob: float) -> None:
        try:
            state.take(token, logprob)
        except Exception as error:
            self._states[row] = None
            state.answer(error)
        if state.done:
            self._states[row] = None
            state.answer()

    def _advance(self) -> None:
        if self._rows is None or not any(self._states):
            return
        tokens = [state.ids[-1] if state else 0 for state in self._states]
        positions = [
            len(state.request.prompt_ids) + len(state.ids) - 1 if state else 0
            for state in self._states
        ]
        self._rows.advance(tokens, positions)
