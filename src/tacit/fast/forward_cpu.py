"""The forward pass on a CPU: decoding walks transformers' layers by hand, learning packs messages.

Decoding repeats the model's `forward` for one token per row, with the model's own projections and
activations, so adapters work unchanged. It is faster because it reads less memory: queries that
share keys and values read them together, where eager attention copies them for each query, and
blocks of positions that no row has reached are skipped. Skipping one changes no bit of a row: its
attention weight there is exactly 0, and all shapes stay the same. `kv_check.py` compares the logits
with the model's own.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, rms_norm, softmax

from tacit.engine.forward import FAMILIES, Ids
from tacit.fast.forward_rows import RowForward
from tacit.fast.kv_cache import Decoder, Prefill, attending_by
from tacit.fast.kv_check import use_threads
from tacit.fast.pack_cpu import ATTENTION, packed_hidden

BLOCK = 64
"""Positions in a block, unless that makes more than `MOST_BLOCKS`."""
MOST_BLOCKS = 8
PAIR = 64
"""From this many rows on, two single-core threads take half of them each."""


class CpuForward(RowForward):
    """Llama and its relatives on a CPU."""

    @classmethod
    def supports(cls, module: Any) -> bool:
        body = getattr(module, "model", None)
        return (
            module.device.type == "cpu"
            and module.config.model_type in FAMILIES
            and hasattr(body, "layers")
            and hasattr(body, "rotary_emb")
        )

    @property
    def packs(self) -> bool:
        """True for full attention."""
        config = self.module.config
        layers = set(getattr(config, "layer_types", None) or ())
        return not getattr(config, "sliding_window", None) and layers <= {"full_attention"}

    def decoder(self, like: Prefill, rows: int, length: int) -> Decoder:
        """Two halves if this thread uses one core, even on a single core, for the same numbers."""
        paired = torch.get_num_threads() == 1 and rows >= PAIR and rows % 16 == 0
        return (TwoHalves if paired else HandDecoder)(self.module, rows, length)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        packed = attending_by(self.module, ATTENTION) if self.packs else nullcontext()
        with packed, super().recomputing():
            yield

    def _hidden(self, messages: Sequence[tuple[Ids, Ids]]) -> Tensor:
        if not self.packs:
            return super()._hidden(messages)
        with self.recomputing():
            return packed_hidden(self.module, messages)


class HandDecoder:
    """A `Decoder` that calls the parts of each layer itself."""

    def __init__(self, module: Any, rows: int, length: int) -> None:
        self._module = module
        self._length = length
        self._block = min(length, max(BLOCK, length // MOST_BLOCKS))
        config = module.config
        self._heads = config.num_key_value_heads
        width = module.model.layers[0].self_attn.head_dim
        shape = (length // self._block, rows, self._heads, self._block, width)
        layers = range(config.num_hidden_layers)
        self._keys = [torch.zeros(shape, dtype=module.dtype) for _ in layers]
        self._values = [torch.zeros(shape, dtype=module.dtype) for _ in layers]
        self._starts_RH = (torch.arange(rows * self._heads) * self._block).view(rows, -1)

    def fill(self, row: int, prompt: Prefill) -> None:
        for mine, given in zip(
            [*self._keys, *self._values], [*prompt.keys, *prompt.values], strict=True
        ):
            for number, part in enumerate(torch.split(given, self._block, dim=1)):
                mine[number, row, :, : part.shape[1]] = part

    def __call__(self, ids_R: Tensor, positions_R: Tensor, reached: int, mask: Tensor) -> Tensor:
        body = self._module.model
        blocks = -(-reached // self._block)
        each = mask.expand(-1, self._heads, -1, -1).flatten(0, 1)
        masks = torch.split(each, self._block, dim=-1)
        size = self._starts_RH.numel() * self._block
        places = positions_R // self._block * size + positions_R % self._block
        places = (self._starts_RH + places[:, None]).flatten()
        x_RW = body.embed_tokens(ids_R)
        turn = body.rotary_emb(x_RW, positions_R[:, None])
        for number, layer in enumerate(body.layers):
            attention, mlp = layer.self_attn, layer.mlp
            q, k, v = _project(attention, _norm(x_RW, layer.input_layernorm), turn)
            keys, values = self._keys[number], self._values[number]
            keys.view(-1, keys.shape[-1]).index_copy_(0, places, k)
            values.view(-1, values.shape[-1]).index_copy_(0, places, v)
            q = q.view(len(k), -1, q.shape[-1])  # grouped by the head of keys that they share
            attended = self._attend(
                q * attention.scaling,
                keys[:blocks].flatten(1, 2),
                values[:blocks].flatten(1, 2),
                masks,
            )
            x_RW = x_RW + attention.o_proj(attended.view(len(ids_R), -1))
            normed = _norm(x_RW, layer.post_attention_layernorm)
            x_RW = x_RW + mlp.down_proj(mlp.act_fn(mlp.gate_proj(normed)) * mlp.up_proj(normed))
        logits: Tensor = self._module.get_output_embeddings()(_norm(x_RW, body.norm))
        return logits

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Attention block by block; the softmax is always over the whole length."""
        scores = torch.cat(
            [
                torch.baddbmm(mask, q, block.transpose(1, 2))
                for block, mask in zip(keys, masks, strict=False)
            ],
            dim=-1,
        )
        missing = self._length - scores.shape[-1]
        shares = softmax(pad(scores, (0, missing), value=-torch.inf), dim=-1)
        first, *others = torch.split(shares, self._block, dim=-1)
        out = torch.bmm(first, values[0])
        for share, block in zip(others, values[1:], strict=False):
            out = torch.baddbmm(out, share, block)
        return out


class TwoHalves:
    """Two `HandDecoder`s in parallel, on half of the rows each.

    torch's own threads would wait for each other after every operation, which takes long on a busy
    machine.
    """

    def __init__(self, module: Any, rows: int, length: int) -> None:
        self._half = rows // 2
        self._near, self._far = (HandDecoder(module, self._half, length) for _ in range(2))
        self._call_far = torch.no_grad()(self._far)  # the mode does not reach other threads

    def fill(self, row: int, prompt: Prefill) -> None:
        half, place = divmod(row, self._half)
        (self._far if half else self._near).fill(place, prompt)

    def __call__(self, ids_R: Tensor, positions_R: Tensor, reached: int, mask: Tensor) -> Tensor:
        (near_ids, far_ids), (near_at, far_at), (near_mask, far_mask) = (
            torch.split(both, self._half) for both in (ids_R, positions_R, mask)
        )
        far = _second_thread().submit(self._call_far, far_ids, far_at, reached, far_mask)
        try:
            near = self._near(near_ids, near_at, reached, near_mask)
        finally:
            far.exception()  # waits, so that nothing of this pass is still running
        return torch.cat([near, far.result()])


@cache
def _second_thread() -> ThreadPoolExecutor:
    """One thread for all models, so that no more threads run than there are cores for."""
    return ThreadPoolExecutor(
        1, "tacit-rows", initializer=lambda: use_threads(1, others=torch.get_num_threads())
    )


def _project(
    attention: Any, x_RW: Tensor, turn: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one token per row, each [rows × heads, width]."""
    rows, width = len(x_RW), attention.head_dim
    q = attention.q_proj(x_RW).view(rows, -1, width)
    k = attention.k_proj(x_RW).view(rows, -1, width)
    v = attention.v_proj(x_RW).view(-1, width)
    if hasattr(attention, "q_norm"):
        q, k = _norm(q, attention.q_norm), _norm(k, attention.k_norm)
    if getattr(attention, "use_rope", True):
        cos, sin = turn
        q, k = (
            both * cos + torch.cat([-both[..., width // 2 :], both[..., : width // 2]], -1) * sin
            for both in (q, k)
        )
    return q.view(-1, width), k.view(-1, width), v


def _norm(x: Tensor, norm: Any) -> Tensor:
    return rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
