"""How rows of the GPU's scheduler are given out, moved and taken back, whatever goes wrong.

Kernels cannot run here: what a row draws is its seed and how many tokens it has drawn, so that a
token tells whose it is. All else, scheduler, block, pages and states, is the real thing.
"""

import asyncio
import importlib
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from tacit.engine.base import Request, Sampling, SilenceRule
from tacit.engine.lora import adapter_parameters, add_adapter, switched_on
from tacit.engine.request_state import RequestState
from tacit.errors import EngineError
from tacit.silence.conditioning import SilenceOdds
from tacit.types import Choice
from tests.helpers.tiny_models import tiny_model

CUDA = "tacit.fast.decode"


class Model:
    """As large as the bookkeeping needs."""

    layers = (None,)
    kv_heads = 1
    width = 2
    vocabulary = 4
    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, *_: Any) -> None: ...

    def refresh(self) -> None: ...


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The scheduler's module, with counting in the place of kernels."""
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    language.constexpr = lambda value: value  # type: ignore[attr-defined]
    triton.jit, triton.language = (lambda kernel: kernel), language  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "triton", triton)
        patched.setitem(sys.modules, "triton.language", language)
        for name in [name for name in sys.modules if name.startswith(CUDA)]:
            patched.delitem(sys.modules, name)
        scheduler = importlib.import_module(f"{CUDA}.scheduler_gpu")
        block = importlib.import_module(f"{CUDA}.rows_gpu")
        draw = importlib.import_module(f"{CUDA}.draw_gpu")
        patched.setattr(scheduler, "FusedModel", Model)
        patched.setattr(draw.Rows, "draw", lambda self, _, which: count_on(draw.Ints, self, which))
        patched.setattr(block.Block, "forward", lambda self, size: torch.zeros(size, 4))
        patched.setattr(block.Block, "_compute", lambda self, pack: computed(pack))
        patched.setattr(block.Block, "odds", lambda self, prompt, _: even_odds(prompt.marker))
        yield scheduler
    for name in [name for name in sys.modules if name.startswith(CUDA)]:
        del sys.modules[name]


def count_on(fields: Any, rows: Any, which: torch.Tensor) -> None:
    step = int(rows.step)
    for row in which.tolist():
        active = bool(rows.ints[fields.ACTIVE, row])
        drawn = int(rows.ints[fields.COUNT, row])
        rows.tokens[step, row] = int(rows.ints[fields.SEED, row]) * 1000 + drawn if active else -1
        rows.ints[fields.COUNT, row] += active
        if drawn + 1 >= rows.ints[fields.LIMIT, row]:
            rows.ints[fields.ACTIVE, row] = 0


def computed(pack: list[Any]) -> None:
    for prompt in pack:
        prompt.logits_NV = torch.zeros(max(1, len(prompt.marker)), 4)


def even_odds(marker: tuple[int, ...]) -> SilenceOdds:
    rest = (*(-0.5,) * len(marker), -torch.inf)
    return SilenceOdds(marker[:-1], marker[-1:], (-1.0,) * len(marker), (-1.0,), rest)


def states(count: int, silent: tuple[int, ...] = (), tokens: int = 20) -> list[RequestState]:
    made = []
    for seed in range(1, count + 1):
        rule = SilenceRule(ids=(1, 2), choice=Choice.SILENT) if seed in silent else None
        sampling = Sampling(temperature=1.0, max_tokens=tokens + seed % 3)
        ids = (seed // 4,) * (14 + seed // 4)
        request = Request(messages=(), prompt_ids=ids, sampling=sampling, seed=seed, silence=rule)
        future = asyncio.get_running_loop().create_future()
        made.append(RequestState(request, frozenset({-5}), future))
    return made


def run(scheduler: Any, asked: list[RequestState], steps: int = 200) -> None:
    scheduler.waiting.extend(asked)
    while scheduler.busy and steps:
        scheduler.step()
        steps -= 1
    assert not scheduler.busy


def is_whole(state: RequestState) -> bool:
    request = state.request
    if request.silence is not None:
        return state.ids == [1, 2]
    limit = request.sampling.max_tokens
    return state.ids == [request.seed * 1000 + number for number in range(limit)]


def new_scheduler(cuda: Any, rows: int, context: int = 256) -> Any:
    made = cuda.GraphScheduler(None, "m", frozenset({-5}), rows, context)
    made.refresh(7)
    return made


@pytest.mark.parametrize("rows", [8, 24, 64])
async def test_everyone_gets_their_own_tokens_and_every_page_comes_back(
    cuda: Any, rows: int
) -> None:
    """Silent ones leave holes among rows that have begun, and rows move together at the end."""
    scheduler = new_scheduler(cuda, rows)
    asked = states(18, silent=(3, 5)) + states(40)
    run(scheduler, asked)
    await asyncio.sleep(0)
    assert all(state.answered.done() for state in asked)
    assert all(map(is_whole, asked))
    assert {state.version for state in asked} == {7}
    block = scheduler._block
    block.prompts.clear()
    assert block.pages.free == len(block.pages._users)


@pytest.mark.parametrize("pages", [1000, 50])
async def test_a_talk_goes_on_from_the_pages_it_has_filled(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """Turn by turn, each prompt the one before and some more; even where old ones must give way."""
    block = importlib.import_module(f"{CUDA}.rows_gpu")
    monkeypatch.setattr(block, "_page_count", lambda model, wanted, least: pages)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(
        block.Block,
        "_compute",
        lambda self, pack: [seen.append((len(p.ids), p.known)) for p in pack] and computed(pack),
    )
    scheduler = new_scheduler(cuda, 8)

    def say(turn: int) -> None:
        asked = states(6, tokens=150)
        for state in asked:
            ids = tuple(range(state.request.seed, state.request.seed + 20 * turn))
            state.request = replace(state.request, prompt_ids=ids)
        run(scheduler, asked)
        assert all(map(is_whole, asked))

    for turn in range(1, 5):
        say(turn)
    if pages == 1000:
        known = [16 * (20 * turn // 16) for turn in range(4)]
        assert seen == [(20 * (n + 1), known[n]) for n in range(4) for _ in range(6)]
    scheduler.refresh(7)
    assert scheduler._block.pages.free == pages
    say(4)
    assert seen[-6:] == [(80, 0)] * 6, "other weights"


@pytest.mark.parametrize("seed", range(6))
def test_rows_only_ever_read_what_was_computed_for_them(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Prompts that begin alike come and go, pages run out, weights change under running rows."""
    module = importlib.import_module(f"{CUDA}.rows_gpu")
    dice, count, rows = random.Random(seed), (20, 30, 40)[seed % 3], 8
    monkeypatch.setattr(module, "_page_count", lambda model, wanted, least: count)
    block = module.Block(Model(), rows, 2, 16, [])
    holds: dict[int, Any] = {}
    running: dict[int, tuple[int, tuple[int, ...]]] = {}
    version, shared, refused = 0, 0, 0
    for _ in range(300):
        if dice.random() < 0.05:
            version += 1
            block.prompts.clear()
        block.prompts.trim(2 * rows)
        for row in [row for row in running if dice.random() < 0.3]:
            block.release(row)
            del running[row]
        picked: list[Any] = []
        for row in set(range(rows)) - running.keys():
            ids = tuple(n for _ in range(7) for n in [dice.randrange(2)] * 15 + [7])
            ids = ids[: dice.choice([5, 16, 17, 32, 33, 64, 100])]
            prompt = block.reserve(row, (ids, ()), len(ids) + dice.randrange(1, 60), picked)
            if prompt is None:
                refused += 1
                break
            picked.append(prompt)
            running[row] = version, ids
        for prompt in picked:
            if prompt.logits_NV is None:
                shared += prompt.known
                for number in range(prompt.known // 16, len(prompt.pages)):
                    holds[prompt.pages[number]] = version, prompt.ids[: 16 * (number + 1)]
                computed([prompt])
        for row, (of, ids) in running.items():
            whole = len(ids) // 16
            read = [holds[page] for page in block._held[row][:whole]]
            assert read == [(of, ids[: 16 * (number + 1)]) for number in range(whole)]
            holds |= dict.fromkeys(block._held[row][whole:], row)
    assert shared and refused
    for row in running:
        block.release(row)
    block.prompts.clear()
    assert block.pages.free == count


@pytest.mark.parametrize("place", ["_compute", "odds", "advance"])
async def test_out_of_memory_anywhere_loses_nobody(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    block = importlib.import_module(f"{CUDA}.rows_gpu").Block
    real, calls = getattr(block, place), []

    def once_too_much(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, *args)

    monkeypatch.setattr(block, place, once_too_much)
    scheduler, asked = new_scheduler(cuda, 16), states(40, silent=(3, 5, 21))
    run(scheduler, asked)
    await asyncio.sleep(0)
    assert all(map(is_whole, asked)) and all(state.answered.done() for state in asked)
    assert scheduler._count == 8


async def test_an_error_in_a_prompt_answers_everyone(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any, pack: Any) -> None:
        raise RuntimeError("a bad kernel")

    monkeypatch.setattr(importlib.import_module(f"{CUDA}.rows_gpu").Block, "_compute", broken)
    scheduler, asked = new_scheduler(cuda, 8), states(20)
    run(scheduler, asked)
    await asyncio.sleep(0)
    for state in asked:
        assert isinstance(state.answered.exception(), EngineError)


async def test_who_does_not_fit_fails_alone(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    block = importlib.import_module(f"{CUDA}.rows_gpu")
    monkeypatch.setattr(block, "_page_count", lambda model, wanted, least: 6)
    scheduler = new_scheduler(cuda, 8, context=4096)
    small, (large, *_) = states(10), states(1, tokens=2000)
    run(scheduler, [*small[:5], large, *small[5:]])
    await asyncio.sleep(0)
    assert all(map(is_whole, small))
    assert "do not fit" in str(large.answered.exception())


async def test_the_cancelled_make_room(cuda: Any) -> None:
    scheduler, asked = new_scheduler(cuda, 8), states(20)
    scheduler.waiting.extend(asked)
    scheduler.step()
    for state in asked[::2]:
        state.cancelled = True
    run(scheduler, [])
    assert all(map(is_whole, asked[1::2]))
    scheduler._block.prompts.clear()
    assert scheduler._block.pages.free == len(scheduler._block.pages._users)


@pytest.mark.parametrize("room", [True, False])
async def test_as_talks_grow_longer_so_do_the_rows_if_there_is_room(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """Those who ask for much begin one after another, so that some row is always at work."""
    if not room:
        block = importlib.import_module(f"{CUDA}.rows_gpu")
        monkeypatch.setattr(block, "_page_count", lambda model, wanted, least: 29)
    scheduler, short, long = new_scheduler(cuda, 8), states(4), states(30, tokens=180)
    scheduler.waiting.extend(short)
    scheduler.step()
    scheduler.waiting.extend(long)
    together = 0
    for _ in range(2000):
        if not scheduler.busy:
            break
        scheduler.step()
        together = max(together, sum(state in long for state in scheduler._rows))
    assert all(map(is_whole, [*short, *long]))
    assert together == (8 if room else 2)
    scheduler._block.prompts.clear()
    assert scheduler._block.pages.free == len(scheduler._block.pages._users)


@pytest.mark.parametrize("targets", [["q_proj", "k_proj", "v_proj"], ["k_proj"], []])
def test_a_projection_is_its_layers_side_by_side_with_the_adapter_of_now(
    cuda: Any, targets: list[str]
) -> None:
    module = tiny_model("qwen2").module
    add_adapter(module, "a", rank=3, alpha=6.0, targets=targets, seed=0)
    attention = module.model.layers[0].self_attn
    layers = [attention.q_proj, attention.k_proj, attention.v_proj]
    made = importlib.import_module(f"{CUDA}.layers_gpu").Projection(layers, "a")
    x = torch.randn(5, module.config.hidden_size)
    for _ in range(2):
        with torch.no_grad(), switched_on(module, "a"):
            for weight in adapter_parameters(module, "a").values():
                weight.normal_()
            made.refresh()
            parts = made.split(made(x))
            for layer, part in zip(layers, parts, strict=True):
                torch.testing.assert_close(part, layer(x))
