"""What an audit found, in sentences with numbers, and what it cannot know.

A sentence says what was sent, said or waited for. None says what to do or what a message was worth:
without playing the tasks otherwise, the data does not carry that.
"""

from collections.abc import Iterator, Sequence

from tacit.traffic.exchange import EXAMPLES
from tacit.traffic.tree import Finding, Traffic
from tacit.types import Episode

LEAST = 0.01
"""A finding about fewer of the team's tokens than this share is left out, but for loops."""
MOST = 20
"""Findings that are kept."""
NAMES = {
    "instructions": "instructions",
    "question": "the question",
    "own": "its own messages",
    "others": "messages of others",
    "observations": "what tools said",
    "rest": "other text",
    "unrecorded": "text that was not recorded",
}
"""The parts of prompts, in a sentence."""


def amount(value: float) -> str:
    """3,410 or 7.5: digits that a reader needs."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def findings(found: Traffic) -> tuple[Finding, ...]:
    """The largest first, by the tokens per episode that they are about."""
    if not found.episodes:
        return ()
    team = found.team.per_episode
    every = [*_spenders(found), *_resent(found), *_edges(found), *_senders(found)]
    every += [*_sayings(found), *_loops(found), *_tools(found), *_waits(found)]
    least = LEAST * (team.prompt + team.generated)
    kept = [one for one in every if one.tokens >= least or one.kind in ("loop", "path", "tool")]
    return tuple(sorted(kept, key=lambda one: -one.tokens)[:MOST])


def _spenders(found: Traffic) -> Iterator[Finding]:
    """The agent with the most tokens, if there are several."""
    if len(found.agents) < 2:
        return
    whole = found.team.per_episode
    top = max(found.agents, key=lambda one: one.total.prompt + one.total.generated)
    mine = top.per_episode
    tokens, total = mine.prompt + mine.generated, whole.prompt + whole.generated
    if total:
        yield Finding(
            "spending",
            (top.name,),
            f"`{top.name}` has {percent(tokens / total)} of the team's tokens: it reads "
            f"{amount(mine.prompt)} and generates {amount(mine.generated)} an episode.",
            tokens,
            {"share": tokens / total, "read": mine.prompt, "generated": mine.generated},
        )


def _resent(found: Traffic) -> Iterator[Finding]:
    for one in found.prompts:
        read, before = one.tokens / found.episodes, one.before / found.episodes
        if before:
            parts = sorted(one.parts, key=lambda part: -part.before)
            mainly = NAMES[parts[0].name]
            each = {part.name: part.before / found.episodes for part in parts if part.before}
            yield Finding(
                "sent again",
                (one.agent,),
                f"{percent(before / read)} of what `{one.agent}` reads had been sent to it before: "
                f"{amount(before)} of {amount(read)} tokens an episode, mainly {mainly}.",
                before,
                {"share": before / read, "before": before, "read": read, **each},
                one.examples,
            )


def _edges(found: Traffic) -> Iterator[Finding]:
    for edge in found.edges:
        tokens = edge.tokens / found.episodes
        if edge.sender != edge.reader and edge.readings > edge.messages:
            yield Finding(
                "read again",
                (edge.sender, edge.reader),
                f"`{edge.reader}` is shown {edge.messages} messages of `{edge.sender}` "
                f"{edge.readings} times: {amount(tokens)} tokens an episode.",
                tokens,
                {
                    "messages": edge.messages,
                    "readings": edge.readings,
                    "read": tokens,
                    "before": edge.before / found.episodes,
                },
            )


def _senders(found: Traffic) -> Iterator[Finding]:
    for one in found.senders:
        if one.unread:
            tokens = one.unread_tokens / found.episodes
            yield Finding(
                "unread",
                (one.agent,),
                f"{one.unread} of {one.messages} messages of `{one.agent}` before the answer stand "
                f"whole in no later prompt: {amount(tokens)} generated tokens an episode.",
                tokens,
                {"unread": one.unread, "messages": one.messages, "generated": tokens},
                one.examples,
            )


def _sayings(found: Traffic) -> Iterator[Finding]:
    for one in found.sayings:
        if one.again:
            tokens = one.again_tokens / found.episodes
            yield Finding(
                "repetition",
                (one.agent,),
                f"{one.again} of {one.messages} messages of `{one.agent}` say again what was said "
                f"before: {amount(tokens)} generated tokens an episode.",
                tokens,
                {
                    "again": one.again,
                    "messages": one.messages,
                    "generated": tokens,
                    "repetition": one.repetition,
                },
                one.again_examples,
            )
        if one.acknowledgements:
            count, tokens = one.acknowledgements, one.acknowledgement_tokens / found.episodes
            yield Finding(
                "acknowledgement",
                (one.agent,),
                f"{count} of {one.messages} messages of `{one.agent}` acknowledge, "
                f"without a word that is new: {amount(tokens)} generated tokens an episode.",
                tokens,
                {"acknowledgements": count, "messages": one.messages, "generated": tokens},
                one.acknowledgement_examples,
            )


def _loops(found: Traffic) -> Iterator[Finding]:
    if found.loops:
        tokens = sum(loop.tokens for loop in found.loops) / found.episodes
        where = len({loop.episode for loop in found.loops})
        agents = dict.fromkeys(agent for loop in found.loops for agent in loop.agents)
        names = ", ".join(f"`{agent}`" for agent in agents)
        calls = sum(len(loop.calls) for loop in found.loops)
        yield Finding(
            "loop",
            tuple(agents),
            f"In {where} of {found.episodes} episodes messages go round without a new word between "
            f"{names}: {calls} calls, {amount(tokens)} tokens an episode.",
            tokens,
            {"episodes": where, "calls": calls, "spent": tokens},
            [loop.examples[0] for loop in found.loops[:EXAMPLES]],
        )


def _tools(found: Traffic) -> Iterator[Finding]:
    for one in found.tool_repeats:
        yield Finding(
            "tool",
            (one.agent,),
            f"`{one.agent}` called `{one.tool}` again with the same arguments {one.repeated} times "
            f"out of {one.calls}.",
            0.0,
            {"repeated": one.repeated, "calls": one.calls},
            one.examples,
        )


def _waits(found: Traffic) -> Iterator[Finding]:
    path = found.path
    if path and path.path and len(path.agents) > 1:
        top, unit = path.agents[0], "s" if path.unit == "seconds" else "tokens"
        each, whole = top.amount / path.episodes, path.path / path.episodes
        yield Finding(
            "path",
            (top.agent,),
            f"`{top.agent}` is {percent(top.share)} of the longest chain of calls: {amount(each)} "
            f"of {amount(whole)} {unit} an episode; {percent(path.beside)} of the {path.unit} of "
            "all calls lie beside the chain.",
            0.0,
            {
                "share": top.share,
                "path": whole,
                "total": path.total / path.episodes,
                "beside": path.beside,
            },
        )


def notes(found: Traffic, episodes: Sequence[Episode]) -> Iterator[str]:
    """What the numbers cannot tell."""
    calls = [call for episode in episodes for call in episode.calls]
    if not calls:
        yield "There are no calls to audit."
        return
    if found.graded < found.episodes:
        yield (
            f"{found.episodes - found.graded} of {found.episodes} episodes have no grade. "
            "These findings do not say what a message was worth."
        )
    else:
        yield "These findings use no grades: they do not say what a message was worth."
    yield (
        "Tokens of a part of a prompt are estimated: its share of the characters times the "
        "prompt's tokens."
    )
    if dark := sum(not (call.messages or call.text) for call in calls):
        yield f"{dark} of {len(calls)} calls have no text: they count for tokens and time only."
    if unknown := sum(not call.usage.total for call in calls):
        yield f"{unknown} of {len(calls)} calls have no usage: their tokens are missing."
    if found.unpriced:
        names = ", ".join(f"`{name}`" for name in found.unpriced)
        yield f"The price table has no price for {names}: money is unknown where they are used."
    if found.path is None:
        yield "The order of calls is not known, so there is no longest chain."
