"""Speed on one GPU, beside TRL and beside what the hardware allows, in one run.

    python benchmarks/gpu.py --small models/smollm2-135m --large models/qwen --data data \
        --out benchmarks/results/gpu.json

Sections: `ceilings` (copy bandwidth, 8192³ bf16 product), `cycle` (one learning cycle of the small
model, ours and TRL's taking turns), `saving` (the same with gradient checkpointing), `queue` (512
to 4,096 waiting sequences), `decode` (the large model, 256 rows, 512 tokens for each GSM8K
question), `update` (its full fine-tuning at 512 tokens), `team` (512 episodes of hint-actor with an
adapter, by phase), `start` (seconds from launch to the first finished cycle, kernels compiled
before and not). One that fails says so; the others go on.
Sections that are not asked for stay as they are in the file, each with its date.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from trl_cycle import Setting, compare, open_model

from tacit.config import Config, OptimizerConfig, PolicyConfig, TrainConfig
from tacit.config.file import parse_config
from tacit.engine.base import Completion, Request, Sampling, derive_seed
from tacit.engine.gc_freeze import gc_frozen
from tacit.engine.local import LocalEngine
from tacit.learn.assemble import open_training
from tacit.learn.batch import Row
from tacit.learn.loop import Trainer
from tacit.learn.policy import build_policies
from tacit.learn.update import Updater
from tacit.run.folder import RunFolder
from tacit.tasks import load_tasks
from tacit.types import ChatMessage

Numbers = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", required=True, help="SmolLM2-135M's folder")
    parser.add_argument(
        "--large", help="Qwen2.5-Coder-1.5B's folder; its sections are left out without"
    )
    parser.add_argument("--data", help="the benchmarks' files, for GSM8K")
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--cycles", type=int, default=8, help="timed, after two to warm up")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    kept = json.loads(asked.out.read_text()) if asked.out and asked.out.exists() else {}
    result: Numbers = {name: kept[name] for name in SECTIONS if name in kept} | {
        "command": "python benchmarks/gpu.py --small SMOLLM2-135M --large QWEN2.5-CODER-1.5B "
        f"--data DATA --cycles {asked.cycles}",
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "triton": version("triton"),
        "trl": version("trl"),
    }
    for name in asked.sections:
        if name in NEED_LARGE and not asked.large:
            continue
        print(f"{name} …", flush=True)
        began = time.perf_counter()
        torch.cuda.reset_peak_memory_stats()
        try:
            with gc_frozen():
                result[name] = SECTIONS[name](asked)
        except Exception as error:
            traceback.print_exc()
            result[name] = {"failed": f"{type(error).__name__}: {error}"}
        result[name]["section_s"] = round(time.perf_counter() - began, 1)
        result[name]["date"] = date.today().isoformat()
        torch.cuda.empty_cache()
        print(json.dumps(result[name], indent=1), flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def ceilings(_: argparse.Namespace) -> Numbers:
    """What this card does at best: copied bytes a second, and bf16 multiply-adds."""
    source = torch.empty(2**32, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_s = _seconds(lambda: target.copy_(source))
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    product_s = _seconds(lambda: a @ b)
    return {
        "bytes_per_s": 2 * source.numel() / copy_s,
        "flops_per_s": 2 * 8192**3 / product_s,
    }


def _seconds(work: Callable[[], object], times: int = 10) -> float:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def _small(asked: argparse.Namespace, **changed: Any) -> Setting:
    return Setting(
        **{
            "model": asked.small,
            "device": "cuda",
            "dtype": "bfloat16",
            "prompts": 64,
            "group": 8,
            "prompt_tokens": 75,
            "new_tokens": 128,
            "updates": 4,
            "slots": 512,
            "microbatch_tokens": 32768,
            **changed,
        }
    )


def cycle(asked: argparse.Namespace) -> Numbers:
    """One learning cycle, ours and TRL's in turn."""
    setting = _small(asked)
    found = compare(setting, asked.cycles, warmup=2)
    found["ours"] |= _shares(found["ours"], open_model(setting), setting, ceilings(asked))
    return found


def saving(asked: argparse.Namespace) -> Numbers:
    """The same with gradient checkpointing, TRL's default, in both: less memory, more time."""
    return compare(_small(asked, checkpointing=True), 2, warmup=1)


def _shares(ours: Numbers, loaded: Any, setting: Setting, best: Numbers) -> Numbers:
    """What decoding had to read and learning to multiply, over what the card does at best."""
    phases, prompts = ours["phases"], ours["prompt_tokens_each"][0]
    decoded = {"tokens": setting.generated, "seconds": phases["generate"]}
    read = _read_per_s(decoded, loaded, setting.completions, prompts)
    fed = setting.generated + prompts / setting.group
    flops = 6 * _multiplied_weights(loaded.module) * fed / phases["update"]
    return {
        "decode_share_of_bandwidth": read / best["bytes_per_s"],
        "update_share_of_product": flops / best["flops_per_s"],
    }


def queue(asked: argparse.Namespace) -> Numbers:
    """Tokens a second as ever more sequences of one length wait."""
    return asyncio.run(_queue(asked))


async def _queue(asked: argparse.Namespace) -> Numbers:
    loaded = open_model(_small(asked))
    engine = LocalEngine(loaded, rows=512)
    rates: dict[int, list[float]] = {waiting: [] for waiting in (512, 1024, 2048, 4096)}
    for turn in range(4):
        for waiting, seen in rates.items():
            prompts = _random_prompts(loaded, waiting // 8, 75, 8)
            tokens, seconds = await _draw(engine, prompts, 128)
            if turn:  # the first warms up
                seen.append(tokens / seconds)
    await engine.close()
    first, *others = (median(seen) for seen in rates.values())
    return {"tokens_per_s_each": rates, "worst_against_512": min(others) / first}


def decode(asked: argparse.Namespace) -> Numbers:
    """The large model answers GSM8K questions at temperature 1."""
    return asyncio.run(_decode(asked))


async def _decode(asked: argparse.Namespace) -> Numbers:
    loaded = open_model(Setting(model=asked.large, device="cuda", dtype="bfloat16"))
    found: Numbers = {}
    bandwidth = ceilings(asked)["bytes_per_s"]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for name, adapter in (("base", False), ("adapter", True)):
        on: Callable[[], AbstractContextManager[Any]] = nullcontext
        if adapter:
            on = build_policies({"a": "a"}, {"a": loaded}, PolicyConfig(), 0)["a"].on
        engine = LocalEngine(loaded, rows=256, activate=on)
        prompts = _questions(asked, engine, 256)
        await _draw(engine, prompts, 64)
        tokens, seconds = await _draw(engine, prompts, 512)
        found[name] = {"tokens_per_s": tokens / seconds, "tokens": tokens, "seconds": seconds}
        await engine.close()
    weights = sum(w.numel() * w.element_size() for w in loaded.module.parameters())
    found["weights_gib"] = weights / 2**30
    read = _read_per_s(found["base"], loaded, len(prompts), sum(map(len, prompts)))
    found["share_of_bandwidth"] = read / bandwidth
    found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def _read_per_s(base: Numbers, loaded: Any, rows: int, prompt_tokens: int) -> float:
    """Bytes a second that decoding had to read at least: weights each step, keys and values."""
    config = loaded.module.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 4 * config.num_hidden_layers * config.num_key_value_heads * width
    steps = base["tokens"] // rows
    held = prompt_tokens + rows * steps / 2
    weights = 2 * _multiplied_weights(loaded.module)
    return float(steps * (weights + token * held) / base["seconds"])


def _questions(asked: argparse.Namespace, engine: LocalEngine, count: int) -> list[tuple[int, ...]]:
    name = "gsm8k" if asked.data else "arithmetic"
    tasks = load_tasks(name, split="train", folder=asked.data, limit=count)
    return [
        engine.encode((ChatMessage("user", f"{task.question}\nThink step by step."),))
        for task in tasks
    ]


def _random_prompts(loaded: Any, count: int, length: int, group: int) -> list[tuple[int, ...]]:
    dice = random.Random(0)
    size = loaded.module.config.vocab_size
    made = [tuple(dice.randrange(100, size) for _ in range(length)) for _ in range(count)]
    return [prompt for prompt in made for _ in range(group)]


async def _draw(engine: LocalEngine, prompts: list[tuple[int, ...]], new: int) -> tuple[int, float]:
    sampling = Sampling(temperature=1.0, max_tokens=new)
    requests = [
        Request(messages=(), prompt_ids=ids, sampling=sampling, seed=derive_seed("draw", number))
        for number, ids in enumerate(prompts)
    ]
    torch.cuda.synchronize()
    began = time.perf_counter()
    done: list[Completion] = await asyncio.gather(*(engine.generate(one) for one in requests))
    torch.cuda.synchronize()
    return sum(len(one.ids) for one in done), time.perf_counter() - began


def update(asked: argparse.Namespace) -> Numbers:
    """Full fine-tuning of the large model on sequences of 512 tokens, nothing shared."""
    loaded = open_model(Setting(model=asked.large, device="cuda", dtype="bfloat16"))
    weights = _multiplied_weights(loaded.module)
    policy = build_policies({"a": "a"}, {"a": loaded}, PolicyConfig(kind="full"), 0)["a"]
    config = Config(
        optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=0),
        train=TrainConfig(steps=10, microbatch_tokens=16384),
    )
    updater = Updater(policy, config, max_length=512)
    rows = [
        Row(
            policy="a",
            prompt_ids=ids[:8],
            output_ids=ids[8:],
            engine_logprobs=(-10.0,) * 504,
            advantage=(-1.0) ** number,
            sequence=number,
        )
        for number, ids in enumerate(_random_prompts(loaded, 128, 512, 1))
    ]
    took = [_update_s(updater, rows) for _ in range(4)][1:]
    flops = 6 * weights * 128 * 512 / median(took)
    ceiling = ceilings(asked)["flops_per_s"]
    return {
        "seconds": median(took),
        "tokens_per_s": 128 * 512 / median(took),
        "flops_per_s": flops,
        "ceiling_flops_per_s": ceiling,
        "share_of_ceiling": flops / ceiling,
        "weights": weights,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def _multiplied_weights(module: Any) -> int:
    """All weights but those that are only looked up; the head counts, tied to them or not."""
    looked_up, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    every: int = sum(weight.numel() for weight in module.parameters())
    return every if looked_up is head else every - int(looked_up.numel())


def _update_s(updater: Updater, rows: list[Row]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    updater.update(rows, [], train_choice=False)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def team(asked: argparse.Namespace) -> Numbers:
    """A few training steps of 512 hint-actor episodes, as `tacit train` takes them."""
    config = parse_config(
        {
            "name": "gpu-team",
            "models": {"base": {"path": asked.large, "rows": 256}},
            "train_tasks": {"name": "gsm8k", "split": "train", "folder": asked.data, "limit": 512},
            "tasks": {"name": "gsm8k", "split": "test", "folder": asked.data, "limit": 8},
            "team": {
                "topology": "hint_actor",
                "agents": {
                    "hinter": {"model": "base", "trained": True, "max_tokens": 128},
                    "actor": {"model": "base", "max_tokens": 512},
                },
            },
            "budget": {"tokens": 400},
            "optimizer": {"learning_rate": 1e-6},
            "train": {
                "steps": 3,
                "tasks_per_step": 64,
                "group": 8,
                "concurrency": 640,
                "evaluate_every": 0,
                "microbatch_tokens": 32768,
            },
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_train(config, Path(folder) / "run"))
        lines = (Path(folder) / "run" / "timing.jsonl").read_text().splitlines()
        steps = [line for line in map(json.loads, lines) if "rollout_s" in line]
        episodes = [
            json.loads(line)
            for line in (Path(folder) / "run" / "episodes" / "train.jsonl").read_text().splitlines()
        ]
    last = [e for e in episodes if e["step"] == steps[-1]["step"]]
    tokens = sum(used["generated"] for used in steps[-1]["usage"].values())  # silent arms too
    return {
        "steps": steps,
        "episodes": len(last),
        "tokens_last_step": tokens,
        "rollout_tokens_per_s": tokens / steps[-1]["rollout_s"],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


async def _train(config: Any, folder: Path) -> None:
    async with open_training(config) as made:
        await Trainer(made, RunFolder.check(folder, config)).train()


def start(asked: argparse.Namespace) -> Numbers:
    """From launching a process to its first finished cycle, with and without compiled kernels."""
    found: Numbers = {}
    command = [sys.executable, str(Path(__file__).with_name("trl_cycle.py")), "ours"]
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            began = time.perf_counter()
            subprocess.run(
                [*command, json.dumps(asdict(_small(asked)))],
                input="go\n",
                text=True,
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "TRITON_CACHE_DIR": cache},
            )
            found[f"{name}_s"] = time.perf_counter() - began
    return found


SECTIONS: dict[str, Callable[[argparse.Namespace], Numbers]] = {
    "ceilings": ceilings,
    "cycle": cycle,
    "saving": saving,
    "queue": queue,
    "decode": decode,
    "update": update,
    "team": team,
    "start": start,
}
NEED_LARGE = {"decode", "update", "team"}


if __name__ == "__main__":
    main()
