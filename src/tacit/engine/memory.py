"""Memory that runs out, and the several ways in which torch says so."""

import re

import torch

_FULL = re.compile(
    r"out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED.*cublasCreate"
)
"""What CUDA and its libraries say where others have taken the device's memory before torch asks,
and what Tacit itself says of either."""

ADVICE = (
    "the device's memory is full: use fewer `rows` or shorter max_tokens, or end what else uses "
    "the device; what was saved is kept"
)


def ran_out(error: BaseException) -> bool:
    """Whether less of the same might still work."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_FULL.search(str(error)))
