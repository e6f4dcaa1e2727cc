"""Training and evaluating against an Actor behind a URL: money, losses, and who answers."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.api import limits as api_limits
from tacit.cli.commands import run_evaluation
from tacit.cli.training import run_training
from tacit.config import Config
from tacit.config.file import parse_config
from tacit.errors import EngineError, Refused, RunError, SpendCap
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.run.opening import prices_of
from tacit.run.spending import Spending
from tests.helpers.loopback import Answer, Sent, Server, by_hash, completion, failure
from tests.helpers.training_runs import tree

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TACIT_TEST_KEY", KEY)
    monkeypatch.setattr(api_limits, "FIRST_WAIT", 0.01)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Sent], Answer]], Server]]:
    servers: list[Server] = []

    def start(answers: Callable[[Sent], Answer] = by_hash) -> Server:
        servers.append(Server(answers))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def config(server: Server, folder: Path, cap: float | None = None, **changed: Any) -> Config:
    """The tiny training run with its Actor behind the server's URL, at a euro a token said."""
    prices = folder / "prices.yaml"
    prices.write_text(
        "date: 2026-01-01\ncurrency: EUR\nmodels:\n"
        "  far: {input: 0, output: 1.0e+6}\n  pocket: {input: 0, output: 0}\n"
    )
    whole = tree(
        **{"train": {"steps": 3, "evaluate_every": 2}, "budget": {"tokens": 30}, **changed}
    )
    model = {"engine": "api", "model": "far", "base_url": server.url, "deadline": 20}
    whole["models"] = {"far": {**model, "api_key_env": "TACIT_TEST_KEY"}}
    whole["team"]["agents"]["actor"]["model"] = "far"
    return parse_config({**whole, "prices": str(prices), "spend_cap": cap})


def spent(config: Config, folder: Path) -> float:
    told = Spending(RunFolder(folder), prices_of(config)).to_json()
    return float(told["money"]) if told else 0.0


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


async def test_a_capped_run_stops_at_a_checkpoint_and_goes_on_to_the_same_end(
    serve: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    free, capped = tmp_path / "free", tmp_path / "capped"
    told = await run_training(config(server, tmp_path), free)
    whole = spent(config(server, tmp_path), free)
    assert told["spend"]["money"] == pytest.approx(whole) and told["dropped"] == 0
    assert told["spend"]["models"][0]["served"] == ("far fp_1",)
    assert sum(told["teams"]["trained"]["changed"].values()) == 4

    asked = len(server.asked)
    await run_training(config(server, tmp_path), free)
    assert len(server.asked) == asked, "a finished run pays for nothing again"

    stops, cap = [], 0.0
    while not (capped / "summary.json").exists():
        cap += whole / 5
        try:
            await run_training(config(server, tmp_path, cap), capped)
        except SpendCap as reason:
            assert f"of {cap:g} EUR are spent" in str(reason)
            stops.append(spent(config(server, tmp_path), capped) - cap)
    assert len(stops) >= 3
    batch = max(2 * (3 + 1), 4) * 7  # a step's or an evaluation's calls, at most 7 tokens each
    assert all(0 <= over <= batch for over in stops)
    assert metrics(capped) == metrics(free)
    assert spent(config(server, tmp_path), capped) == whole, "and nothing was paid twice"


async def test_the_budget_check_before_training_is_within_the_cap(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    with pytest.raises(SpendCap, match="larger spend_cap goes on"):
        await run_training(config(server, tmp_path, cap=1e-3), tmp_path / "run")
    assert len(server.asked) == 1, "the first answer shows what the others would cost"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"cache", "spend.jsonl"}


async def test_an_evaluation_stops_within_what_is_under_way(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    solo = {"team": None, "teams": {"solo": {"agents": {"actor": {"model": "far"}}}}}
    few = {"evaluation": {"concurrency": 4, "resamples": 50}, "tasks": {"limit": 60}}
    whole = config(server, tmp_path).model_dump(mode="json") | solo
    for section, values in few.items():
        whole[section] |= values
    short = parse_config(whole | {"spend_cap": 50.0})
    with pytest.raises(SpendCap, match=r"larger spend_cap goes on"):
        await run_evaluation(short, tmp_path / "run")
    over = spent(short, tmp_path / "run") - 50.0
    assert 0 <= over <= 4 * 7
    played = len(server.asked)
    await run_evaluation(parse_config(whole | {"spend_cap": 1e6}), tmp_path / "run")
    assert len(server.asked) == 60 > played


async def test_lost_episodes_are_counted_and_their_siblings_learn(
    serve: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lossy(sent: Sent) -> Answer:
        unlucky = len(json.dumps(sent)) % 4 == 0
        return failure(400, "cannot answer that") if unlucky else by_hash(sent)

    told_to = config(serve(lossy), tmp_path, silence={"exploration": "none"})
    told = await run_training(told_to, tmp_path / "run")
    lines = [line for line in metrics(tmp_path / "run") if "reward/total" in line]
    dropped = (tmp_path / "run/episodes/dropped.jsonl").read_text().splitlines()
    kept = (tmp_path / "run/episodes/train.jsonl").read_text().splitlines()
    assert told["dropped"] == sum(line["episodes/dropped"] for line in lines) == len(dropped) > 0
    assert len(kept) + len(dropped) == 3 * 2 * 3
    assert all("cannot answer that" in json.loads(line)["error"] for line in dropped)
    assert {json.loads(line)["step"] for line in dropped} <= {1, 2, 3}


async def test_a_server_that_dies_stops_the_run_with_its_words_and_loses_nothing(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    answered = 0

    def dying(sent: Sent) -> Answer:
        nonlocal answered
        answered += 1
        return by_hash(sent) if answered <= 30 else failure(503, "out of memory, restarting")

    server, run = serve(dying), tmp_path / "run"
    manners = {"deadline": 1.0}
    whole = config(server, tmp_path).model_dump(mode="json")
    whole["models"]["far"] |= manners
    with pytest.raises(RunError, match="out of memory, restarting"):
        await run_training(parse_config(whole), run)
    kept = Checkpoints(run / "checkpoints").step("last")
    answered = -(10**9)
    await run_training(parse_config(whole), run)
    assert kept is not None and Checkpoints(run / "checkpoints").step("last") == 3


async def test_a_wrong_key_stops_at_once_and_is_written_nowhere(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(lambda sent: failure(401, f"Incorrect API key provided: {KEY}"))
    with pytest.raises(Refused, match=r"Incorrect API key provided: \*\*\*"):
        await run_training(config(server, tmp_path), tmp_path / "run")
    assert len(server.asked) <= 16, "at most what was under way"
    assert all(header["authorization"] == f"Bearer {KEY}" for header in server.headers)


async def test_neither_key_nor_url_of_the_environment_reaches_the_folder(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    await run_training(config(serve(), tmp_path), tmp_path / "run")
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(files) > 8
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


async def test_the_hint_free_answer_is_asked_once_a_task(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    solo = {"solo": {"topology": "solo", "agents": {"actor": {"model": "far", "max_tokens": 16}}}}
    told_to = config(server, tmp_path, teams=solo, train_tasks={"limit": 2})
    await run_training(told_to, tmp_path / "run")
    asked = [json.dumps(sent["messages"]) for sent in server.asked]
    assert len(asked) == len(set(asked)), "a greedy Actor hears no question twice"
    bare = [one for one in asked if "hint" not in one]
    assert len(bare) == 2 + 4, (
        "each training and each held-out task once, solo and silence together"
    )


async def test_a_critics_drafts_are_asked_for_online_and_once_a_task(
    serve: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    team = {
        "topology": "critic_actor",
        "agents": {"actor": {"max_tokens": 16}, "critic": {"max_tokens": 32, "trained": True}},
    }
    told_to = config(server, tmp_path, team=team, train_tasks={"limit": 2})
    told = await run_training(told_to, tmp_path / "run")
    asked = [json.dumps(sent["messages"]) for sent in server.asked]
    drafts = [one for one in asked if "Solution so far" not in one]
    assert len(drafts) == len(set(drafts)) == 2 + 4
    assert len(asked) > len(drafts), "and there were revisions"
    assert sum(told["teams"]["untrained"]["changed"].values()) == 4


async def test_a_changed_model_is_said(
    serve: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = 0

    def rotating(sent: Sent) -> Answer:
        nonlocal calls
        calls += 1
        return completion(r"\boxed{1}", system_fingerprint="fp_new" if calls > 5 else "fp_old")

    await run_training(config(serve(rotating), tmp_path), tmp_path / "run")
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("now answers as `served-model-0613 fp_new`") == 1


def test_the_errors_are_what_they_are_called() -> None:
    assert issubclass(SpendCap, RunError) and issubclass(Refused, EngineError)
