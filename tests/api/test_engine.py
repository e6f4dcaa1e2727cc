"""Against a real HTTP server on the loopback, which answers from a list."""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit.api import limits as api_limits
from tacit.api.api_engine import ApiEngine
from tacit.config import AgentConfig, ModelConfig, TeamConfig
from tacit.engine.base import Account, Completion, Request, Sampling, SilenceRule
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import ConfigError, EngineError, PromptTooLong, Refused
from tacit.team.roster import build_roster
from tacit.types import ChatMessage, Choice, Receipt, Stop, Usage
from tests.helpers.loopback import Answer, Sent, Server, by_hash, completion, failure
from tests.helpers.scripted_teams import play


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: Answer, by: Callable[[Sent], Answer] | None = None, **more: Any) -> Server:
        servers.append(Server(by or answers, **more))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def key_and_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_TEST_KEY", "sk-very-secret")
    monkeypatch.setattr(api_limits, "FIRST_WAIT", 0.01)


@asynccontextmanager
async def connected(
    server: Server, account: Account | None = None, **settings: Any
) -> AsyncIterator[ApiEngine]:
    common = {"engine": "api", "model": "asked-model", "base_url": server.url, "timeout": 10}
    whole = {**common, "api_key_env": "TACIT_TEST_KEY", **settings}
    engine = ApiEngine(ModelConfig.model_validate(whole), account)
    try:
        yield engine
    finally:
        await engine.close()


def question(number: int, **sampling: Any) -> Request:
    return Request(
        messages=(ChatMessage("user", f"question {number}"),), sampling=Sampling(**sampling)
    )


def ask(**sampling: Any) -> Request:
    return Request(
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", "2 + 2?")),
        sampling=Sampling(**sampling),
        seed=2**62 + 1,
    )


async def test_a_call_carries_the_settings_and_brings_back_the_usage(
    serve: Callable[..., Server],
) -> None:
    server = serve(completion())
    async with connected(server) as engine:
        got = await engine.generate(ask(temperature=0.5, top_p=0.9, top_k=5, max_tokens=20))
    assert (got.text, got.stop, got.model) == ("four", Stop.EOS, "served-model-0613")
    assert got.usage == Usage(prompt=11, generated=7, cached=5, reasoning=3)
    assert (got.ids, got.logprobs) == ((), ())
    (sent,) = server.asked
    assert sent["model"] == "asked-model"
    assert sent["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "2 + 2?"},
    ]
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.5, 0.9, 5)
    assert (sent["max_tokens"], sent["seed"]) == (20, 2**62 + 1)


async def test_log_probabilities_that_a_server_gives_are_summed_and_kept(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    def given(logprobs: Any) -> Answer:
        choice = {"finish_reason": "stop", "message": {"content": "four"}, "logprobs": logprobs}
        return completion(choices=[choice])

    whole = {"content": [{"token": "fo", "logprob": -0.5}, {"token": "ur", "logprob": -0.25}]}
    server = serve(given(whole), given({"content": [{"token": "fo"}]}), given(None))
    settings = {"parameters": {"logprobs": True}}
    async with connected(server, Account(cache=tmp_path), **settings) as engine:
        got = [(await engine.generate(question(number))).logprob for number in (0, 1, 2, 0)]
    assert got == [-0.75, None, None, -0.75]
    assert len(server.asked) == 3 and server.asked[0]["logprobs"] is True


async def test_a_cut_answer_and_one_without_details(serve: Callable[..., Server]) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    server = serve(completion("fo", "length", usage=usage))
    async with connected(server) as engine:
        got = await engine.generate(ask())
    assert (got.stop, got.usage) == (Stop.LENGTH, Usage(prompt=1, generated=2))


@pytest.mark.parametrize(
    "broken",
    [
        failure(429, "slow down", retry_after="0"),
        failure(429, "slow down", retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
        failure(500, "oops"),
        failure(503, "busy"),
        failure(429, "slow down", retry_after_ms="1"),
        failure(429, "slow down", retry_after="soon"),
        completion(choices=[]),
        completion(choices=[{"index": 0, "finish_reason": "error", "message": {"content": None}}]),
        completion(choices=[{"index": 0}]),
        completion(usage={"prompt_tokens": -1, "completion_tokens": 2}),
        completion(error={"message": "upstream is busy", "code": 502}),
        (200, {}, b'{"id": "1", "choi'),
        (200, {}, b"[]"),
        (200, {}, b""),
        (200, {"Content-Type": "text/html"}, b"<html>please log in</html>"),
    ],
    ids=[
        "429",
        "429-date",
        "500",
        "503",
        "429-ms",
        "429-nonsense",
        "no-choices",
        "broken-off",
        "no-message",
        "negative-usage",
        "200-error",
        "cut-json",
        "no-object",
        "no-body",
        "html",
    ],
)
async def test_passing_troubles_are_tried_again(
    serve: Callable[..., Server], broken: Answer
) -> None:
    server = serve(broken, broken, completion())
    async with connected(server) as engine:
        assert (await engine.generate(ask())).text == "four"
    assert len(server.asked) == 3


DEEP = b"[" * 100_000 + b"]" * 100_000


def reporting(prompt: str = "1", generated: str = "2", reasoning: str = "0") -> Answer:
    """A completion with these counts, as JSON spells them."""
    status, headers, body = completion(usage="COUNTS")
    counts = f'{{"prompt_tokens": {prompt}, "completion_tokens": {generated}, '
    counts += f'"completion_tokens_details": {{"reasoning_tokens": {reasoning}}}}}'
    return status, headers, body.replace(b'"COUNTS"', counts.encode())


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (reporting(generated="1e999"), "damaged"),
        (reporting(generated="NaN"), "damaged"),
        (reporting(generated='"many"'), "damaged"),
        (reporting(generated="[7]"), "damaged"),
        (reporting(generated="9" * 4000), "impossible token counts"),
        (reporting(generated="9" * 4300, reasoning="9" * 4300), "impossible token counts"),
        (reporting(generated="1" + "0" * 15), "impossible token counts"),
        (reporting(generated="20000"), "20000 generated tokens, more than"),
        (reporting(prompt="900000"), "900000 prompt and"),
        (reporting(generated="900000", reasoning="900000"), "900000 generated tokens, more than"),
        (completion(usage=[1, 2]), "damaged"),
        (completion("half of a \ud83d"), "damaged"),
        (completion(model="\ud83d"), "damaged"),
        ((200, {}, DEEP), "damaged"),
        ((200, {}, completion(usage="COUNTS")[2].replace(b'"COUNTS"', DEEP)), "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_answer_that_cannot_be_true_is_tried_again_and_leaves_nothing_behind(
    serve: Callable[..., Server], tmp_path: Path, bad: Answer, why: str
) -> None:
    paid: list[Receipt] = []
    async with connected(serve(bad), kept(tmp_path, paid), retries=1) as engine:
        with pytest.raises(EngineError, match=f"{why}.*tried 2 times"):
            await engine.generate(question(1, max_tokens=32, temperature=0))
    assert not paid and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("good", "limit"),
    [
        (reporting(generated="63"), 32),
        (completion("word " * 2000, usage={"prompt_tokens": 9, "completion_tokens": 9000}), 32),
        (reporting(prompt="8000"), 32),
        (reporting(generated="64020", reasoning="64000"), 32),
        (reporting(generated="150000"), None),
        (reporting(generated="600000", reasoning="500000"), 400_000),
    ],
    ids=["mildly-over", "limit-ignored", "own-prompt", "thought", "no-limit", "long-asked"],
)
async def test_counts_that_may_be_true_are_taken(
    serve: Callable[..., Server], good: Answer, limit: int | None
) -> None:
    async with connected(serve(good), parameters={"max_tokens": limit}) as engine:
        got = await engine.generate(question(1))
    assert got.usage.generated == json.loads(good[2])["usage"]["completion_tokens"]


async def test_a_kept_answer_with_an_impossible_count_is_asked_for_again(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(by=by_hash)
    async with connected(server, kept(tmp_path)) as engine:
        await engine.generate(question(1, temperature=0))
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace('"generated": ', '"generated": 1' + "0" * 20))
    async with connected(server, kept(tmp_path)) as engine:
        got = await engine.generate(question(1, temperature=0))
    assert not got.reused and got.usage.generated < 100 and len(server.asked) == 2


async def test_the_server_is_given_the_time_it_asks_for(serve: Callable[..., Server]) -> None:
    server = serve(failure(429, "slow down", retry_after="0.3"), completion())
    async with connected(server) as engine:
        begun = time.monotonic()
        await engine.generate(ask())
    assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    "final",
    [
        failure(401, "Incorrect API key provided"),
        failure(400, "no such parameter"),
        failure(404, "no such model"),
        failure(429, "you have no money left", "insufficient_quota"),
    ],
    ids=["401", "400", "404", "quota"],
)
async def test_final_errors_are_not_tried_again_and_keep_the_servers_words(
    serve: Callable[..., Server], final: Answer
) -> None:
    server = serve(final)
    said = json.loads(final[2])["error"]["message"]
    async with connected(server) as engine:
        with pytest.raises(EngineError, match=f"asked-model: {said}.*HTTP {final[0]}"):
            await engine.generate(ask())
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        failure(400, "Please shorten it.", "context_length_exceeded"),
        failure(400, "This model's maximum context length is 4096 tokens."),
        failure(400, "the request exceeds the available context size, try increasing it"),
    ],
    ids=["openai", "vllm", "llama.cpp"],
)
async def test_a_prompt_over_the_servers_context_is_told_from_its_other_refusals(
    serve: Callable[..., Server], answer: Answer
) -> None:
    team = TeamConfig(
        topology="hint_actor", agents={"hinter": AgentConfig(), "actor": AgentConfig()}
    )
    async with connected(serve(by=lambda sent: answer)) as engine:
        with pytest.raises(PromptTooLong):
            await engine.generate(ask())
        hinter = ScriptedEngine(lambda request: "a hint" if spoken else "<silent>")
        roster = build_roster(team, {"hinter": hinter, "actor": engine})
        for spoken in (True, False):  # without a hint the prompt is the question's own
            episode = await play(roster)
            assert episode.overflowed is spoken and (episode.grade is None) is not spoken


async def test_retries_end(serve: Callable[..., Server]) -> None:
    server = serve(failure(500, "oops"))
    async with connected(server, retries=2) as engine:
        with pytest.raises(EngineError, match="oops"):
            await engine.generate(ask())
    assert len(server.asked) == 3


async def test_a_server_that_is_not_there_or_too_slow(serve: Callable[..., Server]) -> None:
    server = serve(completion(), delay=0.5)
    async with connected(server, retries=0, timeout=0.1) as engine:
        with pytest.raises(EngineError, match=r"no whole answer in 0\.1 s"):
            await engine.generate(ask())
    async with connected(server, base_url="http://127.0.0.1:9/v1", retries=1) as engine:
        with pytest.raises(EngineError, match=r"(?i)connect"):
            await engine.generate(ask())


async def test_no_more_calls_at_once_than_allowed(serve: Callable[..., Server]) -> None:
    server = serve(completion(), delay=0.05)
    async with connected(server, concurrency=3) as engine:
        await asyncio.gather(*(engine.generate(ask()) for _ in range(12)))
    assert server.most_at_once == 3
    assert len(server.asked) == 12


async def test_an_answer_without_usage_is_an_error(serve: Callable[..., Server]) -> None:
    async with connected(serve(completion(usage=None))) as engine:
        with pytest.raises(EngineError, match="reports no usage"):
            await engine.generate(ask())


async def test_it_cannot_be_told_to_speak(serve: Callable[..., Server]) -> None:
    request = Request(messages=(), sampling=Sampling(), silence=SilenceRule(choice=Choice.SPEAK))
    async with connected(serve(completion())) as engine:
        with pytest.raises(EngineError, match="cannot be told"):
            await engine.generate(request)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_TEST_KEY")
    with pytest.raises(ConfigError, match="TACIT_TEST_KEY"):
        ApiEngine(ModelConfig(engine="api", model="m", api_key_env="TACIT_TEST_KEY"))


async def test_parameters_have_the_last_word(serve: Callable[..., Server]) -> None:
    server = serve(completion())
    parameters = {"temperature": None, "reasoning_effort": "low"}
    async with connected(
        server, parameters=parameters, max_tokens_name="max_completion_tokens"
    ) as engine:
        await engine.generate(question(1, max_tokens=30))
    (sent,) = server.asked
    assert sent.keys() == {"model", "messages", "reasoning_effort", "max_completion_tokens"}
    assert (sent["reasoning_effort"], sent["max_completion_tokens"]) == ("low", 30)


async def test_reasoning_reported_beside_the_rest_is_counted_once(
    serve: Callable[..., Server],
) -> None:
    beside = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}
    beside["completion_tokens_details"] = {"reasoning_tokens": 100}  # type: ignore[assignment]
    async with connected(serve(completion(usage=beside))) as engine:
        got = await engine.generate(question(1))
    assert got.usage == Usage(prompt=10, generated=105, reasoning=100)


async def test_a_withheld_answer_is_no_answer(serve: Callable[..., Server]) -> None:
    async with connected(serve(completion("", "content_filter"))) as engine:
        with pytest.raises(EngineError, match="withheld"):
            await engine.generate(question(1))


async def test_a_refusal_is_asked_for_once_and_holds_for_all(serve: Callable[..., Server]) -> None:
    server = serve(failure(401, "Incorrect API key provided"))
    async with connected(server) as engine:
        for number in range(3):
            with pytest.raises(Refused, match="Incorrect API key"):
                await engine.generate(question(number))
    assert len(server.asked) == 1


async def test_once_answered_a_404_is_about_one_question_and_a_401_still_about_us(
    serve: Callable[..., Server],
) -> None:
    server = serve(completion(), failure(404, "no such tool"), failure(401, "key revoked"))
    async with connected(server) as engine:
        await engine.generate(question(1))
        with pytest.raises(EngineError, match="no such tool") as error:
            await engine.generate(question(2))
        assert not isinstance(error.value, Refused)
        with pytest.raises(Refused, match="key revoked"):
            await engine.generate(question(3))


async def test_a_key_that_the_server_repeats_is_struck_out(serve: Callable[..., Server]) -> None:
    async with connected(serve(failure(401, "bad key sk-very-secret given"))) as engine:
        with pytest.raises(Refused, match=r"bad key \*\*\* given"):
            await engine.generate(question(1))


# Kept answers


def kept(folder: Path, receipts: list[Receipt] | None = None, **more: Any) -> Account:
    paid = receipts if receipts is not None else []
    return Account(cache=folder, on_receipt=paid.append, **more)


async def test_a_greedy_question_is_asked_once_even_at_once_and_paid_once(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server, paid = serve(by=by_hash, delay=0.05), []
    async with connected(server, kept(tmp_path, paid)) as engine:
        together = await asyncio.gather(*(engine.generate(question(1)) for _ in range(8)))
        again = await engine.generate(question(1))
        other = await engine.generate(question(2))
    assert len(server.asked) == len(paid) == 2
    assert sorted(one.reused for one in together) == [False] + [True] * 7
    assert {(one.text, one.usage, one.stop) for one in [*together, again]} == {
        (again.text, again.usage, again.stop)
    }
    assert again.reused and not other.reused


async def test_a_sampled_question_is_never_answered_from_before(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(by=by_hash)
    async with connected(server, kept(tmp_path)) as engine:
        for _ in range(2):
            assert not (await engine.generate(question(1, temperature=0.5))).reused
    assert len(server.asked) == 2
    assert not list(tmp_path.iterdir())


async def test_a_server_that_samples_anyway_is_not_called_greedy(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(by=by_hash)
    async with connected(server, kept(tmp_path), parameters={"temperature": None}) as engine:
        await engine.generate(question(1))
        await engine.generate(question(1))
    assert len(server.asked) == 2


async def test_samples_can_be_kept_too_and_stay_apart(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server, sampling = serve(by=by_hash), Sampling(temperature=1.0)
    messages = (ChatMessage("user", "say anything"),)
    async with connected(server, kept(tmp_path), cache="all", parameters={"seed": None}) as engine:
        for seed in (1, 2, 1, 2, 3):
            await engine.generate(Request(messages=messages, sampling=sampling, seed=seed))
    assert len(server.asked) == 3
    assert "seed" not in server.asked[0], "the sample index is ours, whatever the server takes"


@pytest.mark.parametrize("changed", [{"model": "b"}, {"parameters": {"effort": "high"}}])
async def test_another_model_or_parameter_is_another_question(
    serve: Callable[..., Server], tmp_path: Path, changed: dict[str, Any]
) -> None:
    server = serve(by=by_hash)
    for settings in ({}, changed):
        async with connected(server, kept(tmp_path), **settings) as engine:
            await engine.generate(question(1))
    assert len(server.asked) == 2


async def test_kept_answers_outlive_the_process_and_are_shared(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(by=by_hash)
    async with connected(server, kept(tmp_path)) as one, connected(server, kept(tmp_path)) as two:
        first = await one.generate(question(1))
        assert (await two.generate(question(1))).text == first.text
        await two.generate(question(2))
        assert (await one.generate(question(2))).reused
    assert len(server.asked) == 2


async def test_without_a_folder_or_with_the_cache_off_nothing_is_kept(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(by=by_hash)
    cases = [(None, {"cache_folder": str(tmp_path)}), (kept(tmp_path), {"cache": "none"})]
    for account, settings in cases:
        async with connected(server, account, **settings) as engine:
            await engine.generate(question(1))
            assert not (await engine.generate(question(1))).reused
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spoil", ["torn", "nonsense", "other"])
async def test_damaged_lines_cost_a_question_and_nothing_else(
    serve: Callable[..., Server], tmp_path: Path, spoil: str
) -> None:
    server = serve(by=by_hash)
    async with connected(server, kept(tmp_path)) as engine:
        for number in (1, 2):
            await engine.generate(question(number))
    (file,) = tmp_path.iterdir()
    first, second = file.read_bytes().splitlines(keepends=True)
    broken = {"torn": second[:-9], "nonsense": second[:60] + b"}\n", "other": b"\xff\xfe\n"}[spoil]
    file.write_bytes(first + broken)
    async with connected(server, kept(tmp_path)) as engine:
        assert (await engine.generate(question(1))).reused
        assert not (await engine.generate(question(2))).reused
        assert (await engine.generate(question(2))).reused
        assert not (await engine.generate(question(3))).reused
    async with connected(server, kept(tmp_path)) as engine:
        assert all([(await engine.generate(question(number))).reused for number in (1, 2, 3)])


async def test_the_first_to_fail_does_not_fail_those_behind_it(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(failure(400, "not today"), completion(), delay=0.05)
    async with connected(server, kept(tmp_path)) as engine:
        got = await asyncio.gather(
            *(engine.generate(question(1)) for _ in range(3)), return_exceptions=True
        )
    failed = [one for one in got if isinstance(one, EngineError)]
    texts = [one.text for one in got if isinstance(one, Completion)]
    assert (len(failed), texts, len(server.asked)) == (1, ["four", "four"], 2)


async def test_neither_question_nor_key_is_written(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    paid: list[Receipt] = []
    async with connected(serve(by=by_hash), kept(tmp_path, paid)) as engine:
        await engine.generate(question(1))
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir()) + repr(paid).encode()
    assert b"boxed" in written
    assert b"question" not in written and b"very-secret" not in written


# Who answers


async def test_a_model_that_changes_under_us_is_said_once(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(
        completion(system_fingerprint="fp_1"),
        completion(system_fingerprint="fp_2"),
        completion(system_fingerprint="fp_1"),
        completion(model="served-model-0814"),
    )
    said: list[str] = []
    paid: list[Receipt] = []
    async with connected(server, Account(warn=said.append, on_receipt=paid.append)) as engine:
        for number in range(4):
            await engine.generate(question(number))
    assert [(one.served, one.fingerprint) for one in paid] == [
        ("served-model-0613", "fp_1"),
        ("served-model-0613", "fp_2"),
        ("served-model-0613", "fp_1"),
        ("served-model-0814", ""),
    ]
    assert len(said) == 2
    assert "now answers as `served-model-0613 fp_2`, before as `served-model-0613 fp_1`" in said[0]
    assert "`served-model-0814`" in said[1]


async def test_a_change_since_the_run_was_stopped_is_said_too(
    serve: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    before = Account(served={"asked-model": ("served-model-0301", ""), "other": ("x", "")})
    with caplog.at_level(logging.WARNING):
        async with connected(serve(completion()), before) as engine:
            await engine.generate(question(1))
    assert "before as `served-model-0301`" in caplog.text


# Limits and patience


async def through(gate: api_limits.RateLimiter, tokens: float, real: int | None = None) -> float:
    async with gate.attempt(tokens, lambda: None) as settle:
        if real is not None:
            settle(real)
        return api_limits.now()


def most_within(times: list[float], span: float) -> int:
    return max(sum(start <= time < start + span for time in times) for start in times)


@pytest.mark.parametrize(("requests", "tokens"), [(5, None), (None, 50), (5, 1e9), (1e9, 50)])
async def test_no_minute_sees_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, requests: float | None, tokens: float | None
) -> None:
    monkeypatch.setattr(api_limits, "MINUTE", 0.2)
    gate = api_limits.RateLimiter(100, requests, tokens)
    times = await asyncio.gather(*(through(gate, 10) for _ in range(17)))
    assert most_within(times, 0.2) == 5
    assert times == sorted(times), "first come, first served"


async def test_a_guess_is_corrected_by_what_a_call_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_limits, "MINUTE", 0.3)
    gate = api_limits.RateLimiter(100, None, 100)
    times = [await through(gate, 90, real=10) for _ in range(2)]
    assert most_within(times, 0.3) == 2, "there was room after all"
    times += [await through(gate, 80, real=1000) for _ in range(2)]
    assert times[3] >= times[2] + 0.3, "and here there was none"


async def test_a_call_larger_than_the_limit_waits_for_an_empty_minute_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_limits, "MINUTE", 0.1)
    gate = api_limits.RateLimiter(100, None, 100)
    times = [await through(gate, 500) for _ in range(3)]
    assert most_within(times, 0.1) == 1


async def test_when_the_server_asks_for_time_everybody_waits(serve: Callable[..., Server]) -> None:
    server = serve(failure(429, "slow down", retry_after="0.4"), completion())
    async with connected(server) as engine:
        first = asyncio.create_task(engine.generate(question(1)))
        while not server.asked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await asyncio.gather(first, *(engine.generate(question(n)) for n in range(2, 6)))
    assert min(server.times[1:]) >= server.times[0] + 0.4


async def test_a_wait_beyond_the_deadline_is_not_begun(serve: Callable[..., Server]) -> None:
    server = serve(failure(429, "come back tomorrow", retry_after="86400"))
    async with asyncio.timeout(20), connected(server, deadline=30) as engine:
        with pytest.raises(EngineError, match=r"come back tomorrow.*tried once"):
            await engine.generate(question(1))
    assert len(server.asked) == 1


@pytest.mark.parametrize("trouble", ["hangs", "busy", "gone"])
async def test_a_dead_server_keeps_nobody_waiting_beyond_the_deadline(
    serve: Callable[..., Server], trouble: str
) -> None:
    """Two at a time and forty in the queue: without giving the server up this would take long."""
    server = serve(failure(503, "loading the model"), delay=5.0 if trouble == "hangs" else 0.0)
    url = "http://127.0.0.1:9/v1" if trouble == "gone" else server.url
    said = {"hangs": "no whole answer", "busy": "loading the model", "gone": "(?i)connect"}[trouble]
    settings = {"base_url": url, "concurrency": 2, "deadline": 1.0, "retries": 1000}
    async with asyncio.timeout(60), connected(server, **settings) as engine:
        got = await asyncio.gather(
            *(engine.generate(question(n)) for n in range(40)), return_exceptions=True
        )
        assert all(isinstance(error, EngineError) for error in got)
        with pytest.raises(EngineError, match=said):
            raise got[0]
        with pytest.raises(EngineError, match=said):
            await engine.generate(question(41))


async def test_a_server_that_comes_back_is_asked_again(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_limits, "COOL_DOWN", 0.0)
    server = serve(*[failure(503, "restarting")] * 3, completion())
    async with connected(server, deadline=0.5, retries=2) as engine:
        with pytest.raises(EngineError, match="restarting"):
            await engine.generate(question(1))
        assert (await engine.generate(question(1))).text == "four"


async def test_a_deadline_that_passes_in_the_queue_is_told_in_the_servers_words(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_limits, "MINUTE", 0.6)
    server = serve(failure(503, "busy"))
    async with connected(server, requests_per_minute=1, deadline=0.3) as engine:
        with pytest.raises(EngineError, match=r"busy.*tried once"):
            await engine.generate(question(1))
    assert len(server.asked) == 1


def test_waits_grow_and_differ() -> None:
    random.seed(0)
    waits = [[api_limits.backoff(attempt) for _ in range(50)] for attempt in range(12)]
    for attempt, some in enumerate(waits):
        longest = min(api_limits.FIRST_WAIT * 2**attempt, api_limits.LONGEST_WAIT)
        assert longest / 2 <= min(some) < max(some) <= longest
    assert max(waits[-1]) <= api_limits.LONGEST_WAIT


@pytest.mark.parametrize(
    ("seconds", "milliseconds", "expected"),
    [
        ("2", None, 2.0),
        ("0.5", None, 0.5),
        ("-3", None, 0.0),
        ("2", "250", 0.25),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None, 0.0),
        ("nan", None, None),
        ("inf", None, None),
        ("later", "", None),
        (None, None, None),
    ],
)
def test_retry_after_in_all_its_spellings(
    seconds: str | None, milliseconds: str | None, expected: float | None
) -> None:
    assert api_limits.retry_after(seconds, milliseconds) == expected
