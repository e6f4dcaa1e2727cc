"""Every experiment: what is trained, on what, and what is measured when it is done.

Settings that are the papers' and settings that are ours are told apart in docs/results.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.topologies import ARGUE_WRONGLY, MISJUDGE, MISLEAD, REWORD, SOLVE_WRONGLY
from tacit.errors import ConfigError
from tacit.registry import did_you_mean
from tacit.team.prompts import PARTS, PUBLISHED_PARTS

Tree = dict[str, Any]

HINT_TOKENS = 320
REWRITING_TOKENS = 256
SHORT_TOKENS = 128
COMMENT_TOKENS = 256
ACTOR_TOKENS = 512
"""The cap of whoever answers, when measured; in training it is lower, which only saves time."""
TRAINING_ACTOR_TOKENS = 384
SAMPLES = 500
"""Training tasks of one run, as AgentPO uses."""
VALIDATION_FROM = 7000
"""GSM8K and MATH training tasks from here on (in shuffled order) are never trained on."""
MATHS_TOKENS = 1024
"""The Actor's cap on the five maths sets, whose answers are longer."""
COSTLY = 256
"""Test tasks, the first ones, on which the dearest baselines are measured."""
CHECKED = 512
"""Test tasks, the first ones, of most honesty checks; the headline's are on all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One team on one set of test tasks."""

    team: Tree
    tasks: Tree
    single_answers: bool = False
    """Also grade every answer of the solver by itself: the Actor's success rate on each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    name: str
    item: int
    """Its place on the results page."""
    title: str
    minutes: float
    """Estimated GPU minutes for one seed on one H200; the page says what was measured."""
    evaluations: Mapping[str, Evaluation]
    config: Tree = field(default_factory=dict)
    """With a `train` section it trains first; see `weights_of` for those who need not."""
    weights_of: str | None = None
    """Another experiment, whose run of the same seed this one measures further."""
    budget_share: float | None = None
    """budget.tokens as a share of what the untrained team generates on the validation tasks."""
    seeds: tuple[int, ...] = (0,)

    @property
    def trains(self) -> bool:
        return "train" in self.config


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """One tree laid over another."""
    whole = dict(base)
    for key, value in over.items():
        inner = whole.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        whole[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return whole


# --- tasks ---------------------------------------------------------------------------------------


def _test(name: str, split: str = "test", limit: int | None = None) -> Tree:
    return {"name": name, "split": split} | ({"limit": limit} if limit else {})


def training_tasks(name: str, seed: int, samples: int = SAMPLES, **filters: Any) -> Tree:
    """Another seed trains on other tasks; none of them is a validation task."""
    tree = {"name": name, "split": "train", "shuffle_seed": 0, "limit": samples, **filters}
    return tree | {"offset": samples * seed}


GSM8K = _test("gsm8k")
SOME = _test("gsm8k", limit=CHECKED)
MATH500 = _test("math500")
GSM8K_VALIDATION = {
    "name": "gsm8k", "split": "train", "shuffle_seed": 0, "offset": VALIDATION_FROM, "limit": 256,
}  # fmt: skip
VARIED: Tree = {
    "name": "experiments.variations:gsm8k", "split": "train", "shuffle_seed": 0, "offset": 0,
    "limit": SAMPLES,
}  # fmt: skip
"""Training problems with other numbers, which the Actor cannot have met."""
VARIED_VALIDATION = {**VARIED, "offset": 3200, "limit": 256}
"""Of other problems: there are some 3,500, and runs use the first 2,500 at most."""
LEVELS = ["3", "4", "5"]
MATH_VALIDATION = {
    "name": "math", "split": "train", "shuffle_seed": 0, "level": LEVELS, "offset": 5000,
    "limit": 128,
}  # fmt: skip
"""There are 5,586 training tasks of these levels; runs use the first 3,000 at most."""

# --- teams ---------------------------------------------------------------------------------------


def _agent(tokens: int = ACTOR_TOKENS, **more: Any) -> Tree:
    return {"model": "base", "max_tokens": tokens, **more}


def _team(topology: str, agents: Tree, **more: Any) -> Tree:
    return {"topology": topology, "agents": agents, **more}


def solo(**actor: Any) -> Tree:
    return _team("solo", {"actor": _agent(**actor)})


WORKED = "Solve the question below for your teammate, who will check your work. Write short steps."
"""What the hinter is told. Found on validation tasks: told otherwise, it learns to say nothing."""


def hinter(**changed: Any) -> Tree:
    """May not be silent unless it is said."""
    own = {"model": "base", "max_tokens": HINT_TOKENS, "silent": False, "system": WORKED}
    return own | changed


def _answering(told: str | None, tokens: int = ACTOR_TOKENS) -> Tree:
    """The Actor; `told` stands in the place of the task's instruction."""
    return _agent(tokens) | ({"system": told} if told else {})


def hint(
    actor: int = ACTOR_TOKENS, prompts: str = "tagged", told: str | None = None, **changed: Any
) -> Tree:
    agents = {"hinter": hinter(**changed), "actor": _answering(told, actor)}
    return _team("hint_actor", agents, prompts=prompts)


def critic(actor: int = ACTOR_TOKENS, prompts: str = "tagged", **own: Any) -> Tree:
    own = {"model": "base", "max_tokens": COMMENT_TOKENS, "silent": False, **own}
    return _team("critic_actor", {"critic": own, "actor": _agent(actor)}, prompts=prompts)


def arbitrated(
    tokens: int = ACTOR_TOKENS,
    prompts: str = "tagged",
    *,
    third: Tree | None = None,
    **own: Any,
) -> Tree:
    """Two frozen solvers, told different things, and an arbiter who may be silent."""
    agents = {
        "actor": _agent(tokens),
        "second": _agent(tokens, system=OTHER_SOLVER),
        **({"third": third} if third else {}),
        "arbiter": _agent(tokens, **{"system": ARBITER, **own}),
    }
    return _own("arbitrated", agents, prompts=prompts)


def second_opinion(
    tokens: int = ACTOR_TOKENS,
    *,
    trained: bool = False,
    second: Tree | None = None,
    paraphraser: Tree | None = None,
) -> Tree:
    """Three agents, one policy where it is trained; the second alone may be silent."""
    agents = {
        "actor": _agent(tokens, trained=trained),
        "second": _agent(tokens, trained=trained, system=DOUBT) | (second or {}),
        **({"paraphraser": paraphraser} if paraphraser else {}),
        "arbiter": _agent(tokens, trained=trained),
    }
    return _own("second_opinion", agents)


def dialogue(
    tokens: int = ACTOR_TOKENS, count: int = 3, prompts: str = "tagged", **own: Any
) -> Tree:
    agent = _agent(tokens, count=count, **own)
    return _team("dialogue", {"agent": agent}, options={"rounds": 2}, prompts=prompts)


def debate(**more: Any) -> Tree:
    debater = _agent(count=3, temperature=0.7)
    return _team("debate", {"debater": debater, **more}, options={"rounds": 2, "shape": "full"})


def role_assignment(**more: Any) -> Tree:
    return _team("role_assignment", {"picker": _agent(64), "actor": _agent(), **more})


def _own(topology: str, agents: Tree, **more: Any) -> Tree:
    return _team(f"experiments.topologies:{topology}", agents, **more)


REWRITING: Tree = {"system": PUBLISHED_PARTS["hinter"], "max_tokens": REWRITING_TOKENS}
"""The hinter told what AgentPO tells it: rewrite the question."""
SHORT: Tree = {"system": PARTS["hinter"], "max_tokens": SHORT_TOKENS}
"""The hinter told what Tacit tells it: one short hint, and no answer."""
_PARAPHRASER = _agent(2 * HINT_TOKENS, system=REWORD)
_SABOTEUR = _agent(SHORT_TOKENS, system=MISLEAD)
OTHER_WORDS = {
    "hinter": "Your teammate has to answer the following question. Work it out for them first, in "
    "a few brief lines.",
    "critic": "Your teammate solved the question below. Say briefly what is wrong with the "
    "solution, if anything.",
    "second": "Your teammate solved the question below. Work it out once more in a few brief lines "
    "and say where their solution goes wrong.",
    "arbiter": "Your teammates have solved this question twice. {instruction} Put right whatever "
    "they got wrong.",
    "doubt": "{instruction} Your teammate has tried already. Put right whatever is wrong with it.",
    "agent": "You, {agent}, work on this question with your team. Contribute something useful in "
    "a few words.",
}
"""Role prompts that mean the same as ours in other words."""
SECOND: Tree = {
    "system": "Solve the question below yourself in short steps, and tell your teammate where the "
    "solution given is wrong.",
    "max_tokens": HINT_TOKENS,
}
"""The critic told to work the question out too. A hint paid where it was a second solution."""
ARBITER = "{instruction} Two solutions of your teammates are given. Correct what is wrong in them."
OTHER_SOLVER = r"Solve the question below in short steps, and put the final answer within \boxed{}."
"""What the second solver is told, so that two greedy solutions of one model differ."""
DOUBT = "A teammate's solution is given. If it is wrong, give the right one. {instruction}"
"""Told so, an untrained second mostly speaks: π(silence) is 15 % on 32 validation tasks."""
SECOND_TURNS = 1.8
"""One solution, and two turns more on 40 % of the problems. Nearer to 1, a price that has gone too
far would come back too slowly."""
LEAN: Tree = {
    "system": "Write the calculations that solve the question below, one short line each.",
    "max_tokens": SHORT_TOKENS,
}
"""The hinter told to say as little as can help."""
READERS = {
    "check the hint": r"Check your teammate's work on this question, correct it where it is wrong, "
    r"and put the final answer within \boxed{}.",
    "trust the hint": r"Your teammate has worked on this question. Say only the final answer, "
    r"within \boxed{}.",
    "answer or correct": r"Your teammate has solved this question. If the work is right, reply "
    r"with its final answer within \boxed{} and nothing else. If it is not, correct it.",
    "read on": r"Go on from your teammate's work on this question without repeating it, and put "
    r"the final answer within \boxed{}.",
}
"""What the Actor is told where it need not work the question out a second time."""
READER = "trust the hint"
OTHER_TEXTS = {
    "name the quantities": PUBLISHED_PARTS["hinter"] + " Name each quantity, and say how to get "
    "the answer from them.",
    "steps without the last": "Write down the steps that lead to the answer of the question below, "
    "one short line each, with the quantities to use. Do not calculate the final answer.",
    "calculations alone": LEAN["system"],
    "givens and calculations": "List what the question below gives and what it asks for, then the "
    "calculations needed, in short lines.",
}
"""What else a hinter was told, for comparison on validation tasks."""

# --- what is measured on a trained team ----------------------------------------------------------


def _on(tasks: Tree, **teams: Tree) -> dict[str, Evaluation]:
    return {name.replace("_", " "): Evaluation(team=t, tasks=tasks) for name, t in teams.items()}


def _hint_checks(tasks: Tree, told: str | None = None, **changed: Any) -> dict[str, Evaluation]:
    """What becomes of a trained team under each honesty check."""
    own = hinter(trained=True, **changed)
    actor = _answering(told)
    other = {**changed, "system": OTHER_WORDS["hinter"]}
    return _on(
        tasks,
        hinter_alone=solo(trained=True),
        reworded=_own(
            "hint_reworded", {"hinter": own, "paraphraser": _PARAPHRASER, "actor": actor}
        ),
        other_role_prompt=hint(trained=True, told=told, **other),
        wrong_teammate=_own(
            "hint_disputed", {"saboteur": _SABOTEUR, "hinter": own, "actor": actor}
        ),
        wrong_teammate_alone=_own("hint_disputed", {"saboteur": _SABOTEUR, "actor": actor}),
    )


def _critic_checks(tasks: Tree, **changed: Any) -> dict[str, Evaluation]:
    own: Tree = {"model": "base", "max_tokens": COMMENT_TOKENS, "silent": False, "trained": True}
    own |= changed
    other = OTHER_WORDS["second" if "system" in changed else "critic"]
    saboteur = _agent(COMMENT_TOKENS, system=MISJUDGE)
    return _on(
        tasks,
        reworded=_own(
            "critic_reworded", {"critic": own, "paraphraser": _PARAPHRASER, "actor": _agent()}
        ),
        other_role_prompt=critic(**{**own, "system": other}),
        wrong_teammate=_own(
            "critic_disputed", {"saboteur": saboteur, "critic": own, "actor": _agent()}
        ),
        wrong_teammate_alone=_own("critic_disputed", {"saboteur": saboteur, "actor": _agent()}),
    )


def _arbiter_checks(tasks: Tree, prompts: str) -> dict[str, Evaluation]:
    """Its message is the team's answer and nobody reads it, so there is none to be reworded."""
    wrong = _agent(COMMENT_TOKENS, system=SOLVE_WRONGLY)
    trained: Tree = {"prompts": prompts, "trained": True}
    return _on(
        tasks,
        arbiter_alone=solo(trained=True),
        other_role_prompt=arbitrated(**trained, system=OTHER_WORDS["arbiter"]),
        wrong_teammate=arbitrated(**trained, third=wrong),
        wrong_teammate_untrained=arbitrated(prompts=prompts, third=wrong),
    )


def _second_checks(tasks: Tree) -> dict[str, Evaluation]:
    """The wrong teammate takes the second's seat, so that the other two have to withstand it."""
    wrong = _agent(COMMENT_TOKENS, trained=False, silent=False, system=SOLVE_WRONGLY)
    reworded: Tree = {"system": OTHER_WORDS["doubt"]}
    return _on(
        tasks,
        policy_alone=solo(trained=True),
        reworded=second_opinion(trained=True, paraphraser=_PARAPHRASER),
        other_role_prompt=second_opinion(trained=True, second=reworded),
        wrong_teammate=second_opinion(trained=True, second=wrong),
        wrong_teammate_untrained=second_opinion(second=wrong),
    )


def _dialogue_checks(tasks: Tree) -> dict[str, Evaluation]:
    saboteur = _agent(SHORT_TOKENS, system=ARGUE_WRONGLY)
    two, three = _agent(count=2), _agent(count=3, trained=True)

    def talk(topology: str, agents: Tree, **options: Any) -> Tree:
        return _own(topology, agents, options={"rounds": 2, **options})

    return _on(
        tasks,
        reworded=talk("dialogue_reworded", {"agent": three, "paraphraser": _PARAPHRASER}),
        other_role_prompt=talk("dialogue_told", {"agent": three}, told=OTHER_WORDS["agent"]),
        wrong_teammate=talk(
            "dialogue_disputed", {"agent": {**two, "trained": True}, "saboteur": saboteur}
        ),
        wrong_teammate_untrained=talk("dialogue_disputed", {"agent": two, "saboteur": saboteur}),
    )


# --- how teams are trained -----------------------------------------------------------------------

_TRAIN: Tree = {
    "evaluation": {"concurrency": 512, "resamples": 1000},
    "policy": {"kind": "lora", "rank": 16, "alpha": 32.0},
    "optimizer": {"learning_rate": 1.0e-4, "warmup_steps": 5},
    "train": {
        "steps": 48,
        "tasks_per_step": 32,
        "group": 8,
        "evaluate_every": 16,
        "checkpoint_every": 16,
        "microbatch_tokens": 4096,
        "concurrency": 512,
        "save_episodes": False,
    },
}
"""Seen to learn on validation tasks. Micro-batches are small so that four runs fit one GPU."""


def _trained(team: Tree, **more: Any) -> Tree:
    gsm8k = {"train_tasks": training_tasks("gsm8k", 0), "tasks": GSM8K_VALIDATION}
    return merged(merged(_TRAIN, gsm8k | {"team": team}), more)


_AGENTPO: Tree = {"loss": {"name": "grpo"}, "silence": {"exploration": "none"}}
_HINT = _trained(hint(TRAINING_ACTOR_TOKENS, trained=True), **_AGENTPO)
_SILENT: Tree = {
    "train_tasks": VARIED,
    "tasks": VARIED_VALIDATION,
    "budget": {"control": "fixed", "tokens": 400, "weight_tokens": 0.1},
    "silence": {"exploration": "arms", "warmup_steps": 0},
}
"""The same fixed price wherever one agent may be silent."""
_SILENT_HINT = _trained(hint(TRAINING_ACTOR_TOKENS, trained=True, silent=True), **_SILENT)
_DIALOGUE = _trained(
    dialogue(TRAINING_ACTOR_TOKENS, trained=True),
    budget={"turns": 3, "rate": 0.1},
    reward={"repetition": 0.1},
    silence={"exploration": "floor", "floor": 0.1},
    loss={"sequence": "episode"},
    tasks={"limit": 128},
    train={"steps": 40, "tasks_per_step": 24, "evaluate_every": 10, "checkpoint_every": 10},
)
"""An episode is one sequence: as sequences of their own its seven messages would count alike, be
they silence or the answer."""

_CONTROL = merged(
    _DIALOGUE,
    {
        "team": {"prompts": "role_last"},
        "train": {
            "steps": 32, "tasks_per_step": 16, "evaluate_every": 16, "checkpoint_every": 16,
        },
    },
)  # fmt: skip
"""With the role's text last a conversation is computed once and not once for each of its agents, so
that a control costs less than the main run."""

ELSEWHERE = ("math500", "strategyqa", "sports_understanding", "checkmate_in_one")
"""Benchmarks on which the dialogue trained on GSM8K is measured too."""

BUDGET_SHARE = 0.45
"""Of the untrained dialogue's tokens: a little below the half that is asked for."""

CONTROL_SHARE = 0.6
"""Of an untrained dialogue that says less: about what one agent says alone."""

READER_BUDGET = 290
"""Below what the Actor generates alone."""
HINT_BUDGET = 390
"""Three quarters of the untrained hint team's tokens: the Actor's own, and some for a hint."""

ARBITER_BUDGET = 593
"""What the two solvers and half of an untrained arbiter's word take on 128 validation tasks."""
MANY = 2500
"""Varied training problems where the choice to speak is to be learned: each is met once or so."""
WORTH_SAYING = 0.06
"""What a hint of 240 tokens costs in the silence runs, and has to bring before it is charged."""

# --- the experiments -----------------------------------------------------------------------------


def _all() -> Iterable[Experiment]:
    yield from _item_1()
    yield from _readers()
    yield from _item_2()
    yield from _item_3()
    yield from _item_5()
    yield from _item_6()
    yield from _item_7()
    yield _smoke()


def _item_1() -> Iterable[Experiment]:
    sampled = _team("self_consistency", {"actor": _agent()}, options={"samples": 8})
    yield Experiment(
        name="baselines",
        item=1,
        title="Untrained teams and cheap baselines, GSM8K test",
        minutes=6,
        evaluations={
            **_on(
                GSM8K,
                solo=solo(),
                untrained_hint=hint(),
                untrained_hint_that_may_be_silent=hint(silent=True),
                untrained_rewriting=hint(**REWRITING),
                untrained_short_hint=hint(**SHORT),
                untrained_lean_hint=hint(**LEAN),
                solo_in_short_steps=solo(system=OTHER_SOLVER),
                solo_told_to_be_wrong=solo(tokens=COMMENT_TOKENS, system=SOLVE_WRONGLY),
                solo_as_published=_team("solo", {"actor": _agent()}, prompts="published"),
                untrained_rewriting_as_published=hint(prompts="published", **REWRITING),
                untrained_hint_reworded=_own(
                    "hint_reworded",
                    {"hinter": hinter(), "paraphraser": _PARAPHRASER, "actor": _agent()},
                ),
                untrained_critic=critic(),
                role_assignment=role_assignment(),
                step_back=_team("step_back", {"actor": _agent()}),
            ),
            "self-consistency": Evaluation(team=sampled, tasks=GSM8K, single_answers=True),
        },
    )
    told = {
        "worked steps (the headline's)": {},
        "rewrite the question (AgentPO's)": REWRITING,
        "one short hint (Tacit's own)": SHORT,
        **{words: {"system": text} for words, text in OTHER_TEXTS.items()},
    }
    for name, tasks, kind in (
        ("prompts", GSM8K_VALIDATION, "validation problems"),
        ("prompts-varied", VARIED_VALIDATION, "validation problems with other numbers"),
    ):
        yield Experiment(
            name=name,
            item=1,
            title=f"Untrained hinters under different role texts, {kind}",
            minutes=1,
            evaluations={
                "solo": Evaluation(team=solo(), tasks=tasks),
                **{
                    words: Evaluation(team=hint(**changed), tasks=tasks)
                    for words, changed in told.items()
                },
            },
        )
    yield Experiment(
        name="prompts-reader",
        item=1,
        title="The untrained hint before Actors told different things, validation problems",
        minutes=1,
        evaluations={
            words: Evaluation(team=hint(told=text), tasks=GSM8K_VALIDATION)
            for words, text in READERS.items()
        },
    )
    yield Experiment(
        name="baselines-costly",
        item=1,
        title=f"Costly baselines, first {COSTLY} problems of GSM8K test",
        minutes=5,
        evaluations=_on(
            _test("gsm8k", limit=COSTLY),
            self_refine=_team("self_refine", {"actor": _agent()}),
            quality_diversity=_team("quality_diversity", {"actor": _agent()}),
            EvoAgent=_team("evo_agent", {"actor": _agent()}),
        ),
    )
    yield Experiment(
        name="hint",
        item=1,
        title="AgentPO, trained hint",
        minutes=8,
        config=_HINT,
        evaluations=_on(GSM8K, trained=hint(trained=True)) | _hint_checks(GSM8K),
        seeds=(0, 1, 2),
    )
    yield Experiment(
        name="hint-budget",
        item=1,
        title="AgentPO, trained hint under a budget of tokens",
        minutes=5,
        config=merged(_HINT, {"budget": {"tokens": HINT_BUDGET, "rate": 0.03}}),
        evaluations=_on(GSM8K, trained=hint(trained=True)),
    )
    varied = {"train_tasks": VARIED, "tasks": VARIED_VALIDATION}
    yield Experiment(
        name="hint-lean",
        item=1,
        title="AgentPO, the hinter told to give calculations alone, on varied problems",
        minutes=6,
        config=merged(_HINT, varied | {"team": hint(TRAINING_ACTOR_TOKENS, trained=True, **LEAN)}),
        evaluations=_on(GSM8K, trained=hint(trained=True, **LEAN))
        | _on(SOME, hinter_alone=solo(trained=True)),
    )
    yield Experiment(
        name="hint-varied",
        item=1,
        title="AgentPO, the headline's hinter on varied problems",
        minutes=6,
        config=merged(_HINT, varied),
        evaluations=_on(GSM8K, trained=hint(trained=True)),
    )
    yield Experiment(
        name="hint-rewriting",
        item=1,
        title="AgentPO, the hinter told to rewrite the question, as published",
        minutes=6,
        config=merged(_HINT, {"team": hint(TRAINING_ACTOR_TOKENS, trained=True, **REWRITING)}),
        evaluations=_on(GSM8K, trained=hint(trained=True, **REWRITING)),
    )
    yield Experiment(
        name="hint-short",
        item=1,
        title="AgentPO, trained short hint under our own role text",
        minutes=6,
        config=merged(_HINT, {"team": hint(TRAINING_ACTOR_TOKENS, trained=True, **SHORT)}),
        evaluations=_on(GSM8K, trained=hint(trained=True, **SHORT)),
    )
    yield Experiment(
        name="critic",
        item=1,
        title="AgentPO, trained critic",
        minutes=8,
        config=_trained(critic(TRAINING_ACTOR_TOKENS, trained=True), **_AGENTPO),
        evaluations=_on(GSM8K, trained=critic(trained=True)) | _critic_checks(SOME),
    )


def _readers() -> Iterable[Experiment]:
    told = READERS[READER]
    for name, title, budget in (
        ("hint-reader", "", {}),
        ("hint-reader-budget", " and a budget of tokens", {"tokens": READER_BUDGET, "rate": 0.03}),
    ):
        team = hint(TRAINING_ACTOR_TOKENS, trained=True, told=told)
        yield Experiment(
            name=name,
            item=1,
            title=f"AgentPO, an Actor told to give the hint's answer rather than to solve{title}",
            minutes=5,
            config=merged(_HINT, {"team": team, "budget": budget}),
            evaluations=_on(
                GSM8K,
                trained=hint(trained=True, told=told),
                untrained=hint(told=told),
                reader_alone=solo(system=told),
            )
            | (_hint_checks(SOME, told) if budget else {}),
            seeds=(0, 1, 2) if budget else (0,),
        )


def _item_2() -> Iterable[Experiment]:
    warm: Tree = {
        "silence": {"warmup_steps": 40, "warmup_gain": WORTH_SAYING, "coefficient": 2.0},
        "train": {"steps": 80},
        "train_tasks": {"limit": MANY},
    }
    modes: dict[str, tuple[str, Tree]] = {
        **{
            mode: (f"exploration `{mode}`", {"silence": {"exploration": mode}})
            for mode in ("arms", "floor", "none")
        },
        "warm": ("exploration `arms` after up to 40 steps without a price", warm),
        "even": (
            "warmed up, a token of a short hint weighing no more than one of a long hint",
            warm | {"loss": {"name": "dr_grpo"}},
        ),
        "hard": (
            "warmed up, messages learned only on problems that silence fails",
            merged(warm, {"silence": {"solved_weight": 0.0}}),
        ),
    }
    for name, (title, change) in modes.items():
        yield Experiment(
            name=f"silence-{name}",
            item=2,
            title=f"A hinter that may be silent, {title}",
            minutes=8,
            config=merged(_SILENT_HINT, change),
            evaluations=_on(GSM8K, trained=hint(trained=True, silent=True))
            | (_hint_checks(SOME, silent=True) if name in ("arms", "even") else {}),
        )
    told = {**SECOND, "trained": True, "silent": True}
    yield Experiment(
        name="silence-critic",
        item=2,
        title="A critic that sees the Actor's solution and may be silent, exploration `arms`",
        minutes=10,
        config=merged(
            _trained(critic(TRAINING_ACTOR_TOKENS, **told), **_SILENT),
            {
                "loss": {"name": "dr_grpo"},
                "silence": {
                    "warmup_steps": 24, "warmup_gain": 0.0, "coefficient": 2.0,
                    "solved_weight": 0.25,
                },
                "train": {"steps": 72},
                "train_tasks": {"limit": MANY},
            },
        ),
        evaluations=_on(
            GSM8K, trained=critic(**told), untrained=critic(**{**told, "trained": False})
        )
        | _critic_checks(SOME, silent=True, **SECOND),
    )  # fmt: skip
    for name, title, prompts, budget, tasks, warm_up in (
        ("arbiter", "tokens priced by dual control", "tagged", {"tokens": ARBITER_BUDGET}, 32, 16),
        (
            "turns",
            "turns priced by dual control, tokens free, the role's text last",
            "role_last",
            {"tokens": None, "turns": 2.5},
            16,
            20,
        ),
    ):
        team = arbitrated(TRAINING_ACTOR_TOKENS, prompts, trained=True)
        yield Experiment(
            name=f"silence-{name}",
            item=2,
            title=f"An arbiter that sees two solutions and may be silent, `arms`, {title}",
            minutes=10,
            config=merged(
                _trained(team, **_SILENT),
                {
                    "loss": {"name": "dr_grpo"},
                    "budget": {"control": "dual", "weight_tokens": 0.0, "rate": 0.1, **budget},
                    "silence": {
                        "warmup_steps": warm_up, "warmup_gain": WORTH_SAYING, "coefficient": 2.0,
                    },
                    "train": {"steps": 64, "tasks_per_step": tasks},
                    "train_tasks": {"limit": MANY},
                    "tasks": {"limit": 8 * tasks},
                },
            ),
            evaluations=_on(
                GSM8K,
                trained=arbitrated(prompts=prompts, trained=True),
                untrained=arbitrated(prompts=prompts),
            )
            | _arbiter_checks(SOME, prompts),
        )  # fmt: skip


def _item_3() -> Iterable[Experiment]:
    everything = {
        "gsm8k": GSM8K,
        "math500": MATH500,
        "humaneval": _test("humaneval"),
        "mbpp": _test("mbpp"),
        "strategyqa": _test("strategyqa"),
        "sports_understanding": _test("sports_understanding"),
        "checkmate_in_one": _test("checkmate_in_one", "test250"),
    }
    yield Experiment(
        name="baselines-dialogue",
        item=3,
        title="Untrained dialogue and solo on the seven benchmarks",
        minutes=8,
        evaluations={
            **{
                f"{name}, {task}": Evaluation(team=team, tasks=tasks)
                for task, tasks in everything.items()
                for name, team in (("untrained", dialogue()), ("solo", solo()))
                if (task, name) != ("gsm8k", "solo")
            },
            **_on(
                GSM8K,
                untrained_with_the_role_text_last=dialogue(prompts="role_last"),
                debate=debate(),
            ),
        },
    )
    yield Experiment(
        name="gspo",
        item=3,
        title="Agent-GSPO: three agents, one policy, budgets of tokens and turns",
        minutes=13,
        config=_DIALOGUE,
        budget_share=BUDGET_SHARE,
        evaluations={
            **_on(GSM8K, trained=dialogue(trained=True)),
            **_dialogue_checks(SOME),
            **{
                task: Evaluation(team=dialogue(trained=True), tasks=everything[task])
                for task in ELSEWHERE
            },
        },
        seeds=(0, 1, 2),
    )
    twice: Tree = {"updates": 2, "steps": 20, "evaluate_every": 10, "checkpoint_every": 10}
    free: Tree = {"budget": {"turns": None}, "reward": {"repetition": 0.0}}
    controls: dict[str, tuple[str, Tree]] = {
        "role-last": ("dual control, the reference of the rows below", {}),
        "no-cost": ("λ = 0", free),
        "no-cost-messages": (
            "λ = 0, each message a sequence",
            free | {"loss": {"sequence": "message"}},
        ),
        **{
            f"lambda-{weight}": (
                f"λ fixed at {weight}, no price for turns",
                {"budget": {"control": "fixed", "weight_tokens": weight, "turns": None}},
            )
            for weight in (0.1, 0.3, 1.0)
        },
        "talk": (
            "λ = 0, nobody may be silent: what talk is worth once it is trained",
            merged(free, {"team": {"agents": {"agent": {"silent": False}}}}),
        ),
        "no-gate": ("wrong episodes pay too", {"reward": {"gate": "always"}}),
        "two-updates": ("GSPO, two updates a batch, 20 steps", {"train": twice}),
        "grpo-two-updates": (
            "GRPO, two updates a batch, 20 steps",
            {"loss": {"name": "grpo"}, "train": twice},
        ),
    }
    for name, (title, change) in controls.items():
        yield Experiment(
            name=f"gspo-{name}",
            item=3,
            title=f"Dialogue control: {title}",
            minutes=6 if name == "talk" else 4,
            config=merged(_CONTROL, change),
            budget_share=None if name.startswith(("no-cost", "talk")) else CONTROL_SHARE,
            evaluations=_on(
                GSM8K,
                trained=dialogue(trained=True, prompts="role_last")
                if name != "talk"
                else dialogue(trained=True, prompts="role_last", silent=False),
            ),
            seeds=(0, 1, 2) if name in ("two-updates", "grpo-two-updates") else (0,),
        )
    for name, title, turns in (
        ("second", "a budget of turns", SECOND_TURNS),
        ("second-free", "λ = 0", None),
    ):
        # A price for tokens would sooner buy an empty second solution than silence.
        yield Experiment(
            name=f"gspo-{name}",
            item=3,
            title=f"Agent-GSPO: one solves, a second may doubt it, a third decides, {title}",
            minutes=12,
            config=merged(
                _trained(second_opinion(TRAINING_ACTOR_TOKENS, trained=True), **_SILENT),
                {
                    "budget": {
                        "control": "dual", "tokens": None, "weight_tokens": 0.0, "turns": turns,
                        "rate": 0.01,
                    },
                    "silence": {
                        "warmup_steps": 10, "warmup_gain": WORTH_SAYING, "coefficient": 1.0,
                        "silent_samples": 8,
                    },
                    "train": {
                        "steps": 44, "tasks_per_step": 12, "evaluate_every": 8,
                        "checkpoint_every": 8,
                    },
                    "train_tasks": {"limit": 800},
                    "tasks": {"limit": 128},
                },
            ),
            evaluations=_on(GSM8K, trained=second_opinion(trained=True))
            | (_on(GSM8K, untrained=second_opinion()) | _second_checks(SOME) if turns else {}),
        )  # fmt: skip
    yield Experiment(
        name="gspo-math",
        item=3,
        title="Agent-GSPO on MATH, the role's text last",
        minutes=8,
        budget_share=BUDGET_SHARE,
        config=merged(
            _CONTROL,
            {
                "train_tasks": training_tasks("math", 0, level=LEVELS),
                "tasks": MATH_VALIDATION,
                "train": {"steps": 24, "evaluate_every": 12, "checkpoint_every": 12},
            },
        ),
        evaluations=_on(
            MATH500,
            trained=dialogue(trained=True, prompts="role_last"),
            untrained=dialogue(prompts="role_last"),
        ),
    )


def _item_5() -> Iterable[Experiment]:
    yield Experiment(
        name="actor-finetune",
        item=5,
        title="The Actor itself trained, alone, on the same samples",
        minutes=5,
        config=_trained(solo(tokens=TRAINING_ACTOR_TOKENS, trained=True), **_AGENTPO),
        evaluations=_on(GSM8K, trained=solo(trained=True)),
    )


def _item_6() -> Iterable[Experiment]:
    sets = ("math500", "amc23", "minerva_math", "olympiadbench", "aime24")
    trained = hint(MATHS_TOKENS, trained=True)
    config = merged(
        _HINT,
        {
            "train_tasks": training_tasks("math", 0, level=LEVELS),
            "tasks": MATH_VALIDATION,
            "team": hint(TRAINING_ACTOR_TOKENS * 2, trained=True),
        },
    )
    yield Experiment(
        name="baselines-math",
        item=6,
        title="Solo and untrained hint on the five maths sets",
        minutes=8,
        evaluations={
            f"{name}, {task}": Evaluation(team=team, tasks=_test(task))
            for task in sets
            for name, team in (
                ("solo", solo(tokens=MATHS_TOKENS)),
                ("untrained hint", hint(MATHS_TOKENS)),
            )
        },
    )
    yield Experiment(
        name="math-hint",
        item=6,
        title="AgentPO on MATH levels 3 to 5",
        minutes=25,
        config=config,
        evaluations={f"trained, {t}": Evaluation(team=trained, tasks=_test(t)) for t in sets},
    )
    on_math500 = _on(MATH500, trained=trained)
    for samples in (100, 700, 1000):
        yield Experiment(
            name=f"math-hint-{samples}",
            item=6,
            title=f"The same with {samples} samples",
            minutes=22,
            config=merged(config, {"train_tasks": {"limit": samples}}),
            evaluations=on_math500,
        )
    yield Experiment(
        name="math-hint-1000-guard",
        item=6,
        title="1000 samples with the early-stopping guard",
        minutes=22,
        config=merged(
            config, {"train_tasks": {"limit": 1000}, "train": {"patience": 2, "evaluate_every": 8}}
        ),
        evaluations=on_math500,
    )
    yield Experiment(
        name="math-hint-kl",
        item=6,
        title="The same with a KL term of 0.01",
        minutes=25,
        config=merged(config, {"loss": {"kl": 0.01}}),
        evaluations=on_math500,
    )
    collaborator = _agent(HINT_TOKENS, trained=True, silent=False)
    yield Experiment(
        name="collaborator-elsewhere",
        item=6,
        title="A Collaborator trained in hint-actor inside unchanged debate and role assignment",
        minutes=3,
        config=_HINT,
        weights_of="hint",
        evaluations=_on(
            _test("gsm8k", limit=COSTLY),
            debate_with_collaborator=debate(collaborator=collaborator),
            role_assignment_with_collaborator=role_assignment(collaborator=collaborator),
        ),
    )
    small: Tree = {"model": "small"}
    yield Experiment(
        name="hint-small",
        item=6,
        title="SmolLM2-135M as the Collaborator (give its folder with --small)",
        minutes=9,
        config=merged(_HINT, {"team": {"agents": {"hinter": small}}}),
        evaluations=_on(GSM8K, trained=hint(trained=True, **small), untrained=hint(**small)),
    )


def _item_7() -> Iterable[Experiment]:
    trained = dialogue(trained=True)
    yield Experiment(
        name="gspo-code",
        item=7,
        title="Agent-GSPO trained on MBPP's training split",
        minutes=9,
        budget_share=BUDGET_SHARE,
        config=merged(
            _DIALOGUE,
            {
                "train_tasks": {"name": "mbpp", "split": "train", "limit": None, "offset": 0},
                "tasks": {
                    "name": "mbpp", "split": "validation", "offset": 0, "limit": 90,
                    "shuffle_seed": None,
                },
            },
        ),
        evaluations={
            "mbpp": Evaluation(team=trained, tasks=_test("mbpp")),
            "humaneval": Evaluation(team=trained, tasks=_test("humaneval")),
        },
    )  # fmt: skip
    yield Experiment(
        name="gspo-strategyqa",
        item=7,
        title="Agent-GSPO trained on StrategyQA's training split",
        minutes=6,
        budget_share=BUDGET_SHARE,
        config=merged(
            _DIALOGUE,
            {
                "train_tasks": {"name": "strategyqa"},
                "tasks": {"name": "strategyqa", "offset": 1900},
            },
        ),
        evaluations={
            "strategyqa": Evaluation(team=trained, tasks=_test("strategyqa")),
            "sports understanding": Evaluation(team=trained, tasks=_test("sports_understanding")),
        },
    )
    for count in (2, 5, 8):
        yield Experiment(
            name=f"gspo-{count}-agents",
            item=7,
            title=f"Agent-GSPO with {count} agents",
            minutes=6 + 4 * count,
            budget_share=BUDGET_SHARE,
            config=merged(
                _DIALOGUE,
                {
                    "team": {"agents": {"agent": {"count": count}}},
                    "budget": {"turns": count},
                },
            ),
            evaluations=_on(
                GSM8K,
                untrained=dialogue(count=count),
                trained=dialogue(count=count, trained=True),
            ),
        )


def _smoke() -> Experiment:
    """Made-up sums and the embedded model: everything an experiment does, in seconds on a CPU."""
    tasks = {"name": "arithmetic", "split": "test", "limit": 8}
    agents: Tree = {"hinter": {"max_tokens": 32, "trained": True}, "actor": {"max_tokens": 16}}
    return Experiment(
        name="smoke",
        item=0,
        title="The harness itself, on sums and the embedded model",
        minutes=0,
        budget_share=0.5,
        config={
            "train_tasks": {"name": "arithmetic", "split": "train", "limit": 40},
            "tasks": {**tasks, "limit": 4},
            "evaluation": {"resamples": 50},
            "team": _team("hint_actor", agents),
            "policy": {"rank": 4},
            "optimizer": {"learning_rate": 1.0e-3, "warmup_steps": 0},
            "silence": {"warmup_steps": 1},
            "train": {
                "steps": 4,
                "tasks_per_step": 2,
                "group": 3,
                "evaluate_every": 2,
                "checkpoint_every": 2,
                "save_episodes": False,
            },
        },
        evaluations=_on(
            tasks,
            solo=_team("solo", {"actor": {"max_tokens": 16}}),
            trained=_team("hint_actor", agents),
            reworded=_own(
                "hint_reworded", {**agents, "paraphraser": {"max_tokens": 24, "system": REWORD}}
            ),
        ),
    )


EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in _all()}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ConfigError(f"no experiment `{name}`: {did_you_mean(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
