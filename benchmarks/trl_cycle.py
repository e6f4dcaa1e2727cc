"""One reinforcement-learning cycle, by this project and by TRL, on equal terms.

A cycle: draw `group` completions for each of `prompts` prompts, reward them, learn from them in
`updates` optimiser steps of sequence-level importance sampling (GSPO), full fine-tuning. Both
systems get the same weights, the same prompt ids and the same reward, and draw exactly `new_tokens`
tokens a completion: the end-of-sequence token is one that the model has no logit for. TRL runs its
own loop with its own default generation; ours is `LocalEngine` and `Updater`, what a training step
is made of. Not covered: teams, grading, evaluation, checkpoints, adapters.

`compare` gives each system a process, for its own peak of memory, and lets cycles take turns, so
that noise of the machine meets both; `cpu.py` and `gpu.py` measure with it.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Literal, Self

import torch

from tacit.config import Config, LossConfig, OptimizerConfig, PolicyConfig, TrainConfig
from tacit.engine.base import Completion, Request, Sampling, derive_seed
from tacit.engine.gc_freeze import gc_frozen
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.learn.advantage import normalised
from tacit.learn.batch import Row
from tacit.learn.policy import build_policies
from tacit.learn.update import Updater
from tacit.tasks import load_tasks
from tacit.types import ChatMessage

SystemName = Literal["ours", "trl"]
SYSTEMS: tuple[SystemName, ...] = ("ours", "trl")
LEARNING_RATE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What both systems do; the last fields say how each goes about it."""

    model: str = "pocket"
    """`pocket`, or a model folder."""
    device: str = "cpu"
    dtype: str = "float32"
    """Of the weights. TRL runs under autocast where this is bfloat16, as it does by default."""
    prompts: int = 4
    group: int = 8
    prompt_tokens: int = 75
    """About: a prompt is as many whole questions as fit, one at least."""
    new_tokens: int = 128
    updates: int = 4
    checkpointing: bool = False
    """Gradient checkpointing, in both. TRL has it on by default, which costs it a third."""
    most_cycles: int = 64
    """How many cycles have prompts of their own."""
    threads: int = 0
    """torch's; 0 leaves its choice."""
    slots: int = 32
    """Ours: how many sequences decode together. TRL always decodes all of a cycle together."""
    microbatch_tokens: int = 8192
    """Ours: padded tokens that go through the model together while learning."""

    @property
    def completions(self) -> int:
        return self.prompts * self.group

    @property
    def generated(self) -> int:
        return self.completions * self.new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """What one cycle took."""

    tokens: int
    """Generated, counted rather than taken for granted."""
    prompt_tokens: int
    """Of all completions together, a shared prompt as often as it is shared."""
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    """generate; score (rewards, old log-probabilities); update. Seconds that add up to the above"""
    reward: float = 0.0
    peak_bytes: int = 0
    """So far: of the device's allocator on CUDA, else of the whole process."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def decode_tokens_per_s(self) -> float:
        return self.tokens / self.phases["generate"]


Gate = Callable[[], bool]
"""Asked before each cycle whether to begin it."""
Report = Callable[[Cycle], None]


def run_ours(setting: Setting, gate: Gate, report: Report) -> None:
    asyncio.run(_run_ours(setting, gate, report))


async def _run_ours(setting: Setting, gate: Gate, report: Report) -> None:
    if setting.device == "cpu":  # as in training
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    loaded = open_model(setting)
    policy = build_policies({"solo": "solo"}, {"solo": loaded}, PolicyConfig(kind="full"), 0)[
        "solo"
    ]
    if setting.checkpointing:
        policy.loaded.module.gradient_checkpointing_enable({"use_reentrant": False})
    config = Config(
        loss=LossConfig(length_aware=False),
        optimizer=OptimizerConfig(learning_rate=LEARNING_RATE, warmup_steps=0),
        train=TrainConfig(
            steps=setting.most_cycles,
            updates=setting.updates,
            microbatch_tokens=setting.microbatch_tokens,
        ),
    )
    updater = _TimedUpdater(policy, config, max_length=setting.new_tokens)
    engine = LocalEngine(policy.loaded, policy="solo", rows=setting.slots)
    prompts = make_prompts(loaded.tokenizer, setting)
    clock = Clock(setting.device)
    number = 0
    try:
        with gc_frozen():  # as in training
            while gate():
                mine = prompts[number * setting.prompts :][: setting.prompts]
                clock.start()
                with clock.phase("generate"):
                    drawn = await _draw(engine, mine, number, setting)
                with clock.phase("score"):
                    rows, mean = _rows(drawn, setting.group)
                with clock.phase("update"):
                    async with engine.paused():
                        updater.update(rows, [], train_choice=False)
                        engine.version += 1
                clock.move(updater.scoring_s, "update", "score")
                report(clock.cycle(
                    tokens=sum(len(row.output_ids) for row in rows),
                    prompt_tokens=sum(len(row.prompt_ids) for row in rows),
                    reward=mean,
                ))  # fmt: skip
                number += 1
    finally:
        await engine.close()


class _TimedUpdater(Updater):
    """Says how long the last update took to compute old log-probabilities."""

    scoring_s = 0.0

    def _store_old(self, batches: Any) -> None:
        began = time.perf_counter()
        super()._store_old(batches)
        _synchronise(self.policy.loaded.module.device.type)
        self.scoring_s = time.perf_counter() - began


Drawn = tuple[tuple[int, ...], Completion]


async def _draw(
    engine: LocalEngine, prompts: list[str], cycle: int, setting: Setting
) -> list[Drawn]:
    """A group of completions for each prompt, in order."""
    sampling = Sampling(temperature=1.0, max_tokens=setting.new_tokens)
    requests = []
    for place, prompt in enumerate(prompts):
        messages = (ChatMessage("user", prompt),)
        ids = engine.encode(messages)
        requests += [
            Request(
                messages=messages,
                prompt_ids=ids,
                sampling=sampling,
                seed=derive_seed("cycle", cycle, place, sample),
            )
            for sample in range(setting.group)
        ]
    done = await asyncio.gather(*(engine.generate(request) for request in requests))
    return [(request.prompt_ids, one) for request, one in zip(requests, done, strict=True)]


def _rows(drawn: list[Drawn], group: int) -> tuple[list[Row], float]:
    rewards = [reward(one.text) for _, one in drawn]
    advantages = [
        advantage
        for start in range(0, len(rewards), group)
        for advantage in normalised(rewards[start : start + group])
    ]
    rows = [
        Row(
            policy="solo",
            prompt_ids=ids,
            output_ids=one.ids,
            engine_logprobs=one.logprobs,
            advantage=advantage,
            sequence=number,
        )
        for number, ((ids, one), advantage) in enumerate(zip(drawn, advantages, strict=True))
    ]
    return rows, sum(rewards) / len(rewards)


def run_trl(setting: Setting, gate: Gate, report: Report) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from datasets import Dataset

    loaded = open_model(setting)
    prompts = make_prompts(loaded.tokenizer, setting)
    clock = Clock(setting.device)
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trl_trainer_class(clock)(
            model=loaded.module,
            reward_funcs=_trl_reward,
            args=_trl_config(setting, folder),
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts]
            ),
            processing_class=loaded.tokenizer,
            callbacks=[_trl_callback(clock, setting, gate, report)],
        )
        if gate():
            trainer.train()


def _trl_config(setting: Setting, folder: str) -> Any:
    from trl import GRPOConfig

    rows = setting.completions // setting.updates
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=rows,
        steps_per_generation=setting.updates,
        max_steps=setting.most_cycles * setting.updates,
        num_generations=setting.group,
        max_completion_length=setting.new_tokens,
        shuffle_dataset=False,
        importance_sampling_level="sequence",
        loss_type="grpo",  # with the level and the clipping, GSPO as its paper has it
        epsilon=3e-4,
        epsilon_high=4e-4,
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        gradient_checkpointing=setting.checkpointing,
        bf16=setting.dtype == "bfloat16",
        use_cpu=setting.device == "cpu",
        dataloader_pin_memory=setting.device != "cpu",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _trl_reward(completions: list[Any], **_: Any) -> list[float]:
    return [reward(one[0]["content"]) for one in completions]


def _trl_trainer_class(clock: "Clock") -> Any:
    from trl import GRPOTrainer

    class Trainer(GRPOTrainer):  # type: ignore[misc]
        """TRL's trainer with a clock beside its phases."""

        def _generate_single_turn(self, prompt_ids: Any, *others: Any, **more: Any) -> Any:
            with clock.phase("generate"):
                completion_ids, logprobs = super()._generate_single_turn(
                    prompt_ids, *others, **more
                )
            clock.counted = {
                "tokens": sum(map(len, completion_ids)),
                "prompt_tokens": sum(map(len, prompt_ids)),
            }
            return completion_ids, logprobs

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            with clock.phase("score"):
                output = super()._generate_and_score_completions(inputs)
            clock.move(clock.phases["generate"], "score", None)  # it ran inside
            clock.reward = self._metrics["train"]["reward"][-1]
            return output

    return Trainer


def _trl_callback(clock: "Clock", setting: Setting, gate: Gate, report: Report) -> Any:
    from transformers import TrainerCallback

    class Callback(TrainerCallback):  # type: ignore[misc]
        """Reports a cycle after its last update, and waits at the gate before the next."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % setting.updates == 0:
                clock.start()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % setting.updates:
                return
            clock.rest("update")
            report(clock.cycle(**clock.counted, reward=clock.reward))
            control.should_training_stop = not gate()

    return Callback()


RUNNERS: dict[SystemName, Callable[[Setting, Gate, Report], None]] = {
    "ours": run_ours,
    "trl": run_trl,
}


class Clock:
    """Times one cycle and its phases, the device's work included."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device).type
        self._began = 0.0
        self.phases: dict[str, float] = {}
        self.counted: dict[str, int] = {}
        self.reward = 0.0

    def start(self) -> None:
        _synchronise(self._device)
        self.phases = {}
        self._began = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        _synchronise(self._device)
        began = time.perf_counter()
        yield
        _synchronise(self._device)
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began

    def move(self, seconds: float, giver: str, taker: str | None) -> None:
        self.phases[giver] -= seconds
        if taker:
            self.phases[taker] = self.phases.get(taker, 0.0) + seconds

    def rest(self, name: str) -> None:
        """What no phase has counted yet belongs to this one."""
        _synchronise(self._device)
        self.phases[name] = time.perf_counter() - self._began - sum(self.phases.values())

    def cycle(self, *, tokens: int, prompt_tokens: int, reward: float) -> Cycle:
        _synchronise(self._device)
        return Cycle(
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            seconds=time.perf_counter() - self._began,
            phases=dict(self.phases),
            reward=reward,
            peak_bytes=_peak_bytes(self._device),
        )


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _peak_bytes(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def open_model(setting: Setting) -> LoadedModel:
    """The model, with an end-of-sequence token that it cannot draw."""
    if setting.threads:
        torch.set_num_threads(setting.threads)
    loaded = load_model(setting.model, device=setting.device, dtype=setting.dtype)
    tokenizer, size = loaded.tokenizer, loaded.module.config.vocab_size
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    missing = max(0, size - len(tokenizer)) + 1
    tokenizer.add_tokens([f"<|never {n}|>" for n in range(missing)], special_tokens=True)
    tokenizer.eos_token = f"<|never {missing - 1}|>"
    assert tokenizer.eos_token_id >= size, "an id that the model has no logit for"
    loaded.module.generation_config.eos_token_id = None
    return loaded


def make_prompts(tokenizer: Any, setting: Setting) -> list[str]:
    """Prompts for all cycles: sums to work out, as many as fit into the prompt's tokens."""
    count = setting.prompts * setting.most_cycles
    tasks = load_tasks("arithmetic", split="train", shuffle_seed=0)
    questions = [task.question for task in tasks]
    blank = len(_encode(tokenizer, ""))
    prompts, place = [], 0
    for _ in range(count):
        text, room = "", setting.prompt_tokens - blank
        while True:
            question = questions[place % len(questions)]
            longer = f"{text} {question}".strip()
            if text and len(tokenizer.encode(longer, add_special_tokens=False)) > room:
                break
            text, place = longer, place + 1
        prompts.append(text)
    return prompts


def _encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
    )
    return ids


def reward(text: str) -> float:
    """The share of digits: cheap, and no two samples of a prompt are likely to have the same."""
    return sum(map(str.isdigit, text)) / max(1, len(text))


class Child:
    """A system in a process of its own, which does a cycle whenever it is told to."""

    def __init__(self, system: SystemName, setting: Setting) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), system]
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(setting))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()

    def cycle(self) -> Cycle:
        assert self._process.stdin and self._process.stdout
        print("go", file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with code {self._process.wait()}")
        return Cycle(**json.loads(line))


def compare(
    setting: Setting, cycles: int, warmup: int, note: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Cycles of both systems in turn, after some that are left out, as medians.

    The ratio is the median of TRL's seconds over ours, pair by pair.
    """
    pairs = []
    with Child("ours", setting) as ours, Child("trl", setting) as trl:
        for number in range(warmup + cycles):
            pairs.append((ours.cycle(), trl.cycle()))
            mine, theirs = pairs[-1]
            which = "warm-up" if number < warmup else f"cycle {number - warmup + 1}"
            note(f"{which}: ours {mine.seconds:.2f} s, TRL {theirs.seconds:.2f} s")
    timed = pairs[warmup:]
    return {
        "setting": asdict(setting) | {"model": _name(setting.model)},
        "ours": _summary([mine for mine, _ in timed]),
        "trl": _summary([theirs for _, theirs in timed]),
        "ratio": median(theirs.seconds / mine.seconds for mine, theirs in timed),
        "ratios": [round(theirs.seconds / mine.seconds, 2) for mine, theirs in timed],
        "memory_ratio": timed[-1][0].peak_bytes / timed[-1][1].peak_bytes,
    }


def _name(model: str) -> str:
    """Without where it lies on this machine."""
    path = Path(model)
    return path.parent.name if path.name == "hf" else path.name


def _summary(cycles: list[Cycle]) -> dict[str, Any]:
    return {
        "seconds": median(one.seconds for one in cycles),
        "seconds_each": [round(one.seconds, 3) for one in cycles],
        "tokens_each": [one.tokens for one in cycles],
        "prompt_tokens_each": [one.prompt_tokens for one in cycles],
        "phases": {name: median(one.phases[name] for one in cycles) for name in cycles[0].phases},
        "tokens_per_s": median(one.tokens_per_s for one in cycles),
        "decode_tokens_per_s": median(one.decode_tokens_per_s for one in cycles),
        "peak_gib": cycles[-1].peak_bytes / 2**30,
    }


def main() -> None:
    """A child: a cycle for each line read, its numbers as a line written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("setting", help="JSON, see Setting")
    asked = parser.parse_args()
    lines, sys.stdout = sys.stdout, sys.stderr
    RUNNERS[asked.system](
        Setting(**json.loads(asked.setting)),
        lambda: bool(sys.stdin.readline()),
        lambda cycle: print(json.dumps(asdict(cycle)), file=lines, flush=True),
    )


if __name__ == "__main__":
    main()
