"""Requests decoding together on a GPU: a fixed set of rows, refilled as soon as they are done.

A few tokens at a time are drawn on the device before the host looks at them. Prompts that wait are
packed into one pass without padding, and the pages that they begin with are computed once.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from tacit.engine.memory import ran_out
from tacit.engine.request_state import Ticket
from tacit.errors import EngineError
from tacit.fast.decode.draw_gpu import MARKER
from tacit.fast.decode.layers_gpu import FusedModel
from tacit.fast.decode.pages import Key, Prompt, pages_for
from tacit.fast.decode.rows_gpu import CAPTURING, STEPS, Block, filters

log = logging.getLogger(__name__)

LEAST_ROWS = 8
LONGER = 1.5
"""How much longer than the rows were made for requests must be for it to pay to make new ones."""
SWITCH_INTERVAL = 2e-4


class GraphLane:
    def __init__(
        self,
        module: Any,
        name: str,
        ends: frozenset[int],
        rows: int,
        context: int,
        version: Callable[[], int],
    ) -> None:
        self.waiting: deque[Ticket] = deque()
        self._module, self._name, self._ends = module, name, sorted(ends)
        self._count, self._context, self._version = rows, context, version
        self._rows: list[Ticket | None] = []
        self._block: Block | None = None
        self._outgrown = False
        """Whether pages ran out for a request longer than those that the rows were made for."""
        # the thread that launches kernels lets go of the interpreter at each of them, and would
        # wait for it five milliseconds whenever somebody else is at work
        sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or any(self._rows)

    def step(self) -> None:
        """Free rows go to those who wait, then every row draws some tokens."""
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
        for ticket in (*self.waiting, *self._rows):
            if ticket:
                ticket.answer(error)
        self.waiting.clear()
        self._close()

    def shrink(self) -> None:
        """The weights are about to change: what was computed for prompts is of no more use."""
        if self._block:
            self._block.prompts.clear()

    def refresh(self) -> None:
        """The weights may have changed."""
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
        """Out of memory: half the rows. What they had drawn is kept, and computed again."""
        running = [ticket for ticket in self._rows if ticket]
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
        for row, ticket in enumerate(self._rows):
            if ticket and ticket.cancelled and self._block:
                self._block.rest(row)
                self._rows[row] = None

    def _opened(self) -> Block:
        """The rows and their cache, large enough for those who wait."""
        if self._block and any(self._rows):
            return self._block
        need = max((pages_for(_reach(ticket)) for ticket in self.waiting), default=1)
        if self._block and need > LONGER * self._block.pages_a_row:
            self._close()
        self._outgrown = False
        if self._block is None:
            model = FusedModel(self._module, self._context)
            self._block = Block(model, self._count, need, pages_for(self._context), self._ends)
            self._rows = [None] * self._count
        return self._block

    def _pick(self, block: Block) -> list[tuple[int, Ticket, Prompt]]:
        """Give free rows to those who wait, with the pages for all that they may draw."""
        picked: list[tuple[int, Ticket, Prompt]] = []
        free = [row for row, ticket in enumerate(self._rows) if ticket is None]
        if self._outgrown and any(self._rows):
            return picked  # until all rows are free and can be made anew
        while self.waiting and len(picked) < len(free):
            ticket, row, reach = self.waiting[0], free[len(picked)], _reach(self.waiting[0])
            prompt = None
            if not ticket.cancelled:
                prompt = block.reserve(row, _key(ticket), reach, [p for _, _, p in picked])
            if prompt is not None:
                self._rows[row] = ticket
                picked.append((row, ticket, prompt))
            elif not ticket.cancelled and any(self._rows):
                longer = pages_for(reach) > LONGER * block.pages_a_row
                self._outgrown = longer and not block.memory_is_full
                break  # until pages come back
            else:
                memory = f"{self._name}: {reach} tokens do not fit into the GPU's memory"
                ticket.answer(EngineError(f"{memory}: lower the agent's max_tokens"))
            self.waiting.popleft()
        return picked

    def _start(self, block: Block, picked: list[tuple[int, Ticket, Prompt]]) -> None:
        """Compute the prompts, settle who is silent, and let the others draw their first token."""
        fresh = {id(prompt): prompt for _, _, prompt in picked if prompt.logits_NV is None}
        block.compute(list(fresh.values()))
        starting = []
        for row, ticket, prompt in picked:
            try:
                if not ticket.ids:
                    ticket.version = self._version()
                if len(ticket.marker) > MARKER:
                    raise EngineError(f"the silence marker has more than {MARKER} tokens")
                if ticket.marker and ticket.odds is None:
                    ticket.settle(block.odds(prompt, ticket.request.sampling))
            except EngineError as error:
                ticket.answer(error)
            else:
                if not ticket.done:
                    starting.append((row, ticket, prompt))
                    continue
                ticket.answer()
            self._rows[row] = None
            block.release(row)
        if starting:
            block.start(starting)

    def _shorten(self, block: Block) -> None:
        """When few are left, move them together, so that a smaller graph does."""
        busy = [row for row, ticket in enumerate(self._rows) if ticket]
        if self.waiting or block.size_for(len(busy)) >= block.size_for(busy[-1] + 1):
            return
        order = busy + [row for row in range(len(self._rows)) if self._rows[row] is None]
        block.reorder(order)
        self._rows = [self._rows[row] for row in order]

    def _advance(self, block: Block) -> None:
        running = [(row, ticket) for row, ticket in enumerate(self._rows) if ticket]
        left = max(t.request.sampling.max_tokens - len(t.ids) for _, t in running)
        filtered = [(row, t.request.sampling) for row, t in running if filters(t.request.sampling)]
        block.advance(min(STEPS, left), running[-1][0] + 1, filtered)

    def _collect(self, block: Block) -> None:
        """Take what was drawn over from the device, and answer those who are done."""
        drawn = block.drawn()
        for row, ticket in enumerate(self._rows):
            if ticket is None:
                continue
            try:
                ticket.extend(*drawn[row])
            except EngineError as error:
                ticket.answer(error)
                block.rest(row)
                self._rows[row] = None
                continue
            if ticket.done:
                ticket.answer()
                block.release(row)
                self._rows[row] = None


def _key(ticket: Ticket) -> Key:
    """What must be computed before a ticket can go on drawing."""
    marker = ticket.marker if ticket.odds is None else ()
    prompt = ticket.request.prompt_ids
    return (*prompt, *ticket.ids) if ticket.ids else prompt, marker


def _reach(ticket: Ticket) -> int:
    """How many tokens a ticket's row may come to hold."""
    return len(ticket.request.prompt_ids) + ticket.request.sampling.max_tokens
