"""Log-probabilities of sampled tokens under a model, without ever holding all logits.

Sequences are padded on the right, so causal attention alone keeps padding out of every real token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_AT_ONCE = 2**25
"""Elements of the (tokens × vocabulary) block that exists at a time."""
PLAIN_HEADS = {"llama", "qwen2", "qwen3", "smollm3", "mistral"}
"""Families whose logits are the output embedding applied to the last hidden state, and no more."""

Ids = Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Of B messages, padded to the longest, T tokens."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    mask_BT: Tensor


def score(module: Any, messages: Sequence[tuple[Ids, Ids]]) -> Scores:
    """Score each (prompt ids, output ids). Gradients flow unless the caller turned them off."""
    device = next(module.parameters()).device
    lengths = [len(output) for _, output in messages]
    hidden_ND, targets_N = _hidden(module, messages, device)
    logprobs_N, entropy_N = _project(module, hidden_ND, targets_N)
    width = max(lengths)
    mask_BT = torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]
    blank = torch.zeros(mask_BT.shape, device=device, dtype=logprobs_N.dtype)
    return Scores(
        blank.masked_scatter(mask_BT, logprobs_N),
        blank.masked_scatter(mask_BT, entropy_N),
        mask_BT,
    )


def _hidden(
    module: Any, messages: Sequence[tuple[Ids, Ids]], device: torch.device
) -> tuple[Tensor, Tensor]:
    """The last hidden states that predict output tokens, and those tokens, in row order."""
    width = max(len(prompt) + len(output) - 1 for prompt, output in messages)
    inputs = torch.zeros(len(messages), width, dtype=torch.long)
    predicts = torch.zeros(len(messages), width, dtype=torch.bool)
    for i, (prompt, output) in enumerate(messages):
        row = [*prompt, *output[:-1]]
        inputs[i, : len(row)] = torch.tensor(row)
        predicts[i, len(prompt) - 1 : len(row)] = True
    targets = torch.tensor([token for _, output in messages for token in output], device=device)
    body = module.base_model if module.config.model_type in PLAIN_HEADS else module
    result = body(input_ids=inputs.to(device), use_cache=False)
    states = result.last_hidden_state if body is not module else result.logits
    return states[predicts.to(device)], targets


def _project(module: Any, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    plain = module.config.model_type in PLAIN_HEADS
    head = module.get_output_embeddings() if plain else torch.nn.Identity()
    rows = max(1, LOGITS_AT_ONCE // module.config.vocab_size)
    pieces = [
        checkpoint(_piece, head, hidden, targets, use_reentrant=False)
        for hidden, targets in zip(
            torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True
        )
    ]
    return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])


def _piece(head: Any, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_softmax = torch.log_softmax(head(hidden).float(), dim=-1)
    with torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return log_softmax.gather(-1, targets[:, None])[:, 0], entropy
