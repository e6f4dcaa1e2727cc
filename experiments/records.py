"""The committed results as arrays, seeds × tasks, and the statistics that every table uses."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.outcomes import Columns, chosen, spread
from tacit.errors import ConfigError
from tacit.evaluation.statistics import Estimate, mcnemar, wilson

FOLDER = Path(__file__).parent / "results"
RESAMPLES = 10_000

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One team on one set of tasks, over seeds. A failed episode is NaN and counts nowhere."""

    label: str
    columns: tuple[Columns, ...]
    """One for each seed, all of the same tasks in the same order; see outcomes.py."""

    @property
    def ids(self) -> list[str]:
        return list(self.columns[0]["ids"])

    def only(self, ids: Iterable[str]) -> "Measured":
        """The same team on some of its tasks."""
        wanted = list(ids)
        return Measured(self.label, tuple(chosen(one, wanted) for one in self.columns))

    def column(self, name: str) -> Array:
        """Seeds × tasks of a recorded column: `right`, `calls.hinter/hinter.silent`."""
        return np.array([_column(one, name) for one in self.columns])

    @property
    def right_ST(self) -> Array:
        return self.column("right")

    def tokens(self, which: str) -> Array:
        """`generated` or `read`, of all agents; NaN where the episode failed."""
        sums = sum(self.column(f"calls.{kind}.{which}") for kind in self.kinds)
        return np.where(np.isnan(self.right_ST), np.nan, sums)

    @property
    def kinds(self) -> list[str]:
        """`hinter/hinter`, `actor/solver`: the agents, and what each was asked to be."""
        return list(dict.fromkeys(kind for one in self.columns for kind in one["calls"]))

    @property
    def accuracy(self) -> Estimate:
        return estimate(self.right_ST)

    @property
    def generated(self) -> float:
        return float(np.nanmean(self.tokens("generated")))

    @property
    def total(self) -> float:
        """Generated and read."""
        return float(np.nanmean(self.tokens("generated") + self.tokens("read")))

    @property
    def path(self) -> float:
        """Generated tokens on the critical path."""
        return float(np.nanmean(self.column("path")))


@dataclass(frozen=True, slots=True)
class Results:
    """Every committed run, by experiment and seed."""

    runs: Mapping[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "Results":
        runs: dict[str, dict[int, Mapping[str, Any]]] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                tree = json.loads(path.read_text(encoding="utf-8"))
                runs.setdefault(tree["experiment"], {})[tree["seed"]] = tree
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{path} is not a result: {error}") from None
        return cls({name: dict(sorted(seeds.items())) for name, seeds in sorted(runs.items())})

    def seeds(self, experiment: str) -> Mapping[int, Mapping[str, Any]]:
        return self.runs.get(experiment, {})

    def training(self, experiment: str) -> dict[int, Mapping[str, Any]]:
        runs = self.seeds(experiment).items()
        return {seed: run["training"] for seed, run in runs if run.get("training")}

    def measured(
        self, experiment: str, evaluation: str, label: str = "", *, beside: str | None = None
    ) -> Measured | None:
        """All seeds of one evaluation on the tasks they share; None where there is none.

        `beside`: only the seeds that have this evaluation too.
        """
        found = [
            columns
            for run in self.seeds(experiment).values()
            if (columns := run["evaluations"].get(evaluation))
            and (beside is None or beside in run["evaluations"])
        ]
        return _measured(label or evaluation, found) if found else None


def _measured(label: str, found: list[Columns]) -> Measured:
    shared = set.intersection(*({*one["ids"]} for one in found))
    ids = [task for task in found[0]["ids"] if task in shared]
    return Measured(label, tuple(chosen(one, ids) for one in found))


def _column(tree: Mapping[str, Any], name: str) -> Array:
    """One column as numbers; an agent that never spoke under a seed has zeros."""
    length = len(tree["ids"])
    node: Any = tree
    for key in name.split("."):
        node = node.get(key, 0) if isinstance(node, Mapping) else node
    values = spread(node, length)
    return np.array([np.nan if value in (None, "-") else float(value) for value in values])


# --- statistics ----------------------------------------------------------------------------------


def estimate(values_ST: Array) -> Estimate:
    """The mean with a 95 % interval over tasks, and over seeds where there are several."""
    kept = values_ST[:, ~np.isnan(values_ST).any(axis=0)]
    if not kept.size:
        return Estimate(0.0, 0.0, 1.0)
    if len(kept) == 1 and np.isin(kept, (0.0, 1.0)).all():
        return wilson(float(kept.sum()), kept.shape[1])
    low, high = np.percentile(_resampled(kept), [2.5, 97.5])
    return Estimate(float(kept.mean()), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Difference:
    """`second − first`, task by task."""

    difference: Estimate
    p: float
    """Exact McNemar; of several seeds the weakest one's."""
    tasks: int


def on_shared(*teams: Measured) -> list[Measured]:
    """The teams on the tasks that all of them have, in the order of the first."""
    common = set.intersection(*({*team.ids} for team in teams)) if teams else set()
    ids = [task for task in teams[0].ids if task in common] if teams else []
    return [team.only(ids) for team in teams]


def difference(first: Measured, second: Measured) -> Difference | None:
    """On the tasks both have. A team of one seed is compared with every seed of the other."""
    a_ST, b_ST = (team.right_ST for team in on_shared(first, second))
    whole = ~(np.isnan(a_ST).any(axis=0) | np.isnan(b_ST).any(axis=0))
    a_ST, b_ST = a_ST[:, whole], b_ST[:, whole]
    if not a_ST.shape[1]:
        return None
    paired_by_seed = len(a_ST) == len(b_ST)
    moved_ST = b_ST - (a_ST if paired_by_seed else a_ST.mean(axis=0))
    low, high = np.percentile(_resampled(moved_ST), [2.5, 97.5])
    ps = [
        mcnemar(int(((a > 0.5) & (b <= 0.5)).sum()), int(((b > 0.5) & (a <= 0.5)).sum()))
        for b in b_ST
        for a in a_ST
    ]
    mean = float(moved_ST.mean())
    return Difference(Estimate(mean, float(low), float(high)), max(ps), moved_ST.shape[1])


def _resampled(values_ST: Array) -> Array:
    """Means of resamples of seeds and, independently, of tasks.

    Tasks with the same outcomes under every seed are drawn as one kind, since there are few kinds.
    """
    generator = np.random.default_rng(0)
    seeds, tasks = values_ST.shape
    kinds_SK, counts_K = np.unique(values_ST, axis=1, return_counts=True)
    seeds_RS = generator.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    tasks_RK = generator.multinomial(tasks, counts_K / tasks, RESAMPLES) / tasks
    means_R: Array = ((seeds_RS @ kinds_SK) * tasks_RK).sum(axis=1)
    return means_R
