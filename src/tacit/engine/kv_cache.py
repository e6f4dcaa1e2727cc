"""Keys and values in fixed places: a block of rows that decode together, each at its own position.

A row's numbers must not depend on its neighbours. CPU and GPU kernels round differently for
different shapes, so every decoding pass has the same shape [rows, 1] over caches of one length, and
every prompt is computed alone. Sliding-window and linear attention are left to `plain.py`. A
mixture of experts works, but sorts rows by expert, so its last bits may tell of the neighbours.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache

from tacit.fast.forward_cpu import Pair, Walk, walk, walks


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt after its forward pass."""

    keys: tuple[Tensor, ...]
    """One [heads, prompt, dim] a layer; so are the values."""
    values: tuple[Tensor, ...]
    logits_NV: Tensor
    """Where the first id, and then each id after another one of the marker, would be drawn."""
    version: int


class Prefills:
    """Prompts computed lately. Requests with the same prompt share one computation."""

    def __init__(self, module: Any, keep: int) -> None:
        self._module = module
        self._keep = keep
        self._done: OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], Prefill] = OrderedDict()
        self._version = 0
        self.computed_tokens = 0
        self.shared_tokens = 0

    def refresh(self, version: int) -> None:
        """Forget everything: the weights may have changed."""
        self._done.clear()
        self._version = version

    def get(self, prompt: tuple[int, ...], marker: tuple[int, ...]) -> Prefill:
        """The prompt's prefill, with logits along the marker (its last id not fed)."""
        found = self._done.get((prompt, marker))
        if found is not None:
            self._done.move_to_end((prompt, marker))
            self.shared_tokens += len(prompt)
            return found
        made = prefill(self._module, prompt, marker, version=self._version)
        self.computed_tokens += len(prompt)
        self._done[prompt, marker] = made
        if len(self._done) > self._keep:
            self._done.popitem(last=False)
        return made

    def clear(self) -> None:
        self._done.clear()


def prefill(
    module: Any, prompt: tuple[int, ...], marker: tuple[int, ...] = (), *, version: int = 0
) -> Prefill:
    cache = DynamicCache()
    ids = torch.tensor([[*prompt, *marker[:-1]]], device=module.device)
    logits = module(
        input_ids=ids,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=max(1, len(marker)),
    ).logits[0]
    return Prefill(
        tuple(layer.keys[0, :, : len(prompt)] for layer in cache.layers),
        tuple(layer.values[0, :, : len(prompt)] for layer in cache.layers),
        logits.float(),
        version,
    )


def cache_length(tokens: int) -> int:
    """The cache that a sequence of so many tokens gets: 64, 128, 256, …"""
    length = 64
    while length < tokens:
        length *= 2
    return length


class _RowCache(Cache):  # type: ignore[misc]
    """What the attention layers see: each row's keys and values, written at that row's position."""

    def __init__(self, like: Prefill, rows: int, length: int) -> None:
        super().__init__(layers=[])
        self.keys = [k.new_zeros(rows, k.shape[0], length, k.shape[2]) for k in like.keys]
        self.values = [v.new_zeros(rows, v.shape[0], length, v.shape[2]) for v in like.values]
        self.rows = torch.arange(rows, device=like.logits_NV.device)
        self.positions = torch.zeros_like(self.rows)

    def fill(self, row: int, prompt: Prefill) -> None:
        length = prompt.keys[0].shape[1]
        for mine, given in zip(
            [*self.keys, *self.values], [*prompt.keys, *prompt.values], strict=True
        ):
            mine[row, :, :length] = given

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys[layer][self.rows, :, self.positions] = keys[:, :, 0]
        self.values[layer][self.rows, :, self.positions] = values[:, :, 0]
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.keys[0].shape[2])


class Slots:
    """A block of rows, their caches, and the logits from which each row draws next."""

    def __init__(self, module: Any, like: Prefill, rows: int, length: int) -> None:
        self._module = module
        self._cache: _RowCache | None = None
        self._walk: Walk | Pair | None = None
        if walks(module):
            self._walk = walk(module, rows, length)
        else:
            self._cache = _RowCache(like, rows, length)
        self._mask = torch.full(
            (rows, 1, 1, length), -torch.inf, dtype=module.dtype, device=module.device
        )
        self._rows = torch.arange(rows, device=module.device)
        self.logits_RV = like.logits_NV.new_zeros(rows, like.logits_NV.shape[-1])

    def fill(self, row: int, prompt: Prefill) -> None:
        """Put a prompt into a row; its first token can be drawn at once."""
        if self._walk:
            self._walk.fill(row, prompt.keys, prompt.values)
        elif self._cache is not None:
            self._cache.fill(row, prompt)
        self._mask[row] = -torch.inf
        self._mask[row, :, :, : prompt.keys[0].shape[1]] = 0.0
        self.logits_RV[row] = prompt.logits_NV[0]

    def advance(self, tokens: list[int], positions: list[int]) -> None:
        """One forward pass: every row takes its token at its position. Free rows idle at 0."""
        ids_R, at_R = torch.tensor([tokens, positions], device=self._rows.device)
        self._mask[self._rows, 0, 0, at_R] = 0.0
        if self._walk:
            self.logits_RV = self._walk(ids_R, at_R, 1 + max(positions), self._mask).float()
        elif self._cache is not None:
            self._cache.positions = at_R
            with _attention_by_rows(self._module):
                output = self._module(
                    input_ids=ids_R[:, None],
                    attention_mask=self._mask,
                    position_ids=at_R[:, None],
                    past_key_values=self._cache,
                    use_cache=True,
                )
            self.logits_RV = output.logits[:, -1].float()


@contextmanager
def _attention_by_rows(module: Any) -> Iterator[None]:
    """On a CPU, plain matrix products: as fast for one query, and the same in every row.

    torch's fused kernel gives each thread a scratch buffer of another alignment, for which MKL
    takes another path: a row's last bits would tell which thread computed it (seen: torch 2.13).
    """
    config, theirs = module.config, module.config._attn_implementation
    if module.device.type == "cpu":
        config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = theirs
