"""Budgets while serving: the talk ends, the answer is given, and what was cut is told."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from hypothesis import given, strategies as st
from openai import OpenAI

from tacit.config import Config
from tacit.economy.ledger import Price, PriceTable
from tacit.engine.base import Request
from tacit.errors import ConfigError
from tacit.serve.budgets import Budget, BudgetRules, Budgets, Conversations, parse_budget
from tacit.serve.http_error import HttpError
from tacit.serve.schema import parse_chat
from tacit.serve.serving import open_roster
from tacit.serve.team_backend import TeamBackend
from tacit.team.roster import Roster, find_topology
from tacit.team.topologies import TOPOLOGIES
from tests.helpers.loopback import completion
from tests.helpers.scripted_teams import SILENT, scripted
from tests.helpers.serving import ASKED, Running, running, texts
from tests.serve.test_proxy import ADDED, HINT as PROXY_HINT, REQUEST, proxied

HINT, ANSWER = "Add the tens first, then the ones.", r"It is \boxed{42}."
PRICES = PriceTable(
    date="2026-01-01",
    models={"hinter": Price(input=0, output=1e6), "actor": Price(input=0, output=1e6)},
)


def hint_team(**scripts: Any) -> Roster:
    said: dict[str, Any] = {"hinter": lambda request: HINT, "actor": lambda request: ANSWER}
    return scripted("hint_actor", said | scripts)


@contextmanager
def serving(
    roster: Roster | None = None, prices: PriceTable | None = None, reader: str = "", **rules: Any
) -> Iterator[Running]:
    budgets = Budgets(BudgetRules(**({"answer_tokens": 4} | rules)), prices, reader)
    with running(TeamBackend("team", roster or hint_team(), "Box it.", budgets)) as server:
        yield server


def told(reply: httpx2.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()["tacit"]


def said(account: Any) -> list[tuple[str, str]]:
    return [(line["agent"], line["text"]) for line in account["conversation"]]


def unasked(account: Any) -> list[tuple[str, str, int]]:
    return [(row["agent"], row["reason"], row["messages"]) for row in account["unasked"]]


def metrics(server: Running) -> str:
    return server.service.metrics.text().decode()


ACCOUNT = ASKED | {"tacit": True}


@pytest.mark.parametrize(
    ("budget", "reason"),
    [(Budget(tokens=4), "tokens"), (Budget(turns=1), "turns"), (Budget(money=4.0), "money")],
)
def test_who_may_be_silent_is_not_asked_once_only_the_answer_fits(
    budget: Budget, reason: str
) -> None:
    with serving(request=budget, prices=PRICES) as server:
        account = told(server.post(ACCOUNT))
        page = metrics(server)
    assert said(account) == [("actor", ANSWER)]
    assert unasked(account) == [("hinter", reason, 1)]
    limit = budget.limit(reason)
    spent = {"tokens": 3, "turns": 1, "money": 3.0}[reason]
    assert account["budget"] == {"request": {reason: {"limit": limit, "spent": spent}}}
    assert f'tacit_unasked_total{{agent="hinter",reason="{reason}"}} 1.0' in page


def test_what_was_cut_is_in_the_usage_without_being_asked_for() -> None:
    cut = {"unasked": [{"agent": "hinter", "reason": "turns", "messages": 1}]}
    with (
        serving(request=Budget(turns=1)) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        create = partial(client.chat.completions.create, model="team", messages=ASKED["messages"])
        whole = create()
        *_, last = create(stream=True, stream_options={"include_usage": True})
        response = client.responses.create(model="team", input="What is 17 + 25?")
    for usage in (whole.usage, last.usage, response.usage):
        assert usage and (usage.model_extra or {})["tacit_cut"] == cut
    with serving(request=Budget(turns=2)) as server:
        assert "tacit_cut" not in server.post().json()["usage"]


def test_a_budget_that_is_not_reached_changes_nothing() -> None:
    with serving(request=Budget(tokens=100, turns=2, money=50.0), prices=PRICES) as server:
        account = told(server.post(ACCOUNT))
        assert "tacit" not in server.post().json()
        page = metrics(server)
    assert said(account) == [("hinter", HINT), ("actor", ANSWER)] and account["unasked"] == []
    assert account["budget"]["request"]["money"] == {"limit": 50.0, "spent": 10.0}
    assert "tacit_unasked_total{" not in page
    with serving() as server:
        assert set(told(server.post(ACCOUNT))) == {"conversation", "ledger"}


def test_messages_are_shortened_to_what_is_left() -> None:
    with serving(request=Budget(tokens=7)) as server:
        reply, page = server.post(ACCOUNT), metrics(server)
    assert said(told(reply)) == [("hinter", "Add the tens"), ("actor", ANSWER)]
    shortened = [{"agent": "hinter", "reason": "tokens", "messages": 1}]
    assert reply.json()["usage"]["tacit_cut"] == {"shortened": shortened}
    assert 'tacit_shortened_total{agent="hinter",reason="tokens"} 1.0' in page
    with serving(request=Budget(tokens=1), answer_tokens=2) as server:
        reply = server.post(ACCOUNT).json()
    assert reply["choices"][0]["message"]["content"] == "It is", "the least that an answer has"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert [row["agent"] for row in reply["usage"]["tacit_cut"]["shortened"]] == ["actor"]


def test_a_message_that_its_own_limit_ends_is_not_said_to_be_cut() -> None:
    team = scripted("hint_actor", {"hinter": [HINT], "actor": [ANSWER]}, hinter={"max_tokens": 3})
    with serving(team, request=Budget(tokens=900)) as server:
        usage = server.post(ACCOUNT | {"max_tokens": 2}).json()["usage"]
    assert usage["completion_tokens"] == 5 and "tacit_cut" not in usage


def test_clients_lower_a_budget_and_never_raise_it() -> None:
    with serving(request=Budget(tokens=7)) as server:
        lower = told(server.post(ASKED | {"tacit": {"tokens": 4}}))
        higher = told(server.post(ASKED | {"tacit": {"tokens": 900, "turns": 5}}))
        quiet = server.post(ASKED | {"tacit": {"turns": 1, "account": False}}).json()
        no = server.post(ASKED | {"tacit": False}).json()
        page = metrics(server)
    assert lower["budget"]["request"]["tokens"]["limit"] == 4
    assert higher["budget"]["request"] == {
        "tokens": {"limit": 7, "spent": 6},
        "turns": {"limit": 5, "spent": 2},
    }
    assert "tacit" not in quiet and "tacit" not in no
    assert 'tacit_unasked_total{agent="hinter",reason="turns"} 1.0' in page


@pytest.mark.parametrize(
    ("wish", "param", "says"),
    [
        ({"tokens": 0}, "tacit.tokens", "greater than or equal to 1"),
        ({"tokns": 9}, "tacit.tokns", "not permitted"),
        ({"money": 1.0}, "tacit.money", "counts no money"),
        ("perhaps", "tacit.account", "valid boolean"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(wish: Any, param: str, says: str) -> None:
    with serving() as server:
        refused = server.post(ASKED | {"tacit": wish})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param) and says in error["message"]


def texts_of(stream: httpx2.Response) -> list[str]:
    """The pieces of the answer that a stream has."""
    chunks = [json.loads(data) for data in texts(stream.text.splitlines()) if data != "[DONE]"]
    said = (chunk["choices"][0]["delta"].get("content") for chunk in chunks)
    return [piece for piece in said if piece]


WORDS = r"Well, it may be \boxed{42}."


def solver_of(topology: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Every role speaks; as many agents and as long a talk as make a difference."""
    roles = TOPOLOGIES[topology].roles
    scripts = {role: lambda request: WORDS for role in roles}
    agents = {role: {"count": max(3, one.least)} for role, one in roles.items() if one.many}
    known = find_topology(topology).play.__code__.co_varnames
    options = {name: 3 for name in ("rounds", "samples", "generations") if name in known}
    return scripts, agents, options


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", ["tokens", "turns"])
def test_with_nothing_to_spare_every_topology_answers_with_one_message(
    topology: str, kind: str
) -> None:
    scripts, agents, options = solver_of(topology)
    roster = scripted(topology, scripts, options=options, **agents)
    with serving(roster, request=Budget(**{kind: 1}), answer_tokens=5) as server:
        reply = server.post(ACCOUNT)
        streamed = server.post(ASKED | {"stream": True})
    assert reply.json()["choices"][0]["message"]["content"] == WORDS
    account = told(reply)
    assert len(account["conversation"]) == 1
    assert "".join(texts_of(streamed)) == WORDS
    assert topology == "solo" or {reason for _, reason, _ in unasked(account)} == {kind}


@given(
    topology=st.sampled_from(sorted(TOPOLOGIES)),
    tokens=st.none() | st.integers(1, 120),
    turns=st.none() | st.integers(1, 12),
    answer=st.integers(1, 30),
    words=st.integers(1, 40),
    n=st.integers(1, 3),
    waits=st.booleans(),
)
def test_no_more_is_spent_than_the_budget_and_what_was_under_way(
    topology: str,
    tokens: int | None,
    turns: int | None,
    answer: int,
    words: int,
    n: int,
    waits: bool,
) -> None:
    most, now = 0, 0

    async def reply(request: Request) -> str:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0) if waits else None
        now -= 1
        return "word " * (words - 1) + r"\boxed{42}"

    scripts, agents, options = solver_of(topology)
    roster = scripted(topology, dict.fromkeys(scripts, reply), options=options, **agents)
    rules = BudgetRules(request=Budget(tokens=tokens, turns=turns), answer_tokens=answer)
    team = TeamBackend("team", roster, "Box it.", Budgets(rules))
    chat = parse_chat(ASKED | {"n": n}, {})
    done = asyncio.run(team.answer(chat, lambda chunk: None, lambda call: None))
    assert all(choice["message"]["content"] for choice in done.body["choices"])
    if tokens:
        longest = max(call.usage.spent for call in done.calls)
        spent = sum(call.usage.spent for call in done.calls)
        assert spent <= max(tokens, n * answer) + (most - 1) * longest
    if turns:
        assert sum(call.is_turn for call in done.calls) <= max(turns, n)
    assert done.allowance and not any(done.allowance.request.kept.values())


def test_what_was_said_before_the_budget_reaches_whoever_answers() -> None:
    seen: list[str] = []

    def speak(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return f"Point {len(seen)}." if len(seen) < 3 else ANSWER

    roster = scripted("dialogue", {"agent": speak}, options={"rounds": 4}, agent={"count": 3})
    with serving(roster, request=Budget(turns=3)) as server:
        account = told(server.post(ACCOUNT))
    assert [text for _, text in said(account)] == ["Point 1.", "Point 2.", ANSWER]
    assert "Point 1." in seen[-1] and "Point 2." in seen[-1]
    assert unasked(account) == [
        ("agent 3", "turns", 2), ("agent 1", "turns", 1), ("agent 2", "turns", 1),
    ]  # fmt: skip


def test_debaters_keep_their_last_answers_once_the_budget_is_reached() -> None:
    answers = iter([r"\boxed{1}", r"\boxed{2}", r"\boxed{2}", r"\boxed{1}"])
    roster = scripted(
        "debate", {"debater": lambda request: next(answers)}, debater={"count": 3},
        options={"rounds": 3},
    )  # fmt: skip
    with serving(roster, request=Budget(turns=4)) as server:
        reply = server.post(ACCOUNT)
    account = told(reply)
    assert len(account["conversation"]) == 4
    assert sum(messages for *_, messages in unasked(account)) == 5
    assert reply.json()["choices"][0]["message"]["content"] == r"\boxed{2}"


def test_whoever_may_be_silent_and_answers_is_asked_if_nobody_else_has_answered() -> None:
    scripts = {"debater": lambda request: ANSWER}
    roster = scripted("debate", scripts, debater={"count": 2, "silent": True})
    with serving(roster, request=Budget(turns=1)) as server:
        reply = server.post(ACCOUNT)
    assert said(told(reply)) == [("debater 1", ANSWER)]
    assert reply.json()["choices"][0]["message"]["content"] == ANSWER


@pytest.mark.parametrize(
    ("budget", "calls", "reason"),
    [
        (Budget(tokens=60), 2, None),
        (Budget(tokens=4), 1, "tokens"),
        (Budget(money=60.0), 2, None),
        (Budget(money=4.0), 1, "money"),
        (Budget(turns=1), 2, None),
    ],
)
def test_tools_are_withheld_for_tokens_and_money_and_it_is_told(
    budget: Budget, calls: int, reason: str | None
) -> None:
    from tests.serve.test_tools import answer

    add = "tests.helpers.outside_tools:add"
    roster = scripted("solo", {"actor": answer}, actor={"tools": [add]})
    with serving(roster, PRICES, request=budget, answer_tokens=40) as server:
        reply = server.post(ACCOUNT)
        page = metrics(server)
    account = told(reply)
    assert len(account["conversation"]) == calls
    withheld = [{"agent": "actor", "reason": reason}] if reason else []
    assert account["without_tools"] == withheld and account["unasked"] == []
    assert reply.json()["usage"].get("tacit_cut", {}) == (
        {"without_tools": withheld} if reason else {}
    )
    counted = f'tacit_without_tools_total{{agent="actor",reason="{reason}"}} 1.0'
    assert (counted in page) is bool(reason)


@pytest.mark.parametrize("money", [0.05, 0.1, 0.2, 0.25, 0.4, 0.5])
async def test_a_budget_of_money_binds_agents_that_speak_at_once(money: float) -> None:
    """A debater's first prompt costs about 0.03, its second 0.1; all six messages 0.43."""
    debater = {"count": 3, "max_tokens": 24, "temperature": 0.7}
    team = {"topology": "debate", "agents": {"debater": debater}, "options": {"rounds": 2}}
    config = Config.model_validate({"name": "team", "tasks": {"name": "arithmetic"}, "team": team})
    rules = BudgetRules(request=Budget(money=money), answer_tokens=24)
    prices = PriceTable(date="2026-01-01", models={"pocket": Price(input=1000, output=1000)})
    async with open_roster(config, None, {}) as roster:
        backend = TeamBackend("team", roster, "Box it.", Budgets(rules, prices))
        chat = parse_chat(ASKED | {"seed": 3}, {})
        done = await backend.answer(chat, lambda chunk: None, lambda call: None)
    assert done.allowance
    spent = done.allowance.request.spent["money"]
    assert money / 3 < spent <= money or spent == pytest.approx(0.43, abs=0.03)
    assert len(done.calls) + sum(done.allowance.unasked.values()) == 6
    assert not any(done.allowance.request.kept.values())


def boxed(*answers: str) -> Any:
    left = iter(answers)
    return lambda request: next(left)


@pytest.mark.parametrize(
    ("reader", "first", "calls"),
    [
        ("math", (r"So \boxed{0.5}.", r"Hence \boxed{1/2}"), 2),
        ("math", ("I get 7 here.", "The answer is 7"), 2),
        ("", ("I get 7 here.", "The answer is 7"), 4),
        ("", (r"Say \boxed{Paris}.", r"\boxed{Paris} it is"), 2),
        ("", ("In Paris.\n", "in  PARIS."), 2),
        ("math", (r"\boxed{1}", r"\boxed{2}"), 4),
    ],
)
def test_a_debate_ends_when_its_answers_agree(
    reader: str, first: tuple[str, str], calls: int
) -> None:
    for stops, expected in ((frozenset({"agreed"}), calls), (frozenset[str](), 4)):
        roster = scripted("debate", {"debater": boxed(*first, "3", "4")}, debater={"count": 2})
        with serving(roster, stops=stops, reader=reader) as server:
            account = told(server.post(ACCOUNT))
        assert len(account["conversation"]) == expected
        if expected == 2:
            assert unasked(account) == [("debater 1", "agreed", 1), ("debater 2", "agreed", 1)]


def test_talk_ends_when_it_repeats() -> None:
    same = "We should add the tens first and then the ones."
    script = boxed("Seventeen is ten and seven, you see.", same, same, "More.", "More.", ANSWER)
    roster = scripted("dialogue", {"agent": script}, options={"rounds": 3}, agent={"count": 2})
    with serving(roster, stops=frozenset({"repeating"})) as server:
        account = told(server.post(ACCOUNT))
    assert [text for _, text in said(account)][2:] == [same, "More."]
    assert unasked(account) == [("agent 2", "repeated", 2), ("agent 1", "repeated", 1)]


NAMED = {"x-tacit-conversation": "c1"}


def test_a_conversation_adds_up_and_ends_with_the_answering_agent_alone_then_a_refusal() -> None:
    with serving(conversation=Budget(tokens=20)) as server:
        first = told(server.post(ACCOUNT, headers=NAMED))
        second = told(server.post(ACCOUNT | {"metadata": {"conversation_id": "c1"}}))
        third = told(server.post(ACCOUNT, headers=NAMED))
        other = told(server.post(ACCOUNT, headers={"x-tacit-conversation": "c2"}))
        anonymous = told(server.post(ACCOUNT))
        refused = server.post(ACCOUNT, headers=NAMED)
        page = metrics(server)
    hinted = [("hinter", HINT), ("actor", ANSWER)]
    assert said(first) == said(other) == said(anonymous) == hinted
    assert first["budget"] == {"conversation": {"tokens": {"limit": 20, "spent": 10}}}
    assert said(second) == [("hinter", "Add the tens first, then the"), ("actor", ANSWER)]
    assert second["budget"]["conversation"]["tokens"]["spent"] == 19
    assert said(third) == [("actor", ANSWER)] and unasked(third) == [("hinter", "tokens", 1)]
    assert set(anonymous) == {"conversation", "ledger"}
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (429, "conversation_budget")
    assert error["message"] == "this conversation's budget of 20 tokens is used up: begin another"
    assert refused.headers["x-should-retry"] == "false"
    assert 'tacit_conversation_left_count{kind="tokens"} 4.0' in page
    assert 'tacit_conversation_left_bucket{kind="tokens",le="0.0"} 1.0' in page
    assert 'tacit_chats_failed_total{why="429"} 1.0' in page


def test_conversations_of_two_keys_are_two() -> None:
    with serving(conversation=Budget(turns=1)) as server:
        statuses = [server.post(key=key, headers=NAMED).status_code for key in ("a", "b", "a")]
        long = server.post(headers={"x-tacit-conversation": "x" * 201})
        stream = server.post(ASKED | {"stream": True}, key="a", headers=NAMED)
    assert statuses == [200, 200, 429] and stream.status_code == 429
    assert long.status_code == 400 and "at most 200 characters" in long.text


def test_requests_of_one_conversation_at_once_overspend_by_what_is_under_way_at_most() -> None:
    async def actor(request: Request) -> str:
        await asyncio.sleep(0.02)
        return ANSWER

    limit, at_once = 12, 4
    with (
        serving(hint_team(actor=actor), conversation=Budget(turns=limit)) as server,
        ThreadPoolExecutor(at_once) as pool,
    ):
        statuses = [
            reply.status_code
            for reply in pool.map(lambda _: server.post(headers=NAMED), range(6 * at_once))
        ]
        page = metrics(server)
    turns = sum(
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("tacit_calls_total{")
    )
    assert set(statuses) == {200, 429} and turns == limit, "a turn counts when its message begins"
    assert statuses.count(200) >= limit // 2

    with (
        serving(hint_team(actor=actor), conversation=Budget(tokens=30)) as server,
        ThreadPoolExecutor(at_once) as pool,
    ):
        replies = list(pool.map(lambda _: server.post(headers=NAMED), range(6 * at_once)))
    spent = sum(
        reply.json()["usage"]["completion_tokens"] for reply in replies if reply.status_code == 200
    )
    longest = max(len(HINT.split()), len(ANSWER.split()))
    assert 15 < spent <= 30 + at_once * longest


def test_a_failed_request_still_counts_and_keeps_nothing_back() -> None:
    answers = iter([RuntimeError("broken"), ANSWER, ANSWER])
    with serving(hint_team(actor=lambda r: next(answers)), conversation=Budget(turns=4)) as server:
        assert server.post(headers=NAMED).status_code == 502
        account = told(server.post(ACCOUNT, headers=NAMED))
        last = told(server.post(ACCOUNT, headers=NAMED))
    assert account["budget"]["conversation"]["turns"] == {"limit": 4, "spent": 3}
    assert last["budget"]["conversation"]["turns"] == {"limit": 4, "spent": 4}
    assert said(last) == [("actor", ANSWER)]


def test_conversations_are_forgotten_by_number_and_by_age_but_not_under_way() -> None:
    time = 0.0
    kept = Conversations(BudgetRules(conversations=2, hours=1), clock=lambda: time)
    first, second = kept.meter(b"1"), kept.meter(b"2")
    assert kept.meter(b"1") is first
    kept.meter(b"3")
    assert len(kept) == 2 and kept.meter(b"1") is first and kept.meter(b"2") is not second
    first.open = 1
    kept.meter(b"4"), kept.meter(b"5")
    assert kept.meter(b"1") is first and len(kept) == 2
    time, first.open = 3601.0, 0
    assert kept.meter(b"1") is not first and len(kept) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_every_dialect_is_held_to_its_budget(path: str, stream: bool) -> None:
    asks = {
        "chat/completions": {"messages": ASKED["messages"]},
        "completions": {"prompt": ["What is 17 + 25?", "And 1 + 1?"]},
        "responses": {"input": "What is 17 + 25?"},
    }
    body = {"model": "team", "stream": stream, "tacit": {"turns": 1}} | asks[path]
    with serving() as server:
        reply = httpx2.post(f"{server.url}/{path}", json=body, timeout=30)
    if stream:
        events = [json.loads(line) for line in texts(reply.text.splitlines()) if line[0] == "{"]
        found = [event.get("response", event).get("tacit") for event in events]
        (account,) = [one for one in found if one]
        assert ANSWER.split()[-1] in reply.text.replace(r"\\", "\\")
    else:
        account = reply.json()["tacit"]
    asked = 2 if path == "completions" else 1
    assert said(account) == [("actor", ANSWER)] * asked
    assert unasked(account) == [("hinter", "turns", asked)]


def test_several_answers_share_the_budget_of_their_request() -> None:
    with serving(request=Budget(turns=5)) as server:
        reply = server.post(ACCOUNT | {"n": 3})
    assert len(reply.json()["choices"]) == 3
    account = told(reply)
    assert account["budget"]["request"]["turns"] == {"limit": 5, "spent": 5}
    assert unasked(account) == [("hinter", "turns", 1)]


@pytest.mark.parametrize("stream", [False, True])
def test_before_a_foreign_actor_the_help_is_cut_and_the_actor_is_not(stream: bool) -> None:
    rules = BudgetRules(conversation=Budget(tokens=5))
    with proxied([completion("42")], budgets=Budgets(rules)) as (server, actor):
        replies = [server.post(REQUEST | {"stream": stream}, headers=NAMED) for _ in range(3)]
        last = server.post(REQUEST | {"tacit": True}, headers=NAMED).json()
    assert [reply.status_code for reply in replies] == [200] * 3, "never refused"
    hinted = [ADDED.strip() in sent["messages"][3]["content"] for sent in actor.asked]
    assert len(PROXY_HINT.split()) == 5 and hinted == [True, False, False, False]
    assert all(sent["max_completion_tokens"] == 9 for sent in actor.asked)
    account = last["tacit"]
    assert account["budget"] == {"conversation": {"tokens": {"limit": 5, "spent": 5}}}
    assert unasked(account) == [("hinter", "tokens", 1)]
    assert last["usage"]["tacit_cut"] == {"unasked": account["unasked"]}


def test_before_a_foreign_actor_a_critic_without_budget_leaves_the_draft() -> None:
    with proxied([completion("42")], topology="critic_actor") as (server, actor):
        server.post(REQUEST)
        cut = server.post(REQUEST | {"tacit": {"turns": 1}}).json()
        assert len(actor.asked) == 4
    with proxied([completion("42")], lambda request: SILENT, topology="critic_actor") as (
        server,
        actor,
    ):
        server.post(REQUEST)
        assert len(actor.asked) == 1
    assert cut["choices"][0]["message"]["content"] == "42"


async def plain(task: Any, team: Any) -> Any:
    """A topology of somebody's own, which marks no call as final."""
    await team.writer.ask(task.question)
    return await team.checker.ask(task.question)


def test_a_topology_that_is_left_with_silence_gives_the_last_answer_said() -> None:
    scripts = {"writer": lambda r: "one two three", "checker": lambda r: "four five"}
    roster = scripted("tests.serve.test_budgets:plain", scripts)
    with serving(roster, request=Budget(turns=1)) as server:
        reply = server.post(ACCOUNT)
    assert reply.json()["choices"][0]["message"]["content"] == "one two three"
    assert unasked(told(reply)) == [("checker", "turns", 1)]


def test_a_budget_is_read_from_an_option() -> None:
    assert parse_budget(" tokens=600, money=0.5,", "--x") == Budget(tokens=600, money=0.5)
    assert parse_budget("", "--x") == Budget()
    for text in ("tokens=-1", "turns=two", "money=nan", "money=inf", "turns"):
        with pytest.raises(ConfigError, match=r"--x: \w+ must be a"):
            parse_budget(text, "--x")
    with pytest.raises(ConfigError, match="needs the config's price table"):
        Budgets(BudgetRules(conversation=Budget(money=1.0)))


def test_a_conversation_that_others_take_up_may_be_asked_again_later() -> None:
    budgets = Budgets(BudgetRules(conversation=Budget(turns=1)))
    chat = parse_chat(ASKED, NAMED)
    with budgets.opened(chat, 1), pytest.raises(HttpError) as refused, budgets.opened(chat, 1):
        pass
    assert refused.value.status == 429 and refused.value.headers == {"retry-after": "1"}
    with budgets.opened(chat, 1) as allowance:
        assert not any(allowance.request.spent.values())
    assert allowance.conversation and not allowance.conversation.open, "it may be forgotten"
