"""Fixtures shared by all tests."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# Tests run side by side, so each process computes with one thread; torch would take all cores. It
# reads this when it is first imported. Tests of several threads ask for them.
os.environ["OMP_NUM_THREADS"] = "1"

SLOW = (
    "api/test_faults", "benchmarks", "cli/test_cli", "cli/test_training", "docs/test_serving",
    "docs/test_your_own_team",
    "examples", "experiments/test_variations", "external", "helpers", "learn/test_api_actor",
    "learn/test_learning", "learn/test_private_notes", "learn/test_run", "learn/test_tools",
    "plan/test_dry_run",
    "report/test_page", "run/test_folder", "sandbox/test_grader", "search/test_searching", "serve",
)  # fmt: skip
"""Where tests train, serve or start programs: left out by `make quick`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if str(item.path.relative_to(here)).startswith(SLOW):
            item.add_marker("slow")


# A shell's background job ignores interrupts, and so would the children that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The benchmarks' original files: $TACIT_DATA, or ../shared/data beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TACIT_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no benchmark files: set TACIT_DATA ({folder} is not a folder)")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
