"""Memory that runs out, and the several ways in which torch says so."""

import torch

_FULL = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What CUDA and its libraries say where others have taken the device's memory before torch asks."""

ADVICE = (
    "the device's memory is full: use fewer `rows` or shorter max_tokens, or end what else uses "
    "the device; the same command goes on from what was saved"
)


def ran_out(error: BaseException) -> bool:
    """Whether less of the same might still work."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL)
