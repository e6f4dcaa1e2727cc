"""The overhead benchmark runs, and would complain. How fast this machine is, is not a test."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "overhead.py"


@pytest.fixture(scope="module")
def overhead() -> ModuleType:
    spec = importlib.util.spec_from_file_location("overhead", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["overhead"] = module
    spec.loader.exec_module(module)
    return module


def test_it_measures_every_size_that_is_asked_for() -> None:
    command = [sys.executable, str(PROGRAM), "--json", "--repeats", "1", "--sizes", "20", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"]
    assert [row["episodes"] for row in rows] == [20, 60]
    assert all(row["microseconds_per_turn"] > 0 for row in rows)
    assert all(0 < row["kept_bytes_per_episode"] < row["peak_bytes_per_episode"] for row in rows)


@pytest.mark.parametrize(
    ("times", "memory", "complaint"),
    [
        ((100, 110, 120), (10, 10, 10), None),
        ((900, 950, 1000), (10, 10, 10), "up to 1000 µs"),
        ((100, 150, 300), (10, 10, 10), "3.0 times as long"),
        ((100, 100, 100), (10, 12, 40), "4.0 times the memory"),
    ],
)
def test_a_missed_bar_is_said(
    overhead: ModuleType,
    times: tuple[float, ...],
    memory: tuple[float, ...],
    complaint: str | None,
) -> None:
    rows = [overhead.Measured(100, t, m, m) for t, m in zip(times, memory, strict=True)]
    found = overhead.missed(rows)
    assert found == [] if complaint is None else complaint in found[0]
