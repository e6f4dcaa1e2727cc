"""Rules without a model: who holds something that shares rare words with the question speaks.

The rivals of every trained choice on tasks with private views: `python -m experiments.overlap` says
how well they tell those who are needed from the others. `words` goes by the rarest word that one of
an agent's notes or paragraphs shares with the question, `title` by how much of a paragraph's title
the question holds. A word is as rare as few notes of the training tasks hold it. The line is that
which tells the validation tasks apart best, as in `experiments/chain.py` for a trained agent.
`--keep` writes what the rules say of the test tasks into `results/rules`, for `talk.py`.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit import Task, load_tasks
from tacit.evaluation.talk import auc

GSM8K: dict[str, Any] = {"split": "train", "shuffle_seed": 0, "offset": 5000, "limit": 256}
VALIDATION: dict[str, dict[str, Any]] = {
    "split_gsm8k_blind": GSM8K,
    "split_gsm8k": GSM8K,
    "split_hotpotqa": {"split": "validation"},
    "split_2wiki": {"split": "validation"},
    "split_musique": {"split": "validation"},
}
"""Task set → the tasks on which its line is chosen."""
COMMON = frozenset(
    {"a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been",
     "before", "by", "can", "could", "did", "do", "does", "each", "every", "for", "from", "had",
     "has", "have", "he", "her", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its",
     "many", "more", "most", "much", "no", "not", "of", "on", "or", "out", "over", "she", "some",
     "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those",
     "to", "up", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "why",
     "will", "with", "would", "you"}
)  # fmt: skip
ENDS = {"ies": "y", "es": "", "s": "", "ing": "", "ed": ""}

Scored = Sequence[tuple[bool, float]]
"""Whether each agent was needed, and what the rule makes of it."""


class Rarity:
    """How rare words are among notes; those that none holds are the rarest."""

    def __init__(self, notes: Sequence[set[str]]) -> None:
        self._counts = Counter(word for note in notes for word in note)
        self._notes = len(notes)

    def of(self, word: str) -> float:
        """−log of the share of notes that hold it, as if there were one more."""
        return -math.log((self._counts[word] + 1) / (self._notes + 1))

    def sum(self, some: Iterable[str]) -> float:
        return sum(map(self.of, some))


class Judged(NamedTuple):
    auc: float
    silent_idle: float
    """Share of silence where the agent was not needed, and where it was."""
    silent_needed: float


def words(text: str) -> set[str]:
    """The words that are not common, without their usual endings."""
    return {_stem(word) for word in re.findall(r"[a-z]+", text.casefold()) if word not in COMMON}


def _stem(word: str) -> str:
    end = next((e for e in ENDS if word.endswith(e) and len(word) - len(e) >= 3), None)
    return word if end is None else word.removesuffix(end) + ENDS[end]


def notes_of(view: str) -> list[str]:
    """Paragraphs, or lines if there are none."""
    return view.split("\n\n") if "\n\n" in view else view.splitlines()


def rarity(tasks: Iterable[Task]) -> Rarity:
    views = (task.views[agent] for task in tasks for agent in task.data["speak"])
    return Rarity([words(note) for view in views for note in notes_of(view)])


def by_words(question: set[str], note: str, rare: Rarity) -> float:
    """The rarity of the rarest word that they share."""
    return max(map(rare.of, question & words(note)), default=0.0)


def by_title(question: set[str], note: str, rare: Rarity) -> float:
    """The share of the title that the question holds, by rarity; then what else they share."""
    title = words(note.partition(":")[0])
    held = rare.sum(title & question) / rare.sum(title) if title else 0.0
    return held + 0.01 * rare.sum(question & words(note))


RULES: dict[str, Callable[[set[str], str, Rarity], float]] = {"words": by_words, "title": by_title}


def scores(tasks: Iterable[Task], rare: Rarity, rule: str) -> Scored:
    found = []
    for task in tasks:
        asked = words(task.question)
        for agent, needed in task.data["speak"].items():
            notes = notes_of(task.views[agent])
            found.append((needed, max((RULES[rule](asked, n, rare) for n in notes), default=0.0)))
    return found


def shares(scored: Scored, line: float) -> tuple[float, float]:
    """Of silence among those who were not needed, and among those who were."""
    idle, needed = ([s for n, s in scored if n is kind] for kind in (False, True))
    return sum(s < line for s in idle) / len(idle), sum(s < line for s in needed) / len(needed)


def best_line(scored: Scored) -> float:
    def right(line: float) -> float:
        idle, needed = shares(scored, line)
        return idle - needed

    return max(sorted({score for _, score in scored}), key=right)


def ruled(name: str, rule: str) -> tuple[Scored, float]:
    """What the rule makes of the test tasks, and its line from the validation tasks."""
    rare = rarity(load_tasks(name, split="train"))
    line = best_line(scores(load_tasks(name, **VALIDATION[name]), rare, rule))
    return scores(load_tasks(name, split="test"), rare, rule), line


def judge(name: str, rule: str) -> Judged:
    scored, line = ruled(name, rule)
    return Judged(_auc(scored), *shares(scored, line))


def _auc(scored: Scored) -> float:
    needed, idle = ([s for n, s in scored if n is kind] for kind in (True, False))
    return auc(needed, idle) or 0.5


def keep(name: str, path: Path, rule: str = "words") -> None:
    """On which test tasks the rule speaks; where several agents may, of each of them."""
    scored, line = ruled(name, rule)
    tasks = load_tasks(name, split="test")
    ids = [task.id.rpartition("/")[2] for task in tasks]
    flags = "".join("01"[score >= line] for _, score in scored)
    agents = list(tasks[0].data["speak"])
    by_agent = {agent: flags[place :: len(agents)] for place, agent in enumerate(agents)}
    speaks = by_agent if len(agents) > 1 else flags
    tree = {"tasks": f"{name}/test", "ids": ids, "speaks": speaks, "auc": round(_auc(scored), 4)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(tree) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--keep"]:
        rules = Path(__file__).parent / "results" / "rules"
        keep("split_gsm8k_blind", rules / "split-gsm8k-blind.json")
        keep("split_gsm8k", rules / "split-gsm8k-seeing.json")
        for name in ("hotpotqa", "2wiki", "musique"):
            for rule in RULES:
                keep(f"split_{name}", rules / f"split-{name}-{rule}.json", rule)
        sys.exit()
    for name in sys.argv[1:] or VALIDATION:
        for rule in ["words"] if "gsm8k" in name else RULES:
            found = judge(name, rule)
            print(
                f"{name:18} {rule:6} AUC {found.auc:.3f}, silent {100 * found.silent_idle:.1f} % "
                f"where not needed and {100 * found.silent_needed:.1f} % where needed"
            )
