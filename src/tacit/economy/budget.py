"""Multipliers that hold a budget: dual ascent on the price λ of what an episode costs.

Tokens and turns (or money) each have one. Pure: the state goes in, the next state comes out. Not
covered: measuring the policy's expected cost (`learn.credit`), charging it (`reward`).

    λ ← clip(λ + η·(C/B − 1), 0, λ_max)

C is the cost that the *policy* is expected to have, not that of samples forced on it. The form is
LEASH's (arXiv 2512.21540) and LACONIC's (arXiv 2602.14468); one multiplier for each of several
budgets as in CLAUSE (arXiv 2509.21035).
"""

import math
from dataclasses import dataclass

from tacit.config import BudgetConfig
from tacit.errors import ConfigError

PATIENCE = 50
"""Steps at the ceiling, over the budget, after which it is called not reachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dual:
    """The multiplier in force, and for how many steps it has been at its ceiling in vain."""

    value: float = 0.0
    at_ceiling: int = 0
    warming: bool = False
    """Whether it has not begun yet: nothing is charged while the team warms up."""


def open_duals(config: BudgetConfig, *, warming: bool = False) -> dict[str, Dual]:
    """The first multiplier of each budget that is set."""
    return {
        name: Dual(warming=True) if warming else Dual(value=config.start(name))
        for name in ("tokens", "turns", "money")
        if config.limit(name) is not None
    }


def step_dual(
    name: str, dual: Dual, cost: float, config: BudgetConfig, *, warming: bool = False
) -> Dual:
    """The state for the next step, given the policy's expected cost C in this one.

    `warming` says whether the next step still belongs to the warm-up.
    """
    budget, start = config.limit(name), config.start(name)
    if not math.isfinite(cost) or budget is None:
        raise ValueError(f"the expected cost in {name} is {cost}, its budget {budget}")
    if warming:
        return Dual(warming=True)
    if config.control == "fixed":
        return Dual(value=start)
    before = start if dual.warming else dual.value
    value = min(max(before + config.rate * (cost / budget - 1.0), 0.0), config.ceiling)
    in_vain = value == config.ceiling and cost > budget
    return Dual(value=value, at_ceiling=dual.at_ceiling + 1 if in_vain else 0)


def unreachable(name: str, dual: Dual, config: BudgetConfig) -> str | None:
    """The sentence that says so when the price is at its ceiling and the budget still exceeded."""
    if dual.at_ceiling < PATIENCE:
        return None
    return (
        f"budget not reachable: λ_{name} has been at its ceiling {config.ceiling:g} for "
        f"{dual.at_ceiling} steps and the cost is still above budget.{name} = "
        f"{config.limit(name):g}; raise the budget or budget.ceiling"
    )


def check_budget(name: str, budget: float, fixed_cost: float) -> None:
    """Refuse a budget that training could not keep: what is spent whatever anybody learns."""
    if budget < fixed_cost:
        spender = " the frozen agents of" if name == "tokens" else ""
        raise ConfigError(
            f"budget.{name} = {budget:g} is below what{spender} an episode cost when everyone who "
            f"may be silent is ({fixed_cost:.4g}); set it above that"
        )
