"""vLLM itself behind the engine: log-probabilities, silence, new weights, a few training steps.

Needs the extra `vllm` and a minute for each server. `pytest -m vllm` runs it.
"""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config import Config, ModelConfig, PolicyConfig
from tacit.config.file import parse_config
from tacit.engine.base import Completion, Request, Sampling, SilenceRule
from tacit.engine.load import LoadedModel, load_model
from tacit.errors import ConfigError
from tacit.learn.assemble import open_training
from tacit.learn.loop import Trainer
from tacit.learn.policy import Policy, build_policies
from tacit.learn.score import score
from tacit.run.folder import RunFolder
from tacit.types import ChatMessage, Choice, Episode
from tacit.vllm.vllm_engine import VllmEngine, serve
from tacit.vllm.weight_sync import serve_policy
from tests.helpers.tiny_models import tiny_model
from tests.helpers.training_runs import tree

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)"
    ),
    pytest.mark.filterwarnings("default"),  # its own are not ours to mend
]

MESSAGES = (ChatMessage("user", "what is 12 + 34?"),)


def made(path: Path, *, tied: bool) -> Path:
    """A model of a shape that vLLM has CPU kernels for."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "head_dim": 64}
    model = tiny_model("llama", **shape, tie_word_embeddings=tied)
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("model"), tied=True)


def config_of(folder: Path, **changed: Any) -> Config:
    served = {"engine": "vllm", "path": str(folder), "rows": 8, "kv_gib": 0.05}
    agents = {
        "hinter": {"model": "tiny", "max_tokens": 24, "trained": True},
        "actor": {"model": "tiny", "max_tokens": 8},
    }
    team = {"topology": "hint_actor", "agents": agents}
    return parse_config(tree(models={"tiny": served}, team=team, budget={"tokens": 60}, **changed))


def policy_on(loaded: LoadedModel, kind: str) -> Policy:
    config = PolicyConfig(kind=kind, rank=4)  # type: ignore[arg-type]
    return build_policies({"hinter": "team"}, {"hinter": loaded}, config, seed=0)["team"]


def request(engine: VllmEngine, choice: Choice, seed: int, **sampling: Any) -> Request:
    settings = {"temperature": 1.0, "max_tokens": 24, **sampling}
    return Request(
        messages=MESSAGES,
        prompt_ids=engine.encode(MESSAGES),
        sampling=Sampling(**settings),
        seed=seed,
        silence=SilenceRule(ids=engine.silence_ids(), choice=choice),
    )


@torch.no_grad()
def gap(policy: Policy, asked: Request, done: Completion) -> float:
    """How far the engine's log-probabilities are from the trainer's, at the worst token."""
    assert asked.silence is not None and done.silence_logprob is not None
    rows = [(asked.prompt_ids, done.ids), (asked.prompt_ids, asked.silence.ids)]
    with policy.on():
        scores = score(policy.loaded.module, rows)
    mine = scores.logprobs_BT[0, : len(done.ids)]
    log_p = float(scores.logprobs_BT[1, : len(asked.silence.ids)].sum())
    theirs = torch.tensor(done.logprobs)
    if asked.silence.choice is Choice.SPEAK:  # log q, which the marker's prefixes share out
        mine = mine.sum() - math.log1p(-math.exp(log_p))
        theirs = theirs.sum()
    return max(float((mine - theirs).abs().max()), abs(log_p - done.silence_logprob))


@torch.no_grad()
def stir(policy: Policy) -> None:
    """A change of the weights that no output survives."""
    generator = torch.Generator().manual_seed(1)
    for weight in policy.parameters.values():
        weight.add_(0.3 * torch.randn(weight.shape, generator=generator) * weight.std().clamp(0.05))


@pytest.mark.parametrize(("kind", "tied"), [("lora", True), ("full", True), ("full", False)])
async def test_it_speaks_as_the_trainer_would_before_and_after_an_update(
    tmp_path: Path, kind: str, tied: bool
) -> None:
    folder = made(tmp_path, tied=tied)
    policy = policy_on(load_model(str(folder), name="tiny"), kind)
    model = config_of(folder).models["tiny"]
    frozen = VllmEngine(serve("tiny", model, adapters=1, rank=4)) if kind == "lora" else None
    engine = serve_policy(policy, model, frozen)
    try:
        before = []
        for version in (0, 1):
            for choice in (Choice.FREE, Choice.SPEAK, Choice.SILENT):
                for seed in range(4):
                    asked = request(engine, choice, seed)
                    done = await engine.generate(asked)
                    assert done.version == version
                    assert gap(policy, asked, done) < 1e-3, (version, choice, seed)
            greedy = request(engine, Choice.FREE, 0, temperature=0.0)
            before.append((await engine.generate(greedy)).logprobs)
            same = request(engine, Choice.FREE, 3)
            assert (await engine.generate(same)).ids == (await engine.generate(same)).ids
            if version == 0:
                stir(policy)
                async with engine.paused():
                    await engine.refresh(1)
        assert before[0] != before[1], "an update changes what is said"
        if frozen:
            unmoved = await frozen.generate(request(frozen, Choice.FREE, 0, temperature=0.0))
            assert unmoved.logprobs == pytest.approx(before[0], abs=1e-5)
            assert unmoved.version == 0
    finally:
        await engine.close()
        if frozen:
            await frozen.close()


def oddness(episode: Episode) -> float:
    """A reward that random weights can earn."""
    ids = episode.calls[0].output_ids
    return sum(i % 2 for i in ids) / len(ids)


async def test_a_team_trains_through_it(folder: Path, tmp_path: Path) -> None:
    reward = {"parts": {"oddness": "tests.integration.test_vllm:oddness"}}
    config = config_of(folder, train={"steps": 3, "evaluate_every": 0}, reward=reward)
    run = RunFolder.check(tmp_path / "run", config)
    lines: list[dict[str, float]] = []
    async with open_training(config) as made:
        trainer = Trainer(made, run, on_step=lines.append)
        await trainer.train()
        versions = [engine.version for engine in made.trained_engines]
    assert versions == [3]
    steps = [line for line in lines if "train/engine_gap" in line]
    assert len(steps) == 3
    for line in steps:
        assert line["train/engine_gap"] < 1e-4, "the engine samples from the weights that learn"
        assert line["train/gradient_norm"] > 0
    records = (tmp_path / "run" / "episodes" / "train.jsonl").read_text().splitlines()
    for record in map(json.loads, records):
        hint = record["calls"][0]
        assert hint["policy"] == "team" and hint["version"] == record["step"] - 1
        assert hint["silence_logprob"] < 0


async def test_what_vllm_cannot_open_is_said_in_a_sentence(folder: Path) -> None:
    with pytest.raises(ConfigError, match="rank 512 at most"):
        serve("tiny", ModelConfig(engine="vllm", path=str(folder)), adapters=1, rank=1000)
