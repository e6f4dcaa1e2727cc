"""The state of a run apart from its weights: its prices, its best checkpoint, when it stops."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import NonNegativeInt, TypeAdapter

from tacit.config import BudgetConfig, Config, RewardConfig, TrainConfig
from tacit.economy.budget import PATIENCE, Dual, Warmup, step_dual, step_warmup, unreachable
from tacit.economy.group import Group
from tacit.economy.reward import Multipliers

NO_BETTER, NO_SIGNAL = "no better evaluation in", "no group had a signal for"
EMPTY = "the trained agents' messages have become empty"
"""Reasons to stop (or how they begin) that no longer hold if a setting changes."""
OVER_BUDGET = 1.1
"""A checkpoint may exceed a budget by this factor and still count as within it."""


@dataclass(slots=True)
class State:
    """Saved in checkpoints beside the weights, so that a run resumes exactly."""

    step: int = 0
    position: int = 0
    """Position of the task sampler."""
    duals: dict[str, Dual] = field(default_factory=dict)
    warmup: Warmup = field(default_factory=lambda: Warmup(limit=0))
    best: dict[str, Any] | None = None
    worse: int = 0
    """Evaluations since the best one."""
    dead: int = 0
    """Consecutive steps without any signal."""
    empty: float = 1.0
    """Share of empty messages in this step; 1 if an older checkpoint does not say."""
    stopped: str | None = None
    dropped: int = 0
    """Training episodes that failed and were left out."""
    owed: bool = False
    """True if the evaluation of this step is still missing."""
    sizes: dict[str, NonNegativeInt] = field(default_factory=dict)
    """Bytes of each file that is cut back when the run resumes."""

    def multipliers(self, reward: RewardConfig) -> Multipliers:
        """λ of the next step."""
        if not self.warmup.over:
            return Multipliers(free=True)
        value = {name: dual.value for name, dual in self.duals.items()}
        return Multipliers(
            tokens=value.get("money", value.get("tokens", 0.0)),
            turns=value.get("turns", 0.0),
            repetition=reward.repetition,
        )

    def advance_prices(self, groups: Sequence[Group], budget: BudgetConfig) -> list[str]:
        """Advance the warm-up and the prices by one step; returns warnings."""
        gains = [group.gain for group in groups if group.gain is not None]
        gap = -sum(gains) / len(gains) if gains else None
        if not self.warmup.over:
            self.warmup = step_warmup(self.warmup, gap)
        warnings = []
        for name, dual in self.duals.items():
            cost = sum(getattr(group, name) for group in groups) / len(groups)
            now = step_dual(name, dual, cost, budget, warming=not self.warmup.over)
            self.duals[name] = now
            sentence = unreachable(name, now, budget)
            if sentence and now.at_ceiling == PATIENCE:
                warnings.append(sentence)
        return warnings

    def check(self, train: TrainConfig, *, signal: bool, empty: float) -> None:
        """Stop after too many steps without a signal, or with too many empty messages."""
        self.dead = 0 if signal else self.dead + 1
        if self.dead >= train.dead_steps:
            self.stopped = f"{NO_SIGNAL} {self.dead} steps"
        self.empty = empty
        if empty >= train.empty_share:
            self.stopped = EMPTY

    def remember_best(self, numbers: Mapping[str, float], config: Config) -> None:
        """Remember an evaluation if it is the best, otherwise count it as worse.

        Ranked by being within the budgets, then by accuracy or F1, then by fewer tokens.
        """
        tokens, turns = numbers["eval/tokens"], numbers["eval/turns"]
        older = self.best is not None and "by" not in self.best  # keeps to what it began with
        by = "eval/reward" if "eval/reward" in numbers and not older else "eval/accuracy"
        rank = [within(config.budget, tokens, turns), numbers[by], -tokens]
        if self.best is None or rank > self.best["rank"]:
            self.best = {"step": self.step, "rank": rank, "turns": turns}
            self.best |= {} if older else {"by": "reward"}
            self.worse = 0
        else:
            self.worse += 1

    def stop_if_no_better(self, train: TrainConfig) -> bool:
        """Stop once `train.patience` evaluations in a row were no better; True if so."""
        if ended := 0 < train.patience <= self.worse:
            self.stopped = f"{NO_BETTER} {train.patience}"
        return ended

    def reconsider(self, config: Config) -> None:
        """Apply the current settings to why the run stopped and to its best checkpoint."""
        if not self._still_stopped(config.train):
            self.stopped = None
        if self.best:
            rank, turns = self.best["rank"], self.best.get("turns", 0.0)
            self.best["rank"] = [within(config.budget, -rank[2], turns), *rank[1:]]

    def _still_stopped(self, train: TrainConfig) -> bool:
        """True if these settings would also have stopped the run."""
        reason = self.stopped or ""
        if reason.startswith(NO_BETTER):
            return 0 < train.patience <= self.worse
        if reason == EMPTY:
            return self.empty >= train.empty_share
        return not reason.startswith(NO_SIGNAL) or self.dead >= train.dead_steps

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "State":
        """Inverse of `to_json`; raises ValueError if something has the wrong type."""
        own = {name: tree[name] for name in cls.__slots__ if name in tree}
        required = {name: tree[name] for name in ("duals", "warmup", "sizes")}
        return _ADAPTER.validate_python(own | required)


_ADAPTER = TypeAdapter(State)


def within(budget: BudgetConfig, tokens: float, turns: float) -> bool:
    """True if an evaluation kept to the budgets. Under fixed prices they are only units."""
    spent = ((tokens, budget.tokens), (turns, budget.turns))
    fixed = budget.control == "fixed"
    return fixed or all(cost <= OVER_BUDGET * most for cost, most in spent if most is not None)
