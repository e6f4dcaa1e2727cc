"""The whole algorithm in one file: GSPO on a reward that pays for solving and charges for talking.

A hinter learns, on the pocket model, what to tell an Actor whose weights stay as they are. Left to
`tacit train`: silence tried apart, budgets, evaluation, checkpoints. About a minute on a CPU:

    python examples/minimal_loop.py --steps 12
"""

import argparse
import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

import tacit
from tacit import AgentConfig, Call, Episode, LoadedModel, LocalEngine, Roster, Task, TeamConfig

TEAM = TeamConfig(
    topology="hint_actor",
    agents={
        "hinter": AgentConfig(max_tokens=48, trained=True),
        "actor": AgentConfig(max_tokens=16),
    },
)
GROUP = 8
PRICE = tacit.Multipliers(tokens=0.05, turns=0.02, repetition=0.1)
REWARD, BUDGET = tacit.RewardConfig(), tacit.BudgetConfig(tokens=20.0, turns=2.0)
LOSS = tacit.LossConfig()


@dataclass(frozen=True)
class Sample:
    """A hint, and how much better its episode did than the others of its task."""

    call: Call
    advantage: float


async def play(roster: Roster, tasks: Sequence[Task], step: int) -> list[list[Episode]]:
    """A group of episodes for each task, all of them at once."""
    jobs = [
        tacit.Job(task, tacit.Setting(step=step, sample=sample, training=True))
        for task in tasks
        for sample in range(GROUP)
    ]
    episodes = await tacit.play_all(roster, jobs, concurrency=256)
    return [episodes[start : start + GROUP] for start in range(0, len(episodes), GROUP)]


def rewards(group: Sequence[Episode]) -> list[float]:
    """R = r − g·(λ_tok·T/B_tok + λ_turn·K/B_turn + λ_rep·ρ); only who solved it pays (g = r)."""
    costs = [
        tacit.EpisodeCost(
            reward=episode.grade.reward if episode.grade else 0.0,
            tokens=episode.usage.generated,
            turns=episode.turns,
            repetition=tacit.repetition([call.text for call in episode.calls if not call.silent]),
        )
        for episode in group
    ]
    return [parts.total for parts in tacit.reward_group(costs, PRICE, REWARD, BUDGET)]


def samples(groups: Sequence[Sequence[Episode]]) -> list[Sample]:
    """A = (R − mean)/std within a task; every hint of an episode gets its episode's."""
    return [
        Sample(call, advantage)
        for group in groups
        for episode, advantage in zip(group, tacit.normalised(rewards(group)), strict=True)
        for call in episode.calls
        if call.policy
    ]


def update(policy: LoadedModel, batch: Sequence[Sample], optimizer: torch.optim.Optimizer) -> None:
    """One step on GSPO's loss: one ratio a message, its mean over messages."""
    scores = tacit.score(
        policy.module, [(one.call.prompt_ids, one.call.output_ids) for one in batch]
    )
    number = torch.arange(len(batch))
    inputs = tacit.LossInputs(
        logprobs_BT=scores.logprobs_BT,
        old_logprobs_BT=scores.logprobs_BT.detach(),
        mask_BT=scores.mask_BT,
        advantages=torch.tensor([one.advantage for one in batch]),
        sequence_B=number,
    )
    optimizer.zero_grad()
    loss = tacit.gspo(inputs, tacit.batch_sizes(scores.mask_BT.sum(-1), number), LOSS).loss
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(policy.module.parameters(), 1.0)
    optimizer.step()


async def main(steps: int, tasks_per_step: int, learning_rate: float) -> list[float]:
    frozen = tacit.load_model("pocket")
    policy = LoadedModel(copy.deepcopy(frozen.module), frozen.tokenizer, frozen.name)
    optimizer = torch.optim.AdamW(
        policy.module.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    actor, hinter = LocalEngine(frozen), LocalEngine(policy, policy="hinter")
    roster = tacit.build_roster(TEAM, {"hinter": hinter, "actor": actor})
    tasks = tacit.load_tasks(
        "arithmetic", split="train", limit=steps * tasks_per_step, shuffle_seed=0
    )
    history = []
    try:
        for step in range(steps):
            chosen = tasks[step * tasks_per_step : (step + 1) * tasks_per_step]
            groups = await play(roster, chosen, step)
            async with hinter.paused():
                update(policy, samples(groups), optimizer)
                hinter.version += 1
            episodes = [episode for group in groups for episode in group]
            right = fmean(bool(e.grade and e.grade.right) for e in episodes)
            tokens = fmean(e.usage.generated for e in episodes)
            history.append(fmean(value for group in groups for value in rewards(group)))
            print(
                f"step {step + 1:>3}  reward {history[-1]:.3f}  "
                f"solved {100 * right:4.1f} %  {tokens:4.1f} tokens",
                flush=True,
            )
    finally:
        await hinter.close()
        await actor.close()
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tasks", type=int, default=8, help="tasks a step")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    asked = parser.parse_args()
    asyncio.run(main(asked.steps, asked.tasks, asked.learning_rate))
