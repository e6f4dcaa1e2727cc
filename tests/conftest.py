"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The benchmarks' original files: $TACIT_DATA, or ../shared/data beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TACIT_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no benchmark files: set TACIT_DATA ({folder} is not a folder)")
    return folder
