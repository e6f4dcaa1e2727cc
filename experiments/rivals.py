"""Ways of others to spend fewer tokens on an answer, for the accuracy-tokens frontier.

Each follows its paper's description on one model with prompts of ours. None is trained here.

- `adaptive_consistency`: Aggarwal et al., 2023, "Let's Sample Step by Step": sample until the
  majority is probable enough, by a Beta posterior over the two most frequent answers.
- `early_stopping`: Li et al., 2024, "Escape Sky-high Cost": sample in windows, stop at the first
  window of one mind.
- `s2_mad`: Zeng et al., 2025: in a debate, only answers unlike one's own are read, each once, and
  who would read none keeps its answer. Their grouping is left out: the teams are small.
- `auction`: Fan et al., 2025 (DALA): every agent drafts, the drafts worth most per token are heard
  within a budget. Their trained bids are replaced by the draft's own mean log-probability. Losers'
  drafts are generated and therefore counted.
- `one_context`: Xu et al., 2026 (OneFlow): one agent plays the whole workflow, here draft, check
  and revise, in one growing conversation.
- `cascade`: ours: one answer, and a vote of more only where its own log-probability is low.
- `failing_tests`: the rule that a trained tester must beat: a visible test that fails is reported
  as it is, and nothing else is.

Stopping a debate where answers agree is `stop: agreed` in a team's config; a sparse debate is
`shape: sparse`; pruning by AgentPrune's and AgentDropout's ways is `tacit prune --rivals`.
"""

import math
from collections import Counter
from collections.abc import Sequence

from tacit import Message, Role, Task, Team, Topology
from tacit.grading import read_answer
from tacit.registry import lookup
from tacit.team.topologies.private import RUN_TESTS
from tacit.team.vote import majority
from tacit.types import Call

_SAMPLER = {"actor": Role(part="solver", temperature=0.7)}


async def _adaptive_consistency(
    task: Task, team: Team, samples: int = 8, confidence: float = 0.95
) -> Message:
    answers: list[Message] = []
    while len(answers) < samples:
        answers.append(await team.actor.ask(task.question, round=len(answers)))
        if sure(task, answers) >= confidence:
            break
    return majority(task, answers)


def sure(task: Task, answers: Sequence[Message]) -> float:
    """P(the most frequent answer is the more frequent of the two), uniform prior."""
    read = Counter(filter(None, (read_answer(task, one.text) for one in answers)))
    first, second, *_ = [*(count for _, count in read.most_common(2)), 0, 0]
    n = first + second + 1
    # The Beta(first + 1, second + 1) mass above ½ is a binomial tail for whole counts.
    return float(sum(math.comb(n, k) for k in range(first + 1)) / 2**n)


async def _early_stopping(task: Task, team: Team, samples: int = 8, window: int = 4) -> Message:
    answers: list[Message] = []
    while len(answers) < samples:
        round = len(answers) // window
        asks = (team.actor.ask(task.question, round=round) for _ in range(window))
        some = await team.together(*asks)
        answers += some
        read = {read_answer(task, one.text) for one in some}
        if len(read) == 1 and "" not in read:
            break
    return majority(task, answers)


async def _s2_mad(task: Task, team: Team, rounds: int = 3) -> Message:
    debaters = team.all("debater")
    said = await team.together(*(one.ask(task.question, part="solver") for one in debaters))
    for number in range(1, rounds):
        others = [unlike(task, own, said) for own in said]
        if not any(others):
            break
        asked = [place for place, news in enumerate(others) if news]
        new = await team.together(
            *(
                debaters[place].ask(
                    task.question, solutions=[said[place], *others[place]], round=number
                )
                for place in asked
            )
        )
        said = [
            new[asked.index(place)] if place in asked else own for place, own in enumerate(said)
        ]
    return majority(task, said)


def unlike(task: Task, own: Message, said: Sequence[Message]) -> list[Message]:
    """The first message with each answer that is not one's own."""
    seen, found = {read_answer(task, own.text)}, []
    for one in said:
        answer = read_answer(task, one.text)
        if answer not in seen:
            seen.add(answer)
            found.append(one)
    return found


async def _auction(task: Task, team: Team, rounds: int = 2, budget: int = 150) -> Message:
    """`budget`: tokens that may be heard in a round."""
    agents, heard = team.all("agent"), list[Message]()
    for number in range(rounds):
        before = len(team.whole.calls)
        drafts = await team.together(
            *(agent.ask(task.question, messages=heard, round=number) for agent in agents)
        )
        calls = {call.agent: call for call in team.whole.calls[before:]}
        left = budget
        offers = [(calls[one.agent], one) for one in drafts if not one.silent]
        for call, one in sorted(offers, key=lambda offer: -density(offer[0])):
            if call.usage.generated <= left:
                left -= call.usage.generated
                heard.append(one)
        if left == budget:
            break
    return await team.answerer.ask(task.question, messages=heard, round=rounds, final=True)


def density(call: Call) -> float:
    """A bid for each token: how sure the agent is of its draft, over what it takes to say it."""
    tokens = max(1, call.usage.generated)
    return math.exp((call.logprob or 0.0) / tokens) / tokens


async def _one_context(task: Task, team: Team, rounds: int = 1) -> Message:
    conversation = [await team.actor.ask(task.question)]
    for number in range(1, rounds + 1):
        check = await team.actor.ask(
            task.question, part="self_critic", messages=conversation, round=number
        )
        conversation.append(check)
        conversation.append(
            await team.actor.ask(
                task.question,
                part="refiner",
                messages=conversation,
                round=number,
                final=number == rounds,
            )
        )
    return conversation[-1]


async def _cascade(task: Task, team: Team, threshold: float = -0.05, samples: int = 7) -> Message:
    """`threshold`: mean log-probability of a token below which more answers are sampled."""
    first = await team.actor.ask(task.question)
    call = team.whole.calls[-1]
    if call.logprob is not None and call.logprob / max(1, call.usage.generated) >= threshold:
        return first
    more = (team.sampler.ask(task.question, round=1) for _ in range(samples))
    return majority(task, [first, *await team.together(*more)])


async def _failing_tests(task: Task, team: Team) -> Message:
    draft = await team.actor.ask(task.question)
    failed = await lookup("tool", RUN_TESTS, {})(task, draft.text)
    if not failed:
        return draft
    report = Message("tester", failed)
    return await team.actor.ask(
        task.question, part="reviser", draft=draft, comment=report, round=1, final=True
    )


adaptive_consistency = Topology(
    play=_adaptive_consistency, roles=_SAMPLER, summary="sample until the majority is probable"
)
early_stopping = Topology(
    play=_early_stopping, roles=_SAMPLER, summary="sample until a window is of one mind"
)
s2_mad = Topology(
    play=_s2_mad,
    roles={"debater": Role(part="debater", many=True, least=2, temperature=0.7)},
    summary="debate in which only answers unlike one's own are read",
)
auction = Topology(
    play=_auction,
    roles={
        "agent": Role(part="speaker", many=True, least=2, temperature=0.7),
        "answerer": Role(part="answerer"),
    },
    summary="all draft, the surest words per token are heard",
)
one_context = Topology(
    play=_one_context,
    roles={"actor": Role(part="solver")},
    summary="one agent drafts, checks and revises in one conversation",
)
cascade = Topology(
    play=_cascade,
    roles={"actor": Role(part="solver"), "sampler": Role(part="solver", temperature=0.7)},
    summary="one answer, and a vote where it is unsure",
)
failing_tests = Topology(
    play=_failing_tests,
    roles={"actor": Role(part="solver")},
    summary="code is revised where a visible test fails, by what the test said",
)
