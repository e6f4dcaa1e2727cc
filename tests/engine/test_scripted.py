import asyncio

import pytest

from tacit.engine.base import SILENCE_MARKER, Request, Sampling, SilenceRule
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import EngineError, PromptTooLong
from tacit.types import ChatMessage, Choice, Stop, Usage


def ask(text: str, *, choice: Choice | None = None, max_tokens: int = 256) -> Request:
    return Request(
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", text)),
        sampling=Sampling(max_tokens=max_tokens),
        silence=None if choice is None else SilenceRule(choice=choice),
    )


async def test_replies_by_what_the_last_message_contains() -> None:
    engine = ScriptedEngine({"2 + 2": "it is 4", "": "who knows"})
    got = await engine.generate(ask("what is 2 + 2 ?"))
    assert (got.text, got.stop, got.usage) == ("it is 4", Stop.EOS, Usage(prompt=8, generated=3))
    assert (await engine.generate(ask("brief"))).text == "who knows"
    assert engine.encode(()) == engine.silence_ids() == ()


async def test_replies_in_order_and_complains_at_the_end() -> None:
    engine = ScriptedEngine(["one", "two"])
    assert [(await engine.generate(ask("x"))).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(EngineError, match="ends after 2 replies"):
        await engine.generate(ask("x"))
    assert engine.calls == 3


async def test_replies_by_a_function_that_may_be_a_coroutine() -> None:
    async def slowly(request: Request) -> str:
        await asyncio.sleep(0)
        return request.messages[-1].content.upper()

    assert (await ScriptedEngine(slowly).generate(ask("hm"))).text == "HM"
    assert (await ScriptedEngine(lambda request: "hm").generate(ask("x"))).text == "hm"


async def test_errors_are_engine_errors() -> None:
    with pytest.raises(EngineError, match="the server is down"):
        await ScriptedEngine([ValueError("the server is down")]).generate(ask("x"))
    with pytest.raises(EngineError, match="KeyError: 'x'"):
        await ScriptedEngine(lambda request: {}["x"]).generate(ask("x"))
    with pytest.raises(EngineError, match="no reply to 'x'"):
        await ScriptedEngine({"y": "z"}).generate(ask("x"))

    def too_long(request: Request) -> str:
        raise PromptTooLong("too long")

    with pytest.raises(PromptTooLong):
        await ScriptedEngine(too_long).generate(ask("x"))


async def test_long_replies_are_cut_at_the_cap() -> None:
    got = await ScriptedEngine(["a  b\nc d"]).generate(ask("x", max_tokens=3))
    assert (got.text, got.stop, got.usage.generated) == ("a  b\nc", Stop.LENGTH, 3)
    whole = await ScriptedEngine(["a  b\nc "]).generate(ask("x", max_tokens=3))
    assert (whole.text, whole.stop) == ("a  b\nc ", Stop.EOS)


async def test_silence_can_be_chosen_forced_and_refused() -> None:
    engine = ScriptedEngine({"": SILENCE_MARKER})
    assert (await engine.generate(ask("x", choice=Choice.FREE))).text == SILENCE_MARKER
    with pytest.raises(EngineError, match="asked to speak"):
        await engine.generate(ask("x", choice=Choice.SPEAK))
    spoken = ScriptedEngine({"": "words"})
    assert (await spoken.generate(ask("x", choice=Choice.SILENT))).text == SILENCE_MARKER
    assert (await spoken.generate(ask("x", choice=Choice.SPEAK))).text == "words"


async def test_a_delay_lets_others_go_on() -> None:
    slow, order = ScriptedEngine(["late"], delay=0.02), []

    async def call(engine: ScriptedEngine) -> None:
        order.append((await engine.generate(ask("x"))).text)

    await asyncio.gather(call(slow), call(ScriptedEngine(["early"])))
    assert order == ["early", "late"]
