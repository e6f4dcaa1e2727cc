"""Multipliers that hold a budget: dual ascent on the price λ of what an episode costs.

Tokens and turns (or money) each have one. Pure: the state goes in, the next state comes out. Not
covered: measuring the policy's expected cost (`learn.silence`), charging it (`reward`).

    λ ← clip(λ + η·(C/B − 1), 0, λ_max)

C is the cost that the *policy* is expected to have, not that of samples forced on it. The form is
LEASH's (arXiv 2512.21540) and LACONIC's (arXiv 2602.14468); one multiplier for each of several
budgets as in CLAUSE (arXiv 2509.21035).
"""

import math
from dataclasses import dataclass

from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DualSettings:
    """One budget and how its multiplier moves."""

    name: str
    """tokens, turns or money: what messages call it."""
    budget: float
    rate: float = 0.005
    """η."""
    ceiling: float = 1.0
    """λ_max."""
    start: float = 0.0
    """λ at the start, and throughout where `fixed`."""
    fixed: bool = False
    patience: int = 50
    """Steps at the ceiling, over the budget, before it is called not reachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dual:
    """The multiplier in force, and for how many steps it has been at its ceiling in vain."""

    value: float = 0.0
    at_ceiling: int = 0
    warming: bool = False
    """Whether it has not begun yet: nothing is charged while the team warms up."""


def start_dual(settings: DualSettings, *, warming: bool = False) -> Dual:
    """The first state."""
    if not settings.budget > 0:
        raise ConfigError(f"budget.{settings.name} must be above 0, got {settings.budget}")
    return Dual(warming=True) if warming else Dual(value=settings.start)


def step_dual(dual: Dual, cost: float, settings: DualSettings, *, warming: bool = False) -> Dual:
    """The state for the next step, given the policy's expected cost C in this one.

    `warming` says whether the next step still belongs to the warm-up.
    """
    if not math.isfinite(cost):
        raise ValueError(f"the expected cost in {settings.name} is {cost}")
    if warming:
        return Dual(warming=True)
    if settings.fixed:
        return Dual(value=settings.start)
    before = settings.start if dual.warming else dual.value
    value = before + settings.rate * (cost / settings.budget - 1.0)
    value = min(max(value, 0.0), settings.ceiling)
    in_vain = value == settings.ceiling and cost > settings.budget
    return Dual(value=value, at_ceiling=dual.at_ceiling + 1 if in_vain else 0)


def unreachable(dual: Dual, settings: DualSettings) -> str | None:
    """The sentence that says so when the price is at its ceiling and the budget still exceeded."""
    if dual.at_ceiling < settings.patience:
        return None
    return (
        f"budget not reachable: λ_{settings.name} has been at its ceiling {settings.ceiling:g} for "
        f"{dual.at_ceiling} steps and the cost is still above budget.{settings.name} = "
        f"{settings.budget:g}; raise the budget or budget.ceiling"
    )


def check_budget(name: str, budget: float, fixed_cost: float) -> None:
    """Refuse a budget that training could not keep: what is spent whatever anybody learns."""
    if budget < fixed_cost:
        spender = " the frozen agents of" if name == "tokens" else ""
        raise ConfigError(
            f"budget.{name} = {budget:g} is below what{spender} an episode cost when everyone who "
            f"may be silent is ({fixed_cost:.4g}); set it above that"
        )
