r"""Grades one-of-a-few answers: yes or no, letters, or the words in `task.data["choices"]`.

What is read, in this order: the last \boxed{…}; what follows "answer is" or `####`; the whole text.
A box that names two different choices ("yes or no") is no answer; of a statement the choice it
begins with counts, unless "or", "and" or a slash follows; of a whole text the last one named. In
sentences a word that only belongs to the next one ("no evidence", "A man") or stands in a list
("yes/no") names nothing. For yes and no, true, plausible and correct mean yes, false, implausible
and incorrect no, and "not" turns them round.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from tacit.errors import GradingError
from tacit.grading.answer import last_boxed, marked
from tacit.types import Grade, Task

YES_NO = ("yes", "no")
LETTERS = tuple("ABCDEFGHIJ")

_SYNONYMS = {
    "yes": ("yes", "true", "plausible", "correct"),
    "no": ("no", "false", "implausible", "incorrect"),
}
_NOT = r"(?P<not>\b(?:not|isn't|isn’t)\s+)?"
_HEDGE = re.compile(r"\W*\w+\W*(?:\s(?:or|and)\s|/)", re.IGNORECASE)
_TEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}|[*_$]")


async def grade(task: Task, text: str) -> Grade:
    """Right iff the choice that the text settles on is `task.answer`."""
    choices = choices_of(task)
    wanted = _canonical(task.answer, choices)
    if wanted is None:
        listed = ", ".join(choices)
        raise GradingError(f"the reference {task.answer!r} is none of the choices {listed}")
    answer = read_choice(text, choices)
    return Grade(reward=float(answer == wanted), right=answer == wanted, answer=answer)


def read_choice(text: str, choices: Sequence[str]) -> str:
    """The choice a text settles on, as it is written in `choices`, or an empty string."""
    if box := last_boxed(text):
        named = _named(box, choices, strict=False)
        return _canonical(box, choices) or (named[0] if len(set(named)) == 1 else "")
    statement = marked(text)
    if statement and (whole := _canonical(statement, choices)):
        return whole
    if statement and (named := _named(statement, choices, strict=True)):
        hedged = _HEDGE.match(statement)
        return named[0] if len(set(named)) == 1 or not hedged else ""
    return next(iter(reversed(_named(text, choices, strict=True))), "")


def choices_of(task: Task) -> tuple[str, ...]:
    given = task.data.get("choices")
    if given:
        return tuple(str(choice) for choice in given)
    return YES_NO if _canonical(task.answer, YES_NO) else LETTERS


def _canonical(text: str, choices: Sequence[str]) -> str | None:
    """The choice that the whole text is, whatever its case, brackets and full stop."""
    bare = _TEX.sub(r"\1", text).strip().strip("().:").strip().casefold()
    for choice in choices:
        if bare in (word.casefold() for word in _words(choice, choices)):
            return choice
    return None


def _named(text: str, choices: Sequence[str], *, strict: bool) -> list[str]:
    """Every choice the text names, in order."""
    names = {word.casefold(): choice for choice in choices for word in _words(choice, choices)}
    found = []
    for match in _pattern(tuple(choices), strict).finditer(_TEX.sub(r"\1", text)):
        choice = names[match["choice"].casefold()]
        if match["not"] and set(choices) == set(YES_NO):
            choice = "no" if choice == "yes" else "yes"
        found.append(choice)
    return found


def _words(choice: str, choices: Sequence[str]) -> tuple[str, ...]:
    return _SYNONYMS[choice] if set(choices) == set(YES_NO) else (choice,)


@lru_cache(maxsize=256)
def _pattern(choices: tuple[str, ...], strict: bool) -> re.Pattern[str]:
    words = sorted((word for c in choices for word in _words(c, choices)), key=len, reverse=True)
    listed = "|".join(re.escape(word) for word in words)
    letters = all(len(choice) == 1 for choice in choices)
    # "no" and single letters are words of ordinary sentences too when another word follows them.
    loose = "no" if set(choices) == set(YES_NO) else "[A-Za-z]"
    tail = rf"(?![\w/’'-])(?!(?<=\b{loose})\s+[a-z])" if strict else r"(?![\w/’'-])"
    flags = re.NOFLAG if letters else re.IGNORECASE
    return re.compile(rf"{_NOT}(?<![\w/’'-])(?P<choice>{listed}){tail}", flags)
