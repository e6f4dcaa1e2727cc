"""The records in `results/` as arrays, seeds × tasks, and the statistics that every table uses.

A record is one run: its config, its course of training and, for every evaluation, one dict of
columns with a position for each task. A column whose values are all equal is kept as that value.

    {"tasks": "gsm8k/test", "ids": ["0", "1"], "right": "10", "leak": "-1", "path": [310, 402],
     "calls": {"hinter/hinter": {"generated": [41, 60], "read": 88, "calls": 1, "silent": 0}}}
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.keep import training_of
from tacit import ConfigError
from tacit.evaluation.statistics import Estimate, mcnemar, wilson

FOLDER = Path(__file__).parent / "results"
RESAMPLES = 10_000
HELPERS = {
    "critic", "evolver", "guide", "hinter", "holder", "quoter", "role_picker", "self_critic",
    "speaker", "tester",
}  # fmt: skip
"""Parts whose words are for teammates, as records name them."""
BY_TASK = (
    "ids", "right", "answer", "leak", "path", "level", "right_calls", "log_silence",
    "base_nats", "base_tokens", "reward", "calls", "choices", "needed", "named",
)  # fmt: skip

Array = NDArray[np.float64]
Columns = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """One team on one set of tasks, over seeds. A failed episode is NaN and counts nowhere."""

    columns: tuple[Columns, ...]
    """One for each seed, all of the same tasks in the same order."""

    @property
    def ids(self) -> list[str]:
        return list(self.columns[0]["ids"])

    @property
    def tasks(self) -> str:
        return str(self.columns[0]["tasks"])

    @property
    def seeds(self) -> int:
        return len(self.columns)

    def only(self, ids: Iterable[str]) -> "Measured":
        """The same team on some of its tasks."""
        wanted = list(ids)
        return Measured(tuple(_chosen(one, wanted) for one in self.columns))

    def column(self, name: str) -> Array:
        """Seeds × tasks of a recorded column: `right`, `calls.hinter/hinter.silent`."""
        return np.array([_numbers(one, name) for one in self.columns])

    @property
    def right_ST(self) -> Array:
        return self.column("right")

    @property
    def kinds(self) -> list[str]:
        """`hinter/hinter`, `actor/solver`: the agents, and what each was asked to be."""
        return list(dict.fromkeys(kind for one in self.columns for kind in one["calls"]))

    @property
    def helpers(self) -> list[str]:
        return [kind for kind in self.kinds if kind.rpartition("/")[2] in HELPERS]

    @property
    def accuracy(self) -> Estimate:
        return estimate(self.right_ST)

    def mean(self, what: str, kinds: Sequence[str] | None = None) -> float:
        """Tokens or calls a task, of all agents or some: `generated`, `read`, `cut`, …"""
        chosen = self.kinds if kinds is None else kinds
        sums = sum((self.column(f"calls.{kind}.{what}") for kind in chosen), np.zeros(1))
        return float(np.nanmean(np.where(np.isnan(self.right_ST), np.nan, sums)))

    @property
    def silent_ST(self) -> Array:
        """The share of helpers' calls in which nothing was said."""
        silent, calls = (
            sum((self.column(f"calls.{kind}.{what}") for kind in self.helpers), np.zeros(1))
            for what in ("silent", "calls")
        )
        return np.where(np.isnan(self.right_ST), np.nan, silent / np.maximum(1, calls))

    @property
    def worth(self) -> "Measured | None":
        """The same, right by as much as its answers are worth; None if that is right or wrong."""
        if not all("reward" in one for one in self.columns):
            return None
        return Measured(tuple({**one, "right": one["reward"]} for one in self.columns))

    def on_level(self, level: str) -> "Measured":
        levels = self.columns[0]["level"]
        return self.only(one for one, own in zip(self.ids, levels, strict=True) if own == level)


@dataclass(frozen=True, slots=True)
class Records:
    """Every run that was kept, by name and seed. `hint+tag` is a variant of `hint`."""

    runs: Mapping[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path = FOLDER) -> "Records":
        runs: dict[str, dict[int, Mapping[str, Any]]] = {}
        for path in sorted(folder.glob("*.json")):
            name = re.sub(r"-s\d+$", "", path.stem)
            try:
                tree = json.loads(path.read_text(encoding="utf-8"))
                tree = _from_split(tree) if isinstance(tree.get("training"), list) else tree
                runs.setdefault(name, {})[tree["seed"]] = tree
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(f"{path} is not a record: {error}") from None
        return cls(runs)

    def begun(self, name: str) -> str:
        """The day on which the first of its runs began; empty if that is not known."""
        calls = [call for run in self.runs[name].values() for call in run["calls"][:1]]
        return min((str(call["date"]) for call in calls), default="")

    def names(self, evaluation: str) -> list[str]:
        return [name for name, runs in self.runs.items() if _has(runs.values(), evaluation)]

    def measured(self, name: str, evaluation: str, beside: str | None = None) -> Measured | None:
        """All seeds of one evaluation on the tasks they share; None where there is none.

        `beside`: only the seeds that have this evaluation too.
        """
        found = [
            run["evaluations"][evaluation]
            for run in self.runs.get(name, {}).values()
            if evaluation in run["evaluations"] and (beside or evaluation) in run["evaluations"]
        ]
        if not found:
            return None
        shared = set.intersection(*({*one["ids"]} for one in found))
        ids = [task for task in found[0]["ids"] if task in shared]
        return Measured(tuple(_chosen(one, ids) for one in found))

    def get(self, name: str, evaluation: str) -> Measured:
        """The same, where it must be there."""
        found = self.measured(name, evaluation)
        if found is None:
            raise ConfigError(f"no record `{name}` with an evaluation `{evaluation}`")
        return found


def _has(runs: Iterable[Mapping[str, Any]], evaluation: str) -> bool:
    return any(evaluation in run["evaluations"] for run in runs)


def _chosen(tree: Mapping[str, Any], ids: Sequence[str]) -> Columns:
    """The columns of some of the tasks, in the order given."""
    place = {task: i for i, task in enumerate(tree["ids"])}
    places = [place[task] for task in ids]

    def pick(column: Any) -> Any:
        if isinstance(column, Mapping):
            return {name: pick(one) for name, one in column.items()}
        if isinstance(column, str):
            return "".join(column[i] for i in places)
        return [column[i] for i in places] if isinstance(column, list) else column

    return {**tree, **{name: pick(tree[name]) for name in BY_TASK if name in tree}}


def _numbers(tree: Mapping[str, Any], name: str) -> Array:
    """One column as numbers; an agent that never spoke under a seed has zeros."""
    node: Any = tree
    for key in name.split("."):
        node = node.get(key, 0) if isinstance(node, Mapping) else node
    values = list(node) if isinstance(node, list | str) else [node] * len(tree["ids"])
    return np.array([np.nan if value in (None, "-") else float(value) for value in values])


def _from_split(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A record of the first split GSM8K runs, which were kept in another form."""
    evaluations = {
        name: {
            "tasks": "split-gsm8k/validation",
            "ids": tree["tasks"],
            "level": tree["level"],
            "right": one["right"],
            "path": one["tokens"],
            "leaks": None,
            "calls": _split_calls(one),
            **({"log_silence": one["log_silence"]} if "log_silence" in one else {}),
        }
        for name, one in tree["evaluations"].items()
    }
    training = training_of(tree["training"])
    steps, best = training["validation"]["step"], training["best_step"]
    own = {"trained, best step": best, "trained, last step": steps[-1]}
    evaluations |= {name: evaluations[f"eval-{step:06d}"] for name, step in own.items()}
    config = {k: v for k, v in tree["config"].items() if k not in ("models", "prices", "judge")}
    call = {key: tree[key] for key in ("date", "device", "torch", "transformers")}
    return {**tree, "config": config, "evaluations": evaluations, "training": training,
            "calls": [call]}  # fmt: skip


def _split_calls(one: Mapping[str, Any]) -> dict[str, Any]:
    """What was read is known of the team alone, and stands with the Actor."""
    if "said" not in one:
        return {"actor/solver": {"generated": one["tokens"], "read": one["read"], "calls": 1}}
    actor = [all_of - mine for all_of, mine in zip(one["tokens"], one["said"], strict=True)]
    return {
        "hinter/hinter": {"generated": one["said"], "calls": 1, "silent": one["silent"]},
        "actor/solver": {"generated": actor, "read": one["read"], "calls": 1},
    }


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
    common = set.intersection(*({*team.ids} for team in teams))
    ids = [task for task in teams[0].ids if task in common]
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


def auc(positive: Array, negative: Array) -> float:
    """How often a positive has the higher score; half where they are equal."""
    above = (positive[:, None] > negative[None, :]).mean()
    level = (positive[:, None] == negative[None, :]).mean()
    return float(above + level / 2)


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
