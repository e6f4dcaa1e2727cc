"""The audit without outcomes: where a team's tokens, money and time go, and what is sent again.

Reads episodes of any team: Tacit's own, or recordings of other programs that hold texts, usage and
seconds, or usage alone (`spans`). It needs no right answers and claims no value: what a message was
worth, only playing without it can tell.

    found = audit_traffic(episodes, load_prices("prices.yaml"))
    json.dumps(dataclasses.asdict(found))
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean

from tacit.economy.ledger import LedgerRow, PriceTable, ledger
from tacit.economy.reward import repetition
from tacit.traffic.critical_path import critical_path
from tacit.traffic.exchange import Read, edges, prompts, senders
from tacit.traffic.findings import findings, notes
from tacit.traffic.prompt_pieces import read_episode
from tacit.traffic.saying import loops, sayings, tool_repeats
from tacit.traffic.tree import Amounts, Spending, Traffic
from tacit.types import Episode, Usage


def audit_traffic(episodes: Sequence[Episode], prices: PriceTable | None = None) -> Traffic:
    """Audit episodes. A model that the price table lacks is listed, and its money unknown."""
    read: list[Read] = [(episode, read_episode(episode)) for episode in episodes]
    rows = ledger(episodes)
    models = dict.fromkeys(row.model for row in rows)
    agents = dict.fromkeys(row.agent for row in rows)
    missing = [name for name in models if prices and name not in prices.models]
    count = max(1, len(episodes))

    def spent(name: str, mine: Sequence[LedgerRow]) -> Spending:
        total = _amounts(mine, prices)
        return Spending(name, total, total.shared(count))

    found = Traffic(
        episodes=len(episodes),
        graded=sum(episode.grade is not None for episode in episodes),
        team=spent("team", rows),
        agents=tuple(spent(name, [r for r in rows if r.agent == name]) for name in agents),
        models=tuple(spent(name, [r for r in rows if r.model == name]) for name in models),
        currency=prices.currency if prices else None,
        unpriced=tuple(missing),
        prompts=prompts(read),
        edges=edges(read),
        senders=senders(read),
        sayings=sayings(read),
        repetition=fmean([_repetition(episode) for episode in episodes] or [0.0]),
        loops=loops(read),
        tool_repeats=tool_repeats(read),
        path=critical_path(read),
    )
    return replace(found, findings=findings(found), notes=tuple(notes(found, episodes)))


def _amounts(rows: Sequence[LedgerRow], prices: PriceTable | None) -> Amounts:
    known = prices is not None and all(row.model in prices.models for row in rows)
    return Amounts(
        calls=sum(row.calls for row in rows),
        **asdict(sum((row.usage for row in rows), Usage())),
        money=sum(prices.of(r.model).of(r.usage) for r in rows) if prices and known else None,
    )


def _repetition(episode: Episode) -> float:
    return repetition([c.text for c in episode.calls if not (c.silent or c.tool_calls)])
