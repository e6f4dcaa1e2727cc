"""`lookup`: searches the paragraphs of the caller's own view by words, never another agent's."""

import math
import re
from collections import Counter

from tacit.team.tools import ToolContext

FOUND = 3
K, B = 1.2, 0.75
"""BM25's usual constants (Robertson & Zaragoza 2009, eq. 3.15)."""
_WORD = re.compile(r"\w+")


async def lookup(query: str, context: ToolContext) -> str:
    """Searches your own documents for words and returns the paragraphs that match best."""
    parts = paragraphs(context.view)
    if not parts:
        return "You have no documents."
    return "\n\n".join(search(query, parts)[:FOUND]) or "Nothing found."


def paragraphs(text: str) -> list[str]:
    """Parts between blank lines, or lines if there are none."""
    parts = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
    return parts if len(parts) > 1 else [line.strip() for line in text.splitlines() if line.strip()]


def search(query: str, parts: list[str]) -> list[str]:
    """The parts that hold a word of the query, the best match by BM25 first."""
    asked = {*_words(query)}
    counted = [Counter(_words(part)) for part in parts]
    holding = Counter(word for counts in counted for word in asked & counts.keys())
    mean = sum(counts.total() for counts in counted) / len(counted)

    def score(counts: Counter[str]) -> float:
        length = K * (1 - B + B * counts.total() / mean) if mean else K
        return sum(
            math.log(1 + (len(parts) - holding[word] + 0.5) / (holding[word] + 0.5))
            * counts[word] * (K + 1) / (counts[word] + length)
            for word in sorted(asked & counts.keys())
        )  # fmt: skip

    scored = [(score(counts), part) for counts, part in zip(counted, parts, strict=True)]
    return [part for value, part in sorted(scored, key=lambda one: -one[0]) if value > 0]


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
