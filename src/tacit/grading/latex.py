"""Rewrites LaTeX so that the same answer reads the same: spacing, sizing, units, \\text, \\frac12.

Only rewriting that cannot change a value; telling equal expressions apart is math-verify's work.
"""

import re

_SPACING = re.compile(
    r"(?<!\\)(?:\\[!,;:> ]|\\q?quad\b|\\[()\[\]]"
    r"|\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z])|\\[hv]space\s*\{[^{}]*\})"
    r"|~|\\?\$|\*\*|\{\}"
)
_FRAC_NAME = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_FRAC_ARGUMENTS = re.compile(r"\\frac\s*(\{|[^\s{}\\]|\\[A-Za-z]+)")
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|rm)\s*\{([^{}]*)\}"
)
_UNIT = re.compile(
    r"(?<=[\d}!)a-z])\s*\\(?:text|mbox|mathrm|textrm)\s*\{[^{}]*\}\s*(?:\^\s*(?:\{\d\}|\d))?$"
)
_PLAIN_UNIT = re.compile(
    r"(?<=[\d})])\s+(?:(?:square|cubic|sq|cu)\.?\s+)?(?:[cmk]m|ft|feet|in|inch(?:es)?|yards?|miles?"
    r"|(?:centi|milli|kilo)?met(?:er|re)s?|units?|[kmg]g|hours?|minutes?|seconds?|dollars?|degrees?)"
    r"(?:\s*\^\s*(?:\{\d\}|\d))?$"
)
_DEGREES = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|°|\\degree(?![A-Za-z])")
_AND = re.compile(
    r",?\s*(?:\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))\s*"
)
_SQRT = re.compile(r"\\sqrt\s*(?![\[{])([^\s\\])")
_ONE_BRACED = re.compile(r"([_^])\{(\w)\}")
_EQUAL_COMMANDS = (
    (re.compile(r"\\geqslant(?![A-Za-z])|\\ge(?![A-Za-z])|≥"), r"\\geq"),
    (re.compile(r"\\leqslant(?![A-Za-z])|\\le(?![A-Za-z])|≤"), r"\\leq"),
    (re.compile(r"\\ne(?![A-Za-z])"), r"\\neq"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"−|–"), "-"),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"∞"), r"\\infty "),
    (re.compile(r"√\s*(\d+)"), r"\\sqrt{\1}"),
    (re.compile(r"\\(?:operatorname|mathop)\s*\{(?:arc|a)(sin|cos|tan)\}"), r"\\arc\1"),
)


def clean(latex: str) -> str:
    """The answer with spacing, sizing, degrees and a trailing unit or full stop taken away."""
    out = _SPACING.sub(_space, latex.replace("{,}", ",")).strip().rstrip(".,;: ").strip()
    out = _AND.sub(", ", _DEGREES.sub("", out)).strip(", ")
    out = _PLAIN_UNIT.sub("", _UNIT.sub("", out) or out)
    for pattern, replacement in _EQUAL_COMMANDS:
        out = pattern.sub(replacement, out)
    return _SQRT.sub(r"\\sqrt{\1}", _braced_fractions(_FRAC_NAME.sub(r"\\frac", out))).strip()


def flat(latex: str) -> str:
    """A key equal for answers that differ only in writing. Words are compared without case."""
    out = _TEXT.sub(r"\1", clean(latex))
    out = _ONE_BRACED.sub(r"\1\2", re.sub(r"\s+", "", out).rstrip("."))
    if re.fullmatch(r"\(?[A-Za-z]\)?", out):
        return out.strip("()")
    return out.lower() if re.fullmatch(r"[A-Za-z,.'-]{3,}", out) else out


def parts(latex: str) -> list[str]:
    """The members of a list outside any bracket: `1, 2`, `x = 1 \\text{ or } x = 2`."""
    text = _TEXT.sub(r"\1", clean(latex))
    found, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and (char == ";" or (char == "," and not _thousands(text, index))):
            found.append(text[start:index])
            start = index + 1
    return [*found, text[start:]]


def _thousands(text: str, index: int) -> bool:
    return bool(re.match(r",\d{3}(?!\d)", text[index:])) and text[index - 1 : index].isdigit()


def _space(match: re.Match[str]) -> str:
    return "" if match[0] in (r"\!", "**", "{}") or "$" in match[0] else " "


def _braced_fractions(text: str) -> str:
    r"""`\frac12` and `\frac{1}2` as `\frac{1}{2}`."""
    out: list[str] = []
    at = 0
    while match := _FRAC_ARGUMENTS.search(text, at):
        out.append(text[at : match.start()] + r"\frac")
        at = match.start(1)
        for _ in range(2):
            argument, at = _argument(text, at)
            out.append("{" + argument + "}")
    return "".join(out) + text[at:]


def _argument(text: str, at: int) -> tuple[str, int]:
    """One TeX argument: a braced group, a command or a single character, and where it ends."""
    while at < len(text) and text[at].isspace():
        at += 1
    if at >= len(text):
        return "", at
    if text[at] != "{":
        end = re.compile(r"\\[A-Za-z]+|.", re.DOTALL).match(text, at)
        return (end[0], end.end()) if end else ("", at)
    depth = 0
    for end_at in range(at, len(text)):
        depth += (text[end_at] == "{") - (text[end_at] == "}")
        if depth == 0:
            return text[at + 1 : end_at], end_at + 1
    return text[at + 1 :], len(text)
