"""Which teams the page speaks of, where their numbers are, and how numbers are written."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from experiments.catalogue import EXPERIMENTS
from experiments.records import Array, Difference, Measured, Results
from tacit.evaluation.statistics import Estimate
from tacit.team.prompts import HELPING_PARTS

NOTHING = "not measured yet"
MISSING = f"*{NOTHING.capitalize()}.*"
Row = tuple[str, str, str]
"""What the page calls a team, its experiment, its evaluation."""

SOLO: Row = ("solo", "baselines", "solo")
UNTRAINED_HINT: Row = ("untrained hint", "baselines", "untrained hint")
UNTRAINED_READ: Row = ("untrained hint, read", "hint-reader-budget", "untrained")
UNTRAINED_HINTS: tuple[Row, ...] = (
    UNTRAINED_HINT,
    ("untrained hint, may be silent", "baselines", "untrained hint that may be silent"),
    ("untrained rewriting (AgentPO's role text)", "baselines", "untrained rewriting"),
    ("untrained short hint", "baselines", "untrained short hint"),
    ("untrained lean hint", "baselines", "untrained lean hint"),
)
HINT: Row = ("trained hint", "hint", "trained")
"""The headline; chosen among the trained hinters on validation tasks."""
READ: Row = ("trained hint, read", "hint-reader-budget", "trained")
"""The Actor is told to check the hint rather than to solve the question again."""
DIALOGUE: Row = ("trained dialogue", "gspo", "trained")
ARBITERS: tuple[Row, ...] = (
    ("two solutions and a trained arbiter", "silence-arbiter", "trained"),
    ("two solutions and a trained arbiter, turns priced", "silence-turns", "trained"),
)
OPINION: Row = ("trained second opinion", "gspo-second", "trained")
"""One policy for three, of whom the second chooses whether it needs more than the first."""
UNTRAINED_OPINION: Row = ("untrained second opinion", "gspo-second", "untrained")
UNTRAINED_DIALOGUE: Row = ("untrained dialogue", "baselines-dialogue", "untrained, gsm8k")
CONSISTENCY: Row = ("self-consistency (8)", "baselines", "self-consistency")
ROLES: Row = ("role assignment", "baselines", "role assignment")
REFINE: Row = ("self-refine", "baselines-costly", "self refine")
DEBATE: Row = ("debate (3 agents, 2 rounds)", "baselines-dialogue", "debate")
EVO: Row = ("EvoAgent", "baselines-costly", "EvoAgent")
FINE_TUNED: Row = ("Actor fine-tuned", "actor-finetune", "trained")
WRONG: Row = ("its wrong third one alone", "baselines", "solo told to be wrong")
GSM8K: tuple[Row, ...] = (
    SOLO,
    *UNTRAINED_HINTS,
    (
        "untrained rewriting, the Actor prompted as published too",
        "baselines",
        "untrained rewriting as published",
    ),
    ("solo, prompted as published", "baselines", "solo as published"),
    ("untrained hint, reworded", "baselines", "untrained hint reworded"),
    ("untrained critic", "baselines", "untrained critic"),
    UNTRAINED_DIALOGUE,
    (
        "untrained dialogue, role text last",
        "baselines-dialogue",
        "untrained with the role text last",
    ),
    ROLES,
    ("step-back", "baselines", "step back"),
    CONSISTENCY,
    REFINE,
    DEBATE,
    ("quality-diversity", "baselines-costly", "quality diversity"),
    EVO,
    HINT,
    ("its hinter alone, told to answer", "hint", "hinter alone"),
    ("the Actor told to read, alone", "hint-reader-budget", "reader alone"),
    UNTRAINED_READ,
    READ,
    ("its hinter alone, read", "hint-reader-budget", "hinter alone"),
    ("trained hint, read, no budget", "hint-reader", "trained"),
    ("trained lean hint", "hint-lean", "trained"),
    ("its hinter alone, lean", "hint-lean", "hinter alone"),
    ("trained hint, varied problems", "hint-varied", "trained"),
    ("trained rewriting", "hint-rewriting", "trained"),
    ("trained hint, budget", "hint-budget", "trained"),
    ("trained short hint", "hint-short", "trained"),
    ("trained critic", "critic", "trained"),
    ("trained hint with silence (`arms`)", "silence-arms", "trained"),
    ("the same, warmed up, tokens weighing alike", "silence-even+dragged", "trained"),
    ("untrained critic, working it out, may be silent", "silence-critic+dragged", "untrained"),
    ("the same critic, trained", "silence-critic+dragged", "trained"),
    ("trained hint with silence, held in the warm-up", "silence-warm", "trained"),
    ("the same, tokens weighing alike", "silence-even", "trained"),
    ("the same, hints learned where silence fails", "silence-hard", "trained"),
    ("trained critic with silence, held in the warm-up", "silence-critic", "trained"),
    ("the arbiter's second solver alone", "baselines", "solo in short steps"),
    WRONG,
    ("two solutions and an untrained arbiter", "silence-arbiter", "untrained"),
    ARBITERS[0],
    ("its arbiter alone", "silence-arbiter", "arbiter alone"),
    ("two solutions and an untrained arbiter, the role's text last", "silence-turns", "untrained"),
    ARBITERS[1],
    ("its arbiter alone, turns priced", "silence-turns", "arbiter alone"),
    UNTRAINED_OPINION,
    OPINION,
    ("the same, λ = 0", "gspo-second-free", "trained"),
    ("its policy alone", "gspo-second", "policy alone"),
    DIALOGUE,
    FINE_TUNED,
    ("trained hint, SmolLM2-135M", "hint-small", "trained"),
)
SERIOUS = tuple(row for row in GSM8K if row is not WRONG)
"""Those that try to be right."""
SILENCES = {
    "silence-arms": "`arms`",
    "silence-floor": "`floor`",
    "silence-none": "`none`",
    "silence-even+dragged": "`arms`, warmed up, tokens weighing alike",
    "silence-critic+dragged": "`arms`, warmed up, a critic",
    "silence-warm": "`arms`, warmed up, held",
    "silence-even": "the same, tokens weighing alike",
    "silence-hard": "the same, hints learned where silence fails",
    "silence-critic": "`arms`, warmed up, held, a critic",
    "silence-arbiter": "`arms`, warmed up, held, an arbiter, dual control",
    "silence-turns": "the same, turns priced and not tokens, the role's text last",
    "gspo-second": "a second opinion, all three trained, turns priced",
}
CHOOSING = ("hinter", "critic", "second", "arbiter")
"""Who may be silent in those runs."""
SEVEN: dict[str, tuple[Row, ...]] = {
    "gsm8k": (("GSM8K", "gspo", "trained"),),
    "math500": (("MATH", "gspo-math", "trained"), ("GSM8K", "gspo", "math500")),
    "humaneval": (("MBPP", "gspo-code", "humaneval"),),
    "mbpp": (("MBPP", "gspo-code", "mbpp"),),
    "strategyqa": (
        ("StrategyQA", "gspo-strategyqa", "strategyqa"),
        ("GSM8K", "gspo", "strategyqa"),
    ),
    "sports_understanding": (
        ("StrategyQA", "gspo-strategyqa", "sports understanding"),
        ("GSM8K", "gspo", "sports_understanding"),
    ),
    "checkmate_in_one": (("GSM8K", "gspo", "checkmate_in_one"),),
}
"""Where the trained dialogue's numbers of each benchmark are, and on what it was trained."""
DIALOGUE_RUNS = tuple(
    name
    for name, one in EXPERIMENTS.items()
    if name.startswith("gspo")
    and one.item == 3
    and name != "gspo-math"
    and one.config["team"]["topology"] == "dialogue"
)
"""The dialogue on GSM8K, and its controls."""
MATHS: tuple[str, ...] = ("math500", "amc23", "minerva_math", "olympiadbench", "aime24")


def teams_on(benchmark: str) -> tuple[Row, ...]:
    """Every team that is measured on a benchmark."""
    if benchmark == "gsm8k":
        return SERIOUS
    rows: list[Row] = []
    if benchmark in SEVEN:
        rows += [
            ("solo", "baselines-dialogue", f"solo, {benchmark}"),
            ("untrained dialogue", "baselines-dialogue", f"untrained, {benchmark}"),
            *((f"dialogue trained on {on}", name, team) for on, name, team in SEVEN[benchmark]),
        ]
    if benchmark in MATHS:
        rows += [
            ("solo, longer answers", "baselines-math", f"solo, {benchmark}"),
            ("untrained hint, longer answers", "baselines-math", f"untrained hint, {benchmark}"),
            ("trained hint, longer answers", "math-hint", f"trained, {benchmark}"),
        ]
    return tuple(rows)


def first_curve(curves: Mapping[str, Sequence[float]], wanted: Sequence[str]) -> Sequence[float]:
    """The first of them that a run has."""
    return next((curves[name] for name in wanted if name in curves), ())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: words to the left, numbers to the right."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return MISSING
    marks = ["---", *("---:" for _ in head[1:])]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'|'.join(marks)}|", *body])


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def interval(value: Estimate, scale: float = 100.0) -> str:
    low, high = (f"{scale * bound:.1f}" for bound in (value.low, value.high))
    return f"{scale * value.mean:.1f} [{low}, {high}]"


def points(test: Difference | None) -> str:
    """`+5.2 [3.1, 7.4], p 0.0003`."""
    if test is None:
        return ""
    low, high = (f"{100 * bound:+.1f}" for bound in (test.difference.low, test.difference.high))
    return f"{100 * test.difference.mean:+.1f} [{low}, {high}], p {_p(test.p)}"


def _p(p: float) -> str:
    return "< 1e-6" if p < 1e-6 else f"{p:.2g}"


def get(results: Results, row: Row) -> Measured | None:
    label, experiment, evaluation = row
    return results.measured(experiment, evaluation, label)


def every(results: Results, rows: Iterable[Row]) -> list[Measured]:
    return [found for row in rows if (found := get(results, row))]


def seeds_of(team: Measured) -> str:
    by_seed = [percent(float(np.nanmean(one))) for one in team.right_ST]
    return "1" if len(by_seed) == 1 else f"{len(by_seed)}: {', '.join(by_seed)}"


def roles_of(team: Measured) -> str:
    means = ((k, float(np.nanmean(team.column(f"calls.{k}.generated")))) for k in team.kinds)
    return ", ".join(f"{kind.replace('/', ' as ')} {mean:.0f}" for kind, mean in means)


def cut_of(team: Measured) -> str:
    """The share of each role's calls that ended at their cap."""

    def share(kind: str) -> float:
        cut, calls = (team.column(f"calls.{kind}.{name}") for name in ("cut", "calls"))
        return float(np.nansum(cut) / max(1.0, np.nansum(calls)))

    return ", ".join(f"{kind.rpartition('/')[2]} {100 * share(kind):.0f}" for kind in team.kinds)


def said(team: Measured) -> float:
    """Tokens of messages to teammates, by those who were not asked for the answer."""
    kinds = [kind for kind in team.kinds if kind.rpartition("/")[2] in HELPING_PARTS]
    return sum(float(np.nanmean(team.column(f"calls.{kind}.generated"))) for kind in kinds)


def silent_share(team: Measured) -> Array:
    """Seeds × tasks: the share of the calls with a choice that were silent; nan where it failed."""
    kinds = [kind for kind in team.kinds if kind.rpartition("/")[2] in HELPING_PARTS]
    silent = sum((team.column(f"calls.{kind}.silent") for kind in kinds), np.zeros(1))
    calls = sum((team.column(f"calls.{kind}.calls") for kind in kinds), np.zeros(1))
    return np.where(np.isnan(team.right_ST), np.nan, silent / np.maximum(1, calls))
