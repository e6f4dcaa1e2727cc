"""Messages packed into one sequence without padding, shared prefixes computed once; for CPUs.

Only for attention is each message gathered into its own row with its whole prompt, and padded on
the right, where causal attention never looks. The rest of a layer, nearly all of its work, runs
once for every token of the pack. For GPUs see `pack_gpu.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from tacit.engine.forward import Ids
from tacit.fast.prefixes import forest

ATTENTION = "tacit_pack"


@dataclass(frozen=True, slots=True, eq=False)
class CpuPack:
    ids_T: Tensor
    positions_T: Tensor
    predicts_N: Tensor
    """The index of the state that predicts each output token, in the order of the messages."""
    rows: int
    to_rows: Tensor
    """For each place of each row, the index of its token; 0 for padding."""
    from_rows: Tensor
    """For each token, the first place that holds it."""


def lay_out(messages: Sequence[tuple[Ids, Ids]]) -> CpuPack:
    """Pack (prompt ids, output ids) pairs; the last output token is predicted, never fed."""
    grown = forest(messages)
    starts = [0, *accumulate(len(segment.ids) for segment in grown.segments)]
    places = [range(*pair) for pair in pairwise(starts)]
    paths = grown.paths()
    rows = [[place for n in paths[leaf] for place in places[n]] for leaf in grown.leaves]
    homes = {n: row for row, leaf in reversed([*enumerate(grown.leaves)]) for n in paths[leaf]}
    width = max(map(len, rows))
    predicts = [row[len(prompt) - 1 :] for row, (prompt, _) in zip(rows, messages, strict=True)]
    positions = [segment.depth + n for segment in grown.segments for n in range(len(segment.ids))]
    first = [width * homes[n] for n, place in enumerate(places) for _ in place]
    return CpuPack(
        torch.tensor([token for segment in grown.segments for token in segment.ids]),
        torch.tensor(positions),
        torch.tensor([place for some in predicts for place in some]),
        len(rows),
        torch.tensor([place for row in rows for place in row + [0] * (width - len(row))]),
        torch.tensor(first) + torch.tensor(positions),
    )


def packed_hidden(module: Any, messages: Sequence[tuple[Ids, Ids]]) -> Tensor:
    """The last hidden states that predict the outputs. The module must attend by `ATTENTION`."""
    pack = lay_out(messages)
    result = module.base_model(
        input_ids=pack.ids_T[None],
        position_ids=pack.positions_T[None],
        use_cache=False,
        tacit_pack=pack,
    )
    states: Tensor = result.last_hidden_state
    return states[0].index_select(0, pack.predicts_N)


def _attend(
    layer: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    tacit_pack: CpuPack,
    **_: Any,
) -> tuple[Tensor, None]:
    """Called by transformers: [1, heads, tokens, width] in, [1, tokens, heads, width] out."""
    heads, tokens, width = query.shape[1:]

    def rows(states: Tensor) -> Tensor:
        flat = states[0].transpose(0, 1).flatten(1).index_select(0, tacit_pack.to_rows)
        return flat.view(tacit_pack.rows, -1, states.shape[1], width).transpose(1, 2)

    attended = scaled_dot_product_attention(
        rows(query),
        rows(key),
        rows(value),
        is_causal=True,
        scale=scaling,
        enable_gqa=heads != key.shape[1],
    )
    flat = attended.transpose(1, 2).reshape(-1, heads * width)
    return flat.index_select(0, tacit_pack.from_rows).view(1, tokens, heads, width), None


AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, lambda *_, **__: None)
