"""A llama.cpp server as the Actor: the pocket model's GGUF behind a URL, and itself in process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch

from tacit.api.api_engine import ApiEngine
from tacit.cli.training import run_training
from tacit.config import ModelConfig, TaskConfig, TeamConfig
from tacit.config.file import parse_config
from tacit.engine.base import Account, Engine, Request, Sampling
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import EngineError
from tacit.export.gguf import write_gguf
from tacit.run.opening import tasks_of
from tacit.serve.proxy import ProxyBackend, with_foreign_actor
from tacit.serve.upstream import Upstream
from tacit.team.roster import build_roster
from tacit.types import ChatMessage, Receipt
from tests.helpers.llama_cpp import llama_server
from tests.helpers.serving import running
from tests.helpers.training_runs import tree


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TACIT_TEST_KEY", "none-needed")
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def pocket() -> LoadedModel:
    return load_model("pocket", name="pocket", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def server(pocket: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("gguf") / "pocket.gguf"
    write_gguf(pocket.module, pocket.tokenizer, path, "pocket")
    yield llama_server(path, context=2048, parallel=8)


def behind(server: Any) -> ModelConfig:
    return ModelConfig(
        engine="api",
        model="pocket",
        base_url=f"{server.listening_address}/v1",
        api_key_env="TACIT_TEST_KEY",
    )


async def test_it_answers_and_counts_as_the_same_model_in_process(
    server: Any, pocket: LoadedModel
) -> None:
    tasks = tasks_of(TaskConfig(name="arithmetic", limit=40))
    near, receipts = LocalEngine(pocket), list[Receipt]()
    far = ApiEngine(behind(server), Account(on_receipt=receipts.append))

    def requests() -> Iterator[Request]:
        for task in tasks:
            said = ChatMessage("system", task.instruction), ChatMessage("user", task.question)
            sampling = Sampling(max_tokens=16)
            yield Request(messages=said, prompt_ids=near.encode(said), sampling=sampling)

    answers = await asyncio.gather(*map(far.generate, requests()))
    expected = await asyncio.gather(*map(near.generate, requests()))
    assert [(a.text, a.stop) for a in answers] == [(e.text, e.stop) for e in expected]
    assert [a.usage.prompt for a in answers] == [e.usage.prompt for e in expected]
    assert [a.usage.generated for a in answers] == [e.usage.generated for e in expected]
    assert len(receipts) == 40
    assert {(r.served, r.fingerprint) for r in receipts} == {
        (answers[0].model, answers[0].fingerprint)
    }
    assert answers[0].model.endswith("pocket.gguf") and answers[0].fingerprint
    await near.close()
    await far.close()


async def test_a_prompt_that_does_not_fit_is_told_in_the_servers_words(server: Any) -> None:
    engine = ApiEngine(behind(server))
    request = Request(
        messages=(ChatMessage("user", "What is 1 + 1? " * 400),), sampling=Sampling(max_tokens=4)
    )
    with pytest.raises(EngineError, match=r"(?i)context size.*HTTP 400"):
        await engine.generate(request)
    await engine.close()


async def test_training_against_it_is_training_against_the_model_itself(
    server: Any, tmp_path: Path
) -> None:
    """The Collaborator learns the same, line for line, whoever runs the frozen Actor."""
    runs = {}
    for where in ("near", "far"):
        whole = tree(train={"steps": 2, "evaluate_every": 2})
        if where == "far":
            whole["models"] = {"far": behind(server).model_dump()}
            whole["team"]["agents"]["actor"]["model"] = "far"
        await run_training(parse_config(whole), tmp_path / where)
        runs[where] = (tmp_path / where / "metrics.jsonl").read_text().splitlines()
    assert len(runs["near"]) == 4
    assert runs["far"] == runs["near"]


def test_a_collaborator_in_front_helps_it(server: Any) -> None:
    """The openai SDK asks our proxy, and that asks llama.cpp, which serves the pocket model."""
    team = TeamConfig.model_validate(
        {"topology": "hint_actor", "agents": {"hinter": {}, "actor": {}}}
    )
    engines: dict[str, Engine] = {
        "hinter": ScriptedEngine(lambda request: "37 + 48 = 85. 85 - 15 = 70."),
        "actor": ScriptedEngine(()),
    }
    roster = build_roster(with_foreign_actor(team), engines)
    upstream = Upstream(f"{server.listening_address}/v1", None, pass_keys=True)
    with running(ProxyBackend("team", roster, upstream, "pocket")) as proxy:
        client = openai.OpenAI(base_url=proxy.url, api_key="none", max_retries=0)
        asked: Any = {
            "model": "team",
            "messages": [
                {"role": "system", "content": "Put the answer within \\boxed{}."},
                {"role": "user", "content": "What is 37 + 48 - 15?"},
            ],
            "temperature": 0,
            "max_tokens": 12,
        }
        whole = client.chat.completions.create(**asked)
        stream = client.chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        client.close()
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content == "\\boxed{70}"
    assert whole.usage is not None and chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
