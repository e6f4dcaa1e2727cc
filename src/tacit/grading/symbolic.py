"""Compares two mathematical answers with math-verify. Slow and unbounded: runs in worker processes.

The LaTeX is parsed here rather than by math-verify's `parse`, for three reasons: letters keep their
case (R is not r), i is the imaginary unit, and trailing letters are no units (2d is not 2).
"""

import re
from functools import lru_cache
from typing import Any

import sympy  # type: ignore[import-untyped]
from latex2sympy2_extended import (  # type: ignore[import-untyped]
    NormalizationConfig,
    latex2sympy,
    normalize_latex,
)
from latex2sympy2_extended.latex2sympy2 import (  # type: ignore[import-untyped]
    ConversionConfig,
)
from math_verify import verify

from tacit.grading.latex import clean

AS_TEXT = "the reference is not a formula math-verify can read; it was compared as text"

_NORMAL = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_CHAIN = re.compile(r"(?<![\\<>!])=")
_FAR = sympy.Float("1e-6")


def compare(question: tuple[str, str]) -> tuple[bool, str]:
    """What a worker process is asked: the reference and the answer."""
    return equal(*question)


def equal(reference: str, answer: str) -> tuple[bool, str]:
    """Whether the answers are the same, and a note where the reference cannot be read."""
    wanted = parse(reference)
    if wanted is None:
        return False, AS_TEXT
    given = parse(answer)
    if given is None or _far_apart(wanted, given):
        return False, ""
    # Its own time limit needs SIGALRM and is off: ours is the worker's.
    return bool(verify(wanted, given, timeout_seconds=None, allow_set_relation_comp=True)), ""


@lru_cache(maxsize=1024)
def parse(latex: str) -> Any:
    """The sympy object, or None where the text is not a formula."""
    text = normalize_latex(clean(latex), _NORMAL)
    parts = _CHAIN.split(text)
    # Of a chain a = b = c only the last part counts, but a = 1, b = 2 is a list.
    tries = [text] if len(parts) < 3 or "," in text else [text, parts[-1]]
    for attempt in tries:
        try:
            parsed = latex2sympy(
                attempt, is_real=True, normalization_config=None, conversion_config=_CONVERSION
            )
        except Exception:  # whatever the parser raises on text it does not know
            continue
        return _complex(parsed)
    return None


def _complex(parsed: Any) -> Any:
    if not isinstance(parsed, sympy.Basic | sympy.MatrixBase):
        return None
    if parsed.has(sympy.zoo, sympy.nan):
        return None
    return parsed.xreplace({sympy.Symbol("i", real=True): sympy.I})


def _far_apart(wanted: Any, given: Any) -> bool:
    """Whether the values differ at one point, which settles it without any algebra.

    Also what keeps small numbers apart: math-verify rounds to 6 places, so 1e-8 would equal 2e-8.
    """
    if not all(isinstance(side, sympy.Expr) for side in (wanted, given)):
        return False
    if any(side.has(sympy.UnevaluatedExpr) for side in (wanted, given)):
        return False  # a percentage, which may mean 5 or 0.05
    names = sorted(wanted.free_symbols | given.free_symbols, key=str)
    point = {name: sympy.Rational(37 + 10 * index, 53) for index, name in enumerate(names)}
    try:
        first, second = (sympy.N(side.xreplace(point), 20) for side in (wanted, given))
        return bool(abs(first - second) > _FAR * max(abs(first), abs(second)))
    except (TypeError, ValueError, ArithmeticError):
        return False  # undefined functions have no value
