"""The plan's error on what was measured, computed again from the kept files."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tacit.plan import costs
from tacit.plan.costs import LEFT_OUT, Constants

FOLDER = Path(__file__).parents[2] / "benchmarks"
KEPT = json.loads((FOLDER / "results" / "plan.json").read_text(encoding="utf-8"))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("plan")
    for name in ("plan", "plan_kept"):
        sys.modules.pop(name, None)


def test_settings_left_out_of_the_fit_are_near(plan: ModuleType) -> None:
    found = plan.result()
    assert found["near"] and max(found["worst"].values()) <= plan.NEAR == 0.25
    for name, error in found["worst"].items():
        assert error == pytest.approx(KEPT["worst"][name], abs=1e-6), "write plan.json again"
    other_model = [abs(row["error"]) for row in found["without_the_model"]]
    assert max(other_model) <= 0.25, "fitted on the other model alone"
    assert found["numbers"] == KEPT["numbers"] == {"tokens_per_s": 29, "memory": 6}


def test_every_kept_number_is_that_of_its_file(plan: ModuleType) -> None:
    by_source = {(row["source"], row["kind"]): row["measured"] for row in KEPT["measurements"]}
    gpu = plan.read("gpu")
    assert by_source["gpu.json update", "memory"] == pytest.approx(gpu["update"]["peak_gib"])
    assert by_source["gpu.json cycle", "memory"] == pytest.approx(gpu["cycle"]["ours"]["peak_gib"])
    rate = gpu["decode"]["base"]["tokens_per_s"]
    assert by_source["gpu.json decode.base", "decode"] == pytest.approx(rate)
    peaks = sum("peak_gib" in json.dumps(gpu[name]) for name in plan_sections(gpu))
    again = plan.read("gpu_again")
    peaks += sum("peak_gib" in json.dumps(again[name]) for name in plan_sections(again))
    assert peaks == len([1 for _, kind in by_source if kind == "memory"]), "all that were kept"


def plan_sections(tree: dict[str, object]) -> list[str]:
    return [name for name, section in tree.items() if isinstance(section, dict)]


def test_the_package_has_the_constants_and_the_errors_of_the_fit(plan: ModuleType) -> None:
    fitted = asdict(plan.fit(plan.measurements()))
    assert asdict(Constants()) == pytest.approx(fitted, rel=1e-3)
    assert LEFT_OUT["tokens/s"] == pytest.approx(KEPT["worst"]["tokens_per_s"], abs=0.005)
    assert LEFT_OUT["memory"] == pytest.approx(KEPT["worst"]["memory"], abs=0.005)


def test_the_shapes_are_those_of_the_models_that_were_measured(plan: ModuleType) -> None:
    gpu, shape = plan.read("gpu"), plan.SHAPES["1.5B"]
    assert shape.multiplied == pytest.approx(gpu["update"]["weights"], rel=1e-4)
    held = (2 * shape.weights + 4 * shape.adapter(16)) / 2**30
    assert held == pytest.approx(gpu["decode"]["weights_gib"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("ADAPTER_KERNELS", 0), ("CHECKPOINTING", 1), ("SPARE", 4.0)]
)
def test_a_worse_model_is_noticed(
    plan: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    monkeypatch.setattr(costs, name, value)
    assert not plan.result()["near"]


def test_runs_that_shared_a_gpu_are_not_faster_than_planned() -> None:
    slower = [row["measured_over_predicted"] for row in KEPT["shared_gpu"]]
    assert len(slower) > 10 and min(slower) > 0.75


def test_the_page_has_the_table(plan: ModuleType) -> None:
    page = (FOLDER.parent / "docs" / "plan.md").read_text(encoding="utf-8")
    assert plan.table(KEPT["without_the_setting"]) in page
    other_model = max(abs(row["error"]) for row in KEPT["without_the_model"])
    assert f"within {100 * other_model:.0f} %" in page
    single = KEPT["worst_single"]["tokens_per_s"]
    assert f"off by up to {100 * single:.0f} %" in " ".join(page.split())
    slower = [row["measured_over_predicted"] for row in KEPT["shared_gpu"]]
    assert len(slower) == 13 and f"{min(slower):.1f} to {max(slower):.1f} times" in page
