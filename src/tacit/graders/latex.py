"""Rewrites LaTeX so that the same answer reads the same: spacing, sizing, units, \\text, \\frac12.

Only rewriting that cannot change a value; math-verify decides whether two expressions are equal.
"""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

_SPACING = re.compile(
    r"(?<!\\)(?:\\[!,;:> ]|\\q?quad\b|\\[()\[\]]"
    r"|\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z])|\\[hv]space\s*\{[^{}]*\})"
    r"|~|\\?\$|\*\*|\{\}"
)
_BARE = r"([^\s{}\\]|\\[A-Za-z]+)"
_GROUP = r"(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
_FRACTIONS = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(rf"\\(frac|binom)\s*{_BARE}"), r"\\\1{\2}"),
    (re.compile(rf"\\(frac|binom)\s*{_GROUP}\s*{_BARE}"), r"\\\1\2{\3}"),
    (re.compile(rf"\\(frac|binom)\s*{_GROUP}\s*(?=\{{)"), r"\\\1\2"),
)
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
_POWER = re.compile(r"(?<=[\w)}])(?:\*\*|\s+\*\*\s+)(?=[\w({\\-])")
_NEGATIVE_POWER = re.compile(r"\^\s*-\s*(\d+|[A-Za-z](?![A-Za-z]))")
_VULGAR = re.compile(r"(?<![\w.,^}])(\d{0,40})\s*([¼-¾⅐-⅞])")
_REPEATING = re.compile(
    r"(?<!\d)(\d{0,40})\.(\d{0,40})\\(?:overline|bar|dot)\s*(?:\{\s*(\d{1,40})\s*\}|(\d))"
)
_MIXED = re.compile(r"(?<![\w.,^}])(\d{1,40})\s+([1-9]\d{0,39})\s*/\s*(\d{1,40})(?![\d.])")
_THOUSANDS_MARK = re.compile(r"(?<=\d)(?:\{,\}|,\\!)(?=\d{3})")
_GROUPED = re.compile(r"(?<![\w.,^}])[1-9]\d{0,2}(?:\s+\d{3})+(?!\d)")
_TRIG_DEGREES = re.compile(
    r"((?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc)\s*(?:\^\s*(?:\d|\{-?\d\}))?\s*[({]*\s*)"
    r"(\d+(?:\.\d+)?)(?:\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|°|\\degree(?![A-Za-z]))"
)
_DEGREES = re.compile(r"\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|°|\\degree(?![A-Za-z])")
_AND = re.compile(
    r",?\s*(?:\\text\s*\{\s*,?\s*(?:and|or)\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z]))\s*"
)
_SQRT = (re.compile(r"\\sqrt\s*(?![\[{])([^\s\\])"), r"\\sqrt{\1}")
_ONE_BRACED = re.compile(r"([_^])\{(\w)\}")
_EQUAL_COMMANDS = (
    (re.compile(r"\\geqslant(?![A-Za-z])|\\ge(?![A-Za-z])|≥"), r"\\geq"),
    (re.compile(r"\\leqslant(?![A-Za-z])|\\le(?![A-Za-z])|≤"), r"\\leq"),
    (re.compile(r"\\ne(?![A-Za-z])"), r"\\neq"),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"π"), r"\\pi "),
    (re.compile(r"∞"), r"\\infty "),
    (re.compile(r"√\s*(\d+)"), r"\\sqrt{\1}"),
    (re.compile(r"\\(?:operatorname|mathop)\s*\{(?:arc|a)(sin|cos|tan)\}"), r"\\arc\1"),
)


def spaced(text: str) -> str:
    r"""One space for any kind of space, and one way to write powers, mixed numbers and thousands.

    `2**3`, `10^-3`, `1 1/2`, `1½`, `0.\overline{3}` and `12\,345` become `2^3`, `10^{-3}`,
    `\frac{3}{2}` (twice), `\frac{1}{3}` and `12345`.
    """
    text = _POWER.sub("^", re.sub("[−–]", "-", _THOUSANDS_MARK.sub("", text)))
    text = _NEGATIVE_POWER.sub(r"^{-\1}", _SPACING.sub(_space, text.replace("{,}", ",")))
    text = _REPEATING.sub(_repeating, _VULGAR.sub(_vulgar, text))
    return _GROUPED.sub(lambda match: "".join(match[0].split()), _MIXED.sub(_mixed, text))


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKD", match[2]).partition("\N{FRACTION SLASH}")
    return _latex(int(match[1] or 0) + Fraction(int(top), int(bottom)))


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, repeated = match[1], match[2], match[3] or match[4]
    endless = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(fixed))
    return _latex(Fraction(f"{whole or 0}.{fixed or 0}") + endless)


def _mixed(match: re.Match[str]) -> str:
    whole, top, bottom = map(int, match.groups())
    return _latex(whole + Fraction(top, bottom)) if top < bottom else match[0]


def _latex(value: Fraction) -> str:
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def clean(latex: str) -> str:
    """The answer with spacing, sizing, degrees and a trailing unit or full stop taken away."""
    out = _TRIG_DEGREES.sub(r"\1(\\frac{\2\\pi}{180})", spaced(latex).strip().rstrip(".,;: "))
    out = _AND.sub(", ", _DEGREES.sub("", out.strip())).strip(", ")
    out = _PLAIN_UNIT.sub("", _UNIT.sub("", out) or out)
    return _rewritten(out, (*_EQUAL_COMMANDS, *_FRACTIONS, _SQRT)).strip()


def flat(latex: str) -> str:
    """A key that is the same for answers that differ only in writing, or in the case of words."""
    out = _TEXT.sub(r"\1", clean(latex))
    out = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", out)  # 1 2 is not 12
    out = _ONE_BRACED.sub(r"\1\2", out.rstrip("."))
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


def braced_fractions(text: str) -> str:
    r"""`\frac12`, `\dfrac{1}2` and `\tfrac 1{2}` as `\frac{1}{2}`."""
    return _rewritten(text, _FRACTIONS)


def _rewritten(text: str, rules: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
