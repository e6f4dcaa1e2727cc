"""What stands in for a model's reply, in the form that the app asked for."""

from typing import Any

import pytest

from tacit.external.answers import MOST_CHOICES, spoken
from tacit.external.wire_formats import CHAT, COMPLETIONS


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("n", "choices"),
    [(None, 1), (3, 3), (MOST_CHOICES, MOST_CHOICES), (MOST_CHOICES + 1, 1), (0, 1),
     (-1, 1), ("3", 1), (2.0, 1)],
)  # fmt: skip
def test_as_many_choices_as_asked_for_but_never_more_than_any_server_gives(
    path: str, n: Any, choices: int
) -> None:
    found = spoken(path, {"model": "m", "n": n}, "so")["choices"]
    assert [one["index"] for one in found] == list(range(choices))
