"""`tacit serve` from the command line: runs and recipes, mistakes, load, and the way out."""

import asyncio
import json
import os
import platform
import signal
import socket
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tacit.config.file import parse_config
from tacit.serve.admission import ServerLimits
from tacit.serve.serving import within_deadline
from tacit.tasks import BENCHMARKS, answer_form, find_benchmark, load_tasks
from tests.helpers.commands import tacit_
from tests.helpers.load import Told, load
from tests.helpers.serving import log_of, served
from tests.helpers.soaks import keep
from tests.helpers.training_runs import finish, start, tree

ASK = {"messages": [{"role": "user", "content": "What is 37 + 48 - 15?"}], "tacit": True}


def refused(here: Path, *arguments: str, **variables: str) -> str:
    """The one sentence with which the command gives up, before it has loaded a model."""
    done = tacit_(here, "serve", *arguments, **variables)
    assert done.returncode == 2 and done.stdout == "", done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("tacit: ")


def test_models_behind_a_url_are_given_up_before_the_client_is() -> None:
    far = {"engine": "api", "model": "m", "base_url": "http://localhost:1/v1"}
    config = parse_config({"models": {"far": far, "near": {**far, "deadline": 2.0}}})
    models = within_deadline(config, ServerLimits(deadline=10.0)).models
    assert (models["far"].deadline, models["near"].deadline) == (8.0, 2.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pocket-hnt"], "did you mean `pocket-hint`?"),
        (["pocket-compare"], "serves the config's `team:`, and there is none"),
        (["pocket-hint", "--host", "0.0.0.0"], "environment variable TACIT_API_KEY, or insist"),
        (["pocket-hint", "--host", "203.0.113.7", "--without-key"], "cannot listen on 203.0.113.7"),
        (["pocket-hint", "--actor-url", "host"], "--actor-url: `host` is no URL"),
        (["pocket-hint", "--actor-model", "m"], "the server at --actor-url: give both"),
        (
            ["pocket-hint", "--actor-url", "http://host/v1", "--instruction", "Be brief."],
            "an Actor at --actor-url is told by its client",
        ),
        (
            ["pocket-dialogue", "--actor-url", "http://host/v1"],
            "the team (dialogue) has no `actor` to stand for",
        ),
        (["pocket-hint", "tasks.name=nowhere.jsonl"], "or say how to answer with --instruction"),
        (["pocket-hint", "team.topology=hint_acter"], "did you mean `hint_actor`?"),
        (["pocket-hint", "--request-budget", "tokns=9"], "did you mean `tokens`?"),
        (["pocket-hint", "--request-budget", "turns=0"], "turns must be a whole number above 0"),
        (["pocket-hint", "--conversation-budget", "money=1"], "set `prices: …`"),
        (["pocket-hint", "--stop-when", "agred"], "did you mean `agreed`?"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(tmp_path: Path, arguments: list[str], says: str) -> None:
    assert says in refused(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_keys_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    told = refused(tmp_path, "pocket-hint", "--without-key", TACIT_API_KEY="k")
    assert "--without-key, but TACIT_API_KEY holds a key" in told
    told = refused(
        tmp_path, "pocket-hint", "--actor-url", "http://h/v1", TACIT_API_KEY="k", OPENAI_API_KEY=""
    )
    assert "the Actor's own key must be in the environment variable OPENAI_API_KEY" in told


def test_a_taken_port_is_told_before_a_model_loads(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = refused(tmp_path, "pocket-hint", "--port", port)
    assert told.startswith(f"cannot listen on 127.0.0.1 port {port} (Address already in use)")


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_how_to_answer_is_known_without_a_benchmarks_files(name: str, data_dir: Path) -> None:
    split = next(iter(find_benchmark(name).splits))
    task = load_tasks(name, split=split, folder=data_dir, limit=1, allow_canaried=True)[0]
    assert answer_form(name) == (task.grader, task.instruction)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("trained")
    (here / "tiny.json").write_text(json.dumps(tree(train={"steps": 2})))
    finish(start(here, "tiny.json", "--out", "run"))
    return here


def test_a_run_is_served_with_its_best_weights_and_without_its_tasks(trained: Path) -> None:
    best = json.loads((trained / "run/checkpoints/best.json").read_text())["step"]
    with served(trained, "run", "--name", "my-team", "--without-key") as (url, process):
        said = httpx2.post(f"{url}/chat/completions", json=ASK | {"model": "my-team"}, timeout=60)
        log_of(process)
    hinter, actor = said.json()["tacit"]["conversation"]
    assert (hinter["version"], actor["version"]) == (best, 0)
    config = json.loads((trained / "run/config.json").read_text())
    config["train_tasks"] = config["tasks"] = {"name": "gsm8k"}
    (trained / "run/config.json").write_text(json.dumps(config))
    with served(trained, "run", TACIT_DATA="") as (url, process):
        body = ASK | {"model": "tiny"}
        elsewhere = httpx2.post(f"{url}/chat/completions", json=body, timeout=60).json()
        log_of(process)
    assert elsewhere["tacit"]["conversation"][0]["text"] == hinter["text"]


def test_a_runs_collaborator_helps_a_foreign_actor(trained: Path) -> None:
    with (
        served(trained, "pocket-hint", "team={topology: solo, agents: {actor: {}}}") as (
            actor,
            _,
        ),
        served(trained, "run", "--actor-url", actor, "--actor-model", "pocket-hint") as (url, _),
    ):
        body = ASK | {"model": "pocket-hint"}
        helped = httpx2.post(f"{url}/chat/completions", json=body, timeout=60).json()
        models = httpx2.get(f"{url}/models", timeout=60).json()
    hinter, acted = helped["tacit"]["conversation"]
    assert hinter["agent"] == "hinter" and acted["model"] == "pocket-hint"
    assert helped["choices"][0]["message"]["content"] == acted["text"]
    assert [model["id"] for model in models["data"]] == ["tiny", "pocket-hint"]


def test_money_is_counted_by_the_configs_prices(tmp_path: Path) -> None:
    models = {"pocket": {"input": 1000, "output": 50_000}, "dear": {"input": 9, "output": 10**9}}
    (tmp_path / "prices.yaml").write_text(json.dumps({"date": "2026-01-01", "models": models}))
    options = ("prices=prices.yaml", "--request-budget", "money=100", "--answer-tokens", "9")
    with served(tmp_path, "pocket-hint", *options) as (url, process):
        body = ASK | {"model": "pocket-hint"}
        reply = httpx2.post(f"{url}/chat/completions", json=body, timeout=60).json()
        log_of(process)
    usage, budget = reply["usage"], reply["tacit"]["budget"]["request"]["money"]
    assert reply["tacit"]["conversation"][0]["agent"] == "hinter", "a model nobody uses is not dear"
    paid = usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 50000
    assert budget == {"limit": 100.0, "spent": pytest.approx(paid / 1e6)}


def test_sigterm_under_load_loses_no_accepted_request(tmp_path: Path) -> None:
    """Whoever was let in hears all of its answer; the others are refused before they hear any."""
    told = Told()
    with served(tmp_path, "pocket-hint", "--places", "8") as (url, process):

        def stop() -> None:
            while told.whole < 16:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)

        threading.Thread(target=stop, daemon=True).start()
        asyncio.run(load(url, 16, "pocket-hint", lambda: True, told))
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert log.count("POST /v1/chat/completions 200") == told.whole >= 16
    after = log.split("stopping: ")[1]
    assert "POST /v1/chat/completions 200" in after, "some were under way"
    assert "could not be finished" not in log and log.endswith("stopped\n")
    assert told.outcomes["503"] >= 1 and sum(told.outcomes.values()) - told.whole == 16
    assert not [what for what in told.outcomes if what.startswith(("broke", "cut"))]
    assert all(len(answers) == 1 for answers in told.answers.values())


def soak(here: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Streaming clients without a pause, then a look at what they and the server saw."""
    with served(here, "pocket-hint", "--quiet") as (url, process):
        until = time.monotonic() + seconds
        told = asyncio.run(load(url, clients, "pocket-hint", lambda: time.monotonic() < until))
        page = httpx2.get(url.removesuffix("/v1") + "/metrics").text
        log = log_of(process)
    assert told.outcomes == {"whole": told.whole} and told.whole >= clients, told.outcomes
    assert f'completions",status="200"}} {float(told.whole)}' in page
    assert "tacit_requests_inside 0.0" in page and "tacit_chats_failed_total{" not in page
    assert all(len(answers) == 1 for answers in told.answers.values()), "greedy: always the same"
    assert log == "stopped\n", "not one warning"
    seconds_each = sorted(told.seconds)
    return {
        "clients": clients,
        "seconds": seconds,
        "requests": told.whole,
        "errors": 0,
        "seconds_p50": round(seconds_each[len(seconds_each) // 2], 3),
        "seconds_p95": round(seconds_each[int(0.95 * len(seconds_each))], 3),
        "seconds_most": round(seconds_each[-1], 3),
    }


def test_streaming_clients_at_once_without_an_error(tmp_path: Path) -> None:
    soak(tmp_path, clients=16, seconds=3)


@pytest.mark.soak
def test_soak_64_streaming_clients_for_two_minutes(tmp_path: Path) -> None:
    found = soak(tmp_path, clients=64, seconds=120)
    result = {
        "what": "streaming clients on the untrained pocket-hint team, each asking again at once",
        "command": "pytest -m soak tests/serve/test_serving.py",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "starlette", "uvicorn")},
        "cores": os.cpu_count(),
        **found,
    }
    keep("serve_soak.json", result)
