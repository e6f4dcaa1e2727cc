"""Other ways to learn the choice to speak, beside that of a run, which has one set of weights.

    python -m experiments.choice_head RUN --test FOLDER --out FILE

All learn from what speaking gained in the training episodes of the run itself
(`train.save_episodes: true`): a *head*, a ridge regression on the frozen base's hidden state at the
end of the prompt, and an *adapter* for the choice alone, which says nothing. The adapter is trained
step by step on the contexts of the run's steps, by AdamW or by the step of silence. A head's
strength, a learning rate and the line from which each speaks are chosen on the run's validation
tasks, as the line of the run's own choice is; all are judged on the test plays in FOLDER.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.keep import dump
from experiments.records import auc
from tacit import Config, Episode
from tacit.engine.chat import chat_of
from tacit.engine.load import LoadedModel, load_model
from tacit.learn.choice_model import PolicyChoice
from tacit.learn.policy import build_policies, take_step
from tacit.run.folder import RunFolder
from tacit.silence import ChoicePoint
from tacit.silence.step import ChoiceStep, choice_loss, wanted_change

Array = NDArray[np.float64]
Ids = tuple[int, ...]
STRENGTHS = [10.0**n for n in range(-1, 6)]
RATES = [1e-4, 3e-4, 1e-3]
TOGETHER = 32
"""Prompts in one forward pass."""
SPOKEN, SILENT = "made to speak", "without helpers"


@dataclass(frozen=True, slots=True)
class Told:
    """The choices of one evaluation: prompts, and whether the agent was needed."""

    tasks: list[str]
    prompts: list[Ids]
    needed: NDArray[np.bool_]
    log_silence: Array


def told(episodes: Iterable[Episode]) -> Told:
    rows = [
        (one.task_id, call.prompt_ids, one.needed[call.agent], call.silence_logprob)
        for one in episodes
        for call in one.calls
        if call.agent in one.needed and call.silence_logprob is not None
    ]
    tasks, prompts, needed, log_p = zip(*rows, strict=True)
    return Told(list(tasks), list(prompts), np.array(needed), np.array(log_p))


def gains(run: Path) -> tuple[list[Ids], Array, list[int]]:
    """Each prompt of the training, in order, what speaking there gained over silence, and its step.

    What silence was charged is not kept, so all gains are too low by about the same.
    """
    found: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    played = (run / "episodes" / "train.jsonl").read_text(encoding="utf-8")
    for line in played.splitlines():
        one = json.loads(line)
        if one.get("task_if_silent") is not None:
            found[one["step"], one["task_id"]].append(one)
    prompts, gained, steps = [], [], []
    for (step, _), plays in found.items():
        calls = (call for call in plays[0]["calls"] if call["choice"] == "speak")
        if call := next(calls, None):
            worth = [play["reward"]["total"] - play["task_if_silent"] for play in plays]
            prompts.append(tuple(call["prompt_ids"]))
            gained.append(float(np.mean(worth)))
            steps.append(step)
    return prompts, np.array(gained), steps


@torch.inference_mode()
def hidden(module: Any, prompts: Sequence[Ids], layers: Sequence[int]) -> dict[int, Array]:
    """The hidden state at the last token of each prompt, by layer."""
    states = {layer: np.empty((len(prompts), module.config.hidden_size)) for layer in layers}
    order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
    for part in (order[at : at + TOGETHER] for at in range(0, len(order), TOGETHER)):
        rows = [torch.tensor(prompts[n], device=module.device) for n in part]
        ends = torch.tensor([len(row) - 1 for row in rows])
        ids = pad_sequence(rows, batch_first=True)  # on the right, where no token looks
        seen = module(ids, output_hidden_states=True, logits_to_keep=1).hidden_states
        for layer in layers:
            last = seen[layer][torch.arange(len(part)), ends]
            states[layer][part] = last.double().cpu().numpy()
    return states


def fitted(x_NF: Array, gain_N: Array, strength: float, *others: Array) -> list[Array]:
    """What a ridge regression of the gain says of other states."""
    middle, scale = x_NF.mean(axis=0), x_NF.std(axis=0) + 1e-6
    x_NF = (x_NF - middle) / scale
    kernel_NN = x_NF @ x_NF.T + strength * len(x_NF[0]) * np.eye(len(x_NF))
    weights_F = x_NF.T @ np.linalg.solve(kernel_NN, gain_N - gain_N.mean())
    return [(other - middle) / scale @ weights_F for other in others]


@dataclass(slots=True)
class Adapter:
    """An adapter for the choice alone, trained by AdamW with a rate or by the step of silence."""

    base: LoadedModel
    config: Config
    rate: float | None
    model: PolicyChoice = field(init=False)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        name = "choice" if self.rate is None else f"choice {self.rate:.0e}"  # torch takes no dot
        policies = build_policies({name: name}, {name: self.base}, self.config.policy, 0)
        self.model = PolicyChoice(policies[name], self.config.train.microbatch_tokens)

    def points(self, prompts: Sequence[Ids], gained: Iterable[float]) -> list[ChoicePoint]:
        """What speaking gained is what silence lost."""
        policy = self.model.policy.name
        marker = chat_of(self.base).silence_ids()
        return [
            ChoicePoint(policy=policy, prompt_ids=ids, marker_ids=marker, log_p=0.0, gain=-gain)
            for ids, gain in zip(prompts, gained, strict=True)
        ]

    def train(self, prompts: Sequence[Ids], gained: Array, steps: Sequence[int]) -> None:
        every, began = self.points(prompts, gained), time.perf_counter()
        by_itself = ChoiceStep(self.model, self.config.silence)
        optimizer = torch.optim.AdamW(self.model.weights, betas=(0.9, 0.99), weight_decay=0.0)
        for now in dict.fromkeys(steps):
            mine = [one for one, step in zip(every, steps, strict=True) if step == now]
            points = by_itself.present(mine)
            if self.rate is None:
                by_itself.take(points, train=True)
            else:
                optimizer.zero_grad(set_to_none=True)
                self.model.look(points, partial(self._loss, points))
                take_step(self.model.policy, optimizer, self.rate, clip_norm=1.0)
        self.seconds = (time.perf_counter() - began) / len({*steps})

    def _loss(self, points: Sequence[ChoicePoint], log_p_C: Tensor, part: list[int]) -> Tensor:
        some = [points[n] for n in part]
        old_C = torch.tensor([point.log_p for point in some]).to(log_p_C)
        gain_C = torch.tensor([point.gain for point in some]).to(log_p_C)
        change_C = wanted_change(old_C, gain_C, self.config.silence)
        return choice_loss(log_p_C, old_C, change_C, len(points))

    @torch.no_grad()
    def speaks(self, prompts: Sequence[Ids]) -> Array:
        """−log π(silence)."""
        return -self.model.look(self.points(prompts, [0.0] * len(prompts))).double().numpy()


def line_of(score: Array, needed: NDArray[np.bool_]) -> float:
    """The score from which speaking best tells the needed from the others, mid-way to the next."""
    seen = np.unique(score)
    lines = (seen[1:] + seen[:-1]) / 2
    right = [(score[needed] >= x).mean() + (score[~needed] < x).mean() for x in lines]
    return float(lines[int(np.argmax(right))])


def judged(score: Array, line: float, test: Told, right: dict[str, dict[str, bool]]) -> Any:
    """How well a score tells the needed, and what the team gets right if it decides."""
    speaks = score >= line
    plays = [
        right[SPOKEN if one else SILENT][task] for task, one in zip(test.tasks, speaks, strict=True)
    ]
    return {
        "auc": round(auc(score[test.needed], score[~test.needed]), 4),
        "silent_free": round(float((~speaks[~test.needed]).mean()), 4),
        "silent_needed": round(float((~speaks[test.needed]).mean()), 4),
        "accuracy": round(float(np.mean(plays)), 4),
    }


def compared(run: Path, test: Path, model: str | None = None) -> Iterator[tuple[str, Any]]:
    """Each way to choose with its numbers, the quick ones first."""
    folder, config = RunFolder.existing(run)
    played = RunFolder(test)
    assert config.team is not None
    speaker = next(agent for agent in config.team.agents.values() if agent.trained)
    base = load_model(model or config.model_named(speaker.model).path)
    count = base.module.config.num_hidden_layers
    layers = sorted({max(1, count * n // 4) for n in (1, 2, 3, 4)})
    prompts, gained, steps = gains(run)
    best = json.loads((run / "checkpoints" / "best.json").read_text())["step"]
    check, final = told(folder.episodes(f"eval-{best:06d}")), told(played.episodes("trained"))
    right = {
        name: {
            one.task_id: bool(one.grade and one.grade.right)
            for one in played.episodes(f"trained {name}")
        }
        for name in (SPOKEN, SILENT)
    }
    own = line_of(-check.log_silence, check.needed)
    yield "own", judged(-final.log_silence, own, final, right)
    train, valid, tests = (
        hidden(base.module, ids, layers) for ids in (prompts, check.prompts, final.prompts)
    )
    for size in [n for n in (300, 600, 1200, 2400, 4800) if n < len(prompts)] + [len(prompts)]:
        for layer in layers:
            heads = []
            for strength in STRENGTHS:
                x = train[layer][:size]
                on_check, score = fitted(x, gained[:size], strength, valid[layer], tests[layer])
                told_apart = auc(on_check[check.needed], on_check[~check.needed])
                line = line_of(on_check, check.needed)
                heads.append((told_apart, strength, judged(score, line, final, right)))
            yield f"layer {layer}, {size} contexts", max(heads, key=lambda head: head[:2])[2]
    adapters = []
    for rate in (None, *RATES):
        adapter = Adapter(base, config, rate)
        adapter.train(prompts, gained, steps)
        on_check, score = adapter.speaks(check.prompts), adapter.speaks(final.prompts)
        told_apart = auc(on_check[check.needed], on_check[~check.needed])
        numbers = judged(score, line_of(on_check, check.needed), final, right)
        numbers["seconds"] = round(adapter.seconds, 3)
        if rate is None:
            yield "adapter, step of silence", numbers
        else:
            adapters.append((told_apart, rate, numbers))
    yield "adapter, AdamW", max(adapters, key=lambda one: one[:2])[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.choice_head",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--test", type=Path, required=True, help="plays with the trained weights")
    parser.add_argument("--model", help="where the base is, if not where the config says")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for name, numbers in compared(args.run, args.test, args.model):
        print(name, numbers, flush=True)
        found[name] = numbers  # kept at once, since a rented machine may be gone before the last
        args.out.write_text(dump(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
