"""Which requests decode together: they wait for a row, then draw a token each per forward pass.

Knows nothing of threads or event loops; the engine calls `step` until nothing is left.
"""

from collections import OrderedDict, deque
from typing import Protocol

import torch

from tacit.engine.forward import Forward
from tacit.engine.kv_cache import Prefill, RowBlock, cache_length
from tacit.engine.request_state import RequestState
from tacit.engine.sampler import RowSettings, draw, log_distribution


class Scheduler(Protocol):
    """Requests on their way through a model, by whichever means."""

    @property
    def busy(self) -> bool: ...

    def add(self, state: RequestState) -> None: ...

    def step(self) -> None: ...

    def fail(self, error: Exception) -> None:
        """Answer everyone with the error and start afresh."""

    def shrink(self) -> None:
        """Give back what is of no use once the weights have changed."""

    def refresh(self, version: int) -> None:
        """The weights may have changed: from now on they are of this version."""


class Prefills:
    """Prompts computed lately. Requests with the same prompt share one computation."""

    def __init__(self, forward: Forward, keep: int) -> None:
        self._forward = forward
        self._keep = keep
        self._done: OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], Prefill] = OrderedDict()
        self._version = 0
        self.computed_tokens = 0
        self.shared_tokens = 0

    def refresh(self, version: int) -> None:
        self._done.clear()
        self._version = version

    def clear(self) -> None:
        self._done.clear()

    def get(self, prompt: tuple[int, ...], marker: tuple[int, ...]) -> Prefill:
        """The prompt's prefill, with logits along the marker."""
        found = self._done.get((prompt, marker))
        if found is not None:
            self._done.move_to_end((prompt, marker))
            self.shared_tokens += len(prompt)
            return found
        made = self._forward.prefill(prompt, marker, version=self._version)
        self.computed_tokens += len(prompt)
        self._done[prompt, marker] = made
        if len(self._done) > self._keep:
            self._done.popitem(last=False)
        return made


class RowScheduler:
    """Requests by the length of cache they need, each length in a block of rows of its own."""

    def __init__(self, forward: Forward, rows: int) -> None:
        self._forward, self._rows = forward, rows
        self.prefills = Prefills(forward, keep=rows)
        self._blocks: dict[int, _Block] = {}

    @property
    def busy(self) -> bool:
        return any(block.busy for block in self._blocks.values())

    def add(self, state: RequestState) -> None:
        request = state.request
        length = cache_length(len(request.prompt_ids) + request.sampling.max_tokens)
        if length not in self._blocks:
            self._blocks[length] = _Block(self._forward, self.prefills, self._rows, length)
        self._blocks[length].waiting.append(state)

    def step(self) -> None:
        for block in [block for block in self._blocks.values() if block.busy]:
            block.step()

    def fail(self, error: Exception) -> None:
        for block in self._blocks.values():
            block.fail(error)

    def shrink(self) -> None:
        self.prefills.clear()
        for block in self._blocks.values():
            block.shrink()

    def refresh(self, version: int) -> None:
        self.prefills.refresh(version)


class _Block:
    """Requests that share a cache length."""

    def __init__(self, forward: Forward, prefills: Prefills, rows: int, length: int) -> None:
        self.waiting: deque[RequestState] = deque()
        self._forward = forward
        self._prefills = prefills
        self._length = length
        self._settings = RowSettings(rows, forward.module.device)
        self._rows: RowBlock | None = None
        self._states: list[RequestState | None] = [None] * rows

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self._states)

    def step(self) -> None:
        """Every row draws one token; rows that are done go to those who wait; one forward pass."""
        try:
            self._drop_cancelled()
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
        """Give the caches' memory back if no row is in use."""
        if not any(self._states):
            self._rows = None

    def _drop_cancelled(self) -> None:
        self._states = [None if state and state.cancelled else state for state in self._states]

    def _admit(self) -> list[int]:
        """Give free rows to those who wait; returns the rows that have a first token to draw."""
        admitted = []
        for row, taken in enumerate(self._states):
            if taken:
                continue
            if (started := self._next_ready()) is None:
                break
            state, prompt = started
            self._states[row] = state  # first, so that it is told if there is no room
            if self._rows is None:
                shape = len(self._states), self._length
                decoder = self._forward.decoder(prompt, *shape)
                self._rows = RowBlock(decoder, prompt, *shape)
            self._rows.fill(row, prompt)
            self._settings.put(row, state.request.sampling, state.request.seed)
            admitted.append(row)
        return admitted

    def _next_ready(self) -> tuple[RequestState, Prefill] | None:
        """The next who needs a row. Those who fail, or are silent by choice, need none."""
        while self.waiting:
            state = self.waiting.popleft()
            if state.cancelled:
                continue
            try:
                prompt = self._prefills.get(state.request.prompt_ids, state.marker)
                state.begin(prompt.logits_NV, prompt.version)
            except Exception as error:
                state.answer(error)
                continue
            if not state.done:
                return state, prompt
            state.answer()
        return None

    def _draw(self, rows: list[int]) -> None:
        """The given rows draw. All rows are computed, so that the shape is always the same."""
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
