"""What requests and conversations may spend: tokens, turns and money, and what they have spent.

Every call counts as soon as it is over. Not covered: who may still speak (`guard`).
"""

import hashlib
import math
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tacit.economy.ledger import PriceTable
from tacit.errors import ConfigError
from tacit.registry import did_you_mean
from tacit.serve.http_error import HttpError, retry_later
from tacit.serve.schema import ChatRequest, Json
from tacit.types import Call

KINDS = ("tokens", "turns", "money")
"""What is counted: `Usage.spent`, messages that were said, and the price of all calls."""
STOPS = ("agreed", "repeating")
"""What else may end the talk; see `guard`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be spent; None is no limit."""

    tokens: int | None = None
    turns: int | None = None
    money: float | None = None

    def limit(self, kind: str) -> float:
        limit: float | None = getattr(self, kind)
        return math.inf if limit is None else limit

    def lowered(self, wish: Mapping[str, float | None]) -> "Budget":
        """With the wish's limits where they are lower."""
        lower = {k: v for k, v in wish.items() if v is not None and v < self.limit(k)}
        return replace(self, **lower)  # type: ignore[arg-type]


def parse_budget(text: str, option: str) -> Budget:
    """The budget of an option. Example: parse_budget("tokens=600,turns=4", "--request-budget")."""
    limits: dict[str, float] = {}
    for pair in filter(None, (pair.strip() for pair in text.split(","))):
        kind, _, amount = (part.strip() for part in pair.partition("="))
        if kind not in KINDS:
            raise ConfigError(f"{option}: `{kind}` is not counted; {did_you_mean(kind, KINDS)}")
        try:
            limits[kind] = float(amount) if kind == "money" else int(amount)
        except ValueError:
            limits[kind] = math.nan
        if not 0 < limits[kind] < math.inf:
            whole = "a number" if kind == "money" else "a whole number"
            raise ConfigError(f"{option}: {kind} must be {whole} above 0, got `{amount}`")
    return Budget(**limits)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRules:
    """What the operator allows; docs/serving.md says what each is for."""

    request: Budget = Budget()
    conversation: Budget = Budget()
    answer_tokens: int = 256
    """Kept for the call that gives the answer, and left to it however little is left."""
    conversations: int = 10_000
    """Most conversations that are remembered."""
    hours: float = 24.0
    """For which a conversation is remembered after its last request."""
    stops: frozenset[str] = frozenset()

    @property
    def counts_money(self) -> bool:
        return self.request.money is not None or self.conversation.money is not None


def _amounts() -> defaultdict[str, float]:
    return defaultdict(int)  # tokens and turns stay whole numbers


@dataclass(slots=True)
class Meter:
    """What one request, or all requests of one conversation, have spent of a budget."""

    budget: Budget
    spent: defaultdict[str, float] = field(default_factory=_amounts)
    kept: defaultdict[str, float] = field(default_factory=_amounts)
    """For answers to come, and the turns and money of messages under way."""
    used: float = 0.0
    """When a request last asked for it."""
    open: int = 0
    """Requests under way."""

    def left(self, kind: str) -> float:
        """What may still be spent on anything but the answers."""
        return self.budget.limit(kind) - self.spent[kind] - self.kept[kind]

    def json(self) -> Json:
        limits = {kind: self.budget.limit(kind) for kind in KINDS}
        return {
            kind: {"limit": limit, "spent": round(self.spent[kind], 12)}
            for kind, limit in limits.items()
            if limit < math.inf
        }


class Conversations:
    """The meters of the conversations used last. One that is under way is not forgotten."""

    def __init__(self, rules: BudgetRules, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._clock = clock
        self._meters: OrderedDict[bytes, Meter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meters)

    def meter(self, name: bytes) -> Meter:
        now = self._clock()
        self._forget(now, self._rules.conversations - (name not in self._meters))
        meter = self._meters.setdefault(name, Meter(self._rules.conversation))
        self._meters.move_to_end(name)
        meter.used = now
        return meter

    def _forget(self, now: float, most: int) -> None:
        """Drop what is too old, and the oldest ones until there are no more than so many."""
        oldest = now - 3600 * self._rules.hours
        gone: list[bytes] = []
        for name, meter in self._meters.items():
            if len(self._meters) - len(gone) <= most and meter.used > oldest:
                break
            if not meter.open:
                gone.append(name)
        for name in gone:
            del self._meters[name]


@dataclass(slots=True, eq=False)
class Allowance:
    """What one request may spend: its own budget and its conversation's."""

    request: Meter
    conversation: Meter | None
    reserve: Mapping[str, float]
    """What is kept for each of its answers."""
    prices: PriceTable | None = None
    stops: frozenset[str] = frozenset()
    unasked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Agent and reason → messages that it was not asked for."""
    without_tools: set[tuple[str, str]] = field(default_factory=set)
    """Agents whose tools were withheld, and the reason."""
    shortened: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Agent and reason → messages that ended where the budget did."""
    kept: defaultdict[str, float] = field(default_factory=_amounts)

    @property
    def meters(self) -> list[Meter]:
        return [self.request, *([self.conversation] if self.conversation else [])]

    def left(self, kind: str) -> float:
        return min(meter.left(kind) for meter in self.meters)

    def short_of(
        self, kinds: Iterable[str] = KINDS, *, answers: bool, money: float = 0.0
    ) -> str | None:
        """What there is no more of once so much money is spent.

        An answer may take what is kept for it.
        """
        left = {kind: self.left(kind) - money * (kind == "money") for kind in kinds}
        return next((k for k, n in left.items() if n < 0 or (n == 0 and not answers)), None)

    def spend(self, call: Call) -> None:
        money = self.prices.cost(call) if self.prices else 0.0
        for meter in self.meters:
            meter.spent["tokens"] += call.usage.spent
            meter.spent["turns"] += call.is_turn
            meter.spent["money"] += money

    def keep(self, kind: str, amount: float) -> None:
        for counts in (self.kept, *(meter.kept for meter in self.meters)):
            counts[kind] += amount

    def answered(self) -> None:
        """One of the answers is there: nothing need be kept for it."""
        for kind, amount in self.reserve.items():
            self.keep(kind, -amount)

    def shares_left(self) -> dict[str, float]:
        """How much of its conversation's budgets is left, from 0 to 1."""
        meter = self.conversation
        if meter is None:
            return {}
        limits = {kind: meter.budget.limit(kind) for kind in KINDS}
        return {
            kind: max(0.0, 1 - meter.spent[kind] / limit)
            for kind, limit in limits.items()
            if limit < math.inf
        }

    def json(self) -> Json:
        """What an account says of it; nothing if nothing was limited."""
        scopes = {"request": self.request, "conversation": self.conversation}
        limited = {name: meter.json() for name, meter in scopes.items() if meter and meter.json()}
        return {"budget": limited} | self.cut() if limited or self.stops else {}

    def cut(self) -> dict[str, list[Json]]:
        """Who was not asked, cut short, or asked without tools, and why."""
        unasked, shortened = (
            [{"agent": a, "reason": why, "messages": n} for (a, why), n in counts.items()]
            for counts in (self.unasked, self.shortened)
        )
        without_tools = [{"agent": a, "reason": why} for a, why in sorted(self.without_tools)]
        return {"unasked": unasked, "shortened": shortened, "without_tools": without_tools}


class Budgets:
    """The budgets of one server, and its conversations."""

    def __init__(
        self, rules: BudgetRules | None = None, prices: PriceTable | None = None, reader: str = ""
    ) -> None:
        """`prices`: of the team's models. `reader`: the grader that reads the team's answers."""
        self.rules = rules or BudgetRules()
        if self.rules.counts_money and prices is None:
            raise ConfigError("a budget of money needs the config's price table: set `prices: …`")
        self.reader = reader
        self.conversations = Conversations(self.rules)
        self._prices = prices
        dearest = max((p.output for p in prices.models.values()), default=0.0) if prices else 0.0
        tokens = self.rules.answer_tokens
        self._reserve = {"tokens": tokens, "turns": 1, "money": tokens * dearest / 1e6}

    def check(self, chat: ChatRequest) -> None:
        """Refuse a wish that cannot be counted, and a conversation's name that is too long."""
        _name(chat)
        if chat.wish.money is not None and self._prices is None:
            told = "`tacit.money`: this server counts no money"
            raise HttpError(400, told, param="tacit.money")

    @contextmanager
    def opened(self, chat: ChatRequest, answers: int) -> Iterator[Allowance]:
        """The allowance of one request, in which so many answers are kept room for.

        A conversation without budget left is refused, unless none of the answers is ours (0).
        """
        name = _name(chat)
        meter = self.conversations.meter(name) if name else None
        if meter and answers:
            _refuse_used_up(meter)
        wish = {kind: getattr(chat.wish, kind) for kind in KINDS}
        allowance = Allowance(
            request=Meter(self.rules.request.lowered(wish)),
            conversation=meter,
            reserve=self._reserve if answers else {},
            prices=self._prices,
            stops=self.rules.stops,
        )
        for kind, amount in allowance.reserve.items():
            allowance.keep(kind, amount * answers)
        for one in allowance.meters:
            one.open += 1
        try:
            yield allowance
        finally:
            for kind, amount in list(allowance.kept.items()):
                allowance.keep(kind, -amount)
            for one in allowance.meters:
                one.open -= 1


def _name(chat: ChatRequest) -> bytes:
    """A conversation is its client's own: the same name under another key is another one."""
    if not chat.conversation:
        return b""
    whole = f"{chat.headers.get('authorization', '')}\n{chat.conversation}"
    return hashlib.blake2b(whole.encode(errors="replace"), digest_size=16).digest()


def _refuse_used_up(meter: Meter) -> None:
    for kind in KINDS:
        limit = meter.budget.limit(kind)
        budget = f"this conversation's budget of {limit:g} {kind}"
        if meter.spent[kind] >= limit:
            code, final = "conversation_budget", {"x-should-retry": "false"}
            raise HttpError(429, f"{budget} is used up: begin another", code=code, headers=final)
        if meter.left(kind) <= 0:
            told = f"{budget} is taken up by requests under way"
            raise retry_later(429, told, 1, "conversation_budget")
