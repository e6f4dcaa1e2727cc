"""The serving benchmark runs, and would complain. How fast this machine is, is not a test."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("serve_benchmark", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["serve_benchmark"] = module
    spec.loader.exec_module(module)
    return module


def test_it_asks_both_ways_and_writes_what_it_found(tmp_path: Path) -> None:
    out = tmp_path / "serve.json"
    sizes = ["--clients", "2", "--requests", "4", "--rounds", "1"]
    command = [sys.executable, str(PROGRAM), *sizes, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert out.exists(), done.stderr
    found = json.loads(out.read_text())
    assert found["command"].endswith(" ".join(sizes)) and len(found["rounds"]) == 1
    for round in found["rounds"]:
        for way in ("engine", "http"):
            assert round[way]["requests_per_second"] > 0
            assert 0 < round[way]["seconds_p50"] <= round[way]["seconds_p95"]
    assert done.returncode == int(found["share_of_engine_throughput"] < found["least"])


@pytest.mark.parametrize(("rates", "share"), [((10, 9.5), 0.95), ((10, 5), 0.5)])
def test_the_share_is_that_of_the_middle_round(
    serve: ModuleType, rates: tuple[float, float], share: float
) -> None:
    def measured(rate: float) -> object:
        return serve.Measured(rate, 1.0, 0.1, 0.2)

    pairs = [(measured(10), measured(r)) for r in (1, rates[1], 99)]
    assert serve.result_of(pairs)["share_of_engine_throughput"] == pytest.approx(share)
