"""Episodes through a proxy that breaks things: same rewards, no call paid twice, drops counted."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from tacit.api import limits as api_limits
from tacit.api.api_engine import ApiEngine
from tacit.config import EvaluationConfig, ModelConfig, TaskConfig, TeamConfig
from tacit.errors import RunError
from tacit.evaluation.measure import evaluate_team
from tacit.run.folder import RunFolder
from tacit.run.opening import tasks_of
from tacit.run.spending import Spending
from tacit.team.roster import build_roster
from tacit.types import Episode, Usage
from tests.helpers.faulty_proxy import FAULTS, FaultyProxy, rates
from tests.helpers.loopback import Server, by_hash
from tests.helpers.soaks import keep

TEAM = TeamConfig.model_validate(
    {"topology": "critic_actor", "agents": {"actor": {"model": "m"}, "critic": {"model": "m"}}}
)
SAMPLES = 4
"""Of a greedy team, so that three of four episodes are answered by what the first one paid for."""


@pytest.fixture(autouse=True)
def around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-test")
    monkeypatch.setattr(api_limits, "FIRST_WAIT", 0.01)


@pytest.fixture
def upstream() -> Iterator[Server]:
    server = Server(by_hash)
    yield server
    server.stop()


@dataclass(frozen=True)
class Played:
    episodes: list[Episode]
    spending: Spending

    @property
    def rewards(self) -> list[float | None]:
        return [e.grade.reward if e.grade else None for e in self.episodes]

    @property
    def failed(self) -> int:
        return sum(e.error is not None for e in self.episodes)

    @property
    def paid(self) -> list[tuple[str, Usage]]:
        return sorted(((r.model, r.usage) for r in self.spending.receipts), key=repr)


async def play(url: str, folder: Path, episodes: int, **settings: object) -> Played:
    """A drafting, criticised and revising team, all of it behind the URL."""
    spending = Spending(RunFolder(folder))
    config = {"engine": "api", "model": "m", "base_url": url, "api_key_env": "TACIT_TEST_KEY"}
    whole = {**config, "concurrency": 32, "timeout": 3.0, **settings}
    engine = ApiEngine(ModelConfig.model_validate(whole), spending.account(lambda sentence: None))
    tasks = tasks_of(TaskConfig(name="arithmetic", limit=episodes // SAMPLES))
    roster = build_roster(TEAM, {"actor": engine, "critic": engine})
    try:
        played = await evaluate_team(
            "team", roster, tasks, EvaluationConfig(samples=SAMPLES), RunFolder(folder)
        )
    finally:
        await engine.close()
    return Played(played, spending)


async def through_faults(upstream: Server, folder: Path, episodes: int) -> FaultyProxy:
    """Everything comes out as without the proxy, although it did its worst."""
    plain = await play(upstream.url, folder / "plain", episodes)
    assert plain.failed == 0 and len(set(plain.rewards)) == 2
    proxy = FaultyProxy(upstream.url, rates())
    try:
        broken = await play(proxy.url, folder / "broken", episodes)
    finally:
        proxy.stop()
    assert broken.failed == 0
    assert broken.rewards == plain.rewards
    assert [e.usage for e in broken.episodes] == [e.usage for e in plain.episodes]
    assert broken.paid == plain.paid, "a receipt for every question, and one only"
    assert len(plain.paid) == len({json.dumps(sent["messages"]) for sent in upstream.asked})
    reused = [call for e in broken.episodes for call in e.calls if call.reused]
    assert len(reused) == sum(len(e.calls) for e in broken.episodes) - len(broken.paid)
    return proxy


async def test_what_passes_through_comes_out_the_same(upstream: Server, tmp_path: Path) -> None:
    proxy = await through_faults(upstream, tmp_path, episodes=160)
    assert sum(n for name, n in proxy.counts.items() if name != "passed") > 20


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_fault_alone_is_survived(upstream: Server, tmp_path: Path, fault: str) -> None:
    proxy = FaultyProxy(upstream.url, {fault: 0.4}, seed=1)
    try:
        played = await play(proxy.url, tmp_path, 8, timeout=1.0)
    finally:
        proxy.stop()
    assert played.failed == 0 and proxy.counts[fault] > 0


async def test_what_is_lost_for_good_is_counted_and_costs_its_siblings_nothing(
    upstream: Server, tmp_path: Path
) -> None:
    plain = await play(upstream.url, tmp_path / "plain", 80)
    proxy = FaultyProxy(upstream.url, {"lost answer": 0.15, "500": 0.15})
    try:
        first = await play(proxy.url, tmp_path / "broken", 80, retries=0)
        assert 0 < first.failed < 80
        kept = [(a, b) for a, b in zip(first.rewards, plain.rewards, strict=True) if a is not None]
        assert len(kept) == 80 - first.failed and all(a == b for a, b in kept)
        assert all(e.error and "tried once" in e.error for e in first.episodes if not e.grade)
        again = await play(proxy.url, tmp_path / "broken", 80)
    finally:
        proxy.stop()
    assert again.failed == 0 and again.rewards == plain.rewards, "and can be played again"
    assert again.paid == plain.paid


@pytest.mark.parametrize("fault", ["503", "reset", "slow body", "empty choices"])
async def test_where_nothing_gets_through_the_run_stops_and_says_why(
    upstream: Server, tmp_path: Path, fault: str
) -> None:
    proxy = FaultyProxy(upstream.url, {fault: 1.0})
    why = {"503": "injected 503", "reset": "(?i)connection", "slow body": "no whole answer"}
    try:
        with pytest.raises(RunError, match=why.get(fault, "holds no choices")):
            await play(proxy.url, tmp_path, 400, deadline=2.0, concurrency=4, retries=1000)
    finally:
        proxy.stop()
    assert not Spending(RunFolder(tmp_path)).receipts


@pytest.mark.soak
async def test_a_thousand_episodes(upstream: Server, tmp_path: Path) -> None:
    proxy = await through_faults(upstream, tmp_path, episodes=1000)
    assert all(proxy.counts[fault] for fault in FAULTS)
    result = {
        "what": "1,000 episodes of a critic team through a fault-injecting proxy: rewards, tokens "
        "and receipts equal to those without it; no episode dropped",
        "date": str(date.today()),
        "command": "pytest -m soak tests/api/test_faults.py",
        "requests": sum(proxy.counts.values()),
        "done_to_them": dict(proxy.counts.most_common()),
        "equal": True,
    }
    keep("api_faults.json", result)
