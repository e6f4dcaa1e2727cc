"""Receipts on disk: what was paid, for whom, and when to stop."""

from pathlib import Path

import pytest

from tacit.economy.ledger import Price, PriceTable
from tacit.errors import ConfigError
from tacit.run.folder import RunFolder
from tacit.run.spending import FILE, RECEIPT, Spending, paid
from tacit.types import Receipt, Usage

PRICES = PriceTable(
    date="2026-01-01",
    currency="EUR",
    models={"big": Price(input=1.0, output=10.0, cached=0.5), "small": Price(input=0, output=1.0)},
)


def receipt(model: str = "big", fingerprint: str = "", **usage: int) -> Receipt:
    return Receipt(
        model=model,
        served=f"{model}-0613",
        fingerprint=fingerprint,
        usage=Usage(**usage),
        time="2026-01-02T03:04:05+00:00",
    )


def test_receipts_are_summed_by_model() -> None:
    given = [
        receipt(prompt=100, generated=10, cached=40),
        receipt("small", generated=7),
        receipt(prompt=50, generated=5, fingerprint="fp_2", reasoning=3),
    ]
    big, small = paid(given, PRICES)
    assert (big["model"], big["calls"], small["calls"]) == ("big", 2, 1)
    assert big["usage"] == {
        "prompt": 150, "generated": 15, "cached": 40, "reasoning": 3, "observed": 0
    }  # fmt: skip
    assert big["money"] == pytest.approx((110 * 1 + 40 * 0.5 + 15 * 10) / 1e6)
    assert big["served"] == ("big-0613", "big-0613 fp_2")
    assert [one["money"] for one in paid(given)] == [None, None]


def test_what_was_paid_before_counts_when_a_run_goes_on(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    first = Spending(run, PRICES, cap=100e-6)
    first.pay(receipt(generated=6))
    assert first.reached() is None
    second = Spending(run, PRICES, cap=100e-6)
    assert second.served() == {"big": ("big-0613", "")}
    second.pay(receipt(generated=4))
    assert "0.0001 of 0.0001 EUR are spent" in str(second.reached())
    assert "larger spend_cap" in str(second.reached())
    assert Spending(run, PRICES, cap=200e-6).reached() is None
    assert Spending(run).reached() is None, "no cap, no end"


def test_the_summary_says_what_was_paid_and_at_which_prices(tmp_path: Path) -> None:
    spending = Spending(RunFolder(tmp_path), PRICES, cap=5.0)
    assert spending.to_json() is None
    spending.pay(receipt(prompt=100, generated=1))
    told = spending.to_json()
    assert told is not None
    assert told["money"] == pytest.approx(110e-6)
    assert (told["currency"], told["prices_of"], told["cap"]) == ("EUR", "2026-01-01", 5.0)
    assert told["models"][0]["usage"]["prompt"] == 100


def test_a_torn_receipt_is_cut_off_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    Spending(run).pay(receipt(generated=1))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"model": "bi')
    spending = Spending(run)
    spending.pay(receipt(generated=2))
    assert [one.usage.generated for one in Spending(run).receipts] == [1, 2]
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"model": "big"}\n')
    with pytest.raises(ConfigError, match=r"spend\.jsonl line 3 is no receipt"):
        Spending(run)


def test_a_receipt_that_cannot_be_true_is_left_out_and_said(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for tokens in (5, 10**15, 10**4000, 7):
        run.append(FILE, RECEIPT.dump_json(receipt(generated=tokens)))
    spending, said = Spending(run, PRICES, cap=1.0), list[str]()
    spending.account(said.append)
    assert [one.usage.generated for one in spending.receipts] == [5, 7]
    assert spending.reached() is None
    assert "spend.jsonl line 2, 3: no answer has so many tokens" in said[0] and len(said) == 1


def test_a_model_without_a_price_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no price for model `huge`"):
        Spending(RunFolder(tmp_path), PRICES).pay(receipt("huge", generated=1))
