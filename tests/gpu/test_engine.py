"""The local engine on a GPU: what it draws is what the model itself would, whatever the batch."""

import asyncio
from typing import Any

import pytest
import torch

from tacit.engine.base import Completion, Request, Sampling, SilenceRule, derive_seed
from tacit.engine.load import LoadedModel
from tacit.engine.local import LocalEngine
from tacit.engine.lora import adapter_parameters, add_adapter, switched_on
from tacit.types import ChatMessage, Choice
from tests.helpers.tiny_models import tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
FAMILIES = ("llama", "qwen2", "qwen3", "smollm3")


def on_gpu(loaded: LoadedModel, dtype: torch.dtype = torch.float32) -> LoadedModel:
    torch.backends.cuda.matmul.allow_tf32 = False
    return LoadedModel(loaded.module.to("cuda", dtype), loaded.tokenizer, loaded.name)


def requests(engine: LocalEngine, count: int, **changed: Any) -> list[Request]:
    """Groups of four with the same prompt; greedy, tempered and plain; some may be silent."""
    made = []
    for number in range(count):
        words = f"what is {number // 4} + {number // 4}? " * (1 + number % 7 // 4)
        messages = (ChatMessage("user", words),)
        choice = [Choice.FREE, Choice.SPEAK, Choice.FLOOR, Choice.SILENT][number // 3 % 4]
        rule = SilenceRule(ids=engine.silence_ids(), choice=choice, floor=0.1)
        settings = {
            "temperature": [0.0, 1.0, 0.7, 1.0][number % 4],
            "top_p": 0.9 if number % 5 == 4 else 1.0,
            "max_tokens": 24 + number % 3,
        }
        made.append(
            Request(
                messages=messages,
                prompt_ids=engine.encode(messages),
                sampling=Sampling(**{**settings, **changed}),
                seed=derive_seed(number),
                silence=rule if number % 3 == 0 else None,
            )
        )
    return made


async def ask(engine: LocalEngine, asked: list[Request]) -> list[Completion]:
    try:
        return await asyncio.gather(*(engine.generate(one) for one in asked))
    finally:
        await engine.close()


def decodes_by_graphs(engine: LocalEngine) -> bool:
    return type(engine._scheduler).__name__ == "GraphScheduler"


@pytest.mark.parametrize("family", FAMILIES)
async def test_graphs_draw_what_the_cpu_draws(family: str) -> None:
    """Same weights in float32, same seeds: the same ids, and log-probabilities to rounding."""
    cpu = LocalEngine(tiny_model(family), rows=8)
    gpu = LocalEngine(on_gpu(tiny_model(family)), rows=16)
    expected = await ask(cpu, requests(cpu, 60))
    asked = requests(gpu, 60)
    futures = [asyncio.create_task(gpu.generate(one)) for one in asked]
    seen = await asyncio.gather(*futures)
    assert decodes_by_graphs(gpu)
    await gpu.close()
    assert [one.ids for one in seen] == [one.ids for one in expected]
    assert [one.stop for one in seen] == [one.stop for one in expected]
    for mine, theirs in zip(seen, expected, strict=True):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
        assert mine.silence_logprob == pytest.approx(theirs.silence_logprob, abs=1e-3)


@pytest.mark.parametrize("ends", [[2], [2, 5]], ids=["one end", "two ends"])
async def test_speech_that_begins_like_silence_ends_with_none_of_the_ends(ends: list[int]) -> None:
    """A marker of one likely token, so that many messages come to where any end is silence."""
    both = [tiny_model(vocab=32), on_gpu(tiny_model(vocab=32))]
    prompt = (5, 6, 7)
    with torch.no_grad():
        likeliest = int(both[0].module(torch.tensor([prompt])).logits[0, -1].argmax())
    assert likeliest not in ends
    rule = SilenceRule(ids=(likeliest, 2), choice=Choice.SPEAK)
    asked = [
        Request(
            messages=(),
            prompt_ids=prompt,
            sampling=Sampling(temperature=0.0 if seed % 10 == 0 else 1.0, max_tokens=4),
            seed=derive_seed(seed),
            silence=rule,
        )
        for seed in range(300)
    ]
    said = []
    for loaded in both:
        loaded.module.generation_config.eos_token_id = ends
        said.append(await ask(LocalEngine(loaded, rows=16), asked))
    cpu, gpu = said
    assert [one.ids for one in gpu] == [one.ids for one in cpu]
    for mine, theirs in zip(gpu, cpu, strict=True):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)
        assert not (mine.ids[0] == likeliest and mine.ids[1] in ends)
    assert sum(one.ids[0] == likeliest for one in gpu) > 30


@pytest.mark.parametrize("family", FAMILIES)
async def test_greedy_is_what_generate_gives(family: str) -> None:
    loaded = on_gpu(tiny_model(family))
    engine = LocalEngine(loaded, rows=16)
    asked = [one for one in requests(engine, 40, temperature=0.0) if one.silence is None]
    seen = await ask(engine, asked)
    for request, mine in zip(asked, seen, strict=True):
        prompt = torch.tensor([request.prompt_ids], device="cuda")
        theirs = loaded.module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=request.sampling.max_tokens,
            pad_token_id=0,
        )
        assert mine.ids == tuple(theirs[0, prompt.shape[1] :].tolist())


@pytest.mark.parametrize("family", FAMILIES)
async def test_sampled_logprobs_are_the_models_own_in_half_precision(family: str) -> None:
    loaded = on_gpu(tiny_model(family), torch.bfloat16)
    engine = LocalEngine(loaded, rows=16)
    asked = [one for one in requests(engine, 40, temperature=1.0, top_p=1.0) if one.silence is None]
    seen = await ask(engine, asked)
    exact = tiny_model(family).module.to("cuda").to(torch.bfloat16).float()
    for request, mine in zip(asked, seen, strict=True):
        whole = torch.tensor([[*request.prompt_ids, *mine.ids]], device="cuda")
        with torch.no_grad():
            logp = (
                exact(input_ids=whole).logits[0, len(request.prompt_ids) - 1 : -1].log_softmax(-1)
            )
        expected = logp.gather(-1, torch.tensor(mine.ids, device="cuda")[:, None])[:, 0]
        assert mine.logprobs == pytest.approx(expected.tolist(), abs=0.3)
        gap = (torch.tensor(mine.logprobs) - expected.cpu()).abs().mean()
        assert gap < 0.05


async def test_an_adapter_is_seen_at_once_and_the_base_is_left_alone() -> None:
    loaded = on_gpu(tiny_model("qwen2"))
    module = loaded.module
    targets = ["q_proj", "v_proj", "gate_proj", "down_proj"]
    add_adapter(module, "team", rank=4, alpha=8.0, targets=targets, seed=0)
    frozen = LocalEngine(loaded, rows=8)
    trained = LocalEngine(loaded, rows=8, activate=lambda: switched_on(module, "team"))
    asked = requests(frozen, 12, temperature=0.0)
    plain = await asyncio.gather(*(frozen.generate(one) for one in asked))
    untrained = await asyncio.gather(*(trained.generate(one) for one in asked))
    assert [one.ids for one in untrained] == [one.ids for one in plain]
    async with trained.paused():
        with torch.no_grad():
            for weight in adapter_parameters(module, "team").values():
                weight += 0.3 * torch.randn(
                    weight.shape, generator=torch.Generator().manual_seed(1)
                ).to(weight)
        trained.version += 1
    after = await asyncio.gather(*(trained.generate(one) for one in asked))
    still = await asyncio.gather(*(frozen.generate(one) for one in asked))
    assert [one.ids for one in still] == [one.ids for one in plain]
    assert [one.ids for one in after] != [one.ids for one in plain]
    assert {one.version for one in after} == {1}
    with switched_on(module, "team"):
        for request, mine in zip(asked, after, strict=True):
            whole = torch.tensor([[*request.prompt_ids, *mine.ids]], device="cuda")
            with torch.no_grad():
                logits = module(input_ids=whole).logits[0, len(request.prompt_ids) - 1 : -1]
            logp = logits.log_softmax(-1).gather(-1, torch.tensor([mine.ids], device="cuda").T)
            if request.silence is None:
                assert mine.logprobs == pytest.approx(logp[:, 0].tolist(), abs=2e-3)
    await frozen.close()
    await trained.close()


async def test_out_of_memory_halves_the_rows_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tacit.fast.decode.rows_gpu import Block

    calm = LocalEngine(on_gpu(tiny_model()), rows=32)
    expected = await ask(calm, requests(calm, 60))
    advance, calls = Block.advance, []

    def sometimes_too_much(self: Block, *args: Any) -> None:
        calls.append(len(self._held))
        if len(calls) == 3:
            raise torch.OutOfMemoryError("out of memory")
        advance(self, *args)

    monkeypatch.setattr(Block, "advance", sometimes_too_much)
    engine = LocalEngine(on_gpu(tiny_model()), rows=32)
    seen = await ask(engine, requests(engine, 60))
    assert [one.ids for one in seen] == [one.ids for one in expected]
    assert calls[0] == 32 and calls[-1] == 16
    assert "going on with 16 rows" in caplog.text


async def test_a_pool_too_small_for_all_rows_still_serves_everyone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tacit.fast.decode import rows_gpu as block

    calm = LocalEngine(on_gpu(tiny_model()), rows=32)
    expected = await ask(calm, requests(calm, 60))
    monkeypatch.setattr(block, "_page_count", lambda model, wanted, least: 3 * least // 2)
    engine = LocalEngine(on_gpu(tiny_model()), rows=32)
    seen = await ask(engine, requests(engine, 60))
    assert [one.ids for one in seen] == [one.ids for one in expected]


async def test_rows_grow_with_the_talks_and_nothing_drawn_is_lost() -> None:
    calm = LocalEngine(on_gpu(tiny_model()), rows=64)
    short = requests(calm, 4)  # so that a long one begins beside them
    long = requests(calm, 40, max_tokens=300, temperature=1.0, top_p=1.0)
    expected = [*await asyncio.gather(*map(calm.generate, long)), *await ask(calm, short)]
    engine = LocalEngine(on_gpu(tiny_model()), rows=16)
    first = [asyncio.create_task(engine.generate(one)) for one in short]
    await asyncio.sleep(0.001)  # the rows are made for these
    seen = [*await asyncio.gather(*map(engine.generate, long)), *await asyncio.gather(*first)]
    await engine.close()
    assert [one.ids for one in seen] == [one.ids for one in expected]


async def test_cancelled_requests_give_their_rows_back() -> None:
    engine = LocalEngine(on_gpu(tiny_model()), rows=8)
    asked = requests(engine, 24, max_tokens=300, temperature=1.0)
    tasks = [asyncio.create_task(engine.generate(one)) for one in asked]
    await asyncio.sleep(0.5)
    for task in tasks[:20]:
        task.cancel()
    done = await asyncio.gather(*tasks[20:])
    assert len(done) == 4
    again = await asyncio.gather(*(engine.generate(one) for one in asked[20:]))
    assert [one.ids for one in again] == [one.ids for one in done]
    await engine.close()


async def test_other_architectures_still_decode(caplog: pytest.LogCaptureFixture) -> None:
    engine = LocalEngine(on_gpu(tiny_model("gpt2")), rows=8)
    seen = await ask(engine, requests(engine, 6))
    assert all(one.ids for one in seen)
    assert "decodes without graphs" in caplog.text


@pytest.mark.parametrize("rows", [24, 64])
async def test_the_number_of_rows_changes_nothing(rows: int) -> None:
    """Silent ones leave holes, and what is left moves together into smaller graphs."""
    cpu = LocalEngine(tiny_model(), rows=8)
    gpu = LocalEngine(on_gpu(tiny_model()), rows=rows)
    expected, seen = await ask(cpu, requests(cpu, 90)), await ask(gpu, requests(gpu, 90))
    assert [one.ids for one in seen] == [one.ids for one in expected]


async def test_edges_of_pages_and_of_the_context() -> None:
    """Prompts of whole pages, a single token to draw, a sequence that fills the context."""
    cpu, gpu = LocalEngine(tiny_model(), rows=8), LocalEngine(on_gpu(tiny_model()), rows=16)
    asked = [
        Request(
            messages=(),
            prompt_ids=tuple(5 + place % 200 for place in range(length)),
            sampling=Sampling(temperature=1.0, max_tokens=new),
            seed=derive_seed(length, new),
        )
        for length in (1, 15, 16, 17, 31, 32, 33, 64)
        for new in (1, 2, 16, 17, 512 - length)
    ]
    expected, seen = await ask(cpu, asked), await ask(gpu, asked)
    assert [one.ids for one in seen] == [one.ids for one in expected]


@pytest.mark.parametrize("family", FAMILIES)
async def test_prompts_that_go_on_from_others_are_not_computed_twice(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some turns after one another, some at once; silence is weighed behind what is shared."""
    from tacit.fast.decode import rows_gpu as block

    cpu, gpu = LocalEngine(tiny_model(family), rows=8), LocalEngine(on_gpu(tiny_model(family)))
    known: list[int] = []
    real = block.Block._compute

    def watched(self: Any, pack: Any) -> None:
        known.extend(prompt.known for prompt in pack)
        real(self, pack)

    monkeypatch.setattr(block.Block, "_compute", watched)
    silence = SilenceRule(ids=cpu.silence_ids(), choice=Choice.FREE)
    turns = [
        [
            Request(
                messages=(),
                prompt_ids=tuple(5 + (who * place) % 200 for place in range(length)),
                sampling=Sampling(temperature=1.0, max_tokens=30),
                seed=derive_seed(who, length),
                silence=silence if who % 2 else None,
            )
            for who in range(1, 5)
            for length in lengths
        ]
        for lengths in ((20, 40), (60, 61), (200, 48))
    ]
    for turn in turns:
        expected = await asyncio.gather(*map(cpu.generate, turn))
        seen = await asyncio.gather(*map(gpu.generate, turn))
        assert [one.ids for one in seen] == [one.ids for one in expected]
        for mine, theirs in zip(seen, expected, strict=True):
            assert mine.silence_logprob == pytest.approx(theirs.silence_logprob, abs=1e-3)
    await cpu.close()
    await gpu.close()
    assert {0, 16, 32, 48} <= set(known)


async def test_biases_count() -> None:
    def biased() -> LoadedModel:
        loaded = tiny_model("qwen2")
        dice = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, weight in loaded.module.named_parameters():
                if name.endswith("bias"):
                    weight += torch.randn(weight.shape, generator=dice)
        return loaded

    cpu, gpu = LocalEngine(biased(), rows=8), LocalEngine(on_gpu(biased()), rows=16)
    expected, seen = await ask(cpu, requests(cpu, 24)), await ask(gpu, requests(gpu, 24))
    assert [one.ids for one in seen] == [one.ids for one in expected]
