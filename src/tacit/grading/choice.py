r"""Grades one-of-a-few answers: yes or no, letters, or the words in `task.data["choices"]`.

What is read, in this order: the last \boxed{…}; what follows "answer is" or `####`; the whole text.
A box that names two different choices ("yes or no") is no answer; of a statement the first choice
named counts, of a whole text the last, unless it is joined to another one ("A or B", "yes and no",
"neither yes nor no"): a hedge is no answer. What is turned down ("not B") is not named, and what
stands in a reason ("A, because B is wrong") does not count. In sentences a word that only belongs
to the next one ("no evidence", "A man") or stands in a list ("yes/no") names nothing. For yes and
no, true, plausible and correct mean yes, false, implausible and incorrect no, and "not" turns them
round.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

from tacit.errors import GradingError
from tacit.grading.final_answer import closed, denied, last_boxed, marked
from tacit.types import Grade, Task

YES_NO = ("yes", "no")
LETTERS = tuple("ABCDEFGHIJ")

_SYNONYMS = {
    "yes": ("yes", "true", "plausible", "correct"),
    "no": ("no", "false", "implausible", "incorrect"),
}
_BETWEEN = r"[^\w.?!:;>→\n]"
_JOINED = re.compile(
    rf"{_BETWEEN}*(?:(?:or|and|nor|but|also|else|either|maybe|perhaps|possibly|sometimes|partly)"
    rf"{_BETWEEN}+)*",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.?!\n]")
_REASON = re.compile(r"\b(?:because|since|although|though|whereas)\b", re.IGNORECASE)
_CONCLUSION = re.compile(r"\b(?:so|thus|hence|therefore|but)\b", re.IGNORECASE)
# What may follow a choice in a sentence; after "no" and "A" any other word makes them part of it.
_GOES_ON = r"(?:because|since|as|for|but|and|or|nor|so|if|given|due|rather|instead|not|are|both)\b"
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


def read(task: Task, text: str) -> str:
    """The choice a text settles on, or an empty string."""
    return read_choice(text, choices_of(task))


def read_choice(text: str, choices: Sequence[str]) -> str:
    """The choice a text settles on, as it is written in `choices`, or an empty string."""
    if box := last_boxed(text):
        boxed = {name for name, _, _ in _named(_plain(box), choices, strict=False)}
        return _canonical(box, choices) or (boxed.pop() if len(boxed) == 1 else "")
    text = _plain(closed(text))
    statement = marked(text)
    if whole := _canonical(statement, choices):
        return whole
    if named := _named(statement, choices, strict=True):
        return _settled(statement, choices, named[0])
    last = None
    for mention in _named(text, choices, strict=True):
        if last is None or not _gives_reason(text[last[2] : mention[1]]):
            last = mention
    return _settled(text, choices, last) if last else ""


Mention = tuple[str, int, int]
"""A choice, and where in the text it is named."""


def _gives_reason(between: str) -> bool:
    """Whether what follows a choice says why it was made: "A, because B is wrong"."""
    same_sentence = not _SENTENCE_END.search(between)
    return same_sentence and bool(_REASON.search(_CONCLUSION.split(between)[-1]))


def _settled(text: str, choices: Sequence[str], mention: Mention) -> str:
    """The choice mentioned, unless it is joined to another one before or after it."""
    every = sorted({mention, *_named(text, choices, strict=_yes_no(choices))}, key=itemgetter(1))
    at = every.index(mention)
    for (one, _, end), (other, start, _) in pairwise(every[max(0, at - 1) : at + 2]):
        if one != other and _JOINED.fullmatch(text, end, start):
            return ""
    return mention[0]


def _plain(text: str) -> str:
    return _TEX.sub(r"\1", text)


def choices_of(task: Task) -> tuple[str, ...]:
    given = task.data.get("choices")
    if given:
        return tuple(str(choice) for choice in given)
    return YES_NO if _canonical(task.answer, YES_NO) else LETTERS


def _canonical(text: str, choices: Sequence[str]) -> str | None:
    """The choice that the whole text is, whatever its case, brackets and full stop."""
    bare = _plain(text).strip().strip("().:").strip().casefold()
    for choice in choices:
        if bare in (word.casefold() for word in _words(choice, choices)):
            return choice
    return None


def _named(text: str, choices: Sequence[str], *, strict: bool) -> list[Mention]:
    """Every choice the text names, in order."""
    names = {word.casefold(): choice for choice in choices for word in _words(choice, choices)}
    found = []
    for match in _pattern(tuple(choices), strict).finditer(text):
        choice = names[match[0].casefold()]
        if denied(text, match.start()):
            if not _yes_no(choices):
                continue
            choice = "no" if choice == "yes" else "yes"
        found.append((choice, match.start(), match.end()))
    return found


def _yes_no(choices: Sequence[str]) -> bool:
    return set(choices) == set(YES_NO)


def _words(choice: str, choices: Sequence[str]) -> tuple[str, ...]:
    return _SYNONYMS[choice] if _yes_no(choices) else (choice,)


@lru_cache(maxsize=256)
def _pattern(choices: tuple[str, ...], strict: bool) -> re.Pattern[str]:
    words = sorted((word for c in choices for word in _words(c, choices)), key=len, reverse=True)
    listed = "|".join(re.escape(word) for word in words)
    letters = all(len(choice) == 1 for choice in choices)
    # "no" and single letters are words of ordinary sentences too when another word follows them.
    loose = "no" if _yes_no(choices) else "[A-Za-z]"
    tail = rf"(?![\w/’'-])(?!(?<=\b{loose})\s+(?!{_GOES_ON})[a-z])" if strict else r"(?![\w/’'-])"
    flags = re.NOFLAG if letters else re.IGNORECASE
    return re.compile(rf"(?<![\w/’'-])(?:{listed}){tail}", flags)
