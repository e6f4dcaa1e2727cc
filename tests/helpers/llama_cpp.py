"""llama.cpp's server in this process, on a port of its own."""

from pathlib import Path
from typing import Any

import pytest

xllamacpp = pytest.importorskip(
    "xllamacpp", reason="xllamacpp is not installed (extra `integration`)"
)


def llama_server(path: Path, *, context: int = 512, parallel: int = 1) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.port, params.verbosity = context, parallel, 0, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)
