"""`--dry-run` beside the run it speaks of: near in tokens, and nothing left behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from loopback import Server, by_hash
from tacit.commands import run_evaluation
from tacit.config import Config
from tacit.configfile import load_config, parse_config
from tacit.dryrun import dry_run
from tacit.errors import SpendCap
from tacit.runfolder import RunFolder
from tacit.training import run_training
from training_runs import tree


@pytest.fixture(autouse=True)
def plain_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def tokens_of(folder: Path) -> int:
    return sum(
        episode.usage.total
        for file in (folder / "episodes").glob("*.jsonl")
        for episode in RunFolder(folder).episodes(file.stem)
    )


async def test_the_pocket_comparison_takes_what_was_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    without = {"debate": None, "self-consistency": None, "untrained critic": None}
    short = {"extends": "pocket-compare", "tasks": {"limit": 40}, "evaluation": {"resamples": 50}}
    Path("short.json").write_text(json.dumps({**short, "teams": without}))
    config = load_config("short.json")
    Path("short.json").unlink()
    told = await dry_run(config, training=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == told
    assert not list(tmp_path.iterdir()), "nothing is written"
    await run_evaluation(config, tmp_path / "run", as_json=True)
    real = tokens_of(tmp_path / "run")
    assert abs(told["tokens"] / real - 1) < 0.2
    assert told["sample"]["episodes"] == 3 * 16, "two teams, one of them without helpers too"
    assert told["models"].keys() == {"pocket"} and told["money"] is None


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
async def test_a_training_run_takes_what_was_foretold(tmp_path: Path, temperature: float) -> None:
    """A few steps change little: what a budget does to a long run is in benchmarks/dry_run.py."""
    solo = {"solo": {"topology": "solo", "agents": {"actor": {"max_tokens": 16}}}}
    steps = {"steps": 4, "tasks_per_step": 3, "group": 3}
    whole = tree(train=steps, teams=solo, budget={"tokens": 60})
    whole["team"]["agents"]["actor"]["temperature"] = temperature
    config = parse_config(whole)
    told = await dry_run(config, training=True, as_json=True)
    await run_training(config, tmp_path, as_json=True)
    real = sum(
        usage["prompt"] + usage["generated"]
        for line in (tmp_path / "timing.jsonl").read_text().splitlines()
        for usage in json.loads(line)["usage"].values()
    )
    for name in ("solo", "team without helpers"):
        real += sum(episode.usage.total for episode in RunFolder(tmp_path).episodes(name))
    assert abs(told["tokens"] / real - 1) < 0.2
    parts = {"training", "silent arm", "evaluations", "solo"}
    alone = set() if temperature else {"evaluations without helpers"}
    assert told["parts"].keys() == parts | alone


def far(server: Server, folder: Path, **changed: Any) -> Config:
    prices = folder / "prices.yaml"
    prices.write_text("date: 2026-01-01\nmodels: {far: {input: 1.0, output: 10.0}}\n")
    model = {"engine": "api", "model": "far", "base_url": server.url, "requests_per_minute": 600}
    whole = {
        "tasks": {"name": "arithmetic", "limit": 100},
        "models": {"far": {**model, "api_key_env": "TACIT_TEST_KEY"}},
        "team": {"topology": "solo", "agents": {"actor": {"model": "far"}}},
        "prices": str(prices),
        **changed,
    }
    return parse_config(whole)


async def test_a_model_behind_a_url_is_priced_and_the_sample_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server = Server(by_hash)
    try:
        told = await dry_run(far(server, tmp_path, spend_cap=5.0), training=False, as_json=False)
        asked = len(server.asked)
    finally:
        server.stop()
    assert asked == 16 == told["spend"]["models"][0]["calls"]
    need = told["models"]["far"]
    assert need["calls"] == 100
    assert told["money"] == pytest.approx((need["prompt"] + 10 * need["generated"]) / 1e6)
    assert told["seconds"] >= 100 / 600 * 60, "no faster than the limit on requests"
    shown = " ".join(capsys.readouterr().out.split())
    assert "tokens, give or take" in shown
    assert f"{told['money']:.4f} USD at the prices of 2026-01-01 (spend_cap 5)" in shown
    assert "less what kept answers will save" in shown


async def test_the_sample_is_not_paid_beyond_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server = Server(by_hash)
    vote = {"topology": "self_consistency", "agents": {"actor": {"model": "far"}}}
    capped = far(server, tmp_path, spend_cap=1e-6, teams={"vote": vote, "again": vote})
    try:
        with pytest.raises(SpendCap, match="the spend cap is reached"):
            await dry_run(capped, training=False, as_json=False)
        asked = len(server.asked)
    finally:
        server.stop()
    assert asked == 16 * 8, "the first team's episodes, which began before anything was paid"
