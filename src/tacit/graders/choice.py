r"""Grades one-of-a-few answers: yes or no, letters, or the words in `task.data["choices"]`.

Read in this order: the last \boxed{…}; what follows "answer is" or `####`, where the first choice
named counts; the whole text, where the last one counts. A hedge is no answer: a box that names two
choices, or a choice joined to another ("A or B", "yes and no", "neither yes nor no"). A choice that
is turned down ("not B") or stands in a reason ("A, because B is wrong") does not count, nor does a
word that belongs to the next one ("no evidence", "A man") or stands in a list ("yes/no"). For yes
and no, true, plausible and correct mean yes, their opposites no, and "not" turns them round.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

from tacit.errors import GradingError
from tacit.graders.final_answer import closed, denied, last_boxed, marked
from tacit.types import Grade, Task

YES_NO = ("yes", "no")
LETTERS = tuple("ABCDEFGHIJ")

_SYNONYMS = {
    **dict.fromkeys(("yes", "true", "plausible", "correct"), "yes"),
    **dict.fromkeys(("no", "false", "implausible", "incorrect"), "no"),
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
    """True if the text after a choice says why it was made: "A, because B is wrong"."""
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
    """The choice that is the whole text, but for case, brackets and a full stop."""
    return _words(tuple(choices)).get(_plain(text).strip().strip("().:").strip().casefold())


def _named(text: str, choices: Sequence[str], *, strict: bool) -> list[Mention]:
    """Every choice the text names, in order."""
    words, found = _words(tuple(choices)), []
    for match in _pattern(tuple(choices), strict).finditer(text):
        choice = words[match[0].casefold()]
        if denied(text, match.start()):
            if not _yes_no(choices):
                continue
            choice = "no" if choice == "yes" else "yes"
        found.append((choice, match.start(), match.end()))
    return found


def _yes_no(choices: Sequence[str]) -> bool:
    return set(choices) == set(YES_NO)


@lru_cache(maxsize=256)
def _words(choices: tuple[str, ...]) -> dict[str, str]:
    """The choice that each word names, in lower case."""
    return _SYNONYMS if _yes_no(choices) else {choice.casefold(): choice for choice in choices}


@lru_cache(maxsize=256)
def _pattern(choices: tuple[str, ...], strict: bool) -> re.Pattern[str]:
    words = sorted(_SYNONYMS if _yes_no(choices) else choices, key=len, reverse=True)
    listed = "|".join(map(re.escape, words))
    letters = all(len(choice) == 1 for choice in choices)
    # "no" and single letters are words of ordinary sentences too when another word follows them.
    loose = "no" if _yes_no(choices) else "[A-Za-z]"
    tail = rf"(?!(?<=\b{loose})\s+(?!{_GOES_ON})[a-z])" if strict else ""
    flags = re.NOFLAG if letters else re.IGNORECASE
    return re.compile(rf"(?<![\w/’'-])(?:{listed})(?![\w/’'-]){tail}", flags)
