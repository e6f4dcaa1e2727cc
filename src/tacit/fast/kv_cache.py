"""A fixed KV cache for a block of rows that decode together, each at its own position.

A row's numbers must not depend on its neighbours. CPU and GPU kernels round differently for
different shapes, so every decoding pass has the same shape [rows, 1] over caches of one length, and
every prompt is computed alone. Sliding-window and linear attention are left to the reference. A
mixture of experts works, but sorts rows by expert, so its last bits may depend on the neighbours.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import Cache


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt after its forward pass."""

    keys: tuple[Tensor, ...]
    """One [heads, prompt, dim] tensor for each layer, like the values."""
    values: tuple[Tensor, ...]
    logits_NV: Tensor
    """After the prompt, then after each id of the marker but the last."""
    version: int

    @property
    def tokens(self) -> int:
        return int(self.keys[0].shape[1])


class Decoder(Protocol):
    """The forward pass of a block of rows, with their keys and values."""

    def fill(self, row: int, prompt: Prefill) -> None: ...

    def __call__(self, ids_R: Tensor, positions_R: Tensor, reached: int, mask: Tensor) -> Tensor:
        """The logits after one more token in each row, at positions below `reached`.

        `mask` is [rows, 1, 1, length] and is added to the attention scores.
        """
        ...


def cache_length(tokens: int) -> int:
    """The length of the cache for a sequence of this many tokens: 64, 128, 256, …"""
    length = 64
    while length < tokens:
        length *= 2
    return length


class RowBlock:
    """A block of rows: which positions each may attend to, and the logits it draws from next."""

    def __init__(self, decoder: Decoder, like: Prefill, rows: int, length: int) -> None:
        self._decoder = decoder
        device, dtype = like.logits_NV.device, like.keys[0].dtype
        self._mask = torch.full((rows, 1, 1, length), -torch.inf, dtype=dtype, device=device)
        self._numbers = torch.arange(rows, device=device)
        self.logits_RV = like.logits_NV.new_zeros(rows, like.logits_NV.shape[-1])

    def fill(self, row: int, prompt: Prefill) -> None:
        """Put a prompt into a row; its first token can be drawn at once."""
        self._decoder.fill(row, prompt)
        self._mask[row] = -torch.inf
        self._mask[row, :, :, : prompt.tokens] = 0.0
        self.logits_RV[row] = prompt.logits_NV[0]

    def advance(self, tokens: list[int], positions: list[int]) -> None:
        """One forward pass: every row takes its token at its position. Free rows stay at 0."""
        ids_R, at_R = torch.tensor([tokens, positions], device=self._numbers.device)
        self._mask[self._numbers, 0, 0, at_R] = 0.0
        self.logits_RV = self._decoder(ids_R, at_R, 1 + max(positions), self._mask).float()


class RowCache(Cache):  # type: ignore[misc]
    """A `Decoder` by the model's own forward pass, for which it is the cache."""

    def __init__(self, module: Any, like: Prefill, rows: int, length: int) -> None:
        super().__init__(layers=[])
        self._module = module
        self.keys = [k.new_zeros(rows, k.shape[0], length, k.shape[2]) for k in like.keys]
        self.values = [v.new_zeros(rows, v.shape[0], length, v.shape[2]) for v in like.values]
        self.rows = torch.arange(rows, device=like.logits_NV.device)
        self.positions = torch.zeros_like(self.rows)

    def fill(self, row: int, prompt: Prefill) -> None:
        for mine, given in zip(
            [*self.keys, *self.values], [*prompt.keys, *prompt.values], strict=True
        ):
            mine[row, :, : prompt.tokens] = given

    def __call__(self, ids_R: Tensor, positions_R: Tensor, reached: int, mask: Tensor) -> Tensor:
        self.positions = positions_R
        # On a CPU, plain matrix products: as fast for one query, and the same in every row. torch's
        # fused kernel gives each thread a scratch buffer of another alignment, for which MKL takes
        # another path, so that a row's last bits depend on its thread (torch 2.13).
        eager = self._module.device.type == "cpu"
        with attending_by(self._module, "eager") if eager else nullcontext():
            output = self._module(
                input_ids=ids_R[:, None],
                attention_mask=mask,
                position_ids=positions_R[:, None],
                past_key_values=self,
                use_cache=True,
            )
        logits: Tensor = output.logits[:, -1]
        return logits

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys[layer][self.rows, :, self.positions] = keys[:, :, 0]
        self.values[layer][self.rows, :, self.positions] = values[:, :, 0]
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.keys[0].shape[2])


@contextmanager
def attending_by(module: Any, implementation: str) -> Iterator[None]:
    """Forward passes inside this block use the given attention of transformers' registry."""
    config, theirs = module.config, module.config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = theirs
