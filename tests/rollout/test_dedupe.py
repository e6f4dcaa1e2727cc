"""Equal requests are computed once, and told to all who asked."""

import asyncio
from dataclasses import replace

import pytest

from tacit.engine.base import Completion, Request, Sampling, SilenceRule
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import EngineError
from tacit.rollout.dedupe import DedupedEngine
from tacit.types import ChatMessage, Choice

GREEDY = Request(
    messages=(ChatMessage("user", "What is 1 + 1?"),), prompt_ids=(1, 2), sampling=Sampling()
)


async def ask(engine: DedupedEngine, *requests: Request) -> list[Completion]:
    return await asyncio.gather(*(engine.generate(request) for request in requests))


async def test_equal_greedy_requests_are_computed_once_until_forgotten() -> None:
    inner = ScriptedEngine(lambda request: "two it is", delay=0.01)
    once = DedupedEngine(inner)
    answers = await ask(once, *(replace(GREEDY, seed=seed) for seed in range(8)))
    assert inner.calls == 1
    assert [answer.usage.generated for answer in answers] == [3] * 8
    once.forget()
    await ask(once, GREEDY)
    assert inner.calls == 2


async def test_text_alone_is_asked_each_time() -> None:
    inner = ScriptedEngine(lambda request: "two")
    other = replace(GREEDY, prompt_ids=())
    await ask(DedupedEngine(inner), other, other)
    assert inner.calls == 2


async def test_who_may_be_silent_chooses_by_the_seed_even_if_greedy() -> None:
    inner = ScriptedEngine(lambda request: "two")
    choosing = replace(GREEDY, silence=SilenceRule(choice=Choice.FLOOR, floor=0.1))
    await ask(DedupedEngine(inner), choosing, choosing, replace(choosing, seed=GREEDY.seed + 1))
    assert inner.calls == 2


@pytest.mark.parametrize(
    "other",
    [replace(GREEDY, prompt_ids=(1, 3)), replace(GREEDY, sampling=Sampling(max_tokens=7))],
    ids=["another prompt", "another cap"],
)
async def test_what_differs_is_not_mistaken_for_the_same(other: Request) -> None:
    inner = ScriptedEngine(["first", "second"])
    one, two = await ask(DedupedEngine(inner), GREEDY, other)
    assert (one.text, two.text) == ("first", "second")


async def test_draws_are_the_same_with_the_same_seed_alone() -> None:
    inner = ScriptedEngine(["first", "second"])
    drawn = replace(GREEDY, sampling=Sampling(temperature=0.7))
    seeds = [replace(drawn, seed=seed) for seed in (1, 2, 1)]
    assert [a.text for a in await ask(DedupedEngine(inner), *seeds)] == ["first", "second", "first"]


async def test_who_waits_asks_itself_when_the_first_fails_or_is_gone() -> None:
    once = DedupedEngine(ScriptedEngine([EngineError("lost"), "two"], delay=0.01))
    first, second = await asyncio.gather(
        once.generate(GREEDY), once.generate(GREEDY), return_exceptions=True
    )
    assert isinstance(first, EngineError)
    assert isinstance(second, Completion) and second.text == "two"
    slow = DedupedEngine(ScriptedEngine(["never heard", "two"], delay=0.05))
    gone = asyncio.create_task(slow.generate(GREEDY))
    stays = asyncio.create_task(slow.generate(GREEDY))
    await asyncio.sleep(0.01)
    gone.cancel()
    assert (await stays).text == "two"
