"""Counts what a run pays for API calls: a receipt for every answer in its folder, and a cap.

Receipts are on disk before they are counted, so what a killed run paid still counts when it
resumes. Cached answers are free and have no receipt. Not covered: an answer that was charged but
lost on its way back.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tacit.economy.ledger import PriceTable
from tacit.engine.base import Account
from tacit.rollout.play import Cap
from tacit.run.folder import RunFolder, read_records
from tacit.types import MOST_TOKENS, Receipt, Usage

FILE = "spend.jsonl"
RECEIPT: TypeAdapter[Receipt] = TypeAdapter(Receipt)


class Spending:
    """The receipts of one run and its spend cap."""

    def __init__(
        self, run: RunFolder, prices: PriceTable | None = None, cap: float | None = None
    ) -> None:
        self._run, self._prices, self._cap = run, prices, cap
        run.mend(FILE)
        wrong = "is no receipt: remove that line, and what it may have cost is not counted"
        found = list(enumerate(read_records(run.path / FILE, RECEIPT, wrong), start=1))
        self.receipts = [one for _, one in found if one.usage.total <= MOST_TOKENS]
        self._impossible = [str(line) for line, one in found if one.usage.total > MOST_TOKENS]
        self._spent = sum(map(self._money, self.receipts))

    def account(self, warn: Callable[[str], None]) -> Account:
        """For the run's engines: where they cache answers and report what they paid."""
        if self._impossible:
            warn(
                f"{self._run.path / FILE} line {', '.join(self._impossible)}: no answer has so "
                "many tokens, so this is counted nowhere"
            )
        return Account(
            cache=self._run.path / "cache", on_receipt=self.pay, warn=warn, served=self.served()
        )

    def pay(self, receipt: Receipt) -> None:
        self._run.append(FILE, RECEIPT.dump_json(receipt))
        self.receipts.append(receipt)
        self._spent += self._money(receipt)

    @property
    def folder(self) -> Path:
        return self._run.path

    def cap(self) -> Cap:
        return Cap(self.reached, self.left)

    def left(self) -> float:
        """Money that may still be spent."""
        if self._cap is None or self._prices is None:
            return math.inf
        return max(0.0, self._cap - self._spent)

    def reached(self) -> str | None:
        """Why no more calls may be made, or None while the cap is not reached."""
        if self._cap is None or self._prices is None or self._spent < self._cap:
            return None
        return (
            f"the spend cap is reached: {self._spent:.4f} of {self._cap:g} {self._prices.currency} "
            "are spent; the same command with a larger spend_cap goes on"
        )

    def served(self) -> dict[str, tuple[str, str]]:
        """Model → the id and fingerprint of its last answer."""
        return {one.model: (one.served, one.fingerprint) for one in self.receipts}

    def to_json(self) -> dict[str, Any] | None:
        """For the summary; None if nothing was paid."""
        if not self.receipts:
            return None
        return {
            "money": self._spent if self._prices else None,
            "currency": self._prices.currency if self._prices else None,
            "prices_of": self._prices.date if self._prices else None,
            "cap": self._cap,
            "models": paid(self.receipts, self._prices),
        }

    def _money(self, receipt: Receipt) -> float:
        return self._prices.of(receipt.model).of(receipt.usage) if self._prices else 0.0


def paid(receipts: Iterable[Receipt], prices: PriceTable | None = None) -> list[dict[str, Any]]:
    """Totals by model, in the order in which the models first answered."""
    by_model: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        by_model.setdefault(receipt.model, []).append(receipt)
    totals = []
    for model, mine in by_model.items():
        usage = sum((one.usage for one in mine), Usage())
        served = (" ".join(filter(None, (one.served, one.fingerprint))) for one in mine)
        total = {
            "model": model,
            "calls": len(mine),
            "usage": asdict(usage),
            "money": prices.of(model).of(usage) if prices else None,
            "served": tuple(dict.fromkeys(served)),
        }
        totals.append(total)
    return totals
