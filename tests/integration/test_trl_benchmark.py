"""The comparison with TRL runs, on equal terms. How fast either is, is not a test."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytest.importorskip("trl", reason="trl is not installed (extra `integration`)")


@pytest.fixture(scope="module")
def trl_cycle() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trl_cycle", FOLDER / "trl_cycle.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trl_cycle"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The program's own file, from its smallest setting: a few tokens each."""
    out = tmp_path_factory.mktemp("cpu") / "cpu.json"
    command = [sys.executable, str(FOLDER / "cpu.py"), "--smallest", "--cycles", "2"]
    done = subprocess.run(
        [*command, "--threads", "1", "--out", str(out)], capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr  # 1: too slow, which is not a test
    assert "TRL's seconds over ours" in done.stdout
    return json.loads(out.read_text())


def test_both_systems_are_timed_in_every_phase(found: dict) -> None:
    pocket = found["pocket"]
    for system in ("ours", "trl"):
        one = pocket[system]
        assert set(one["phases"]) == {"generate", "score", "update"}
        assert all(seconds > 0 for seconds in one["phases"].values())
        assert len(one["seconds_each"]) == len(pocket["ratios"]) == 2
        assert min(one["tokens_per_s"], one["decode_tokens_per_s"], one["peak_gib"]) > 0
    assert min(pocket["ratios"]) <= pocket["ratio"] + 0.01 <= max(pocket["ratios"]) + 0.02


def test_the_file_says_when_where_and_with_what(found: dict) -> None:
    assert {"date", "command", "cores", "torch", "transformers", "trl", "tacit"} <= found.keys()


def test_both_systems_see_the_same_prompts_and_never_stop_early(found: dict) -> None:
    pocket, setting = found["pocket"], found["pocket"]["setting"]
    tokens = setting["prompts"] * setting["group"] * setting["new_tokens"]
    assert pocket["ours"]["tokens_each"] == pocket["trl"]["tokens_each"] == [tokens] * 2
    assert pocket["ours"]["prompt_tokens_each"] == pocket["trl"]["prompt_tokens_each"]


def test_the_end_of_sequence_is_a_token_without_a_logit(trl_cycle: ModuleType) -> None:
    loaded = trl_cycle.open_model(trl_cycle.Setting())
    assert loaded.tokenizer.eos_token_id >= loaded.module.config.vocab_size
    prompts = trl_cycle.make_prompts(loaded.tokenizer, trl_cycle.Setting(prompts=8, most_cycles=1))
    lengths = [len(trl_cycle._encode(loaded.tokenizer, prompt)) for prompt in prompts]
    assert all(55 <= length <= 75 for length in lengths)
    assert len(set(prompts)) == 8
