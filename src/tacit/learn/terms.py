"""A run's terms, from its config: how budgets are priced and what a reward is made of."""

from collections.abc import Callable

from tacit.economy.budget import DualSettings
from tacit.economy.reward import RewardSettings, overlong_penalty
from tacit.learn.assemble import Stage
from tacit.learn.credit import CreditSettings
from tacit.registry import lookup
from tacit.run.opening import prices_of
from tacit.types import Episode


def dual_settings(stage: Stage) -> dict[str, DualSettings]:
    """One price for each budget that is set."""
    budget = stage.config.budget
    starts = {"tokens": budget.weight_tokens, "turns": budget.weight_turns, "money": 0.0}
    return {
        name: DualSettings(
            name=name,
            budget=limit,
            rate=budget.rate,
            ceiling=budget.ceiling,
            start=start,
            fixed=budget.control == "fixed",
        )
        for name, start in starts.items()
        if (limit := getattr(budget, name)) is not None
    }


def credit_settings(stage: Stage) -> CreditSettings:
    """How episodes are judged."""
    config, prices = stage.config, prices_of(stage.config)
    parts: dict[str, Callable[[Episode], float]] = {
        name: lookup("reward part", where, {}) for name, where in config.reward.parts.items()
    }
    if config.reward.overlong:
        parts["overlong"] = _overlong(stage)
    return CreditSettings(
        reward=RewardSettings(
            budget_tokens=config.budget.tokens,
            budget_turns=config.budget.turns,
            budget_money=config.budget.money,
            cap=config.reward.cap,
            gate=config.reward.gate,
            shape=config.reward.shape,
            alpha=config.reward.alpha,
        ),
        advantage=config.train.advantage,
        sequence=config.loss.sequence,
        floor=config.silence.floor,
        solved_weight=config.silence.solved_weight,
        money=(lambda e: sum(map(prices.cost, e.calls))) if prices else (lambda e: 0.0),
        user_parts=parts,
    )


def _overlong(stage: Stage) -> Callable[[Episode], float]:
    """DAPO's shaping, on the longest message of a trained agent."""
    caps = {a.name: a.config.max_tokens for a in stage.roster.agents if a.config.trained}
    buffer = stage.config.reward.overlong

    def part(episode: Episode) -> float:
        mine = [call for call in episode.calls if call.agent in caps]
        return min(
            (overlong_penalty(c.usage.generated, caps[c.agent], buffer) for c in mine), default=0.0
        )

    return part
