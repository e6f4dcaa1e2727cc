"""Reads plain numbers exactly, as people write them: 1,234.50, 3/4, 2 3/4, 5\\%, 4e33.

A unit after the number is ignored. Anything else (roots, π, lists) is not a plain number and is
left to the symbolic comparison.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tacit.graders.latex import braced_fractions, spaced

ROUNDED_DIGITS = 6
"""A decimal may stand for a fraction that never ends (1/3) from this many significant digits on."""

MAX_EXPONENT = 400

_SIMPLE = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?")
_WRAPPED = re.compile(
    r"\s*(?:\\(?:text|textbf|mathbf|mathrm)\s*\{([^{}]*)\}|\(([^(),]*)\)|\{([^{}]*)\})\s*"
)
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+"
_WORD = r"(?!(?:pi|tau|phi|and|or|to|plus|minus|times|over|choose|mod)\b)[A-Za-z]{2,}"
_UNIT = (
    r"(?:(?:cm|mm|km|kg|mg|ml|mL|ft|lbs?|oz|yd|mph|hrs?|mins?|USD|°[CF])(?![A-Za-z])"
    rf"|(?:\\?%|\s+{_WORD}|\s*\^?\s*\{{?\\circ\}}?|°"
    r"|\s*\\(?:text|mbox|mathrm|textrm|textbf|rm)\s*\{[^{}\d]*\}(?:\s*\^\s*(?:\{[23]\}|[23]))?)"
    r"(?:\s*[A-Za-z.()^²³/ -]*|\s*\^\s*(?:\{[23]\}|[23])))"
)
_PLAIN = re.compile(
    rf"""\s*(?:(?P<name>[A-Za-z]\w{{0,15}})\s*=\s*)?(?P<sign>[-+]?)\s*
    (?:\\frac\{{\s*(?P<top>-?(?:{_UNSIGNED}))\s*\}}\{{\s*(?P<bottom>{_UNSIGNED})\s*\}}
      |(?P<whole>\d+)\s*\\frac\{{(?P<mixed>\d+)\}}\{{(?P<mixed_bottom>\d+)\}}
      |(?P<body>{_UNSIGNED})(?:\s*/\s*(?P<over>{_UNSIGNED})|[eE](?P<exp>[-+]?\d+))?
       (?:\s*(?:\\times|\\cdot|×|\*|x)\s*10\s*(?:\^|\*\*)\s*\{{?\s*(?P<power>[-+]?\d+)\s*\}}?)?
      |10\s*\^\s*(?:\{{\s*(?P<ten>[-+]?\d+)\s*\}}|(?P<ten_digit>\d)(?!\d)))
    (?P<unit>{_UNIT})?\s*\.?\s*""",
    re.VERBOSE,
)
_SCALE = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


class Number(NamedTuple):
    value: Fraction
    percent: bool = False
    places: int = 0
    """Digits after the decimal point, as written."""
    name: str = ""
    """The name before the equals sign, if there is one."""


@lru_cache(maxsize=8192)
def read_number(text: str) -> Number | None:
    """The plain number the whole text is, or None."""
    if _SIMPLE.fullmatch(text):
        return Number(Fraction(text), places=len(text.partition(".")[2]))
    if len(text) > 200:
        return None
    text = braced_fractions(re.sub("[€£]", "", spaced(text)))
    while wrapped := _WRAPPED.fullmatch(text):
        text = wrapped[1] or wrapped[2] or wrapped[3] or ""
    match = _PLAIN.fullmatch(text)
    value = _value(match) if match else None
    if match is None or value is None:
        return None
    unit = (match["unit"] or "").strip().lower()
    percent = "%" in unit or unit.startswith("percent") or r"\text{percent" in unit.replace(" ", "")
    value *= _SCALE.get(unit.partition(" ")[0], 1) * (-1 if match["sign"] == "-" else 1)
    plain = not (match["over"] or match["exp"] or match["power"])
    places = len((match["body"] or "").partition(".")[2]) if plain else 0
    return Number(value, percent, places, match["name"] or "")


def same_number(reference: Number, answer: Number) -> bool:
    """Equal, not near. `5%` equals both 5 and 0.05 if the other side has no percent sign.

    x = 5 equals 5 but not y = 5.
    """
    if reference.name and answer.name and reference.name != answer.name:
        return False
    if reference.value == answer.value:
        return True
    if reference.percent != answer.percent:
        percent, plain = (reference, answer) if reference.percent else (answer, reference)
        return percent.value / 100 == plain.value
    return rounds_to(reference, answer) or rounds_to(answer, reference)


def rounds_to(fraction: Number, decimal: Number) -> bool:
    """True if a decimal of enough digits is a never-ending fraction, rounded or cut."""
    unit = Fraction(1, 10**decimal.places)
    return (
        decimal.places > 0
        and not _ends(fraction.value.denominator)
        and abs(decimal.value) >= unit * 10 ** (ROUNDED_DIGITS - 1)
        and abs(fraction.value - decimal.value) < unit
    )


def _ends(denominator: int) -> bool:
    """True if 1/denominator has finitely many decimals: no prime factor but 2 and 5."""
    return pow(10, denominator.bit_length(), denominator) == 0 or denominator == 1


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", "").rstrip(".") or "0")


def _value(match: re.Match[str]) -> Fraction | None:
    top = match["top"] or match["mixed"] or match["body"] or "1"  # 10^3 is 1 · 10^3
    bottom = _fraction(match["bottom"] or match["mixed_bottom"] or match["over"] or "1")
    power = int(match["exp"] or match["power"] or match["ten"] or match["ten_digit"] or "0")
    if not bottom or abs(power) > MAX_EXPONENT:
        return None
    return (int(match["whole"] or 0) + _fraction(top) / bottom) * Fraction(10) ** power
