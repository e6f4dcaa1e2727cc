r"""Grades short answers in words, as HotpotQA's evaluation does: exact match, and F1 over words.

The reward is F1 and "right" is an exact match, each the best over `task.answer` and
`task.data["aliases"]`. Case, punctuation, articles and blanks do not count. Yes and no are right or
wrong, never partly right. Read in this order: the last \boxed{…}; what follows the last "Answer:"
or "answer is"; the last line.
"""

import re
import string
from collections import Counter

from tacit.graders.final_answer import closed, last_boxed
from tacit.types import Grade, Task

_MARK = re.compile(r"\banswer\b[\s*]*(?:is\b[\s*]*:?|:)[\s*]*([^\n]+)", re.I)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE = ("yes", "no", "noanswer")
"""Answers that share no words with any other, in the official script."""


async def grade(task: Task, text: str) -> Grade:
    """F1 of the words of the answer and of the reference that it is most like."""
    answer = read_span(text)
    given = normal(answer)
    if not given:
        return Grade(reward=0.0, right=False, answer=answer, note="no answer found")
    references = [normal(one) for one in (task.answer, *task.data.get("aliases", ()))]
    best = max(f1(given, reference) for reference in references)
    return Grade(reward=best, right=given in references, answer=answer)


def read(task: Task, text: str) -> str:
    """The answer that a text gives, without case, articles and punctuation."""
    return normal(read_span(text))


def read_span(text: str) -> str:
    """The answer as it is written; empty if there is no text."""
    if box := last_boxed(text):
        return box
    text = closed(text)
    marked = _MARK.findall(text)
    lines = marked or [line for line in text.splitlines() if line.strip()]
    return str(lines[-1]).strip("* \t") if lines else ""


def normal(text: str) -> str:
    """Example: normal("The U.S. Army.") == "us army"."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def f1(given: str, wanted: str) -> float:
    """Harmonic mean of precision and recall over the words of two normal answers."""
    if given != wanted and (given in _WHOLE or wanted in _WHOLE):
        return 0.0
    words, reference = given.split(), wanted.split()
    same = sum((Counter(words) & Counter(reference)).values())
    return 2 * same / (len(words) + len(reference)) if same else 0.0
