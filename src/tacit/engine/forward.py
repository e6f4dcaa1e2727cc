"""A model's forward passes: one seam for playing (schedulers) and for learning (scores).

`forward_of(module)` gives the first of these that supports the model. Tests hold all of them to
`Forward`, the reference: transformers' own forward pass.

| way               | supports                      | plays by                | learns by       |
|-------------------|-------------------------------|-------------------------|-----------------|
| fast/forward_gpu  | Llama, Mistral, Qwen 2 and 3, | graphs over paged keys  | packed tokens,  |
|                   | SmolLM3 on a GPU              | and values              | fused kernels   |
| fast/forward_cpu  | the same on a CPU             | layers walked by hand   | packed tokens   |
| fast/forward_rows | any full-attention model      | rows over a fixed cache | padded rows     |
| `Forward`         | any causal model              | `generate`, one by one  | padded rows     |

Tokens a second, in units of `Forward` on the same machine; files in benchmarks/results:

| way               | model, machine           | plays | learns | file                            |
|-------------------|--------------------------|-------|--------|---------------------------------|
| fast/forward_rows | pocket, two CPU cores    | 4.6   | 1.0    | forward.json                    |
| fast/forward_cpu  | pocket, two CPU cores    | 6.4   | 1.8    | forward.json                    |
| fast/forward_rows | SmolLM2-135M, two cores  | 8.2   | 1.0    | forward.json                    |
| fast/forward_cpu  | SmolLM2-135M, two cores  | 7.7   | 2.0    | forward.json                    |

On a GPU the rival is TRL, which plays by `generate` in batches: docs/benchmarks.md, gpu.json.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tacit.engine.generating import Generating
from tacit.engine.request_state import RequestState

Ids = Sequence[int]
WAYS = (
    "tacit.fast.forward_gpu:GpuForward",
    "tacit.fast.forward_cpu:CpuForward",
    "tacit.fast.forward_rows:RowForward",
)
"""Faster implementations in order of preference; found by name, since they lie outside the core."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
"""Layers of RMS norm, rotary attention and a gated MLP; the logits are just the output embedding
applied to the last hidden state."""
LOGITS_AT_ONCE = 2**25
"""Elements of the (tokens × vocabulary) block that are in memory at a time."""

_FOUND: "WeakKeyDictionary[Any, Forward]" = WeakKeyDictionary()


def forward_of(module: Any) -> "Forward":
    """The fastest implementation that supports this module."""
    if module not in _FOUND:
        ways = [way for name in WAYS if (way := _available(name)) and way.supports(module)]
        _FOUND[module] = (ways[0] if ways else Forward)(module)
    return _FOUND[module]


def _available(way: str) -> Any:
    module, _, name = way.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError:  # torch brings triton on some systems only
        return None


class Scheduler(Protocol):
    """Takes requests through a model."""

    @property
    def busy(self) -> bool: ...

    def add(self, state: RequestState) -> None: ...

    def step(self) -> None: ...

    def fail(self, error: Exception) -> None:
        """Answer all requests with the error and start afresh."""

    def shrink(self) -> None:
        """Free what will be stale once the weights have changed."""

    def refresh(self, version: int) -> None:
        """The weights may have changed: from now on they are of this version."""


class Forward:
    """A model's forward passes by transformers itself: slow, but right by definition."""

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def packs(self) -> bool:
        """True if learning packs messages: no padding, shared prompts computed once."""
        return False

    @classmethod
    def supports(cls, module: Any) -> bool:
        return True

    def scheduler(self, name: str, ends: frozenset[int], rows: int, context: int) -> Scheduler:
        """Decodes requests: here one at a time, in faster implementations many together."""
        return Generating(self.module)

    def score(self, messages: Sequence[tuple[Ids, Ids]]) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy at every output token of (prompt ids, output ids) pairs.

        The results of all messages are concatenated. Gradients flow, through the log-probabilities
        only, unless the caller turned them off.
        """
        targets_N = placed(flat([output for _, output in messages]), self.module.device)
        return self._project(self._hidden(messages), targets_N)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Under gradient checkpointing, forward and backward passes must both run inside this.

        Layers recompute only in training mode, which is otherwise never on.
        """
        saving = getattr(self.module, "is_gradient_checkpointing", False)
        layers = [
            layer
            for layer in (self.module.modules() if saving else ())
            if getattr(layer, "gradient_checkpointing", False)
        ]
        for layer in layers:
            layer.training = torch.is_grad_enabled()
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    @property
    def _plain_head(self) -> bool:
        """True if the logits are the output embedding applied to the last hidden state."""
        return self.module.config.model_type in FAMILIES

    def _hidden(self, messages: Sequence[tuple[Ids, Ids]]) -> Tensor:
        """The last hidden states that predict the outputs; the logits if the head is not plain.

        One row for each message, padded on the right, where causal attention never looks.
        """
        module, device = self.module, self.module.device
        body = module.base_model if self._plain_head else module
        rows = [[*prompt, *output[:-1]] for prompt, output in messages]
        width = max(map(len, rows))
        ids_BW = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
        with self.recomputing():
            result = body(input_ids=ids_BW, use_cache=False)
        states: Tensor = result.last_hidden_state if body is not module else result.logits
        places = [
            (row, column)
            for row, (prompt, output) in enumerate(messages)
            for column in range(len(prompt) - 1, len(prompt) - 1 + len(output))
        ]
        row_N, column_N = torch.tensor(places, device=device).T
        return states[row_N, column_N]

    def _project(self, hidden_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies from hidden states, never holding all logits at once."""
        head = self.module.get_output_embeddings() if self._plain_head else torch.nn.Identity()
        rows = max(1, LOGITS_AT_ONCE // self.module.config.vocab_size)
        hidden, targets = torch.split(hidden_ND, rows), torch.split(targets_N, rows)
        # the first block is kept for the backward pass; the others are recomputed
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

    d log p_y/d logits = 1_y − p takes one pass over the vocabulary; autograd would take three.
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


def flat(pieces: Collection[Sequence[Any]], kind: type = np.int64) -> NDArray[Any]:
    """Concatenated sequences of numbers."""
    return np.fromiter(chain.from_iterable(pieces), kind, count=sum(map(len, pieces)))


def placed(values: NDArray[Any], device: torch.device) -> Tensor:
    """The values on the device; a GPU gets them from pinned memory, without waiting."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
