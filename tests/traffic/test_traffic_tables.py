"""An audit as it is printed."""

from rich.cells import cell_len
from rich.console import Console

from tacit.economy.ledger import Price, PriceTable
from tacit.traffic.audit_traffic import audit_traffic
from tacit.traffic.traffic_tables import traffic_tables
from tacit.traffic.tree import Traffic
from tacit.types import Episode, ToolCall
from tests.helpers.recorded import episode, recorded

QUESTION = "How many legs have three spiders?"
A, B = "A spider has eight legs.", "There are three of them."
NAMES = ("researcher of the northern branch office", "bob")


def team() -> Episode:
    look = ToolCall("look", "{}")
    ann, bob = NAMES
    return episode(
        recorded(ann, "", ("system", "Be brief."), QUESTION, tools=(look,), seconds=3.0),
        recorded(ann, A, QUESTION, ("tool", "Legs: eight."), tools=(), seconds=1.0),
        recorded(bob, B, QUESTION, A, seconds=1.0, model="other"),
        recorded(ann, A, QUESTION, B, seconds=1.0, tools=()),
        recorded(bob, B, QUESTION, A, seconds=1.0, model="other"),
        task="spiders/1",
        seconds=8.0,
    )


def shown(found: Traffic, *, examples: bool = False) -> str:
    console = Console(width=80, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        for one in traffic_tables(found, examples=examples):
            console.print(one)
    return capture.get()


def test_every_line_fits_eighty_columns_and_no_name_is_cut() -> None:
    prices = PriceTable(date="2026-01-01", models={"m": Price(input=1.0, output=2.0)})
    text = shown(audit_traffic([team()] * 3, prices), examples=True)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert NAMES[0] in text
    assert "…" not in text


def test_the_numbers_stand_where_they_belong() -> None:
    text = shown(audit_traffic([team()]))
    rows = [line.split() for line in text.splitlines()]
    assert ["bob", "2.0", "114", "0", "0", "48", "0"] in rows, "calls, read and said"
    # two calls of 33 + 24 tokens, the second as the first: 57 of 114 sent before
    assert ["bob", "114", "0", "66", "48", "0"] in rows, "parts that do not occur have no column"
    assert ["sent", "before", "57", "0", "33", "24", "0"] in rows
    assert ["2", "48", "1.0", "0", "50", "%", "1", "0"] in rows, "below the name"
    assert "loop: episode 0 (spiders/1), calls 3, 4" in text


def test_nothing_to_audit_prints_one_sentence() -> None:
    assert shown(audit_traffic([])).split("\n") == ["There are no calls to audit.", ""]


def test_excerpts_come_only_when_asked_for() -> None:
    found = audit_traffic([team()])
    assert f"call 4, bob: {B}" not in shown(found)
    assert f"call 4, bob: {B}" in " ".join(shown(found, examples=True).split())
