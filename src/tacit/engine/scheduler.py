"""Requests that share a cache length: they wait for a row, then decode together until done.

A lane knows nothing of threads or event loops; the engine calls `step` until nothing is left.
"""

from collections import deque
from typing import Any

import torch

from tacit.engine.kv_cache import Prefill, Prefills, Slots
from tacit.engine.request_state import Ticket
from tacit.engine.sampler import RowSettings, draw, log_distribution


class Lane:
    def __init__(self, module: Any, prefills: Prefills, rows: int, length: int) -> None:
        self.waiting: deque[Ticket] = deque()
        self._module = module
        self._prefills = prefills
        self._length = length
        self._settings = RowSettings(rows, module.device)
        self._slots: Slots | None = None
        self._rows: list[Ticket | None] = [None] * rows

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self._rows)

    def step(self) -> None:
        """Every row draws one token; rows that are done go to those who wait; one forward pass."""
        try:
            self._drop_cancelled()
            fresh = [row for row, ticket in enumerate(self._rows) if ticket]
            while fresh or self.waiting:
                self._draw(fresh)
                fresh = self._admit()
                if not fresh:
                    break
            self._advance()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Answer everyone with the error and start afresh."""
        for ticket in (*self.waiting, *self._rows):
            if ticket:
                ticket.answer(error)
        self.waiting.clear()
        self._rows = [None] * len(self._rows)
        self._slots = None

    def shrink(self) -> None:
        """Give the caches' memory back if no row is in use."""
        if not any(self._rows):
            self._slots = None

    def refresh(self) -> None:
        """Nothing here depends on the weights."""

    def _drop_cancelled(self) -> None:
        self._rows = [None if ticket and ticket.cancelled else ticket for ticket in self._rows]

    def _admit(self) -> list[int]:
        """Give free rows to those who wait; returns the rows that have a first token to draw."""
        admitted = []
        for row, taken in enumerate(self._rows):
            if taken:
                continue
            if (started := self._next_ready()) is None:
                break
            ticket, prompt = started
            self._rows[row] = ticket  # first, so that it is told if there is no room
            if self._slots is None:
                self._slots = Slots(self._module, prompt, len(self._rows), self._length)
            self._slots.fill(row, prompt)
            self._settings.put(row, ticket.request.sampling, ticket.request.seed)
            admitted.append(row)
        return admitted

    def _next_ready(self) -> tuple[Ticket, Prefill] | None:
        """The next who needs a row. Those who fail, or are silent by choice, need none."""
        while self.waiting:
            ticket = self.waiting.popleft()
            if ticket.cancelled:
                continue
            try:
                prompt = self._prefills.get(ticket.request.prompt_ids, ticket.marker)
                ticket.begin(prompt.logits_NV, prompt.version)
            except Exception as error:
                ticket.answer(error)
                continue
            if not ticket.done:
                return ticket, prompt
            ticket.answer()
        return None

    def _draw(self, rows: list[int]) -> None:
        """The given rows draw. All rows are computed, so that the shape is always the same."""
        if not rows or self._slots is None:
            return
        tickets = [(row, ticket) for row in rows if (ticket := self._rows[row])]
        for row, ticket in tickets:
            if (known := ticket.marker_logits()) is not None:
                self._slots.logits_RV[row] = known
        logp_RV = log_distribution(self._slots.logits_RV, self._settings)
        for row, ticket in tickets:
            ticket.condition(logp_RV[row])
        counters_R = torch.tensor(
            [len(ticket.ids) if ticket else 0 for ticket in self._rows], device=logp_RV.device
        )
        ids_R, logprobs_R = draw(logp_RV, self._settings, counters_R)
        ids, logprobs = ids_R.tolist(), logprobs_R.tolist()
        for row, ticket in tickets:
            self._take(row, ticket, ids[row], logprobs[row])

    def _take(self, row: int, ticket: Ticket, token: int, logprob: float) -> None:
        try:
            ticket.take(token, logprob)
        except Exception as error:
            self._rows[row] = None
            ticket.answer(error)
        if ticket.done:
            self._rows[row] = None
            ticket.answer()

    def _advance(self) -> None:
        if self._slots is None or not any(self._rows):
            return
        tokens = [ticket.ids[-1] if ticket else 0 for ticket in self._rows]
        positions = [
            len(ticket.request.prompt_ids) + len(ticket.ids) - 1 if ticket else 0
            for ticket in self._rows
        ]
        self._slots.advance(tokens, positions)
