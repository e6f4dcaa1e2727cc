import asyncio
import itertools
import math
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tacit.engine.base import Completion, Request, Sampling, SilenceRule
from tacit.engine.forward import forward_of
from tacit.engine.load import LoadedModel
from tacit.engine.local import LocalEngine
from tacit.errors import EngineError, PromptTooLong
from tacit.fast import kv_check
from tacit.types import ChatMessage, Choice, Stop
from tests.helpers.tiny_models import tiny_model

EOS = 2
NO_MESSAGES: tuple[ChatMessage, ...] = ()


def request(
    prompt: tuple[int, ...] = (5, 6, 7),
    *,
    seed: int = 0,
    max_tokens: int = 12,
    silence: SilenceRule | None = None,
    **sampling: float,
) -> Request:
    return Request(
        messages=NO_MESSAGES,
        prompt_ids=prompt,
        sampling=Sampling(max_tokens=max_tokens, **{"temperature": 1.0, **sampling}),  # type: ignore[arg-type]
        seed=seed,
        silence=silence,
    )


@pytest.fixture(params=["llama", "mistral"], ids=["rows", "generate"])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """A model that decodes in rows, and one whose sliding window keeps it from that."""
    return tiny_model(request.param, vocab=8)


@pytest.fixture
async def engine(loaded: LoadedModel) -> AsyncIterator[LocalEngine]:
    engine = LocalEngine(loaded, rows=4)
    yield engine
    await engine.close()


async def all_at_once(engine: LocalEngine, requests: list[Request]) -> list[Completion]:
    return list(await asyncio.gather(*map(engine.generate, requests)))


def logprobs_by_one_pass(
    loaded: LoadedModel, prompt: tuple[int, ...], ids: tuple[int, ...], temperature: float = 1.0
) -> list[float]:
    with torch.no_grad():
        logits = loaded.module(input_ids=torch.tensor([[*prompt, *ids]])).logits[0].double()
    logp = (logits / temperature).log_softmax(-1)
    return [logp[len(prompt) - 1 + t, token].item() for t, token in enumerate(ids)]


def mixed_requests(n: int, vocab: int = 300) -> list[Request]:
    """Lengths over three cache sizes, repeated prompts, every way to draw, silence or not."""
    rng = random.Random(3)
    prompts = [
        tuple(rng.randrange(vocab) for _ in range(rng.choice([3, 17, 60, 150])))
        for _ in range(n // 3)
    ]
    kinds = [
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.2, "top_k": 30},
    ]
    rules = [None, *(SilenceRule(ids=(40, 41, EOS), choice=choice, floor=0.2) for choice in Choice)]
    return [
        request(
            rng.choice(prompts),
            seed=rng.getrandbits(63),
            max_tokens=rng.choice([3, 11, 30]),
            silence=rng.choice(rules),
            **rng.choice(kinds),
        )
        for _ in range(n)
    ]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2"])
async def test_ids_and_logprobs_are_the_same_bits_whatever_the_concurrency(kind: str) -> None:
    loaded, requests = tiny_model(kind), mixed_requests(48)
    engine = LocalEngine(loaded, rows=16)
    together = await all_at_once(engine, requests)
    alone = [await engine.generate(one) for one in requests]
    order = list(range(len(requests)))
    random.Random(5).shuffle(order)
    shuffled = await all_at_once(engine, [requests[i] for i in order])
    await engine.close()
    assert alone == together
    assert shuffled == [together[i] for i in order]
    another = LocalEngine(loaded, rows=16)
    few = asyncio.Semaphore(5)

    async def one_of_few(one: Request) -> Completion:
        async with few:
            return await another.generate(one)

    assert await asyncio.gather(*map(one_of_few, requests)) == together
    await another.close()


async def test_the_bits_are_the_same_whichever_thread_computes_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_check, "_SMALL", 0)  # as for a large model: all threads serve
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        engine = LocalEngine(tiny_model(), rows=8)
        same = await all_at_once(engine, [request(seed=1, temperature=5.0)] * 8)
        await engine.close()
    finally:
        torch.set_num_threads(threads)
    assert len(set(same)) == 1


@pytest.mark.parametrize("sampling", [{"temperature": 1.0}, {"temperature": 0.6}])
async def test_logprobs_are_those_of_a_fresh_pass(
    loaded: LoadedModel, engine: LocalEngine, sampling: dict[str, float]
) -> None:
    for seed in range(6):
        got = await engine.generate(request(seed=seed, **sampling))
        expected = logprobs_by_one_pass(loaded, (5, 6, 7), got.ids, sampling["temperature"])
        assert got.logprobs == pytest.approx(expected, abs=1e-4)


async def test_greedy_follows_the_largest_logit(loaded: LoadedModel, engine: LocalEngine) -> None:
    got = await engine.generate(request(temperature=0.0, max_tokens=9))
    ids: list[int] = []
    with torch.no_grad():
        while len(ids) < 9 and EOS not in ids:
            logits = loaded.module(input_ids=torch.tensor([[5, 6, 7, *ids]])).logits[0, -1]
            ids.append(int(logits.argmax()))
    assert list(got.ids) == ids
    assert got.logprobs == pytest.approx(logprobs_by_one_pass(loaded, (5, 6, 7), got.ids), abs=1e-4)


async def test_a_completion_says_how_it_ended_and_what_it_used(engine: LocalEngine) -> None:
    completions = await all_at_once(
        engine, [request(seed=seed, max_tokens=4) for seed in range(60)]
    )
    for got in completions:
        assert len(got.logprobs) == len(got.ids) == got.usage.generated <= 4
        assert got.usage.prompt == 3
        if got.stop is Stop.EOS:
            assert got.ids[-1] == EOS and EOS not in got.ids[:-1]
            assert "<|im_end|>" not in got.text
        else:
            assert EOS not in got.ids and len(got.ids) == 4
    assert {got.stop for got in completions} == {Stop.EOS, Stop.LENGTH}


async def test_other_ends_of_the_generation_config_count_too() -> None:
    loaded = tiny_model(vocab=8)
    loaded.module.generation_config.eos_token_id = [EOS, 4]
    engine = LocalEngine(loaded, rows=4)
    completions = await all_at_once(engine, [request(seed=seed) for seed in range(40)])
    await engine.close()
    assert {got.ids[-1] for got in completions if got.stop is Stop.EOS} == {EOS, 4}


def brute_force(
    loaded: LoadedModel, length: int, ends: tuple[int, ...] = (EOS,)
) -> dict[tuple[int, ...], float]:
    """log π of everything the model of eight tokens can say within the length."""
    spoken = {}
    for n in range(1, length + 1):
        tried = list(itertools.product(range(8), repeat=n))
        with torch.no_grad():
            logits = loaded.module(
                input_ids=torch.tensor([(5, 6, 7, *ids) for ids in tried])
            ).logits
        logp = logits.double().log_softmax(-1)[:, 2:-1]
        chosen = logp.gather(-1, torch.tensor(tried)[..., None]).sum((1, 2)).tolist()
        for ids, logprob in zip(tried, chosen, strict=True):
            if not {*ends} & {*ids[:-1]} and (ids[-1] in ends or n == length):
                spoken[ids] = logprob
    return spoken


async def test_silence_and_speech_against_everything_that_can_be_said(
    loaded: LoadedModel, engine: LocalEngine
) -> None:
    said = brute_force(loaded, 3)
    assert math.fsum(map(math.exp, said.values())) == pytest.approx(1.0, abs=1e-4)
    # the likeliest marker, so that silence is worth something
    silence = max((ids for ids in said if ids[-1] == EOS and len(ids) == 3), key=said.__getitem__)
    p = math.exp(said[silence])
    for choice in (Choice.FREE, Choice.SPEAK, Choice.SILENT):
        rule = SilenceRule(ids=silence, choice=choice)
        requests = [request(seed=seed, max_tokens=3, silence=rule) for seed in range(80)]
        for got in await all_at_once(engine, requests):
            assert got.silence_logprob == pytest.approx(said[silence], abs=1e-4)
            expected = said[got.ids] - (math.log1p(-p) if choice is Choice.SPEAK else 0.0)
            assert math.fsum(got.logprobs) == pytest.approx(expected, abs=1e-4)
            if got.ids == silence:
                assert choice is not Choice.SPEAK
                assert math.fsum(got.logprobs) == got.silence_logprob
            else:
                assert choice is not Choice.SILENT


@pytest.mark.parametrize("ends", [(EOS,), (EOS, 5)], ids=["one end", "two ends"])
async def test_speech_is_drawn_as_often_as_it_should(ends: tuple[int, ...]) -> None:
    loaded = tiny_model(vocab=8)
    said = brute_force(loaded, 2, ends)
    silence = max((ids for ids in said if ids[-1] == EOS and len(ids) == 2), key=said.__getitem__)
    silences = [(silence[0], end) for end in ends]
    loaded.module.generation_config.eos_token_id = list(ends)
    engine = LocalEngine(loaded, rows=64)
    n, p = 1500, math.fsum(math.exp(said[ids]) for ids in silences)
    for choice in (Choice.FREE, Choice.SPEAK, Choice.FLOOR):
        rule = SilenceRule(ids=silence, choice=choice, floor=0.3)
        requests = [request(seed=seed, max_tokens=2, silence=rule) for seed in range(n)]
        drawn = [got.ids for got in await all_at_once(engine, requests)]
        silent = {Choice.FREE: p, Choice.SPEAK: 0.0, Choice.FLOOR: max(p, 0.3)}[choice]
        for ids, logprob in said.items():
            chosen = silent / p if ids in silences else (1 - silent) / (1 - p)
            share = math.exp(logprob) * chosen
            spread = 5 * math.sqrt(n * share * (1 - share)) + 1
            assert abs(drawn.count(ids) - n * share) <= spread, (choice, ids)
    await engine.close()


async def test_greedy_speech_is_the_likeliest_that_is_not_silence(
    loaded: LoadedModel, engine: LocalEngine
) -> None:
    free = await engine.generate(request(temperature=0.0, max_tokens=1))
    silence = (free.ids[0], EOS)
    rule = SilenceRule(ids=(EOS,) if free.ids[0] == EOS else silence, choice=Choice.SPEAK)
    got = await engine.generate(request(temperature=0.0, max_tokens=6, silence=rule))
    assert got.ids != rule.ids
    assert got.silence_logprob is not None


@pytest.mark.parametrize("silent", [True, False])
async def test_who_answers_greedily_is_silent_from_its_threshold_on(
    engine: LocalEngine, silent: bool
) -> None:
    ids = (3, 4, EOS)
    plain = await engine.generate(request(silence=SilenceRule(ids=ids)))
    assert plain.silence_logprob is not None
    above = math.exp(plain.silence_logprob) * (0.99 if silent else 1.01)
    rule = SilenceRule(ids=ids, silent_above=above)
    got = await engine.generate(request(temperature=0.0, silence=rule))
    assert (got.ids == ids) is silent


async def test_nothing_but_silence_left_is_an_error(
    loaded: LoadedModel, engine: LocalEngine
) -> None:
    likeliest = (await engine.generate(request(temperature=0.0, max_tokens=1))).ids[0]
    loaded.module.generation_config.eos_token_id = likeliest
    ending = LocalEngine(loaded, rows=4)
    rule = SilenceRule(ids=(likeliest,), choice=Choice.SPEAK)
    with pytest.raises(EngineError, match="nothing to say but silence"):
        await ending.generate(request(top_k=1, silence=rule))
    await ending.close()


async def test_lengths_are_checked_before_any_forward_pass() -> None:
    loaded = tiny_model()
    loaded.module.forward = None  # a forward pass would fail with a TypeError
    engine = LocalEngine(loaded, rows=2, context=20)
    with pytest.raises(PromptTooLong, match="15 tokens and max_tokens 6 exceed the context of 20"):
        await engine.generate(request(tuple(range(15)), max_tokens=6))
    with pytest.raises(EngineError, match="silence alone takes 3 tokens"):
        await engine.generate(request(max_tokens=2, silence=SilenceRule(ids=(3, 4, EOS))))
    with pytest.raises(EngineError, match="needs prompt ids"):
        await engine.generate(request(()))
    with pytest.raises(EngineError, match="silence rule needs ids"):
        await engine.generate(request(silence=SilenceRule()))
    await engine.close()


async def test_equal_prompts_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny_model()
    forward, computed = forward_of(loaded.module), []
    prefill = forward.prefill

    def counted(prompt: tuple[int, ...], *args: Any, **more: Any) -> Any:
        computed.append(prompt)
        return prefill(prompt, *args, **more)

    monkeypatch.setattr(forward, "prefill", counted)
    engine = LocalEngine(loaded, rows=4)
    await all_at_once(engine, [request(seed=seed) for seed in range(10)])
    assert computed.count((5, 6, 7)) == 1
    await engine.close()


async def test_a_broken_pass_fails_its_requests_and_no_others() -> None:
    loaded = tiny_model()
    engine = LocalEngine(loaded, rows=2)
    before = await engine.generate(request())
    head, calls = loaded.module.lm_head, itertools.count()
    forward = head.forward

    def breaks(*args: object, **kwargs: object) -> object:
        if next(calls) == 4:
            raise RuntimeError("out of luck")
        return forward(*args, **kwargs)

    head.forward = breaks
    results = await asyncio.gather(
        *(engine.generate(request((9, seed), seed=seed, max_tokens=8)) for seed in range(2)),
        return_exceptions=True,
    )
    assert [str(error) for error in results] == ["RuntimeError: out of luck"] * 2
    assert all(isinstance(error, EngineError) for error in results)
    assert await engine.generate(request()) == before
    await engine.close()


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("tacit.fast.scheduler_rows.RowBlock", torch.OutOfMemoryError("tried to allocate 7 TiB")),
        ("tacit.fast.forward_rows.why_not_rows", torch.OutOfMemoryError("tried to allocate 7 TiB")),
        (
            "tacit.fast.forward_rows.DynamicCache",
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        ),
        ("tacit.fast.forward_rows.DynamicCache", RuntimeError("CUDA error: out of memory")),
    ],
)
async def test_without_room_everyone_is_told_and_nobody_waits_for_ever(
    place: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise error

    engine = LocalEngine(tiny_model(), rows=2)
    with monkeypatch.context() as patched:
        patched.setattr(place, no_room)
        asked = asyncio.gather(
            *(engine.generate(request((9, seed), seed=seed)) for seed in range(3)),
            return_exceptions=True,
        )
        results = await asyncio.wait_for(asked, timeout=60)
    assert all(isinstance(error, EngineError) for error in results)
    assert {str(error) for error in results} == {
        "out of memory: lower the model's `rows` or the agents' max_tokens"
    }
    assert (await engine.generate(request())).ids, "and it goes on"
    await engine.close()


async def test_logits_that_are_not_numbers_are_an_error() -> None:
    loaded = tiny_model()
    loaded.module.lm_head.weight.data.fill_(math.nan)
    engine = LocalEngine(loaded, rows=2)
    with pytest.raises(EngineError, match="not numbers"):
        await engine.generate(request())
    await engine.close()


async def test_cancelling_frees_the_row() -> None:
    engine = LocalEngine(tiny_model(), rows=1)
    long = asyncio.create_task(engine.generate(request(max_tokens=400, temperature=50.0)))
    await asyncio.sleep(0.05)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert (await engine.generate(request(max_tokens=2))).usage.generated <= 2
    await engine.close()


async def test_closing_fails_what_is_under_way_and_ends_the_thread() -> None:
    loaded = tiny_model()
    engine = LocalEngine(loaded, rows=1)
    tasks = [
        asyncio.create_task(engine.generate(request(max_tokens=450, temperature=50.0, seed=seed)))
        for seed in range(3)
    ]
    await asyncio.sleep(0.05)
    await engine.close()
    for task in tasks:
        with pytest.raises(EngineError, match="closed"):
            await task
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(request())
    await engine.close()
    assert not any(thread.name == "tacit-engine" for thread in threading.enumerate())


async def test_no_pass_runs_while_paused_and_new_weights_are_used_after(
    loaded: LoadedModel, engine: LocalEngine
) -> None:
    before = await engine.generate(request(temperature=0.0))
    async with engine.paused():
        waiting = asyncio.create_task(engine.generate(request(temperature=0.0)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        other = tiny_model(loaded.module.config.model_type, vocab=8, seed=1)
        loaded.module.load_state_dict(other.module.state_dict())
        engine.version = 7
    after = await waiting
    fresh = LocalEngine(other, rows=4)
    expected = await fresh.generate(request(temperature=0.0))
    await fresh.close()
    assert (before.version, after.version) == (0, 7)
    assert (after.ids, after.logprobs) == (expected.ids, expected.logprobs)
    assert after.logprobs != before.logprobs


async def test_engines_that_share_a_model_each_activate_their_own_weights() -> None:
    loaded = tiny_model()
    weight = loaded.module.lm_head.weight

    @contextmanager
    def adapter() -> Iterator[None]:
        weight.data.mul_(2.0)  # exact, so that halving restores every bit
        try:
            yield
        finally:
            weight.data.mul_(0.5)

    base = LocalEngine(loaded, rows=4)
    trained = LocalEngine(loaded, rows=4, policy="hinter", activate=adapter)
    requests = [request(seed=seed) for seed in range(6)]
    mixed = await asyncio.gather(all_at_once(base, requests), all_at_once(trained, requests))
    assert mixed[0] == await all_at_once(base, requests)
    assert mixed[1] == [await trained.generate(one) for one in requests]
    assert all(a.logprobs != b.logprobs for a, b in zip(*mixed, strict=True))
    await trained.close()
    assert await all_at_once(base, requests) == mixed[0]
    await base.close()
