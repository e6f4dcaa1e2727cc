"""Learners that share the gradients of a step: data parallel, through Ray's object store.

Each holds a copy of what is trained. For a step it gets the present weights and some of the
microbatches, and returns the sum of their gradients; the head, which computes a share of its own,
adds them up and takes the step. So the optimiser exists once, and the share of a learner that is
lost is computed here. Not covered: sharded models. The weights travel at every step, which is
little for adapters and much for the whole of a large model.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.cluster.placement import import_ray
from tacit.config import Config
from tacit.errors import one_line
from tacit.learn.assemble import open_assembly, updater_of
from tacit.learn.microbatch import Microbatch
from tacit.learn.update import BatchStats, Updater

log = logging.getLogger(__name__)

State = dict[str, Tensor]


class Learner:
    """One process with a copy of the policies; runs as a Ray actor."""

    def open(self, tree: dict[str, Any]) -> None:
        config = Config.model_validate(tree)
        assert config.team is not None
        self._open = open_assembly(config, config.team)
        self._loop = asyncio.new_event_loop()
        assembly = self._loop.run_until_complete(self._open.__aenter__())
        self._updaters = {name: updater_of(assembly, name) for name in assembly.policies}

    def pid(self) -> int:
        return os.getpid()

    def gradients(
        self, policy: str, state: State, share: Sequence[Microbatch]
    ) -> tuple[State, list[BatchStats | None]]:
        """The summed gradients of these microbatches under these weights, and their statistics."""
        updater = self._updaters[policy]
        updater.policy.load(state, "the head")
        updater.optimizer.zero_grad(set_to_none=True)
        measured = list(updater.gradients(share))
        weights = updater.policy.parameters.items()
        found = {name: one.grad.cpu() for name, one in weights if one.grad is not None}
        return found, measured


class SharedLearners:
    """The other learners of a run. Give it to an `Updater` as `shared`."""

    def __init__(
        self, config: Config, count: int, *, cpus: float = 1.0, gpus: float = 0.0, deadline: float
    ) -> None:
        self._tree = config.model_dump(mode="json")
        self._ray = import_ray()
        self._actor_class = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0)(Learner)
        self._deadline = deadline
        self._actors = [self._start() for _ in range(count)]
        self.lost = 0

    def __call__(
        self, updater: Updater, batch: Sequence[Microbatch]
    ) -> Iterator[BatchStats | None]:
        """Like `Updater.gradients`: what others computed is added in the order of their shares."""
        own, *others = shares(batch, 1 + len(self._actors))
        state = self._ray.put(updater.policy.state())
        asked = [
            actor.gradients.remote(updater.policy.name, state, share) if share else None
            for actor, share in zip(self._actors, others, strict=True)
        ]
        yield from updater.gradients(own)
        for place, (answer, share) in enumerate(zip(asked, others, strict=True)):
            if answer is None:
                continue
            try:
                gradients, measured = self._ray.get(answer, timeout=self._deadline)
            except self._ray.exceptions.RayError as error:
                yield from self._instead(place, error, updater, share)
                continue
            _add(updater, gradients)
            yield from measured

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    def _start(self) -> Any:
        actor: Any = self._actor_class.remote()
        actor.open.remote(self._tree)  # calls are answered in order, so nobody waits for it here
        return actor

    def _instead(
        self, place: int, error: Exception, updater: Updater, share: Sequence[Microbatch]
    ) -> Iterator[BatchStats | None]:
        """Compute a lost learner's share here, and start another for the next step."""
        began = time.perf_counter()
        self._ray.kill(self._actors[place])
        self._actors[place] = self._start()
        yield from updater.gradients(share)
        self.lost += 1
        reason = one_line(error)[:300]
        sentence = "learner %d was lost (%s: %s); its share took %.1f s here"
        log.warning(sentence, place + 1, type(error).__name__, reason, time.perf_counter() - began)


def shares(batch: Sequence[Microbatch], count: int) -> list[list[Microbatch]]:
    """The microbatches in `count` runs of about as many rows each; some may be empty."""
    total = sum(len(micro.rows) for micro in batch)
    found: list[list[Microbatch]] = [[] for _ in range(count)]
    before = 0
    for micro in batch:
        middle = before + len(micro.rows) / 2
        found[min(count - 1, int(count * middle / max(1, total)))].append(micro)
        before += len(micro.rows)
    return found


@torch.no_grad()
def _add(updater: Updater, gradients: State) -> None:
    for name, gradient in gradients.items():
        weight = updater.policy.parameters[name]
        gradient = gradient.to(weight.device, weight.dtype)
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
