"""`--dry-run` beside the run it speaks of: near in tokens, and nothing left behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.cli.commands import run_evaluation
from tacit.cli.training import run_training
from tacit.config import Config
from tacit.config.file import load_config, parse_config
from tacit.errors import ConfigError, SpendCap
from tacit.plan.dry_run import dry_run
from tacit.run.folder import RunFolder
from tacit.run.opening import prices_of
from tacit.run.spending import Spending
from tacit.types import Receipt, Usage
from tests.helpers.loopback import Server, by_hash, completion
from tests.helpers.training_runs import tree


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
    await run_evaluation(config, tmp_path / "run")
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
    told = await dry_run(config, training=True)
    await run_training(config, tmp_path)
    real = sum(
        usage["prompt"] + usage["generated"]
        for line in (tmp_path / "timing.jsonl").read_text().splitlines()
        for usage in json.loads(line)["usage"].values()
    )
    for name in ("solo", "team without helpers"):
        real += sum(episode.usage.total for episode in RunFolder(tmp_path).episodes(name))
    assert abs(told["tokens"] / real - 1) < 0.2
    parts = {"training", "silent arm", "budget check", "evaluations", "solo"}
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
        told = await dry_run(far(server, tmp_path, spend_cap=5.0), training=False)
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
            await dry_run(capped, training=False)
        asked = len(server.asked)
    finally:
        server.stop()
    assert asked == 8, "the first episode, which showed what the others would cost"


async def test_what_a_run_has_spent_counts_in_its_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server, run = Server(by_hash), tmp_path / "run"
    config = far(server, tmp_path, spend_cap=5.0)
    spending = Spending(RunFolder.open(run, config), prices_of(config))
    how: Any = {"training": False, "folder": run}
    answer: Any = {"model": "far", "served": "far", "fingerprint": "", "time": ""}
    try:
        assert (await dry_run(config, **how))["within_cap"]
        spending.pay(Receipt(**answer, usage=Usage(prompt=4_999_000)))
        assert not (await dry_run(config, **how))["within_cap"]
        shown = " ".join(capsys.readouterr().out.split())
        assert "(0.001 of spend_cap 5 left)" in shown and "it will stop there" in shown
        asked = len(server.asked)
        spending.pay(Receipt(**answer, usage=Usage(prompt=1000)))
        before = (run / "spend.jsonl").read_bytes()
        with pytest.raises(SpendCap, match=r"5\.0000 of 5 USD are spent"):
            await dry_run(config, **how)
    finally:
        server.stop()
    assert len(server.asked) == asked, "nothing is left for a sample"
    assert (run / "spend.jsonl").read_bytes() == before
    assert {path.name for path in run.iterdir()} == {"config.json", "spend.jsonl"}


def tiny(server: Server, folder: Path, **changed: Any) -> Config:
    """The tiny training run, with its Actor behind the server's URL."""
    whole = far(server, folder).model_dump(mode="json") | tree(**changed)
    whole["team"]["agents"]["actor"]["model"] = "far"
    prices = "{far: {input: 1.0, output: 10.0}, pocket: {input: 0, output: 0}}"
    (folder / "prices.yaml").write_text(f"date: 2026-01-01\nmodels: {prices}\n")
    return parse_config(whole)


async def test_what_training_refuses_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server = Server(by_hash)
    try:
        impossible = tiny(server, tmp_path, budget={"tokens": 1})
        for run in (
            lambda: dry_run(impossible, training=True),
            lambda: run_training(impossible, tmp_path / "run"),
        ):
            with pytest.raises(ConfigError, match=r"budget\.tokens"):
                await run()
        RunFolder.open(tmp_path / "other", tiny(server, tmp_path, seed=9))
        fine = tiny(server, tmp_path, budget={"tokens": 60})
        for training in (True, False):
            with pytest.raises(ConfigError, match=r"another config \(seed differ\)"):
                await dry_run(fine, training=training, folder=tmp_path / "other")
        with pytest.raises(ConfigError, match="has no checkpoint"):
            await dry_run(fine, training=True, start=str(tmp_path / "other"))
    finally:
        server.stop()


async def test_the_sample_of_a_small_run_is_no_larger_than_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server = Server(by_hash)
    once = {"steps": 1, "tasks_per_step": 1, "group": 2}
    config = tiny(server, tmp_path, train=once, tasks={"limit": 1}, budget={"tokens": 60})
    config = config.model_copy(update={"spend_cap": 1e-6})
    free = config.model_copy(update={"spend_cap": None})
    try:
        told = await dry_run(free, training=True)
        sampled = len(server.asked)
        await run_training(free, tmp_path / "run")
        paid = len(server.asked) - sampled
        assert sampled <= paid
        assert told["parts"]["budget check"] > 0 and told["within_cap"]
        with pytest.raises(SpendCap):
            await dry_run(config, training=True)
        assert len(server.asked) == sampled + paid + 1
        with pytest.raises(ConfigError, match="is done after step 1"):
            await dry_run(free, training=True, folder=tmp_path / "run")
    finally:
        server.stop()


async def test_the_judge_is_paid_and_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    server = Server(lambda sent: completion(r"\boxed{7}"))
    line = '{"question": "Why %d?", "answer": "-", "grader": "judge"}\n'
    (tmp_path / "open.jsonl").write_text("".join(line % n for n in range(40)))
    config = far(
        server,
        tmp_path,
        tasks={"name": str(tmp_path / "open.jsonl")},
        judge={"model": "far", "rubric": "Be right."},
    )
    try:
        told = await dry_run(config, training=False)
    finally:
        server.stop()
    assert told["models"]["far"]["calls"] == 80, "an answer and a mark for each of 40 tasks"
    assert told["parts"]["judge"] > 0
