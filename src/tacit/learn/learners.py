"""One batch into updates of every policy, while none of the engines that serve them runs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import torch

from tacit.engine.memory import ran_out
from tacit.learn.assemble import Assembly
from tacit.learn.batch import Row
from tacit.learn.credit import Batch
from tacit.learn.score import score
from tacit.learn.update import Updated
from tacit.silence import ChoicePoint

BASE_LOSS_ROWS = 16
"""Messages a step whose loss under the frozen base is looked at: private codes show there."""


@dataclass(slots=True, eq=False)
class Learners:
    made: Assembly

    async def update(self, batch: Batch, *, train_choice: bool) -> dict[str, Updated]:
        """One update of every policy."""
        async with self.changing():
            return {
                name: self.made.updaters[name].update(*share, train_choice=train_choice)
                for name, share in self._shares(batch).items()
            }

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Inside, trained engines rest; afterwards they serve the next version."""
        async with AsyncExitStack() as stack:
            for engine in self.made.trained_engines:
                await stack.enter_async_context(engine.paused())
            yield
            for engine in self.made.trained_engines:
                await engine.refresh(engine.version + 1)

    def numbers(self, batch: Batch, updated: Mapping[str, Updated]) -> dict[str, float]:
        """What happened in the updates, under names of their own where there are several."""
        numbers: dict[str, float] = {}
        for policy, one in updated.items():
            prefix = "train" if len(updated) == 1 else f"train/{policy}"
            numbers |= {f"{prefix}/{name}": value for name, value in one.stats.items()}
            numbers[f"{prefix}/gradient_norm"] = one.gradient_norm
            numbers[f"{prefix}/dropped"] = one.dropped
            numbers[f"{prefix}/learning_rate"] = self.made.updaters[policy].learning_rate()
            if (loss := self._base_loss(batch, policy)) is not None:
                numbers[f"{prefix}/base_loss"] = loss
        return numbers

    def _shares(self, batch: Batch) -> dict[str, tuple[list[Row], list[ChoicePoint]]]:
        """Each policy's rows and choices, where it has any."""
        shares = {}
        for name in self.made.updaters:
            rows = [row for row in batch.rows if row.policy == name]
            own = [i for i, choice in enumerate(batch.choices) if choice.policy == name]
            if rows:
                shares[name] = _renumbered(rows, batch, own)
        return shares

    @torch.no_grad()
    def _base_loss(self, batch: Batch, policy: str) -> float | None:
        """Mean negative log-probability of some spoken messages under the frozen base."""
        spoken = [
            (row.prompt_ids, row.output_ids)
            for row in batch.rows
            if row.policy == policy and not row.silent
        ][:BASE_LOSS_ROWS]
        while spoken:
            module, weights = self.made.policies[policy].reference()
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


def _renumbered(
    rows: list[Row], batch: Batch, own: list[int]
) -> tuple[list[Row], list[ChoicePoint]]:
    """Rows and choices of one policy, the rows pointing into the shorter list of choices."""
    place = {old: new for new, old in enumerate(own)}
    moved = [
        row if row.context is None else replace(row, context=place[row.context]) for row in rows
    ]
    return moved, [batch.choices[i] for i in own]
