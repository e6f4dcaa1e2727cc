"""What a run has paid the servers it asks: a receipt for every answer, kept in its folder; a cap.

Receipts survive whatever ends a run, so what was paid before it was killed counts when it goes on.
Kept answers cost nothing and have no receipt. An answer that was lost on its way back may have been
charged all the same: nobody can know that here.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.economy.ledger import PriceTable
from tacit.engine.base import Account
from tacit.errors import ConfigError
from tacit.rollout.play import Cap
from tacit.run.folder import RunFolder, read_lines
from tacit.types import MOST_TOKENS, Receipt, Usage

FILE = "spend.jsonl"
RECEIPT: TypeAdapter[Receipt] = TypeAdapter(Receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """What was paid for one model."""

    model: str
    calls: int
    usage: Usage
    money: float | None
    served: tuple[str, ...]
    """The ids and fingerprints under which it answered, in the order they appeared."""


class Spending:
    """The receipts of one run, and how much they may come to."""

    def __init__(
        self, run: RunFolder, prices: PriceTable | None = None, cap: float | None = None
    ) -> None:
        self._run, self._prices, self._cap = run, prices, cap
        run.mend(FILE)
        found = list(enumerate(_read(run), start=1))
        self.receipts = [one for _, one in found if one.usage.total <= MOST_TOKENS]
        self._impossible = [str(line) for line, one in found if one.usage.total > MOST_TOKENS]
        self._spent = sum(map(self._money, self.receipts))

    def account(self, warn: Callable[[str], None]) -> Account:
        """How the run's engines are to ask: keeping answers in its folder, paying from here."""
        if self._impossible:
            warn(
                f"{self._run.path / FILE} line {', '.join(self._impossible)}: no answer has so "
                "many tokens, so this is counted nowhere"
            )
        return Account(
            cache=self._run.path / "cache", on_receipt=self.pay, warn=warn, served=self.served()
        )

    def pay(self, receipt: Receipt) -> None:
        """Write it down first, then count it."""
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
        """Why nothing more may be asked, or None while the cap is not reached."""
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
        """For the summary; None where nothing was paid."""
        if not self.receipts:
            return None
        return {
            "money": self._spent if self._prices else None,
            "currency": self._prices.currency if self._prices else None,
            "prices_of": self._prices.date if self._prices else None,
            "cap": self._cap,
            "models": [asdict(one) for one in paid(self.receipts, self._prices)],
        }

    def _money(self, receipt: Receipt) -> float:
        return self._prices.of(receipt.model).of(receipt.usage) if self._prices else 0.0


def paid(receipts: Iterable[Receipt], prices: PriceTable | None = None) -> list[Paid]:
    """Totals by model, in the order in which they first answered."""
    by_model: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        by_model.setdefault(receipt.model, []).append(receipt)
    return [
        Paid(
            model=model,
            calls=len(mine),
            usage=(usage := sum((one.usage for one in mine), Usage())),
            money=prices.of(model).of(usage) if prices else None,
            served=tuple(
                dict.fromkeys(" ".join(filter(None, (r.served, r.fingerprint))) for r in mine)
            ),
        )
        for model, mine in by_model.items()
    ]


def _read(run: RunFolder) -> Iterable[Receipt]:
    for number, line in enumerate(read_lines(run.path / FILE), start=1):
        try:
            yield RECEIPT.validate_json(line)
        except ValidationError:
            raise ConfigError(
                f"{run.path / FILE} line {number} is no receipt: remove that line, and what it may "
                "have cost is not counted"
            ) from None
