"""The vllm engine over a server that draws from a Markov chain; `test_vllm.py` has vLLM itself."""

import asyncio
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tacit.config import ModelConfig
from tacit.engine.base import Completion, Request, Sampling, SilenceRule
from tacit.engine.chat import Chat
from tacit.engine.factory import open_engine
from tacit.errors import ConfigError, EngineError, PromptTooLong
from tacit.silence.conditioning import condition_on_speech, silence_odds
from tacit.types import Choice, Stop
from tacit.vllm.server import Drawn, Export
from tacit.vllm.vllm_engine import ServedModel, VllmEngine
from tests.helpers.tiny_models import tiny_tokenizer

OTHER_END = 250
CHAT = Chat(tiny_tokenizer(), "chain", OTHER_END)
MARKER = CHAT.silence_ids()
WORDS = (200, 201)
PROMPT = (7, 8, 9)


def chain(seed: int, lean: float = 3.0) -> torch.Tensor:
    """log π(next | last) of a chain that knows a few tokens and leans towards the marker."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.full((300, 300), -torch.inf, dtype=torch.float64)
    known = [*dict.fromkeys(MARKER), OTHER_END, *WORDS]
    logits[:, known] = torch.randn(300, len(known), generator=generator, dtype=torch.float64)
    for last, following in zip((PROMPT[-1], *MARKER), MARKER, strict=False):
        logits[last, following] += lean
    return logits.log_softmax(-1)


def tempered(row: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    return (row / (sampling.temperature or 1.0)).log_softmax(-1)


class ChainServer:
    """Everything that an engine asks of vLLM, from a table of transitions."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.asked = Counter[str]()
        self.entered = asyncio.Event()
        self.go_on: asyncio.Event | None = None
        self.closed = 0

    async def draw(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        stops: frozenset[int],
        banned: Sequence[int] = (),
        adapter: Any = None,
    ) -> Drawn:
        self.asked["draw"] += 1
        self.entered.set()
        if self.go_on:
            await self.go_on.wait()
        table = self.table if adapter is None else adapter
        generator = torch.Generator().manual_seed(seed)
        drawn: list[int] = []
        logprobs: list[float] = []
        while len(drawn) < sampling.max_tokens and not (drawn and drawn[-1] in stops):
            row = tempered(table[[*ids, *drawn][-1]], sampling)
            row[list(banned)] = -torch.inf
            row = row.log_softmax(-1)
            greedy = sampling.temperature == 0.0
            one = row.argmax() if greedy else torch.multinomial(row.exp(), 1, generator=generator)
            drawn.append(int(one))
            logprobs.append(float(row[drawn[-1]]))
        stop = Stop.EOS if drawn[-1] in stops else Stop.LENGTH
        return Drawn(tuple(drawn), tuple(logprobs), stop)

    async def weigh(
        self, ids: Sequence[int], then: Sequence[int], sampling: Sampling, *, adapter: Any = None
    ) -> tuple[float, ...]:
        self.asked["weigh"] += 1
        table = self.table if adapter is None else adapter
        pairs = zip((ids[-1], *then), then, strict=False)
        rows = [(tempered(table[before], sampling), after) for before, after in pairs]
        return tuple(float(row[after]) for row, after in rows)

    async def adapt(self, export: Export, old: Any = None) -> Any:
        return self._read(export)

    async def replace(self, export: Export) -> None:
        self.table = self._read(export)

    async def close(self) -> None:
        self.closed += 1

    @staticmethod
    def _read(export: Export) -> torch.Tensor:
        with tempfile.TemporaryDirectory() as folder:
            export(Path(folder))
            return load_file(Path(folder) / "table.safetensors")["table"]


def exported(seed: int) -> Export:
    return lambda folder: save_file({"table": chain(seed)}, folder / "table.safetensors")


def engine_of(server: ChainServer, **settings: Any) -> VllmEngine:
    return VllmEngine(ServedModel(server, CHAT, name="chain", context=40), **settings)


def request(
    choice: Choice | None = None, *, seed: int = 0, temperature: float = 1.0, **sampling: Any
) -> Request:
    settings = {"max_tokens": len(MARKER) + 2, "temperature": temperature, **sampling}
    return Request(
        messages=(),
        prompt_ids=PROMPT,
        sampling=Sampling(**settings),
        seed=seed,
        silence=None if choice is None else SilenceRule(ids=MARKER, choice=choice, floor=0.1),
    )


def log_pi(table: torch.Tensor, ids: Sequence[int]) -> list[float]:
    before = (PROMPT[-1], *ids)
    return [float(table[last, token]) for last, token in zip(before, ids, strict=False)]


def is_silent(ids: tuple[int, ...]) -> bool:
    return ids[:-1] == MARKER[:-1] and ids[-1] in CHAT.eos_ids


def log_silence(table: torch.Tensor) -> float:
    each = [math.fsum(log_pi(table, (*MARKER[:-1], end))) for end in CHAT.eos_ids]
    return math.log(math.fsum(map(math.exp, each)))


async def many(engine: VllmEngine, make: Callable[[int], Request], count: int) -> list[Completion]:
    return list(await asyncio.gather(*(engine.generate(make(seed)) for seed in range(count))))


async def test_a_weighing_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ChainServer(chain(0))
    engine = engine_of(server)
    with monkeypatch.context() as patched:

        async def broken(*_: Any, **__: Any) -> Any:
            raise EngineError("the server is down")

        patched.setattr(server, "weigh", broken)
        with pytest.raises(EngineError, match="down"):
            await engine.generate(request(Choice.FREE, seed=1))
    assert (await engine.generate(request(Choice.FREE, seed=1))).ids


@pytest.mark.parametrize("temperature", [1.0, 0.5])
async def test_speech_is_drawn_from_the_policy_given_that_it_is_not_silence(
    temperature: float,
) -> None:
    n = 3000
    server = ChainServer(chain(0))
    engine = engine_of(server)
    table = (server.table / temperature).log_softmax(-1)
    log_p = log_silence(table)
    assert 0.2 < math.exp(log_p) < 0.9, "the chain should often be silent"
    done = await many(
        engine, lambda seed: request(Choice.SPEAK, seed=seed, temperature=temperature), n
    )
    assert server.asked["weigh"] == 1 + len(CHAT.eos_ids), "one prompt is weighed once"
    assert server.asked["draw"] > n, "some free draws were silent"
    for one in done:
        assert not is_silent(one.ids)
        assert one.silence_logprob == pytest.approx(log_p)
        expected = math.fsum(log_pi(table, one.ids)) - math.log1p(-math.exp(log_p))
        assert math.fsum(one.logprobs) == pytest.approx(expected)
        assert len(one.logprobs) == len(one.ids)
    counts = Counter(one.ids for one in done)
    for ids, count in counts.most_common(20):
        q = math.exp(math.fsum(log_pi(table, ids)) - math.log1p(-math.exp(log_p)))
        assert abs(count - n * q) < 5 * math.sqrt(n * q), ids
    assert any(ids[:2] == MARKER[:2] for ids in counts), "some leave the marker late"


async def test_what_is_drawn_freely_is_the_policys_own() -> None:
    table, n = chain(1), 3000
    engine = engine_of(ChainServer(table))
    done = await many(engine, lambda seed: request(Choice.FREE, seed=seed), n)
    log_p = log_silence(table)
    silent = sum(is_silent(one.ids) for one in done)
    assert abs(silent - n * math.exp(log_p)) < 5 * math.sqrt(n * math.exp(log_p))
    for one in done:
        assert one.logprobs == pytest.approx(tuple(log_pi(table, one.ids)))
        assert one.silence_logprob == pytest.approx(log_p)
        assert one.stop is (Stop.EOS if one.ids[-1] in CHAT.eos_ids else Stop.LENGTH)


async def test_silence_that_is_played_costs_no_draw() -> None:
    table = chain(0)
    server = ChainServer(table)
    done = await engine_of(server).generate(request(Choice.SILENT))
    assert is_silent(done.ids) and done.text == "<silent>" and done.stop is Stop.EOS
    assert done.logprobs == pytest.approx(tuple(log_pi(table, done.ids)))
    assert server.asked["draw"] == 0


async def test_a_floored_choice_keeps_both_alive() -> None:
    n = 1000
    engine = engine_of(ChainServer(chain(0, lean=20.0)))
    done = await many(engine, lambda seed: request(Choice.FLOOR, seed=seed), n)
    spoken = sum(not is_silent(one.ids) for one in done)
    assert abs(spoken - 0.1 * n) < 5 * math.sqrt(0.1 * n), "silence is all but certain otherwise"


@pytest.mark.parametrize("seed", range(6))
async def test_greedy_speech_takes_the_likeliest_token_at_each_step(seed: int) -> None:
    table = chain(seed, lean=1.0 + seed)
    done = await engine_of(ChainServer(table)).generate(request(Choice.SPEAK, temperature=0.0))
    along = torch.stack([table[last] for last in (PROMPT[-1], *MARKER[:-1])])
    odds = silence_odds(along[None], MARKER[:-1], sorted(CHAT.eos_ids))[0]
    ids: list[int] = []
    while len(ids) < len(MARKER) + 2 and not (ids and ids[-1] in CHAT.eos_ids):
        row = table[[*PROMPT, *ids][-1]].clone()
        if tuple(ids) == MARKER[: len(ids)]:
            condition_on_speech(row, odds, len(ids))
        ids.append(int(row.argmax()))
    assert done.ids == tuple(ids)


@pytest.mark.parametrize("whole", [False, True])
async def test_new_weights_speak_under_their_version(whole: bool) -> None:
    server = ChainServer(chain(0))
    served = ServedModel(server, CHAT, name="chain", context=40)
    engine = VllmEngine(served, policy="team", export=exported(5), whole=whole)
    frozen = VllmEngine(served)
    greedy = request(Choice.FREE, temperature=0.0)
    first = await engine.generate(greedy)
    async with engine.paused():
        await engine.refresh(1)
    second = await engine.generate(greedy)
    assert (first.version, second.version) == (0, 1)
    assert second.silence_logprob == pytest.approx(log_silence(chain(5)))
    spoken = math.log1p(-math.exp(log_silence(chain(5))))
    assert math.fsum(second.logprobs) == pytest.approx(
        math.fsum(log_pi(chain(5), second.ids)) - spoken
    )
    if not whole:
        assert (await frozen.generate(greedy)).logprobs == first.logprobs


async def test_a_pause_lets_calls_finish_and_later_ones_wait() -> None:
    server = ChainServer(chain(0))
    server.go_on = asyncio.Event()
    engine = engine_of(server, export=exported(5))
    early = asyncio.create_task(engine.generate(request()))
    await server.entered.wait()
    order: list[str] = []

    async def update() -> None:
        async with engine.paused():
            order.append("paused")
            await engine.refresh(1)

    pausing = asyncio.create_task(update())
    await asyncio.sleep(0)
    late = asyncio.create_task(engine.generate(request()))
    await asyncio.sleep(0)
    assert order == [] and not late.done()
    server.go_on.set()
    assert (await early).version == 0
    await pausing
    assert (await late).version == 1


async def test_a_call_given_up_leaves_the_others_their_odds() -> None:
    server = ChainServer(chain(0))
    server.go_on = asyncio.Event()
    engine = engine_of(server)
    given_up = asyncio.create_task(engine.generate(request(Choice.SPEAK)))
    other = asyncio.create_task(engine.generate(request(Choice.SPEAK, seed=1)))
    await server.entered.wait()
    given_up.cancel()
    server.go_on.set()
    assert (await other).ids
    async with engine.paused():
        pass  # nobody is left inside


async def test_what_cannot_be_served_is_refused_in_a_sentence() -> None:
    engine = engine_of(ChainServer(chain(0)))
    with pytest.raises(PromptTooLong, match="exceed the context of 40"):
        await engine.generate(request(max_tokens=38))
    with pytest.raises(EngineError, match="silence alone takes"):
        await engine.generate(request(Choice.FREE, max_tokens=1))
    with pytest.raises(EngineError, match="leave them out"):
        await engine.generate(request(Choice.SPEAK, top_k=3))


async def test_the_last_engine_to_close_closes_the_server() -> None:
    server = ChainServer(chain(0))
    served = ServedModel(server, CHAT, name="chain", context=40)
    one, other = VllmEngine(served), VllmEngine(served)
    await one.close()
    await one.close()
    assert server.closed == 0
    with pytest.raises(EngineError, match="closed"):
        await one.generate(request())
    await other.close()
    assert server.closed == 1


def test_a_machine_without_vllm_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[vllm\]'"):
        open_engine("pocket", ModelConfig(engine="vllm"))
