"""Multipliers that hold a budget: dual ascent on the price λ of what an episode costs.

Tokens, turns and money each have their own. Pure functions from one state to the next. Not covered:
measuring the policy's expected cost (`learn.credit`), charging it (`reward`).

    λ ← clip(λ + η·(C/B − 1), 0, λ_max)

C is the expected cost of the *policy*, without the samples that exploration forced on it. The form
is that of LEASH (arXiv 2512.21540) and LACONIC (arXiv 2602.14468), with one multiplier per budget
as in CLAUSE (arXiv 2509.21035).
"""

import math
from dataclasses import dataclass, replace

from tacit.config import BudgetConfig

PATIENCE = 50
"""Steps at the ceiling and over budget after which the budget is reported as unreachable."""
WINDOW = 5
"""Steps over which a warm-up averages how well speaking does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """The first steps of a run, in which nothing is charged and only the content is trained."""

    limit: int
    """Longest duration in steps; 0 means no warm-up."""
    gain: float = -0.02
    """The warm-up ends early once speaking beats not speaking by this much over WINDOW steps."""
    steps: int = 0
    gaps: tuple[float, ...] = ()
    """By how much speaking was better in each of the last steps."""
    caught_up: bool = False

    @property
    def over(self) -> bool:
        return self.caught_up or self.steps >= self.limit


def step_warmup(state: Warmup, gap: float | None) -> Warmup:
    """The state after one more step; `gap` is None if the two were not compared in it."""
    gaps = state.gaps if gap is None else (*state.gaps, gap)[-WINDOW:]
    caught_up = state.caught_up or (len(gaps) == WINDOW and sum(gaps) / WINDOW >= state.gain)
    return replace(state, steps=state.steps + 1, gaps=gaps, caught_up=caught_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dual:
    """The multiplier of one budget."""

    value: float = 0.0
    at_ceiling: int = 0
    """Consecutive steps spent at the ceiling while still over budget."""
    warming: bool = False
    """True during the warm-up, when nothing is charged."""


def open_duals(config: BudgetConfig, *, warming: bool = False) -> dict[str, Dual]:
    """The initial multiplier of each budget that is set."""
    return {
        name: Dual(warming=True) if warming else Dual(value=config.start(name))
        for name in ("tokens", "turns", "money")
        if config.limit(name) is not None
    }


def step_dual(
    name: str, dual: Dual, cost: float, config: BudgetConfig, *, warming: bool = False
) -> Dual:
    """The multiplier for the next step, given the policy's expected cost C in this one.

    `warming`: the next step still belongs to the warm-up.
    """
    budget, start = config.limit(name), config.start(name)
    if not math.isfinite(cost) or budget is None:
        raise ValueError(f"the expected cost in {name} is {cost}, its budget {budget}")
    if warming:
        return Dual(warming=True)
    before = start if dual.warming else dual.value
    if config.control == "fixed":
        return Dual(value=before)
    value = min(max(before + config.rate * (cost / budget - 1.0), 0.0), config.ceiling)
    in_vain = value == config.ceiling and cost > budget
    return Dual(value=value, at_ceiling=dual.at_ceiling + 1 if in_vain else 0)


def unreachable(name: str, dual: Dual, config: BudgetConfig) -> str | None:
    """A warning if λ has stayed at its ceiling and the budget is still exceeded."""
    if dual.at_ceiling < PATIENCE:
        return None
    return (
        f"budget not reachable: λ_{name} has been at its ceiling {config.ceiling:g} for "
        f"{dual.at_ceiling} steps and the cost is still above budget.{name} = "
        f"{config.limit(name):g}; raise the budget or budget.ceiling"
    )
