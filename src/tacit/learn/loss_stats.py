"""Statistics of a loss: ratios, clipping by message length, divergences.

Kept as sums and counts, so that they do not depend on how a batch is cut into microbatches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

BUCKETS = (4, 16, 64, 256, 1024)
"""Upper ends of the length buckets; one more bucket is open-ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossStats:
    sums: Mapping[str, float]
    counts: Mapping[str, float]
    ratio_min: float
    ratio_max: float


def merge_stats(parts: Iterable[LossStats]) -> dict[str, float]:
    """Means over the microbatches of a batch, without those that have a count of 0."""
    parts = list(parts)
    names = dict.fromkeys(name for part in parts for name in part.sums)
    sums = {name: sum(part.sums.get(name, 0.0) for part in parts) for name in names}
    counts = {name: sum(part.counts.get(name, 0.0) for part in parts) for name in names}
    merged = {name: sums[name] / counts[name] for name in names if counts[name]}
    if parts:
        merged["ratio_min"] = min(part.ratio_min for part in parts)
        merged["ratio_max"] = max(part.ratio_max for part in parts)
    return merged


def bucket_names() -> list[str]:
    starts = (1, *(end + 1 for end in BUCKETS))
    return [f"{a}-{b}" for a, b in zip(starts, BUCKETS, strict=False)] + [f"{starts[-1]}+"]


@torch.no_grad()
def measure(
    *,
    mask_BT: Tensor,
    ratio_BT: Tensor,
    clipped_BT: Tensor,
    log_ratio_BT: Tensor,
    lengths_B1: Tensor,
    per_sequence: bool,
    apart: Mapping[str, Tensor],
    ref_kl_BT: Tensor | None,
    mismatch_B1: Tensor | None,
    mismatch_cap: float | None,
) -> LossStats:
    """The sums of one microbatch; with `per_sequence`, ratios and clipping count sequences."""
    tokens_BT = mask_BT.to(ratio_BT.dtype)
    unit_BT = tokens_BT / lengths_B1 if per_sequence else tokens_BT
    clipped = clipped_BT.to(ratio_BT.dtype)
    drift_BT = torch.exp(log_ratio_BT) - log_ratio_BT - 1
    columns: dict[str, tuple[Tensor, Tensor]] = {
        "clip_fraction": (clipped, unit_BT),
        "ratio": (ratio_BT, unit_BT),
        "approx_kl": (drift_BT, tokens_BT),
    }
    bucket_B1 = torch.bucketize(lengths_B1, torch.tensor(BUCKETS, device=lengths_B1.device))
    for number, name in enumerate(bucket_names()):
        columns[f"clip_fraction/{name}"] = (clipped, unit_BT * (bucket_B1 == number))
    for name, rows_B in apart.items():
        columns[f"clip_fraction/{name}"] = (clipped, unit_BT * rows_B[:, None])
    if ref_kl_BT is not None:
        columns["ref_kl"] = (ref_kl_BT, tokens_BT)
    if mismatch_B1 is not None:
        per_row_BT = tokens_BT / tokens_BT.sum(-1, keepdim=True).clamp(min=1)
        columns["mismatch_ratio"] = (mismatch_B1.expand_as(mask_BT), per_row_BT)
        if mismatch_cap is not None:
            truncated = (mismatch_B1 > mismatch_cap).to(ratio_BT.dtype).expand_as(mask_BT)
            columns["mismatch_truncated"] = (truncated, per_row_BT)
    # one transfer from the device
    numbers = torch.stack(
        [torch.where(mask_BT, value, 0.0).mul(unit).sum() for value, unit in columns.values()]
        + [unit.sum() for _, unit in columns.values()]
        + [
            torch.where(mask_BT, ratio_BT, torch.inf).min(),
            torch.where(mask_BT, ratio_BT, -torch.inf).max(),
        ]
    ).tolist()
    count = len(columns)
    return LossStats(
        sums=dict(zip(columns, numbers[:count], strict=True)),
        counts=dict(zip(columns, numbers[count : 2 * count], strict=True)),
        ratio_min=numbers[-2],
        ratio_max=numbers[-1],
    )
