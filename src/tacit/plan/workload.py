"""What a training step computes: the requests that are decoded, what is learned from, what is held.

Of one config, with made-up words. Every GPU does its share of the requests and of the tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tacit.config import Config, TeamConfig
from tacit.errors import ConfigError
from tacit.plan.costs import (
    Decoding,
    Learning,
    Memory,
    cache_memory,
    learner_memory,
    model_memory,
)
from tacit.plan.made_up_talk import Turn
from tacit.plan.model_shapes import Shape
from tacit.rollout.groups import choosing_roles, several_choices
from tacit.run.opening import is_greedy
from tacit.silence import open_silence

ROWS = 256
"""Sequences that a GPU decodes together unless the config says."""
LEAST_ROWS = 8
"""An engine whose memory is full goes down to so many."""
LONGEST = 2.0
"""The longest prompt over the mean one."""
SCORED_AT_ONCE = 4
"""Microbatches that are scored together."""


@dataclass(frozen=True, slots=True)
class Workload:
    config: Config
    team: TeamConfig
    shapes: Mapping[str, Shape]
    """Of every model that is on the GPUs, by its name in the config."""
    turns: Sequence[Turn]
    question: int
    """Tokens of a task's question."""
    room: float = 1.0
    """The share of the rows for whose keys and values there is memory."""

    @property
    def batch(self) -> int:
        """Episodes of a step that are learned from."""
        return self.config.train.tasks_per_step * self.config.train.group

    @property
    def episodes(self) -> float:
        """Episodes of a step, those of the silent arm or of the other choice included."""
        config, team, choosing = self.config, self.team, choosing_roles(self.team)
        silence = open_silence(
            config.silence, choosing=bool(choosing), several=several_choices(team)
        )
        if silence.pairs:
            return 2.0 * self.batch * config.silence.seats
        greedy = all(is_greedy(config, team, role) for role in team.agents.keys() - {*choosing})
        plays = silence.silent_plays(deterministic=greedy) if choosing else 0
        return float(self.batch + plays * config.train.tasks_per_step)

    def play(self, replicas: int) -> list[Decoding]:
        """A step's requests to one of so many GPUs."""
        train = self.config.train
        return self._decoded(self.episodes / replicas, train.group, train.concurrency)

    def evaluate(self, episodes: float, replicas: int) -> list[Decoding]:
        """The requests of one evaluation."""
        return self._decoded(episodes / replicas, 1, self.config.evaluation.concurrency)

    def _decoded(self, episodes: float, group: int, concurrency: int) -> list[Decoding]:
        """Calls that read and say as much, one after the other, are asked at the same time."""
        found: list[Decoding] = []
        arriving = 0.0
        for _, same in groupby(self.turns, key=lambda t: (t.role, t.prompt, t.new)):
            several = list(same)
            one = several[0]
            if one.model not in self.shapes:
                continue
            # a frozen, greedy agent is asked once by all episodes of a task that begin with it
            asked_once = one.first and is_greedy(self.config, self.team, one.role)
            requests = max(1.0, len(several) * episodes / (group if asked_once else 1))
            computed = requests * one.prompt
            work = Decoding(
                shape=self.shapes[one.model],
                rows=min(
                    max(LEAST_ROWS, int(self.room * self.rows(one.model))),
                    concurrency * len(several),
                ),
                requests=requests,
                prompt=one.prompt,
                new=one.new,
                cap=one.cap,
                computed=computed / group if one.first and not asked_once else computed,
                arriving=arriving,
                rank=self.rank if one.trained else 0,
            )
            arriving = work.steps
            found.append(work)
        return found

    def rows(self, model: str) -> int:
        return self.config.model_named(model).rows or ROWS

    @property
    def rank(self) -> int:
        """Of the adapter; 0 if all weights are trained."""
        policy = self.config.policy
        return policy.rank if policy.kind == "lora" else 0

    def _policy(self, turn: Turn) -> str:
        """The name of the trained weights that make the call; empty if they are frozen."""
        if not turn.trained:
            return ""
        return turn.role if self.config.policy.share == "role" else turn.model

    @property
    def policies(self) -> dict[str, list[Turn]]:
        """The trained calls, by the weights that make them."""
        found: dict[str, list[Turn]] = {}
        for turn in self.turns:
            if name := self._policy(turn):
                if turn.model not in self.shapes:
                    raise ConfigError(
                        f"team.agents.{turn.role}: a model behind an API cannot be trained; "
                        "use a local one"
                    )
                found.setdefault(name, []).append(turn)
        if not found:
            raise ConfigError(
                "nothing to train: set `trained: true` on at least one agent of the team"
            )
        return found

    def _tokens(self, turns: Sequence[Turn]) -> float:
        """Tokens that an update computes; all groups are taken to teach."""
        tasks = self.config.train.tasks_per_step
        prompts = sum(turn.prompt * (tasks if turn.first else self.batch) for turn in turns)
        return prompts + self.batch * sum(turn.new for turn in turns)

    def score(self, replicas: int) -> list[Learning]:
        """Old log-probabilities for later updates, and those of the base for KL."""
        updates, kl = self.config.train.updates, bool(self.config.loss.kl)
        share = (updates - 1) / updates + kl
        if not share:
            return []
        return [
            Learning(
                shape=one.shape,
                tokens=one.tokens * share,
                passes=math.ceil(one.passes * share / SCORED_AT_ONCE),
                backward=False,
            )
            for one in self.update(replicas)
        ]

    def update(self, replicas: int) -> list[Learning]:
        """The gradients and optimiser steps of each policy."""
        train, found = self.config.train, []
        for mine in self.policies.values():
            tokens = self._tokens(mine) / replicas
            one_update = math.ceil(tokens / train.updates / train.microbatch_tokens)
            found.append(
                Learning(
                    shape=self.shapes[mine[0].model],
                    tokens=tokens,
                    passes=train.updates * one_update,
                    rank=self.rank,
                    checkpointing=train.gradient_checkpointing,
                    steps=train.updates,
                )
            )
        return found

    def memory(self) -> Memory:
        """Of one copy of everything: models, an engine's cache for each set of weights, learner.

        With the cache that all rows would need.
        """
        whole = Memory()
        for shape in self.shapes.values():
            whole += model_memory(shape)
        engines: dict[tuple[str, str], float] = {}
        for turn in self.turns:
            if turn.model in self.shapes:
                own = turn.model, self._policy(turn)
                reach = turn.prompt + (LONGEST - 1) * self.question + turn.cap
                engines[own] = max(engines.get(own, 0.0), reach)
        for (model, _), longest in engines.items():
            whole += cache_memory(self.shapes[model], self.rows(model), longest)
        learners = [self._learner(mine) for mine in self.policies.values()]
        for one in learners:
            whole += Memory(weights=one.weights, optimizer=one.optimizer)
        # one learns at a time, so activations and logits are those of the largest
        largest = max(learners, key=lambda one: one.kept)
        return whole + Memory(kept=largest.kept, logits=largest.logits)

    def _learner(self, turns: Sequence[Turn]) -> Memory:
        train = self.config.train
        return learner_memory(
            self.shapes[turns[0].model],
            min(train.microbatch_tokens, self._tokens(turns) / train.updates),
            rank=self.rank,
            checkpointing=train.gradient_checkpointing,
        )
