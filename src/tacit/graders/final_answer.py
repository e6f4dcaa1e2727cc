"""Finds the final answer in a model's text. The graders decide what it means.

Order: the last non-empty `\\boxed{…}` with balanced braces; else what follows the last `####`,
"answer is" or "answer:"; else the last number. A box that is never closed (a text cut by its
length cap) is not an answer, nor is anything after it.
"""

import re
from typing import NamedTuple

_BOX_TOKENS = re.compile(r"\\(?:boxed|fbox)\s*(?:(\{)|([^\s{}\\$]+))|\\.|[{}]", re.DOTALL)
_CONNECTOR = re.compile(
    r"(?:[\s$,;.&]|\\[()\[\]]|\\q?quad|\band\b|\bor\b|\\text\s*\{[^{}]{0,9}\})*"
)
_MARKER = re.compile(r"####|(?:[Aa]nswer|ANSWER)(?:[^.:=\n]{0,60}?\b(?:is|IS)\b|[\s*]*[:=])[\s:*]*")
_MATH = re.compile(r"\$\$?((?:\\.|[^$\\\n])+?)\$|\\\(([^\n]+?)\\\)|\\\[([^\n]+?)\\\]")
_NUMBER = (
    r"[-−]?(?:\\?\$\s*)?(?:(?:\d+\s*)?\\[dtc]?frac\s*\{-?\d+\}\s*\{\d+\}"
    r"|\d{1,3} [1-9]\d?/\d{1,3}(?![\d.])"
    r"|(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s*/\s*\d+(?![\d.]))?|\.\d+)"
    r"(?:\s*\\?%)?"
)
_LAST_NUMBER = re.compile(rf"(?<![\w.\\])(?:{_NUMBER})")
_LEADING_NUMBER = re.compile(rf"(?:{_NUMBER})(?=[\s.,;!?)]*(?:$|[\s(][A-Za-z(]|\.\s))")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_DENIAL = re.compile(
    r"(?:\b(?:not|never|neither|nor|rather than|instead of|except|unlike)|n['’]t)"
    r"[\s(\"“'*]+(?:(?:be|the|option|choice|answer|move)\s+)*[(\"“'*]*(?:\d+\.+\s*)?$",
    re.IGNORECASE,
)


class Box(NamedTuple):
    start: int
    end: int
    text: str


def boxes(text: str) -> list[Box]:
    """Every closed, non-empty box in order of its start. One pass, however deep the nesting."""
    return _scan(text)[0]


def closed(text: str) -> str:
    """The text up to the first box that is never closed."""
    return text[: _scan(text)[1]]


def _scan(text: str) -> tuple[list[Box], int]:
    """The boxes, and where the first unclosed one begins (if there is none, the text's end)."""
    first = min((i for i in (text.find(r"\boxed"), text.find(r"\fbox")) if i >= 0), default=-1)
    if first < 0:
        return [], len(text)
    found: list[Box] = []
    stack: list[tuple[int, int] | None] = []
    for match in _BOX_TOKENS.finditer(text, first):
        if match[1]:
            stack.append((match.start(), match.end()))
        elif match[2]:
            found.append(Box(match.start(), match.end(), match[2].rstrip(".,;")))
        elif match[0] == "{":
            stack.append(None)
        elif match[0] == "}" and stack and (opened := stack.pop()):
            found.append(Box(opened[0], match.end(), text[opened[1] : match.start()].strip()))
    never_closed = next((opened[0] for opened in stack if opened), len(text))
    return sorted(box for box in found if box.text), never_closed


def last_boxed(text: str) -> str:
    """What the last box holds, or an empty string."""
    found = boxes(text)
    return found[-1].text if found else ""


def joined_boxed(text: str) -> str:
    """The last box and those joined to it by commas, "and" or "or": `\\boxed{1} or \\boxed{2}`."""
    joined: list[Box] = []
    for box in reversed(boxes(text)):
        start = joined[0].start if joined else len(text)
        if joined and (box.end > start or not _CONNECTOR.fullmatch(text, box.end, start)):
            break
        joined.insert(0, box)
    return ", ".join(box.text for box in joined)


def marked(text: str) -> str:
    """What follows the last `####`, "answer is" or "answer:", up to the end of its sentence."""
    for match in reversed(list(_MARKER.finditer(text))):
        if answer := _statement(text[match.end() :].lstrip().partition("\n")[0]):
            return answer
    return ""


def last_number(text: str) -> str:
    """The last number as it is written, or an empty string."""
    for line in reversed(text.splitlines()):
        if found := _LAST_NUMBER.findall(line):
            return str(found[-1])
    return ""


def final_answer(text: str, *, several: bool = False) -> str:
    """The final answer as written; `several` joins neighbouring boxes into one list."""
    boxed = joined_boxed(text) if several else last_boxed(text)
    return boxed or marked(closed(text)) or last_number(closed(text))


def denied(text: str, at: int) -> bool:
    """True if the words before `at` turn down what follows: "not B", "rather than B"."""
    return bool(_DENIAL.search(text, max(0, at - 60), at))


def _statement(rest: str) -> str:
    rest = rest.strip().strip("*").strip()
    if math := _MATH.match(rest):
        return next(group for group in math.groups() if group).strip()
    if number := _LEADING_NUMBER.match(rest):
        return number[0]
    end = _SENTENCE_END.search(rest)
    return (rest[: end.start()] if end else rest).strip("* \t")
