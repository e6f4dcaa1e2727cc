"""The whole audit by hand: tokens and money, who read whom, and the sentences."""

import json
from dataclasses import asdict, replace

import pytest

from tacit.economy.ledger import Price, PriceTable
from tacit.traffic.audit_traffic import audit_traffic
from tacit.traffic.tree import Traffic
from tacit.types import Call, Episode, Grade, Stop, Usage
from tests.helpers.recorded import episode, recorded
from tests.helpers.scripted_teams import play, scripted

QUESTION = "How many legs have three spiders?"
A, B = "A spider has eight legs.", "There are three of them."
PRICES = PriceTable(
    date="2026-01-01", currency="EUR", models={"big": Price(input=2.0, output=8.0, cached=0.5)}
)


def spent(agent: str, model: str, usage: Usage) -> Call:
    return Call(agent=agent, model=model, messages=(), text="", stop=Stop.EOS, usage=usage)


def test_tokens_and_money_by_agent_and_model() -> None:
    usage = Usage(prompt=1000, generated=250, cached=400, reasoning=100, observed=30)
    one = episode(spent("ann", "big", usage), spent("bob", "small", Usage(prompt=80, generated=2)))
    two = episode(spent("ann", "big", Usage(prompt=500, generated=50)))
    found = audit_traffic([one, two], PRICES)
    ann, bob = found.agents
    assert (ann.total.calls, ann.total.prompt, ann.total.cached) == (2, 1500, 400)
    assert (ann.total.generated, ann.total.reasoning, ann.total.observed) == (300, 100, 30)
    money = (600 * 2 + 400 * 0.5 + 250 * 8 + 500 * 2 + 50 * 8) / 1e6
    assert ann.total.money == pytest.approx(money)
    assert ann.per_episode.money == pytest.approx(money / 2)
    assert (ann.per_episode.prompt, ann.per_episode.calls) == (750, 1)
    assert bob.total.money is None
    assert found.team.total.money is None
    assert [one.name for one in found.models] == ["big", "small"]
    assert (found.currency, found.unpriced) == ("EUR", ("small",))
    assert any("`small`" in note for note in found.notes)
    assert audit_traffic([one]).agents[0].total.money is None


def test_a_resent_history_by_hand() -> None:
    """Ann's second prompt is the question (33) again, her message (24) and Bob's (24)."""
    talk = episode(
        recorded("ann", A, QUESTION),
        recorded("bob", B, QUESTION, A),
        recorded("ann", "So it is 24.", QUESTION, ("assistant", A), B),
        recorded("bob", "That is right.", QUESTION, A, ("assistant", B), "So it is 24."),
    )
    found = audit_traffic([talk])
    ann, bob = found.prompts
    assert (ann.calls, ann.tokens, ann.before) == (2, 33 + 81, 33)
    assert {part.name: (part.tokens, part.before) for part in ann.parts} == {
        "question": (66, 33),
        "own": (24, 0),
        "others": (24, 0),
    }
    assert (bob.tokens, bob.before) == (57 + 93, 57)
    assert bob.examples[0].call == 3
    pairs = {(edge.sender, edge.reader): edge for edge in found.edges}
    edge = pairs["ann", "bob"]
    assert (edge.messages, edge.readings, edge.tokens, edge.before) == (2, 3, 24 + 24 + 12, 24)
    assert pairs["bob", "ann"].readings == 1
    said = [one.sentence for one in found.findings if one.kind == "sent again"]
    assert said == [
        "38 % of what `bob` reads had been sent to it before: 57 of 150 tokens an episode, mainly "
        "the question.",
        "29 % of what `ann` reads had been sent to it before: 33 of 114 tokens an episode, mainly "
        "the question.",
    ]


async def test_in_a_debate_everyone_reads_everyone() -> None:
    """Three debaters, two rounds: each of three messages is read by three, once."""
    said = [f"By way {name} the sum is 42." for name in ("one", "two", "three")]
    team = scripted("debate", {"debater": [*said, "42", "42", "42"]}, debater={"count": 3})
    found = audit_traffic([await play(team)])
    names = [f"debater {number}" for number in (1, 2, 3)]
    assert {(edge.sender, edge.reader) for edge in found.edges} == {
        (sender, reader) for sender in names for reader in names
    }
    assert all((edge.messages, edge.readings, edge.before) == (1, 1, 0) for edge in found.edges)
    assert [(one.messages, one.readings, one.readers) for one in found.senders] == [(1, 3, 2.0)] * 3
    for row in found.prompts:
        assert sum(part.tokens for part in row.parts) == pytest.approx(row.tokens)
    assert sum(row.tokens for row in found.prompts) == pytest.approx(found.team.total.prompt)


def test_messages_that_nobody_was_shown_whole() -> None:
    talk = episode(
        recorded("ann", A, QUESTION),
        recorded("bob", B, QUESTION),
        recorded("cat", "24", QUESTION, f"They said: {B}", f"In short: {A[:12]}"),
        recorded("ann", "It is 24.", QUESTION, "24"),
    )
    found = audit_traffic([talk])
    unread = {one.agent: (one.messages, one.unread, one.unread_tokens) for one in found.senders}
    assert unread == {"ann": (1, 1, 24), "bob": (1, 0, 0), "cat": (1, 0, 0)}
    (finding,) = [one for one in found.findings if one.kind == "unread"]
    assert finding.sentence == (
        "1 of 1 messages of `ann` before the answer stand whole in no later prompt: "
        "24 generated tokens an episode."
    )
    assert [(one.call, one.excerpt) for one in finding.examples] == [(0, A)]


def test_findings_are_ranked_and_their_numbers_are_fields() -> None:
    loop = [
        recorded("ann", A, QUESTION),
        recorded("bob", B, QUESTION, A),
        recorded("ann", A, QUESTION, B),
        recorded("bob", B, QUESTION, A),
    ]
    found = audit_traffic([episode(*loop), episode(recorded("ann", A, QUESTION))])
    assert [one.tokens for one in found.findings] == sorted(
        (one.tokens for one in found.findings), reverse=True
    )
    (finding,) = [one for one in found.findings if one.kind == "loop"]
    # two calls of 33 + 24 read and 24 generated, over two episodes
    assert finding.sentence == (
        "In 1 of 2 episodes messages go round without a new word between `ann`, `bob`: "
        "2 calls, 81 tokens an episode."
    )
    assert finding.numbers == {"episodes": 1, "calls": 2, "spent": 81}
    assert finding.agents == ("ann", "bob")


def advises(found: Traffic) -> bool:
    text = " ".join(one.sentence for one in found.findings)
    return any(word in text for word in ("should", "waste", "useless", "drop", "remove", "worth"))


def test_nothing_is_said_of_value_with_or_without_grades() -> None:
    talk = episode(*[recorded("ann", A, QUESTION, A), recorded("bob", A, QUESTION, A)] * 3)
    bare = audit_traffic([talk])
    assert bare.findings
    assert not advises(bare)
    assert bare.notes[0].startswith("1 of 1 episodes have no grade.")
    graded = audit_traffic([replace(talk, grade=Grade(reward=1.0, right=True))])
    assert graded.graded == 1
    assert graded.findings == bare.findings


def test_missing_texts_and_missing_usage_are_said() -> None:
    dark = spent("ann", "m", Usage(prompt=70, generated=5))
    found = audit_traffic([episode(dark, dark, recorded("bob", "", ("system", "")))])
    (part,) = found.prompts[0].parts
    assert (part.name, part.tokens) == ("unrecorded", 140)
    assert "2 of 3 calls have no text: they count for tokens and time only." in found.notes
    assert "1 of 3 calls have no usage: their tokens are missing." in found.notes


@pytest.mark.parametrize("episodes", [[], [Episode(task_id="t", sample=0)]])
def test_nothing_to_audit_is_said(episodes: list[Episode]) -> None:
    found = audit_traffic(episodes)
    assert found.notes == ("There are no calls to audit.",)
    assert found.findings == ()


async def test_the_tree_goes_through_json() -> None:
    team = scripted("critic_actor", {"actor": ["It is 41.", "It is 42."], "critic": ["Off by 1."]})
    tree = asdict(audit_traffic([await play(team)], PRICES))
    assert json.loads(json.dumps(tree))["agents"][0]["name"] == "actor"
