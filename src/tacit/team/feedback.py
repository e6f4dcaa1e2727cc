"""Decides from its wording whether feedback on a solution finds an error."""

import re

_NO_ERROR = r"no (?:further |other |obvious )?(?:errors?|mistakes?|issues?|problems?|flaws?)"
_NONE = rf"(?:none|{_NO_ERROR})"
_SOLUTION = (
    r"(?:it|(?:the|this|your|my) (?:given |provided |proposed |final |whole |entire )?"
    r"(?:solution|answer)(?: given| provided)?(?: (?:of )?\$?\d[\d.,]*)?)"
)
"""The whole solution: a single correct step says nothing about the others."""
_CLAUSES = (
    rf"(?:there (?:is|are|were) |i (?:find|found|see) )?{_NONE}"
    r"(?: (?:(?:is|are|was|were) )?(?:found|present))?"
    rf"(?: (?:in|with) {_SOLUTION})?",
    rf"(?:{_SOLUTION} )?(?:has|contains) {_NONE}",
    rf"(?:{_SOLUTION} )?(?:is|looks|seems|appears to be) "
    r"(?:completely |entirely |indeed |already )?(?:correct|right|free of errors|error-free)",
)
_CLAUSE = f"(?:{'|'.join(_CLAUSES)})"
_CLEARS = re.compile(
    r"(?:(?:errors?:|yes,|so,?|thus,?|therefore,?|overall,?|in conclusion,?) )?"
    rf"{_CLAUSE}(?:[,;:]? (?:and |so )?{_CLAUSE})*[.!]*"
)
"""A sentence that says the solution has no error, and nothing else."""
_OBJECTS = re.compile(
    r"\b(?:no|not|none|never|\w+n't|but|however|although|though|yet|except\w*|should|instead"
    r"|actually|errors?|issues?|flaw\w*|wrong\w*|false|incorrect\w*|inaccura\w*|inconsisten\w*"
    r"|invalid|mis\w+|forg[eo]t\w*|ignor\w*|overlook\w*|neglect\w*|omit\w*|fail\w*|unclear|too"
    r"|correct (?:solution|answer)|correct(?:ed|ion)\w*|fix\w*|improve\w*)\b"
)
"""Words of sentences that find an error. Some sentences without one have them too, which costs a
needless refinement."""


def finds_no_error(feedback: str) -> bool:
    """True if the first or last sentence clears the solution and no other may object.

    False in doubt: a needless refinement costs a call, a missed one leaves the error.
    """
    plain = re.sub(r"[*_#`]", "", feedback.lower().replace("’", "'")).strip()
    sentences = [part.strip(" -") for part in re.split(r"(?<=[.!?])\s+|\n+", plain)]
    clear = [bool(_CLEARS.fullmatch(sentence)) for sentence in sentences]
    others = [
        re.sub(_NO_ERROR, "", sentence)
        for sentence, is_clear in zip(sentences, clear, strict=True)
        if not is_clear
    ]
    return (clear[0] or clear[-1]) and not any(map(_OBJECTS.search, others))
