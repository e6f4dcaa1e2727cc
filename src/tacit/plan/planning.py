"""Plans a training run: memory, seconds by phase, tokens and money, before it is started.

A step is play + score + update + sync, one after the other. One H200 is what was measured. Several
GPUs are a model that nothing was measured of: each plays its share of the tasks and learns from it,
gradients are summed over all of them, and trained weights are sent to all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tacit.config import Config, TeamConfig
from tacit.plan.costs import MEASURED, Decoding, Learning, Memory, Speed
from tacit.plan.forecast import Need
from tacit.plan.made_up_talk import turns_of
from tacit.plan.model_shapes import HALF, Shape
from tacit.plan.site import Plan, Site
from tacit.plan.workload import Workload
from tacit.run.opening import helpers_of, prices_of

ROOM = 0.95
"""The share of a GPU's memory that a plan may fill."""


def make_plan(config: Config, team: TeamConfig, shapes: Mapping[str, Shape], site: Site) -> Plan:
    """The plan of a config on a site. `shapes` has every model that is on the GPUs."""
    turns = turns_of(team, site.question, site.fill)
    work = Workload(config, team, shapes, turns, site.question)
    wanted = work.memory()
    ways = _ways(wanted, site)
    held = wanted.within(ways * site.card.memory)
    work = replace(work, room=held.cache / wanted.cache)
    copies = site.gpus // ways
    replicas, speed = max(1, copies), MEASURED.speed(site.card, ways)
    played, updated = work.play(replicas), work.update(replicas)
    parts: dict[str, Sequence[Decoding | Learning]] = {
        "play": played,
        "score": work.score(replicas),
        "update": updated,
    }
    causes = {name: _causes(some, speed) for name, some in parts.items()}
    phases = {name: sum(some.values()) for name, some in causes.items()}
    phases["sync"] = _sync(updated, speed, site, replicas)
    looked, evaluated = _evaluated(work)
    seconds = sum(one.seconds(speed) for one in work.evaluate(looked, replicas))
    api = _api(work, config.train.steps * work.episodes + evaluated)
    limits = [need.seconds(config.model_named(name)) for name, need in api.items()]
    if (waiting := max(limits, default=0.0) / config.train.steps - phases["play"]) > 0:
        phases["api limits"] = waiting
    money, currency = _paid(config, api)
    return Plan(
        card=site.card.name,
        phases=phases,
        causes=causes,
        memory={name: part / ways for name, part in held.parts().items()},
        ways=ways,
        replicas=copies,
        generated=replicas * sum(one.requests * one.new for one in played),
        learned=replicas * sum(one.tokens for one in updated),
        evaluations_s=seconds * evaluated / looked if looked else 0.0,
        steps=config.train.steps,
        gpus=max(site.gpus, ways),
        gpu_price=site.gpu_price,
        api=api,
        api_money=money,
        currency=currency,
        notes=tuple(_notes(work, site, ways)),
    )


def _ways(wanted: Memory, site: Site) -> int:
    """GPUs for one copy: 1, 2, 4, …"""
    ways, size = 1, site.card.memory
    while wanted.within(ways * size).total() > ROOM * ways * size:
        ways *= 2
    return ways


def _causes(work: Sequence[Decoding | Learning], speed: Speed) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in work:
        for name, seconds in one.causes(speed).items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _sync(updated: Sequence[Learning], speed: Speed, site: Site, replicas: int) -> float:
    """Trained weights go to where engines read them; with several copies, gradients are summed.

    A ring sums float32 gradients in 2·(n − 1)/n times their bytes, once for each optimiser step.
    """
    trained = sum(one.trained for one in updated)
    seconds = (4 + HALF) * trained / speed.bytes_per_s
    if replicas > 1:
        summed = sum(one.steps * 4 * one.trained for one in updated)
        sent = summed * 2 * (replicas - 1) / replicas + HALF * trained
        seconds += sent / site.between_per_s
    return seconds


def _evaluated(work: Workload) -> tuple[float, float]:
    """Episodes of one evaluation of the trained team, and of all evaluations of the run."""
    train, config = work.config.train, work.config
    if config.tasks.limit is None:
        return 0.0, 0.0
    looks = 1 + math.ceil(train.steps / (train.evaluate_every or train.steps))
    episodes = config.tasks.limit * config.evaluation.samples
    without = config.tasks.limit if helpers_of(config, work.team) else 0
    return float(episodes), float(looks * episodes + without)


def _api(work: Workload, episodes: float) -> dict[str, Need]:
    """Calls and tokens of the whole run behind APIs."""
    found: dict[str, Need] = {}
    for turn in work.turns:
        if work.config.model_named(turn.model).engine == "api":
            need = found.setdefault(turn.model, Need())
            need.calls += episodes
            need.prompt += episodes * turn.prompt
            need.generated += episodes * turn.new
    return found


def _paid(config: Config, api: Mapping[str, Need]) -> tuple[float | None, str]:
    """The price of API tokens and its currency, if the config has prices."""
    prices = prices_of(config) if api else None
    if prices is None:
        return None, ""
    ids = {name: str(config.model_named(name).model) for name in api}
    money = sum(prices.of(ids[name]).of(need.usage()) for name, need in api.items())
    return money, prices.currency


def _notes(work: Workload, site: Site, ways: int) -> Iterator[str]:
    config, card = work.config, site.card.name
    models = [config.model_named(agent.model) for agent in work.team.agents.values()]
    if ways > site.gpus:
        yield f"{site.gpus} × {card} are too few: planned as if there were {ways}"
    if ways > 1:
        yield (
            f"One {card} is too small: the models are planned as split over {ways} at no cost, "
            "which neither Tacit's engine nor its learner does. A smaller train.microbatch_tokens, "
            "fewer rows or train.gradient_checkpointing need less"
        )
    if work.room < 1:
        yield f"Keys and values of {work.room:.0%} of the rows fit; the others wait"
    if not site.card.measured:
        yield f"No {card} was measured: its published figures times what an H200 reaches"
    if site.gpus > 1:
        yield "Several GPUs are a model, not measured"
    if any(one.engine == "vllm" for one in models):
        yield "vLLM is planned as if it were Tacit's own engine"
    if any(one.engine == "api" for one in models):
        yield "The time that an API takes to answer is not counted, its rate limits are"
    if config.tasks.limit is None:
        yield "Evaluations are not counted: tasks.limit is not set"
    if any(agent.tools for agent in work.team.agents.values()):
        yield "What tools say is not counted"
    if config.judge:
        yield "The judge is not counted"
