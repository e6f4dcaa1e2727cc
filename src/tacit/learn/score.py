"""Log-probabilities of sampled tokens under a model, without ever holding all logits.

Most models take all messages as one stream without padding, in which what several prompts begin
with is computed once (`stream.py` on a CPU, `fused.py` on a GPU). For the others each
message is a row, padded on the right, so that causal attention keeps padding out of real tokens.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tacit.engine.families import FAMILIES
from tacit.engine.load import on_device
from tacit.fast.pack_gpu import flat, pack, placed
from tacit.learn.prefixes import Ids

LOGITS_AT_ONCE = 2**25
"""Elements of the (tokens × vocabulary) block that exists at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of B messages, padded to the longest, T tokens."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    mask_BT: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.logprobs_BT, self.entropy_BT, self.mask_BT


def score(module: Any, messages: Sequence[tuple[Ids, Ids]]) -> Scores:
    """Score each (prompt ids, output ids). Gradients flow unless the caller turned them off."""
    with on_device(module):
        return _scores(module, messages)


def _scores(module: Any, messages: Sequence[tuple[Ids, Ids]]) -> Scores:
    device = next(module.parameters()).device
    lengths = [len(output) for _, output in messages]
    targets_N = placed(flat([output for _, output in messages]), device)
    if packs(module):
        hidden_ND = _packed_hidden(module, messages, device)
    else:
        hidden_ND = _padded_hidden(module, messages, device)
    logprobs_N, entropy_N = _project(module, hidden_ND, targets_N)
    width = max(lengths)
    mask_BT = torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]
    blank = torch.zeros(mask_BT.shape, device=device, dtype=logprobs_N.dtype)
    return Scores(
        blank.masked_scatter(mask_BT, logprobs_N),
        blank.masked_scatter(mask_BT, entropy_N),
        mask_BT,
    )


def packs(module: Any) -> bool:
    """Whether messages go through this model as one stream without padding."""
    if module.device.type == "cuda":
        try:
            from tacit.fast.forward_gpu import can_fuse
        except ImportError:  # torch comes with triton on some systems only
            return False
        return can_fuse(module)
    from tacit.fast.pack_cpu import can_stream

    return module.config.model_type in FAMILIES and can_stream(module)


@contextmanager
def passes(module: Any) -> Iterator[None]:
    """Backward passes with layers computed again must run in here, as the forward ones did."""
    with ExitStack() as stack:
        if packs(module) and module.device.type == "cpu":
            from tacit.fast.pack_cpu import stream_attention

            stack.enter_context(stream_attention(module))
        stack.enter_context(_recomputed(module))
        yield


def _packed_hidden(
    module: Any, messages: Sequence[tuple[Ids, Ids]], device: torch.device
) -> Tensor:
    if device.type == "cuda":
        from tacit.fast.forward_gpu import fused_hidden

        return fused_hidden(module, pack(messages, device))
    from tacit.fast.pack_cpu import stream_hidden

    with _recomputed(module):
        return stream_hidden(module, messages)


def _padded_hidden(
    module: Any, messages: Sequence[tuple[Ids, Ids]], device: torch.device
) -> Tensor:
    """The last hidden states (or logits, where a family's head is not plain) that predict."""
    body = module.base_model if module.config.model_type in FAMILIES else module
    rows = [[*prompt, *output[:-1]] for prompt, output in messages]
    width = max(map(len, rows))
    ids_BW = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    with _recomputed(module):
        result = body(input_ids=ids_BW, use_cache=False)
    states: Tensor = result.last_hidden_state if body is not module else result.logits
    places = [
        (row, column)
        for row, (prompt, output) in enumerate(messages)
        for column in range(len(prompt) - 1, len(prompt) - 1 + len(output))
    ]
    row_N, column_N = torch.tensor(places, device=device).T
    return states[row_N, column_N]


@contextmanager
def _recomputed(module: Any) -> Iterator[None]:
    """Layers with gradient checkpointing do it in training mode only, which nothing else is in."""
    saving = getattr(module, "is_gradient_checkpointing", False)
    layers = [
        layer
        for layer in (module.modules() if saving else ())
        if getattr(layer, "gradient_checkpointing", False)
    ]
    for layer in layers:
        layer.training = torch.is_grad_enabled()
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _project(module: Any, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    plain = module.config.model_type in FAMILIES
    head: Any = module.get_output_embeddings() if plain else torch.nn.Identity()
    bare = isinstance(head, torch.nn.Linear) and head.bias is None
    if bare and packs(module) and module.device.type == "cuda":
        from tacit.fast.head_gpu import head_logprobs

        return head_logprobs(hidden_ND, head.weight, targets_N)
    rows = max(1, LOGITS_AT_ONCE // module.config.vocab_size)
    hidden, targets = torch.split(hidden_ND, rows), torch.split(targets_N, rows)
    # what one block may hold is kept for the backward pass; further ones are computed again
    pieces = [_piece(head, hidden[0], targets[0])] + [
        checkpoint(_piece, head, *more, use_reentrant=False)
        for more in zip(hidden[1:], targets[1:], strict=True)
    ]
    return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])


def _piece(head: Any, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    chosen: tuple[Tensor, Tensor] = _Chosen.apply(head(hidden).float(), targets)  # type: ignore[no-untyped-call]
    return chosen


class _Chosen(torch.autograd.Function):
    """log p of the chosen ids, and the entropy, which has no gradient.

    d log p_y/d logits = 1_y − p takes one pass over the vocabulary, where autograd takes three.
    """

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        p_NV = torch.softmax(logits_NV, dim=-1)
        highest_N, at_N = logits_NV.max(-1)
        log_sum_N = highest_N - p_NV.gather(-1, at_N[:, None])[:, 0].log()
        mean_N = torch.bmm(p_NV[:, None], logits_NV[:, :, None])[:, 0, 0]
        entropy_N = log_sum_N - mean_N
        ctx.save_for_backward(p_NV, targets_N)
        ctx.mark_non_differentiable(entropy_N)
        return logits_NV.gather(-1, targets_N[:, None])[:, 0] - log_sum_N, entropy_N

    @staticmethod
    def backward(ctx: Any, given_N: Tensor, _: Tensor) -> tuple[Tensor, None]:
        p_NV, targets_N = ctx.saved_tensors
        slopes_NV = p_NV * -given_N[:, None]
        slopes_NV[torch.arange(len(targets_N), device=targets_N.device), targets_N] += given_N
        return slopes_NV, None
