"""Updates every policy with one batch, while the engines that serve them are paused."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import torch

from tacit.engine.memory import ran_out
from tacit.learn.assemble import Assembly
from tacit.learn.credit import Batch
from tacit.learn.score import score
from tacit.learn.update import Updated

BASE_LOSS_ROWS = 16
"""Messages per step whose loss under the frozen base is measured; it rises with private codes."""


@dataclass(slots=True, eq=False)
class Learners:
    assembly: Assembly
    playing: asyncio.Lock
    """Held while a step is played, so that it ends with the weights it began with."""
    apart: bool = False
    """True if the update runs in a thread, so that episodes are played meanwhile."""

    async def update(self, batch: Batch, *, train_choice: bool) -> dict[str, Updated]:
        """One update of every policy that has rows."""
        updated = {}
        async with self.changing():
            for name, updater in self.assembly.updaters.items():
                choices = [choice for choice in batch.choices if choice.policy == name]
                if rows := [row for row in batch.rows if row.policy == name]:
                    learn = partial(updater.update, rows, choices, train_choice=train_choice)
                    updated[name] = await asyncio.to_thread(learn) if self.apart else learn()
        return updated

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Pauses the trained engines; afterwards they serve the next version."""
        async with AsyncExitStack() as stack:
            for engine in self.assembly.trained_engines:
                await stack.enter_async_context(engine.paused())
            yield
            async with self.playing:
                for engine in self.assembly.trained_engines:
                    await engine.refresh(engine.version + 1)

    def numbers(self, batch: Batch, updated: Mapping[str, Updated]) -> dict[str, float]:
        """Metrics of the updates, with the policy in their names if there are several."""
        numbers: dict[str, float] = {}
        for policy, one in updated.items():
            prefix = "train" if len(updated) == 1 else f"train/{policy}"
            numbers |= {f"{prefix}/{name}": value for name, value in one.stats.items()}
            numbers[f"{prefix}/gradient_norm"] = one.gradient_norm
            numbers[f"{prefix}/dropped"] = one.dropped
            numbers[f"{prefix}/learning_rate"] = self.assembly.updaters[policy].learning_rate()
            if (loss := self._base_loss(batch, policy)) is not None:
                numbers[f"{prefix}/base_loss"] = loss
        return numbers

    @torch.no_grad()
    def _base_loss(self, batch: Batch, policy: str) -> float | None:
        """Mean negative log-probability of some spoken messages under the frozen base."""
        spoken = [
            (row.prompt_ids, row.output_ids)
            for row in batch.rows
            if row.policy == policy and not row.silent
        ][:BASE_LOSS_ROWS]
        while spoken:
            module, weights = self.assembly.policies[policy].reference()
            try:
                with weights:
                    scores = score(module, spoken)
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                spoken = spoken[: len(spoken) // 2]
            else:
                return float(-scores.logprobs_BT.sum() / scores.mask_BT.sum())
        return None
