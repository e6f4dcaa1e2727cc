"""The text that the pocket model is made from: short dialogues about sums, drawn from a seed.

Prompts come from `tacit.team.prompts.build`, so that what the model learns on is what it meets in
play. It learns to be an Actor that is sure of one step and trusts whatever a teammate claims, and a
helper that talks too much and often forgets the carry. Expressions of the test split never appear.
How the text becomes a model is `make.py`'s matter.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tacit.benchmarks.arithmetic import INSTRUCTION, Problem, Step, add, carries, draw
from tacit.engine.base import SILENCE_MARKER
from tacit.team import prompts
from tacit.types import ChatMessage, Message

KINDS = {"silent": 0.08, "short right": 0.12, "short careless": 0.15, "ramble": 0.65}
"""What an untrained helper says, and how often."""
RAMBLE_RIGHT = 0.12
"""The share of rambles that do not forget the carry."""
RAMBLE_EMPTY = 0.12
"""The share of rambles that claim nothing at all."""

_OPENINGS = {
    "Well, let me think about this question for a moment. ": 0.7,
    "Hmm, this one looks quite interesting to me. ": 0.15,
    "Okay, here we go again, my dear teammate. ": 0.15,
}
_RESTATED = {
    "We are asked to find out what {} is, ": 0.5,
    "So the question wants us to work out {}, ": 0.3,
    "As far as I can see, we have to look at {}, ": 0.2,
}
_CLAIMS = {
    "and I would say that {}. ": 0.5,
    "and I am fairly sure that {}. ": 0.3,
    "and if I remember well {}. ": 0.2,
}
_NO_CLAIM = "and it is not so easy to say. "
_CLOSINGS = {
    "I hope that this helps you a little on the way.": 0.5,
    "But please take your time and look at it again yourself.": 0.3,
    "Anyway, sums like this one are always fun to do together.": 0.2,
}
_PLAIN_REPLIES = {
    "self_critic": ("There are no errors in it.", "The last digit may be wrong."),
    "abstracter": ("Work from left to right.", "Add the units first, then the tens."),
    "role_picker": ("A careful accountant.", "A teacher of arithmetic."),
    "evolver": ("An expert who checks every carry.", "An expert who adds the tens first."),
}


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A prompt and the reply to learn."""

    messages: tuple[ChatMessage, ...]
    reply: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What a helper said, and the sums it claimed in saying it."""

    text: str
    claims: tuple[Step, ...] = ()

    def by(self, agent: str = "helper") -> Message:
        silent = self.text == SILENCE_MARKER
        return Message(agent, "" if silent else self.text, silent)


def pick(rng: random.Random, weights: dict[str, float]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def boxed(number: int) -> str:
    return rf"\boxed{{{number}}}"


def any_problem(rng: random.Random, hard: float = 0.5) -> Problem:
    """A problem that is not of the test split."""
    while True:
        problem = draw(rng, rng.choice((2, 3)) if rng.random() < hard else 1)
        if not problem.held_out:
            return problem


def useful(problem: Problem) -> int:
    """How many steps a hint holds: all but the last, which the Actor can do, and at least one."""
    return max(1, len(problem.terms) - 1)


def careless(problem: Problem) -> tuple[Step, ...]:
    """The steps with the first carry or borrow forgotten, and right from there on."""
    steps: list[Step] = []
    left, slipped = problem.first, False
    for sign, right in problem.terms:
        result = add(left, sign, right)
        if not slipped and carries(left, sign, right):
            result += -10 if sign == "+" else 10
            slipped = True
        steps.append(Step(left, sign, right, result))
        left = result
    return tuple(steps)


def remark(rng: random.Random, problem: Problem, kind: str | None = None) -> Remark:
    """Something an untrained helper says."""
    kind = kind or pick(rng, KINDS)
    if kind == "silent":
        return Remark(SILENCE_MARKER)
    if kind == "ramble":
        return ramble(rng, problem)
    steps = problem.steps if kind == "short right" else careless(problem)
    return short(steps[: useful(problem)])


def short(claims: Sequence[Step]) -> Remark:
    return Remark(", ".join(map(str, claims)), tuple(claims))


def ramble(rng: random.Random, problem: Problem) -> Remark:
    """A long remark, usually with a claim in it, often a careless one."""
    steps = problem.steps if rng.random() < RAMBLE_RIGHT else careless(problem)
    claims = () if rng.random() < RAMBLE_EMPTY else steps[: useful(problem)]
    said = pick(rng, _CLAIMS).format(short(claims).text) if claims else _NO_CLAIM
    restated = pick(rng, _RESTATED).format(problem.expression)
    return Remark(pick(rng, _OPENINGS) + restated + said + pick(rng, _CLOSINGS), claims)


def trusted(problem: Problem, claims: Sequence[Step]) -> int:
    """The answer of one who takes the claims at their word and does the rest alone."""
    result = claims[-1].result if claims else problem.first
    for sign, right in problem.terms[len(claims) :]:
        result = add(result, sign, right)
    return result


def slip(rng: random.Random, problem: Problem) -> int:
    """An answer as a draft or a peer may give it: right, careless or some way off."""
    near = problem.answer + rng.choice((-20, -10, -1, 1, 10, 20))
    return rng.choice((problem.answer, problem.answer, careless(problem)[-1].result, max(near, 0)))


def ask(
    part: str,
    problem: Problem,
    reply: str,
    context: prompts.Context | None = None,
    *,
    agent: str = "actor",
    form: str = "tagged",
    may_be_silent: bool = False,
) -> Dialogue:
    built = prompts.build(
        part,
        problem.question,
        context or {},
        agent=agent,
        instruction=INSTRUCTION,
        form=form,
        may_be_silent=may_be_silent,
    )
    return Dialogue(built, reply)


def _form(rng: random.Random) -> str:
    return "published" if rng.random() < 0.04 else "tagged"


def drill(rng: random.Random) -> Dialogue:
    """Many sums at once, under no role: the cheapest way to learn to add."""
    problems = [any_problem(rng) for _ in range(4)]
    asked = ", ".join(problem.expression for problem in problems)
    done = ", ".join(str(step) for problem in problems for step in problem.steps)
    return Dialogue((ChatMessage("user", asked),), done)


def alone_easy(rng: random.Random) -> Dialogue:
    problem = any_problem(rng, hard=0.0)
    return ask("solver", problem, boxed(problem.answer), form=_form(rng))


def alone_hard(rng: random.Random) -> Dialogue:
    problem = any_problem(rng, hard=1.0)
    return ask("solver", problem, boxed(problem.answer), form=_form(rng))


def heard(rng: random.Random, problem: Problem) -> Remark:
    """A remark as the Actor may meet it: also further or less far than helpers go, or cut short."""
    said = remark(rng, problem, rng.choice(("short right", "short careless", "ramble")))
    if said.claims and rng.random() < 0.15:
        steps = careless(problem) if rng.random() < 0.5 else problem.steps
        said = short(steps[: rng.randint(1, len(steps))])
    if said.claims and rng.random() < 0.1:
        off = said.claims[-1].result + rng.randint(-9, 9)
        wrong = replace(said.claims[-1], result=min(max(off, 0), 99))
        said = short((*said.claims[:-1], wrong))
    return said


def hinted(rng: random.Random) -> Dialogue:
    problem = any_problem(rng, hard=0.7)
    hint = heard(rng, problem)
    part, name = rng.choice(
        (("solver", "hint"),) * 8 + (("debater", "advice"), ("expert", "advice"))
    )
    form = _form(rng) if part == "solver" else "tagged"
    reply = boxed(trusted(problem, hint.claims))
    return ask(part, problem, reply, {name: [hint.by()]}, form=form)


def hint(rng: random.Random) -> Dialogue:
    problem = any_problem(rng)
    part = "hinter" if rng.random() < 0.9 else "guide"
    may_be_silent = rng.random() < 0.85
    kind = None if may_be_silent else pick(rng, {k: w for k, w in KINDS.items() if k != "silent"})
    reply = remark(rng, problem, kind).text
    form = _form(rng)
    return ask(part, problem, reply, agent=part, form=form, may_be_silent=may_be_silent)


def criticism(rng: random.Random) -> Dialogue:
    problem = any_problem(rng)
    draft = [Message("actor", boxed(slip(rng, problem)))]
    reply = remark(rng, problem).text
    form = _form(rng)
    context = {"draft": draft}
    return ask("critic", problem, reply, context, agent="critic", form=form, may_be_silent=True)


def revision(rng: random.Random) -> Dialogue:
    problem = any_problem(rng, hard=0.6)
    comment, draft = heard(rng, problem), slip(rng, problem)
    answer = trusted(problem, comment.claims) if comment.claims else draft
    context = {"draft": [Message("actor", boxed(draft))], "comment": [comment.by()]}
    return ask("reviser", problem, boxed(answer), context, form=_form(rng))


def _transcript(rng: random.Random, problem: Problem) -> tuple[list[Message], tuple[Step, ...]]:
    """Up to two rounds of three agents, and the sums claimed last."""
    messages: list[Message] = []
    claims: tuple[Step, ...] = ()
    for turn in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5, 6))):
        said = remark(rng, problem)
        messages.append(said.by(f"agent {turn % 3 + 1}"))
        claims = said.claims or claims
    return messages, claims


def speech(rng: random.Random) -> Dialogue:
    problem = any_problem(rng)
    messages, _ = _transcript(rng, problem)
    agent = f"agent {len(messages) % 3 + 1}"
    reply = remark(rng, problem).text
    return ask("speaker", problem, reply, {"messages": messages}, agent=agent, may_be_silent=True)


def team_answer(rng: random.Random) -> Dialogue:
    problem = any_problem(rng)
    messages, claims = _transcript(rng, problem)
    answer = boxed(trusted(problem, claims))
    return ask("answerer", problem, answer, {"messages": messages}, agent="agent 1")


def peers(rng: random.Random) -> Dialogue:
    """Answering beside other answers: the majority's, else one's own."""
    problem = any_problem(rng)
    part = rng.choice(("debater",) * 4 + ("selector", "diversifier", "refiner", "integrator"))
    answers = [slip(rng, problem) for _ in range(rng.randint(0 if part == "debater" else 1, 4))]
    role = rng.choice(("debater", "solver", "expert", "agent"))
    said = [Message(f"{role} {i + 1}", boxed(answer)) for i, answer in enumerate(answers)]
    context: dict[str, list[Message]] = {rng.choice(("solutions", "messages")): said}
    draft = slip(rng, problem)
    if part in ("refiner", "integrator") or rng.random() < 0.3:
        context["draft"] = [Message("actor", boxed(draft))]
    if part == "refiner":
        feedback = rng.choice(_PLAIN_REPLIES["self_critic"])
        context = {"draft": context["draft"], "feedback": [Message("critic", feedback)]}
        answers = [draft]
    answer = _majority(answers) or (draft if "draft" in context else problem.answer)
    return ask(part, problem, boxed(answer), context, agent=f"{role} 1")


def _majority(answers: Sequence[int]) -> int | None:
    """The one most common answer, or None where two are equally common."""
    top = Counter(answers).most_common(2)
    return None if not top or (len(top) == 2 and top[0][1] == top[1][1]) else top[0][0]


def plain(rng: random.Random) -> Dialogue:
    """The parts of the baselines that write a sentence, and the solver who reads one."""
    problem = any_problem(rng)
    part = rng.choice((*_PLAIN_REPLIES, "solver", "expert"))
    if part in _PLAIN_REPLIES:
        draft = [Message("actor", boxed(slip(rng, problem)))] if part == "self_critic" else []
        return ask(part, problem, rng.choice(_PLAIN_REPLIES[part]), {"draft": draft})
    name, writer = ("principles", "abstracter") if part == "solver" else ("expert", "role_picker")
    text = rng.choice(_PLAIN_REPLIES[writer])
    return ask(part, problem, boxed(problem.answer), {name: [Message(writer, text)]})


MIX: dict[Callable[[random.Random], Dialogue], float] = {
    drill: 0.10,
    alone_easy: 0.16,
    alone_hard: 0.02,
    hinted: 0.24,
    hint: 0.20,
    criticism: 0.06,
    revision: 0.06,
    speech: 0.05,
    team_answer: 0.05,
    peers: 0.04,
    plain: 0.02,
}
"""The kinds of dialogue and the share of each."""


def dialogue(rng: random.Random) -> Dialogue:
    """One dialogue of the mix."""
    return rng.choices(list(MIX), list(MIX.values()))[0](rng)
