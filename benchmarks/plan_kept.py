"""The kept measurements of one H200 as work that `tacit plan` has a prediction for.

Reads `gpu.json`, `gpu_again.json` and `redesign.json`; `plan.py` fits on them. Settings that a file
does not say are those of `benchmarks/gpu.py`, which wrote it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tacit.plan.cards import CARDS, GIB
from tacit.plan.costs import (
    Constants,
    Decoding,
    Learning,
    Memory,
    cache_memory,
    learner_memory,
    model_memory,
)
from tacit.plan.model_shapes import Shape

CARD = CARDS["H200"]
KEPT = Path(__file__).parent / "results"
LONGEST = 2.0
"""The longest prompt over the mean one, where a result does not say it."""

# As their config.json files say; the copy of Qwen that was measured holds its head apart.
SHAPES = {
    "135M": Shape(
        layers=30, hidden=576, heads=9, kv_heads=3, width=64, mlp=1536, vocabulary=49152, tied=True
    ),
    "1.5B": Shape(
        layers=28,
        hidden=1536,
        heads=12,
        kv_heads=2,
        width=128,
        mlp=8960,
        vocabulary=151936,
        tied=False,
    ),
}

Work = Sequence[Decoding | Learning] | Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One kept number with what was done."""

    setting: str
    kind: str
    """decode, score, update, cycle, play: tokens a second. memory: bytes."""
    source: str
    model: str
    value: float
    work: Work
    tokens: float = 0.0
    """That `value` counts, for tokens a second."""

    def amount(self, constants: Constants) -> float:
        """Predicted bytes, or seconds."""
        if isinstance(self.work, Memory):
            return self.work.total(constants)
        return sum(one.seconds(constants.speed(CARD)) for one in self.work)

    def predicted(self, constants: Constants) -> float:
        """What `value` should be."""
        amount = self.amount(constants)
        return amount if self.kind == "memory" else self.tokens / amount

    def to_json(self) -> dict[str, Any]:
        gib = GIB if self.kind == "memory" else 1.0
        return {
            "setting": self.setting,
            "kind": self.kind,
            "source": self.source,
            "model": self.model,
            "unit": "GiB" if self.kind == "memory" else "tokens/s",
            "measured": self.value / gib,
        }


def read(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    return tree


def measurements() -> list[Measured]:
    """Every kept number of a single GPU that the model has a prediction for."""
    kept = {name: read(name) for name in ("gpu", "gpu_again", "redesign")}
    found: list[Measured] = []
    for name in ("gpu", "gpu_again"):
        for section in ("cycle", "saving"):
            if section in kept[name]:
                found += _cycle(kept[name][section], f"{name}.json {section}")
        found += _queue(kept[name]["queue"], f"{name}.json queue")
    found += _decode(kept["gpu"], kept["redesign"]["gpu"])
    found += _update(kept["gpu"]["update"], kept["redesign"]["gpu"])
    found += _team(kept["gpu"]["team"])
    found += _redesigned_cycles(kept["redesign"]["gpu"], kept["gpu"]["cycle"]["setting"])
    return found


def _cycle_work(setting: Mapping[str, Any], prompt: float) -> dict[str, Sequence[Any]]:
    """One learning cycle of the small model: decode, score, update."""
    shape, updates = SHAPES["135M"], setting["updates"]
    completions = setting["prompts"] * setting["group"]
    fed = setting["prompts"] * (prompt + setting["group"] * setting["new_tokens"])
    per_update = max(1, round(fed / updates / setting["microbatch_tokens"] + 0.5))
    decode = Decoding(
        shape=shape,
        rows=setting["slots"],
        requests=completions,
        prompt=prompt,
        new=setting["new_tokens"],
        cap=setting["new_tokens"],
        computed=setting["prompts"] * prompt,
    )
    later = (updates - 1) / updates  # the first update needs no old log-probabilities
    score = Learning(shape=shape, tokens=fed * later, passes=1, backward=False)
    update = Learning(
        shape=shape,
        tokens=fed,
        passes=updates * per_update,
        checkpointing=setting["checkpointing"],
        steps=updates,
    )
    return {"decode": [decode], "score": [score], "update": [update]}


def _cycle(section: Mapping[str, Any], source: str) -> Iterator[Measured]:
    setting, ours = section["setting"], section["ours"]
    name = "135M cycle" + (", checkpointing" if setting["checkpointing"] else "")
    prompt = ours["prompt_tokens_each"][0] / (setting["prompts"] * setting["group"])
    work, phases = _cycle_work(setting, prompt), ours["phases"]
    for kind, phase in (("decode", "generate"), ("score", "score"), ("update", "update")):
        one = work[kind][0]
        tokens = one.requests * one.new if kind == "decode" else one.tokens
        yield Measured(
            setting=name if kind == "update" else "135M cycle",  # the others keep nothing
            kind=kind,
            source=source,
            model="135M",
            value=tokens / phases[phase],
            work=work[kind],
            tokens=tokens,
        )
    fed, updates = work["update"][0].tokens, setting["updates"]
    whole = [one for some in work.values() for one in some]
    drawn = setting["prompts"] * setting["group"] * setting["new_tokens"]
    yield Measured(
        setting=name,
        kind="cycle",
        source=source,
        model="135M",
        value=ours["tokens_per_s"],
        work=whole,
        tokens=drawn,
    )
    yield Measured(
        setting=name,
        kind="memory",
        source=source,
        model="135M",
        value=ours["peak_gib"] * GIB,
        work=model_memory(SHAPES["135M"])
        + cache_memory(
            SHAPES["135M"], setting["slots"], setting["prompt_tokens"] + setting["new_tokens"]
        )
        + learner_memory(
            SHAPES["135M"],
            min(setting["microbatch_tokens"], fed / updates),
            rank=0,
            checkpointing=setting["checkpointing"],
        ),
    )


def _redesigned_cycles(kept: Mapping[str, Any], setting: Mapping[str, Any]) -> Iterator[Measured]:
    work = _cycle_work(setting, 68.0)
    whole = [one for some in work.values() for one in some]
    tokens = work["decode"][0].requests * work["decode"][0].new
    seconds = [s for when in ("before", "after") for s in kept["cycle_s"][when]]
    yield Measured(
        setting="135M cycle",
        kind="cycle",
        source="redesign.json gpu.cycle_s",
        model="135M",
        value=tokens / median(seconds),
        work=whole,
        tokens=tokens,
    )


def _queue(section: Mapping[str, Any], source: str) -> Iterator[Measured]:
    """512 rows; prompts of 75 tokens that eight requests share, 128 new tokens."""
    for waiting, rates in section["tokens_per_s_each"].items():
        requests = int(waiting)
        work = Decoding(
            shape=SHAPES["135M"],
            rows=512,
            requests=requests,
            prompt=75,
            new=128,
            cap=128,
            computed=requests / 8 * 75,
        )
        yield Measured(
            setting="135M cycle" if requests == 512 else f"135M, {requests} waiting",
            kind="decode",
            source=f"{source} {waiting}",
            model="135M",
            value=median(rates),
            work=[work],
            tokens=requests * 128,
        )


def _decode(kept: Mapping[str, Any], redesign: Mapping[str, Any]) -> Iterator[Measured]:
    """256 rows of GSM8K questions, 512 new tokens each, without and with an adapter."""
    section, shape = kept["decode"], SHAPES["1.5B"]
    base = section["base"]
    # the questions' length is not kept, but what was read by the share of the bandwidth is
    read = section["share_of_bandwidth"] * kept["ceilings"]["bytes_per_s"] * base["seconds"]
    held = (read / 512 - 2 * shape.multiplied) / shape.kv_bytes
    prompt = held / 256 - 512 / 2
    for name, rank, again in (
        ("base", 0, "decode_tokens_per_s"),
        ("adapter", 16, "decode_with_adapter_tokens_per_s"),
    ):
        work = Decoding(
            shape=shape,
            rows=256,
            requests=256,
            prompt=prompt,
            new=512,
            cap=512,
            computed=256 * prompt,
            rank=rank,
        )
        rates = [rate for when in ("before", "after") for rate in redesign[again][when]]
        for source, value in (
            (f"gpu.json decode.{name}", section[name]["tokens_per_s"]),
            (f"redesign.json gpu.{again}", median(rates)),
        ):
            yield Measured(
                setting="1.5B decode" + (", adapter" if rank else ""),
                kind="decode",
                source=source,
                model="1.5B",
                value=value,
                work=[work],
                tokens=256 * 512,
            )
    yield Measured(
        setting="1.5B decode, adapter",
        kind="memory",
        source="gpu.json decode",
        model="1.5B",
        value=section["peak_gib"] * GIB,
        work=model_memory(shape)
        + Memory(optimizer=4 * shape.adapter(16))  # the adapter in float32, no optimiser
        + cache_memory(shape, 256, LONGEST * prompt + 512),
    )


def _update(section: Mapping[str, Any], redesign: Mapping[str, Any]) -> Iterator[Measured]:
    """All weights, 128 sequences of 512 tokens, microbatches of 16,384."""
    tokens, shape = 128 * 512, SHAPES["1.5B"]
    work = Learning(shape=shape, tokens=tokens, passes=4, steps=1)
    seconds = [s for when in ("before", "after") for s in redesign["large_update_s"][when]]
    for source, value in (
        ("gpu.json update", section["seconds"]),
        ("redesign.json gpu.large_update_s", median(seconds)),
    ):
        yield Measured(
            setting="1.5B update",
            kind="update",
            source=source,
            model="1.5B",
            value=tokens / value,
            work=[work],
            tokens=tokens,
        )
    yield Measured(
        setting="1.5B update",
        kind="memory",
        source="gpu.json update",
        model="1.5B",
        value=section["peak_gib"] * GIB,
        work=model_memory(shape) + learner_memory(shape, 16384, rank=0, checkpointing=False),
    )


def _team(section: Mapping[str, Any]) -> Iterator[Measured]:
    """512 episodes of hint-actor and 64 without a hint; caps of 128 and 512, 256 rows each.

    Tokens are kept for both roles together; both are taken to fill the same share of their cap.
    The update is left out: how many tokens it learned from is not kept.
    """
    shape, caps, calls = SHAPES["1.5B"], (128, 512), (512, 576)
    for step in section["steps"][1:]:  # kernels are compiled in the first
        usage = step["usage"]["base"]
        fill = usage["generated"] / sum(cap * n for cap, n in zip(caps, calls, strict=True))
        question = (usage["prompt"] - 512 * fill * caps[0]) / sum(calls)
        hinter = Decoding(
            shape=shape,
            rows=256,
            requests=512,
            prompt=question,
            new=fill * caps[0],
            cap=caps[0],
            computed=64 * question,
            rank=16,
        )
        read = usage["prompt"] - 512 * question
        actor = Decoding(
            shape=shape,
            rows=256,
            requests=576,
            prompt=read / 576,
            new=fill * caps[1],
            cap=caps[1],
            computed=read,
            arriving=hinter.steps,
        )
        yield Measured(
            setting="1.5B team",
            kind="play",
            source=f"gpu.json team step {step['step']}",
            model="1.5B",
            value=usage["generated"] / step["rollout_s"],
            work=[hinter, actor],
            tokens=usage["generated"],
        )
    yield Measured(
        setting="1.5B team",
        kind="memory",
        source="gpu.json team",
        model="1.5B",
        value=section["peak_gib"] * GIB,
        work=model_memory(shape)
        + cache_memory(shape, 256, LONGEST * question + caps[0])
        + cache_memory(shape, 256, LONGEST * question + caps[0] + caps[1])
        + learner_memory(shape, 32768, rank=16, checkpointing=False),
    )
