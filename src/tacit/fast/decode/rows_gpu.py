"""A scheduler's rows on the device: their pages, their state, and the graphs that advance them."""

import threading
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from tacit.engine.base import Sampling
from tacit.engine.request_state import RequestState
from tacit.engine.sampler import RowSettings, log_distribution
from tacit.fast.decode.draw_gpu import FLOATS, INTS, Floats, Ints, Rows
from tacit.fast.decode.kernels import decode_attention, prompt_attention, prompt_tiles
from tacit.fast.decode.layers_gpu import FusedModel
from tacit.fast.decode.pages import (
    PAGE,
    Key,
    Pages,
    Prompt,
    Prompts,
    copy_pages,
    pages_for,
)
from tacit.silence.conditioning import SilenceOdds, silence_odds
from tacit.types import Choice

STEPS = 8
"""Tokens that a row draws before the host looks at them."""
PROMPT_TOKENS = 16_384
"""Prompt tokens that go through the model at once."""
MEMORY_SHARE = 0.6
"""The cache's largest share of the memory that is free when the first request comes."""
CAPTURING = threading.Lock()
"""Held while a graph is captured: two models' threads must not do it at once."""
ODDS_AT_ONCE = 2**26
"""Elements of the (positions × vocabulary) block for which odds of silence are computed at once."""


class Block:
    """R rows that decode together."""

    def __init__(
        self, model: FusedModel, rows: int, pages_a_row: int, table: int, ends: list[int]
    ) -> None:
        self.model = model
        self.pages_a_row = pages_a_row
        self._ends = ends
        # pages for all rows, and a quarter more for prompts
        wanted = rows * pages_a_row + max(pages_a_row, rows * pages_a_row // 4)
        count = _page_count(model, wanted, 2 * pages_a_row)
        self.memory_is_full = count < wanted
        self.cache = _new_cache(model, count)
        self.pages = Pages(count)
        self.prompts = Prompts(self.pages)
        # two more steps than are drawn at a time: a prompt's first token, and one for warming up
        self.rows = Rows(rows, table, PAGE, STEPS + 2, ends, model.device)
        self._held: list[list[int]] = [[] for _ in range(rows)]
        self._sizes = [size for size in (16, 32, 64, 128, 256, 512, 1024) if size < rows] + [rows]
        self._graphs: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, Tensor | None]] = {}
        on_gpu = model.device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if on_gpu else None
        self._stream: Any = torch.cuda.Stream(model.device) if on_gpu else None  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Start a step, in which nothing is drawn yet."""
        self.prompts.trim(2 * len(self._held))
        self.rows.tokens.fill_(-1)
        self.rows.step.zero_()

    def size_for(self, rows: int) -> int:
        return next(size for size in self._sizes if size >= rows)

    def reserve(self, row: int, key: Key, reach: int, keep: list[Prompt]) -> Prompt | None:
        """Reserve pages for a row of up to `reach` tokens; None if there are not enough."""
        prompt = self.prompts.find(key)
        begun = [] if prompt else self.prompts.begun(key)
        whole = len(key[0]) // PAGE
        own = pages_for(reach) - whole
        wanted = own + (0 if prompt else pages_for(len(key[0])) - len(begun))
        self.pages.share(begun)  # so that they outlive prompts dropped by `make_room`
        try:
            if self.pages.free < wanted:
                kept = {id(one) for one in (*keep, prompt) if one}
                if not self.prompts.make_room(wanted, kept):
                    return None
            prompt = prompt or self.prompts.add(key, begun)
        finally:
            self.pages.release(begun)
        self.pages.share(prompt.whole_pages)
        self._held[row] = [*prompt.whole_pages, *self.pages.take(own)]
        return prompt

    def release(self, row: int) -> None:
        self.pages.release(self._held[row])
        self._held[row] = []

    def rest(self, row: int) -> None:
        """Stop a row before it is done."""
        self.release(row)
        fields = torch.tensor([Ints.ACTIVE, Ints.LENGTH, Ints.SLOT], device=self.model.device)
        self.rows.ints[fields, row] = torch.tensor([0, 0, -1], device=self.model.device)

    def reorder(self, order: list[int]) -> None:
        self.rows.reorder(order)
        self._held = [self._held[row] for row in order]

    def compute(self, prompts: list[Prompt]) -> None:
        """Compute packed prompts, each followed by its marker, some thousand tokens at a time."""
        pack: list[Prompt] = []
        tokens = 0
        for prompt in prompts:
            length = len(prompt.ids) - prompt.known + len(prompt.marker)
            if pack and tokens + length > PROMPT_TOKENS:
                self._compute(pack)
                pack, tokens = [], 0
            pack.append(prompt)
            tokens += length
        if pack:
            self._compute(pack)

    def _compute(self, pack: list[Prompt]) -> None:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        asked: list[int] = []
        lengths = []
        for prompt in pack:
            said, marker = prompt.ids[prompt.known :], prompt.marker[:-1]
            asked += range(len(ids) + len(said) - 1, len(ids) + len(said) + len(marker))
            ids += [*said, *marker]
            places = range(prompt.known, len(prompt.ids))
            positions += range(prompt.known, len(prompt.ids) + len(marker))
            slots += [prompt.pages[at // PAGE] * PAGE + at % PAGE for at in places]
            slots += [-1] * len(marker)
            lengths.append(len(said) + len(marker))
        device = self.model.device
        flat = torch.tensor([ids, positions, slots], device=device)
        tiles = prompt_tiles(lengths, [prompt.known for prompt in pack], PAGE).to(device)
        known = [page for prompt in pack for page in prompt.pages[: prompt.known // PAGE]]
        pages = torch.tensor(known or [0], device=device)

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            scale = self.model.layers[layer].scale
            return prompt_attention(q, k, v, tiles, self.cache[:, layer], pages, PAGE, scale)

        hidden = self.model.hidden(flat[0], flat[1], flat[2], self.cache, attend)
        logits = self.model.logits(hidden[torch.tensor(asked, device=device)])
        counts = [max(1, len(prompt.marker)) for prompt in pack]
        for prompt, end, count in zip(pack, accumulate(counts), counts, strict=True):
            prompt.logits_NV = logits[end - count : end]

    def odds(self, prompt: Prompt, sampling: Sampling) -> SilenceOdds:
        """The odds of silence after a prompt; computed for all prompts with its marker at once."""
        if sampling not in prompt.odds:
            like = [one for one in self.prompts.like(prompt) if sampling not in one.odds]
            ids = prompt.marker
            step = max(1, ODDS_AT_ONCE // (len(ids) * self.model.vocabulary))
            for first in range(0, len(like), step):
                some = like[first : first + step]
                logits = torch.cat([one.logits_NV for one in some if one.logits_NV is not None])
                settings = RowSettings(len(logits), logits.device, sampling)
                logp = log_distribution(logits, settings).view(len(some), len(ids), -1)
                for one, odds in zip(some, silence_odds(logp, ids[:-1], self._ends), strict=True):
                    one.odds[sampling] = odds
        return prompt.odds[sampling]

    def start(self, starting: list[tuple[int, RequestState, Prompt]]) -> None:
        """Initialise rows and draw their first token from their prompt's logits."""
        device = self.model.device
        held = [self._held[row] for row, _, _ in starting]
        tails = [
            (prompt.tail_page, mine[len(prompt.whole_pages)])
            for (_, _, prompt), mine in zip(starting, held, strict=True)
            if prompt.tail_page is not None
        ]
        copy_pages(self.cache, tails)
        state = [_describe(state, len(prompt.ids)) for _, state, prompt in starting]
        which = torch.tensor([row for row, _, _ in starting], device=device)
        ints, floats = zip(*state, strict=True)
        self.rows.ints[:, which] = torch.tensor(ints, device=device).T
        self.rows.floats[:, which] = torch.tensor(floats, device=device).T
        width = max(map(len, held))
        table = [[*mine, *[0] * (width - len(mine))] for mine in held]
        self.rows.table[which, :width] = torch.tensor(table, dtype=torch.int32, device=device)
        logits = torch.stack([p.logits_NV[0] for _, _, p in starting if p.logits_NV is not None])
        asked = [(n, state.request.sampling) for n, (_, state, _) in enumerate(starting)]
        self.rows.draw(self._filter(logits, asked), which)

    def advance(self, steps: int, rows: int, filtered: list[tuple[int, Sampling]]) -> None:
        """Draw `steps` tokens in each of the first `rows` rows."""
        size = self.size_for(rows)
        self.rows.step.fill_(1)
        for _ in range(steps):
            if self._memory is None:
                self._step(size, filtered)
                continue
            graph, logits = self._graph(size, whole=not filtered)
            graph.replay()
            if logits is not None:
                self._draw(logits, filtered)

    def drawn(self) -> list[tuple[list[int], list[float]]]:
        """For every row the tokens drawn since `begin`, and their log-probabilities."""
        # numpy, because torch would wake its threads for so little work
        tokens = self.rows.tokens.cpu().numpy()[:-1].T
        logprobs = self.rows.logprobs.cpu().numpy()[:-1].T
        there = tokens >= 0
        ends = list(accumulate(there.sum(-1).tolist(), initial=0))
        said, values = tokens[there].tolist(), logprobs[there].tolist()
        return [(said[a:b], values[a:b]) for a, b in pairwise(ends)]

    def forward(self, size: int) -> Tensor:
        rows, cache = self.rows, self.cache
        length_R = rows.of(Ints.LENGTH, size)

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            scale = self.model.layers[layer].scale
            return decode_attention(
                q, cache[0, layer], cache[1, layer], rows.table, length_R, PAGE, scale
            )

        token, position = rows.of(Ints.TOKEN, size), rows.of(Ints.POSITION, size)
        hidden = self.model.hidden(token, position, rows.of(Ints.SLOT, size), cache, attend)
        return self.model.logits(hidden)

    def _draw(self, logits_RV: Tensor, filtered: list[tuple[int, Sampling]]) -> None:
        logits_RV = self._filter(logits_RV, filtered)
        self.rows.draw(logits_RV, self.rows.all[: len(logits_RV)])
        self.rows.step += 1

    def _step(self, size: int, filtered: list[tuple[int, Sampling]]) -> None:
        self._draw(self.forward(size), filtered)

    def _filter(self, logits_NV: Tensor, rows: list[tuple[int, Sampling]]) -> Tensor:
        """Apply top-p and top-k, after the temperature, in the rows that use them."""
        alike: dict[Sampling, list[int]] = {}
        for row, sampling in rows:
            if sampling.filtered:
                alike.setdefault(sampling, []).append(row)
        if not alike:
            return logits_NV
        logits_NV = logits_NV.float()
        for sampling, some in alike.items():
            settings = RowSettings(len(some), logits_NV.device, sampling)
            logits_NV[some] = log_distribution(logits_NV[some], settings).float()
        return logits_NV

    def _graph(self, size: int, *, whole: bool) -> tuple[torch.cuda.CUDAGraph, Tensor | None]:
        """A captured step of `size` rows: `whole` with the draw, otherwise up to the logits."""
        if (size, whole) not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with CAPTURING:
                self._warm_up(size)
                with torch.cuda.graph(
                    graph, pool=self._memory, stream=self._stream, capture_error_mode="thread_local"
                ):
                    logits = self.forward(size)
                    if whole:
                        self._draw(logits, [])
            self._graphs[size, whole] = graph, None if whole else logits
        return self._graphs[size, whole]

    def _warm_up(self, size: int) -> None:
        """Compile and load every kernel, with all rows idle so that nothing changes."""
        ints, step = self.rows.ints.clone(), self.rows.step.clone()
        self.rows.ints[Ints.ACTIVE] = 0
        self.rows.step.fill_(len(self.rows.tokens) - 1)
        self._step(size, [])
        torch.cuda.current_stream().synchronize()
        self.rows.ints.copy_(ints)
        self.rows.step.copy_(step)


def _describe(state: RequestState, prompt: int) -> tuple[list[int], list[float]]:
    """The state of a row that starts, or that resumes a request begun before."""
    sampling, drawn = state.request.sampling, len(state.ids)
    ints, floats = [0] * INTS, [0.0] * FLOATS
    ints[Ints.POSITION] = prompt - 1
    ints[Ints.COUNT] = drawn
    ints[Ints.LIMIT] = sampling.max_tokens
    ints[Ints.ACTIVE] = 1
    ints[Ints.SEED] = state.request.seed
    ints[Ints.GREEDY] = int(sampling.greedy)
    plain = sampling.greedy or sampling.filtered
    floats[Floats.HEAT] = 1.0 if plain else 1.0 / sampling.temperature
    if state.odds is None or state.choice is not Choice.SPEAK:
        return ints, floats
    marker = state.marker
    ints[Ints.FOLLOWS] = int(tuple(state.ids) == marker[:drawn] and drawn < len(marker))
    ints[Ints.MARKER_LENGTH] = len(marker)
    ints[Ints.MARKER_IDS : Ints.MARKER_IDS + len(marker)] = marker
    floats[Floats.LOG_REST : Floats.LOG_REST + len(marker) + 1] = state.odds.log_rest
    return ints, floats


def _new_cache(model: FusedModel, pages: int) -> Tensor:
    """[2, layers, slots, kv heads, width]: keys, then values."""
    shape = (2, len(model.layers), pages * PAGE, model.kv_heads, model.width)
    return torch.zeros(shape, dtype=model.dtype, device=model.device)


def _page_count(model: FusedModel, wanted: int, least: int) -> int:
    """As many pages as are wanted, or as fit into a fair share of the memory."""
    if model.device.type != "cuda":
        return wanted
    free, _ = torch.cuda.mem_get_info(model.device)
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    size = 2 * len(model.layers) * PAGE * model.kv_heads * model.width * model.dtype.itemsize
    return max(least, min(wanted, int(MEMORY_SHARE * free / size)))


def fused_logits(model: FusedModel, ids: tuple[int, ...]) -> Tensor:
    """The logits after these ids by both forward passes: a prefill, then one decoding step."""
    block = Block(model, 8, pages_for(len(ids)), pages_for(len(ids)), ends=[])
    prompt = block.prompts.add((ids[:-1], ()))
    block.compute([prompt])
    last = len(ids) - 1
    slot = prompt.pages[last // PAGE] * PAGE + last % PAGE
    block.rows.table[0, : len(prompt.pages)] = torch.tensor(prompt.pages, device=model.device)
    for name, value in ((Ints.TOKEN, ids[-1]), (Ints.POSITION, last), (Ints.SLOT, slot)):
        block.rows.ints[name, 0] = value
    block.rows.ints[Ints.LENGTH, 0] = last + 1
    return block.forward(8)[0].float()
