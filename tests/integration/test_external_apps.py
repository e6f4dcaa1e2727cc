"""A LangGraph graph and an Agents SDK team: the episodes of a topology of ours, and trained."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tacit.cli.training import run_training
from tacit.config import Config, ModelConfig
from tacit.config.file import parse_config
from tacit.engine.factory import open_engine
from tacit.rollout.play import Job, play_all
from tacit.tasks import load_tasks
from tacit.team.roster import build_roster
from tacit.team.setting import Setting
from tacit.types import Choice, Episode

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    package: str
    twin: str
    """The topology of ours that does the same."""
    trained: str


THEM = {
    "langgraph_team": Example("langgraph", "hint_actor", "hinter"),
    "agents_sdk_team": Example("agents", "critic_actor", "critic"),
}


@pytest.fixture(params=THEM)
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    pytest.importorskip(THEM[request.param].package, reason="extra `integration` is not installed")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module(request.param)
    torch.use_deterministic_algorithms(False)


def said(episode: Episode) -> list[Any]:
    calls = [(c.agent, c.prompt_ids, c.output_ids, c.logprobs, c.silent) for c in episode.calls]
    return [calls, episode.answer, episode.grade, episode.path_tokens]


@pytest.mark.parametrize("choice", [Choice.SPEAK, Choice.SILENT])
async def test_it_plays_the_episodes_of_its_twin(module: ModuleType, choice: Choice) -> None:
    example, team = THEM[module.__name__], module.config(1).team
    twin = team.model_copy(update={"topology": example.twin, "options": {}})
    engine = open_engine("pocket", ModelConfig())
    setting = Setting(choices={example.trained: choice})
    jobs = [Job(task, setting) for task in load_tasks("arithmetic", split="test", limit=3)]
    try:
        theirs, ours = [
            await play_all(build_roster(one, dict.fromkeys(team.agents, engine)), jobs)
            for one in (team, twin)
        ]
    finally:
        await engine.close()
    assert all(episode.grade for episode in ours)
    assert [said(episode) for episode in theirs] == [said(episode) for episode in ours]


def small(config: Config) -> Config:
    tree = config.model_dump(mode="json")
    tree["tasks"]["limit"], tree["train_tasks"]["limit"] = 4, 40
    tree["evaluation"]["resamples"] = 50
    tree["silence"]["warmup_steps"] = 0
    tree["train"] |= {"tasks_per_step": 2, "group": 4, "evaluate_every": 0}
    return parse_config(tree)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_it_is_trained(module: ModuleType, tmp_path: Path) -> None:
    config = small(module.config(2))
    result = await run_training(config, tmp_path / "run")
    assert result["steps"] == 2 and result["teams"]["trained"]["failed"] == 0
    steps = [line for line in lines(tmp_path / "run" / "metrics.jsonl") if "train/ratio" in line]
    assert len(steps) == 2 and any(line["train/gradient_norm"] > 0 for line in steps)
    for line in steps:  # the learner's own log-probabilities are those that were sampled with
        assert line["train/mismatch_ratio"] == pytest.approx(1.0, abs=1e-3)
    for line in lines(tmp_path / "run" / "episodes" / "train.jsonl"):
        trained = [call for call in line["calls"] if call["policy"]]
        assert [call["agent"] for call in trained] == [THEM[module.__name__].trained]
        assert len(trained[0]["output_ids"]) == len(trained[0]["logprobs"]) > 0
