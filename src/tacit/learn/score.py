"""Log-probabilities of sampled tokens under a model, without ever holding all logits.

Sequences are padded on the right, so causal attention alone keeps padding out of every real token.
Messages that share a prompt, as a group's do, can stand behind it in one row: it is computed once.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    targets_N = torch.tensor([token for _, output in messages for token in output], device=device)
    if packs(module):
        hidden_ND = _packed_hidden(module, messages, device)
    else:
        shared = _can_share(module) and _worth_sharing(messages)
        hidden_ND = _hidden(module, lay_out(messages, shared=shared), device)
    logprobs_N, entropy_N = _project(module, hidden_ND, targets_N)
    width = max(lengths)
    mask_BT = torch.arange(width, device=device) < torch.tensor(lengths, device=device)[:, None]
    blank = torch.zeros(mask_BT.shape, device=device, dtype=logprobs_N.dtype)
    return Scores(
        blank.masked_scatter(mask_BT, logprobs_N),
        blank.masked_scatter(mask_BT, entropy_N),
        mask_BT,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Sequences to run. Segment 0 is a prompt, each output after it has its own, −1 is padding."""

    inputs_RW: Tensor
    segments_RW: Tensor
    positions_RW: Tensor
    row_N: list[int]
    column_N: list[int]
    """Where the state stands that predicts each output token, in the order of the messages."""

    def mask(self) -> Tensor:
        """Additive: every token sees its prompt and its own output, up to itself."""
        own = self.segments_RW[:, :, None] == self.segments_RW[:, None, :]
        width = self.segments_RW.shape[1]
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        seen = (own | (self.segments_RW == 0)[:, None, :]) & causal
        seen |= torch.eye(width, dtype=torch.bool)
        return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def lay_out(messages: Sequence[tuple[Ids, Ids]], *, shared: bool) -> Layout:
    """Each message in a row of its own, or those of one prompt in one row behind it."""
    groups: dict[object, list[int]] = {}
    for number, (prompt, _) in enumerate(messages):
        groups.setdefault(tuple(prompt) if shared else number, []).append(number)
    rows: list[tuple[list[int], list[int], list[int]]] = []
    places: dict[int, list[tuple[int, int]]] = {}
    for members in groups.values():
        prompt = messages[members[0]][0]
        start = len(prompt)
        tokens, segments, positions = list(prompt), [0] * start, list(range(start))
        for segment, number in enumerate(members, start=1):
            said = messages[number][1][:-1]
            columns = [start - 1, *range(len(tokens), len(tokens) + len(said))]
            places[number] = [(len(rows), column) for column in columns]
            tokens += said
            segments += [segment] * len(said)
            positions += range(start, start + len(said))
        rows.append((tokens, segments, positions))
    found = [place for number in range(len(messages)) for place in places[number]]
    return Layout(
        _padded([row[0] for row in rows], 0),
        _padded([row[1] for row in rows], -1),
        _padded([row[2] for row in rows], 0),
        [row for row, _ in found],
        [column for _, column in found],
    )


def _can_share(module: Any) -> bool:
    """Whether the model takes our mask as it is: one with a sliding window would lose it."""
    config = module.config
    return config.model_type in PLAIN_HEADS and not getattr(config, "sliding_window", None)


def _worth_sharing(messages: Sequence[tuple[Ids, Ids]]) -> bool:
    """Whether computing a shared prompt once saves more than the wider attention costs."""
    prompts = {tuple(prompt): len(prompt) for prompt, _ in messages}
    spoken = sum(len(output) for _, output in messages)
    return 4 * len(prompts) <= 2 * len(messages) and (
        2 * sum(len(prompt) for prompt, _ in messages) >= spoken
    )


def _padded(rows: Sequence[list[int]], value: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


def packs(module: Any) -> bool:
    """Whether messages go through this model as one stream without padding: on a GPU."""
    if module.config.model_type not in PLAIN_HEADS or module.device.type != "cuda":
        return False
    from tacit.learn.packed import can_pack

    return can_pack(module)


@contextmanager
def passes(module: Any) -> Iterator[None]:
    """Backward passes with layers computed again must run in here, as the forward ones did."""
    with ExitStack() as stack:
        if packs(module):
            from tacit.learn.packed import packed_attention

            stack.enter_context(packed_attention(module))
        stack.enter_context(_recomputed(module))
        yield


def _packed_hidden(
    module: Any, messages: Sequence[tuple[Ids, Ids]], device: torch.device
) -> Tensor:
    from tacit.learn.packed import pack, packed_hidden

    with _recomputed(module):
        return packed_hidden(module, module.base_model, pack(messages, device))


def _hidden(module: Any, layout: Layout, device: torch.device) -> Tensor:
    """The last hidden states (or logits, where a family's head is not plain) that predict."""
    body = module.base_model if module.config.model_type in PLAIN_HEADS else module
    extra: dict[str, Tensor] = {}
    if bool((layout.segments_RW > 1).any()):
        extra["attention_mask"] = layout.mask().to(device, module.dtype)
        extra["position_ids"] = layout.positions_RW.to(device)
    with _recomputed(module):
        result = body(input_ids=layout.inputs_RW.to(device), use_cache=False, **extra)
    states: Tensor = result.last_hidden_state if body is not module else result.logits
    return states[layout.row_N, layout.column_N]


@contextmanager
def _recomputed(module: Any) -> Iterator[None]:
    """Layers with gradient checkpointing do it in training mode only, which nothing else is in."""
    layers = [
        layer for layer in module.modules() if getattr(layer, "gradient_checkpointing", False)
    ]
    for layer in layers:
        layer.training = torch.is_grad_enabled()
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _project(module: Any, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    plain = module.config.model_type in PLAIN_HEADS
    head = module.get_output_embeddings() if plain else torch.nn.Identity()
    if packs(module) and isinstance(head, torch.nn.Linear) and head.bias is None:
        from tacit.learn.head import head_logprobs

        return head_logprobs(hidden_ND, head.weight, targets_N)
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
