"""Compares two mathematical answers with math-verify. Slow and unbounded: runs in worker processes.

The LaTeX is parsed here rather than by math-verify's `parse`, for three reasons: letters keep their
case (R is not r), i is the imaginary unit, and trailing letters are no units (2d is not 2).
"""

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from latex2sympy2_extended.sets import FiniteSet
from math_verify import verify
from sympy.core.relational import Relational

from tacit.graders.latex import clean
from tacit.graders.number import Number, rounds_to

AS_TEXT = "the reference is not a formula math-verify can read; it was compared as text"

_NORMAL = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_CHAIN = re.compile(r"(?<![\\<>!])=")
_TWO_NUMBERS = re.compile(r"(?<![_^\d])\d+\s+\d")
_ALL_OF = re.compile(r"(?<![A-Za-z])and(?![A-Za-z])|\\(?:land|wedge)(?![A-Za-z])")
_DIGITS = 50
_FAR = sympy.Float("1e-30")


def compare(question: tuple[str, str]) -> tuple[bool, str]:
    """True if reference and answer are the same; a note if the reference cannot be read."""
    reference, answer = question
    wanted = parse(reference)
    if wanted is None:
        return False, AS_TEXT
    given = parse(answer)
    if given is None or _set_against_tuple(wanted, given, reference, answer):
        return False, ""
    try:
        wanted, given = _exact(wanted, given), _exact(given, wanted)
    except TypeError:
        return False, ""  # a list with a member that has no value, as 0.5 · ∞ · 0
    if _far_apart(wanted, given):
        return False, ""
    if _alternatives(wanted) or _alternatives(given):
        return _same_solutions(_solutions(wanted, reference), _solutions(given, answer)), ""
    # math-verify's own time limit needs SIGALRM and is off; the worker has a deadline.
    return bool(verify(wanted, given, timeout_seconds=None, allow_set_relation_comp=True)), ""


@lru_cache(maxsize=1024)
def parse(latex: str) -> Any:
    """The sympy object, or None if the text is not a formula."""
    text = clean(latex)
    if _TWO_NUMBERS.search(text):
        return None  # the parser would add them up
    text = normalize_latex(text, _NORMAL)
    parts = _CHAIN.split(text)
    # Of a chain a = b = c only the last part counts, but a = 1, b = 2 is a list.
    for attempt in [text] if len(parts) < 3 or "," in text else [text, parts[-1]]:
        try:
            parsed = latex2sympy(
                attempt, is_real=True, normalization_config=None, conversion_config=_CONVERSION
            )
            return _complex(parsed)
        except Exception:  # whatever they raise on text that they do not know
            continue
    return None


def _complex(parsed: Any) -> Any:
    if not isinstance(parsed, sympy.Basic | sympy.MatrixBase) or parsed.has(sympy.zoo, sympy.nan):
        return None
    if isinstance(parsed, sympy.FiniteSet) and len(parsed) == 1:
        return _complex(parsed.args[0])
    return _replaced(parsed, {sympy.Symbol("i", real=True): sympy.I})


def _exact(parsed: Any, other: Any) -> Any:
    """Decimals as fractions, so that math-verify compares exactly instead of to 6 places.

    A decimal that rounds a never-ending fraction of the other side becomes that fraction.
    """
    endless = [Fraction(number.p, number.q) for number in other.atoms(sympy.Rational)]
    found = {}
    for number in parsed.atoms(sympy.Float):
        decimal = Decimal(str(number)).normalize()
        places = max(0, -int(decimal.as_tuple().exponent))
        written = Number(Fraction(decimal), places=places)
        value = next((f for f in endless if rounds_to(Number(f), written)), written.value)
        found[number] = sympy.Rational(value.numerator, value.denominator)
    return _replaced(parsed, found)


def _replaced(parsed: Any, values: dict[Any, Any]) -> Any:
    """A list keeps its order: it may be compared with a tuple."""
    if isinstance(parsed, FiniteSet) and not values.keys().isdisjoint(parsed.atoms()):
        return FiniteSet(*(member.xreplace(values) for member in parsed._unsorted_args))
    return parsed.xreplace(values)


def _set_against_tuple(wanted: Any, given: Any, reference: str, answer: str) -> bool:
    r"""True for `\{1,2\}` beside `(1,2)`; a list without brackets may be either."""
    return any(
        isinstance(one, sympy.FiniteSet)
        and r"\{" in clean(text)
        and isinstance(other, sympy.Interval | sympy.Tuple)
        for one, text, other in ((wanted, reference, given), (given, answer, wanted))
    )


def _alternatives(parsed: Any) -> bool:
    """True for a list of inequalities in one variable: `x < 1 or x > 2`."""
    return (
        isinstance(parsed, sympy.FiniteSet)
        and len(parsed.free_symbols) == 1
        and all(isinstance(m, Relational) and not isinstance(m, sympy.Eq) for m in parsed)
    )


def _solutions(parsed: Any, latex: str) -> tuple[Any, Any]:
    """The set that inequalities in one variable describe, and the variable; a set has none."""
    try:
        if not _alternatives(parsed):
            names = set() if isinstance(parsed, sympy.Set) else parsed.free_symbols
            return (parsed.as_set() if names else parsed), names
        join = sympy.Intersection if _ALL_OF.search(latex) else sympy.Union
        return join(*(member.as_set() for member in parsed)), parsed.free_symbols
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None, None


def _same_solutions(wanted: tuple[Any, Any], given: tuple[Any, Any]) -> bool:
    (first, first_names), (second, second_names) = wanted, given
    if first is None or (first_names and second_names and first_names != second_names):
        return False
    return bool(first == second)


def _far_apart(wanted: Any, given: Any) -> bool:
    """True if the values differ at one point, which settles it without any algebra.

    Also tells a decimal from the π or √2 that it rounds.
    """
    sides = (wanted, given)
    if not all(isinstance(side, sympy.Expr) for side in sides):
        return False
    if any(side.has(sympy.UnevaluatedExpr) for side in sides):
        return False  # a percentage, which may mean 5 or 0.05
    names = sorted(wanted.free_symbols | given.free_symbols, key=str)
    point = {name: sympy.Rational(37 + 10 * index, 53) for index, name in enumerate(names)}
    try:
        first, second = (sympy.N(side.xreplace(point), _DIGITS) for side in sides)
        return bool(abs(first - second) > _FAR * max(abs(first), abs(second)))
    except (TypeError, ValueError, ArithmeticError):
        return False  # undefined functions have no value
