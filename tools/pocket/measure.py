"""What the pocket model does on held-out sums, by role, as numbers for its card.

A small plain loop over `generate`, for the making of the model only; teams are measured for real by
`tacit compare`.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tacit.benchmarks.arithmetic import Problem, draw
from tacit.engine.base import SILENCE_MARKER
from tacit.types import ChatMessage, Message
from tools.pocket.corpus import KINDS, ask, boxed, careless, short, useful
from tools.pocket.tokenizer import render

Prompt = tuple[ChatMessage, ...]


class Speaker:
    """The model as a function from prompts to replies."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    def __call__(self, prompts: Sequence[Prompt], temperature: float = 0.0) -> list[str]:
        """Replies in order, without the end token; greedy at temperature 0."""
        replies: list[str] = []
        how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
        for start in range(0, len(prompts), 256):
            texts = [render(prompt) for prompt in prompts[start : start + 256]]
            batch = self.tokenizer(
                texts, return_tensors="pt", padding=True, return_token_type_ids=False
            ).to(self.model.device)
            out = self.model.generate(**batch, max_new_tokens=96, **({"do_sample": False} | how))
            new = out[:, batch["input_ids"].shape[1] :]
            replies += self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return replies

    def tokens(self, text: str) -> int:
        """Generated tokens of a reply, its end token included."""
        return len(self.tokenizer(text)["input_ids"]) + 1


def held_out(count: int, seed: int = 0) -> list[Problem]:
    """Test problems: every other one easy, the rest of two and three steps in turn."""
    rng = random.Random(f"measure/{seed}")
    problems: list[Problem] = []
    while len(problems) < count:
        problem = draw(rng, (1, 2, 1, 3)[len(problems) % 4])
        if problem.held_out:
            problems.append(problem)
    return problems


def _said(agent: str, text: str) -> list[Message]:
    return [] if text == SILENCE_MARKER else [Message(agent, text)]


def _solve(speak: Speaker, problems: Sequence[Problem], hints: Sequence[str]) -> list[str]:
    return speak(
        [
            ask("solver", problem, "", {"hint": _said("hinter", hint)}).messages
            for problem, hint in zip(problems, hints, strict=True)
        ]
    )


def _hints(speak: Speaker, problems: Sequence[Problem], temperature: float) -> list[str]:
    asked = [ask("hinter", p, "", agent="hinter", may_be_silent=True).messages for p in problems]
    return speak(asked, temperature)


def _revise(
    speak: Speaker, problems: Sequence[Problem], temperature: float
) -> tuple[list[str], list[str]]:
    drafts = _solve(speak, problems, [SILENCE_MARKER] * len(problems))
    asked = [
        ask("critic", p, "", {"draft": _said("actor", d)}, agent="critic", may_be_silent=True)
        for p, d in zip(problems, drafts, strict=True)
    ]
    comments = speak([one.messages for one in asked], temperature)
    told = [
        ask("reviser", p, "", {"draft": _said("actor", d), "comment": _said("critic", c)})
        for p, d, c in zip(problems, drafts, comments, strict=True)
    ]
    revised = speak([one.messages for one in told])
    final = [
        draft if comment == SILENCE_MARKER else new
        for draft, comment, new in zip(drafts, comments, revised, strict=True)
    ]
    return comments, final


def kind_of(problem: Problem, text: str) -> str:
    """Which of the helper's habits a remark shows; without a carry, careless is right."""
    steps = useful(problem)
    if text == SILENCE_MARKER:
        return "silent"
    if text == short(problem.steps[:steps]).text:
        return "short right"
    if text == short(careless(problem)[:steps]).text:
        return "short careless"
    return "ramble" if any(char.isalpha() for char in text) else "other"


def measure(speak: Speaker, count: int) -> dict[str, dict[str, float]]:
    """Rows of the card's table: shares in percent, tokens of what the helper said."""
    problems = held_out(count)
    rows: dict[str, dict[str, float]] = {}

    def record(name: str, answers: Sequence[str], said: Sequence[str]) -> None:
        rights = [
            (len(p.terms), answer == boxed(p.answer))
            for p, answer in zip(problems, answers, strict=True)
        ]
        rows[name] = {
            "easy": _percent(right for steps, right in rights if steps == 1),
            "two": _percent(right for steps, right in rights if steps == 2),
            "three": _percent(right for steps, right in rights if steps == 3),
            "hard": _percent(right for steps, right in rights if steps > 1),
            "all": _percent(right for _, right in rights),
            "helper tokens": sum(map(speak.tokens, said)) / len(said) if said else 0.0,
        }

    record("solo", _solve(speak, problems, [SILENCE_MARKER] * count), [])
    right = [short(p.steps[: useful(p)]).text for p in problems]
    record("right short hint", _solve(speak, problems, right), right)
    for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
        hints = _hints(speak, problems, temperature)
        record(f"untrained hint, {name}", _solve(speak, problems, hints), hints)
        kinds = Counter(kind_of(p, hint) for p, hint in zip(problems, hints, strict=True))
        rows[f"hint kinds, {name}"] = {k: 100 * kinds[k] / count for k in (*KINDS, "other")}
        comments, final = _revise(speak, problems, temperature)
        record(f"untrained critic, {name}", final, comments)
    return rows


def _percent(rights: Any) -> float:
    values = list(rights)
    return 100 * sum(values) / len(values) if values else 0.0


def table(rows: dict[str, dict[str, float]]) -> str:
    """The rows as Markdown, one table for each set of columns."""
    lines: list[str] = []
    columns: tuple[str, ...] = ()
    for name, row in sorted(rows.items(), key=lambda item: "kinds" in item[0]):
        if tuple(row) != columns:
            columns = tuple(row)
            lines += ["", f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        lines.append(f"| {name} | {' | '.join(f'{value:.1f}' for value in row.values())} |")
    return "\n".join(lines).strip()
