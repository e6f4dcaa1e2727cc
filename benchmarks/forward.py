"""How fast each forward pass plays and learns, beside transformers' own, in one run.

    python benchmarks/forward.py --model pocket --device cpu --out benchmarks/results/forward.json

`generate` is transformers' `generate`, one request after the other; `rows` its forward pass over
rows of a fixed cache; `fast` what `forward_of` picks. Playing draws `--new` tokens for each of
`--requests` prompts; learning scores groups of eight messages to a prompt, with gradients. The file
keeps one entry for each model and device.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from tacit.engine import forward
from tacit.engine.base import Request, Sampling
from tacit.engine.forward import forward_of
from tacit.engine.generating import Generating
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.fast.forward_rows import RowForward
from tacit.learn.score import score

PROMPT, GROUP, ANSWER = 64, 8, 48
WAYS = ("generate", "rows", "fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--name", help="what the file calls it; the folder's name when not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = {way: measure(way, asked) for way in WAYS}
    base = found["rows"]
    entry = {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gpu": torch.cuda.get_device_name() if asked.device == "cuda" else None,
        "rows": asked.rows,
        "requests": asked.requests,
        "new_tokens": asked.new,
        "tokens_per_s": found,
        "over_rows": {
            way: {what: rate / base[what] for what, rate in rates.items() if what in base}
            for way, rates in found.items()
        },
    }
    print(json.dumps(entry, indent=1))
    if asked.out:
        known = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        name = f"{asked.name or Path(asked.model).name} on {asked.device}"
        asked.out.write_text(json.dumps(known | {name: entry}, indent=1) + "\n", encoding="utf-8")


def measure(way: str, asked: argparse.Namespace) -> dict[str, float]:
    """Tokens a second, drawn and learned from; `generate` learns as `rows` does."""
    loaded = load_model(asked.model, device=asked.device)
    if way != "fast":
        forward._FOUND[loaded.module] = RowForward(loaded.module)
    rates = {"play": asyncio.run(_play(way, loaded, asked))}
    if way != "generate":
        rates["learn"] = _learn(loaded, asked)
    print(way, rates, flush=True)
    return rates


async def _play(way: str, loaded: LoadedModel, asked: argparse.Namespace) -> float:
    engine = LocalEngine(loaded, rows=asked.rows)
    count = asked.requests
    if way == "generate":
        engine._scheduler, count = Generating(loaded.module), max(2, asked.requests // 16)
    prompts = [_ids(loaded, PROMPT, number) for number in range(count)]
    sampling = Sampling(temperature=1.0, max_tokens=asked.new)

    async def draw() -> int:
        requests = [
            Request(messages=(), prompt_ids=ids, sampling=sampling, seed=number)
            for number, ids in enumerate(prompts)
        ]
        return sum(len(one.ids) for one in await asyncio.gather(*map(engine.generate, requests)))

    await draw()
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        rates.append(await draw() / (time.perf_counter() - began))
    await engine.close()
    return median(rates)


def _learn(loaded: LoadedModel, asked: argparse.Namespace) -> float:
    module = loaded.module
    messages = [
        (_ids(loaded, PROMPT, number // GROUP), _ids(loaded, ANSWER, 1000 + number))
        for number in range(asked.groups * GROUP)
    ]
    weights = [weight for weight in module.parameters() if weight.requires_grad]

    def step() -> None:
        with forward_of(module).recomputing():
            torch.autograd.grad(score(module, messages).logprobs_BT.sum(), weights)

    return len(messages) * ANSWER / _seconds(step)


def _seconds(work: Callable[[], None]) -> float:
    took = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return median(took[1:])


def _ids(loaded: LoadedModel, length: int, seed: int) -> tuple[int, ...]:
    draw = torch.Generator().manual_seed(seed)
    size: Any = loaded.module.config.vocab_size
    return tuple(torch.randint(5, size, (length,), generator=draw).tolist())


if __name__ == "__main__":
    main()
