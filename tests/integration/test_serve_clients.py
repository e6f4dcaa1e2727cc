"""`tacit serve` as people start it, asked by the clients they have."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, TypedDict

import openai
import pytest

from tests.helpers.serving import log_of, served

KEY = "sk-clients-secret"
QUESTION = "What is 37 + 48 - 15?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    here = tmp_path_factory.mktemp("serve")
    with served(here, "pocket-hint", TACIT_API_KEY=KEY) as (url, process):
        yield url
        log = log_of(process)
    assert list(here.iterdir()) == [], "serving writes nothing"
    assert KEY not in log and "37 + 48" not in log and "boxed" not in log
    assert "POST /v1/chat/completions 200" in log


@pytest.fixture(scope="module")
def answer(url: str) -> str:
    """What the team says, which is greedy and so always says the same."""
    with openai.OpenAI(base_url=url, api_key=KEY) as client:
        whole = client.chat.completions.create(model="pocket-hint", messages=MESSAGES)
    assert whole.choices[0].message.content
    return whole.choices[0].message.content


def test_openai_sdk(url: str, answer: str) -> None:
    with openai.OpenAI(base_url=url, api_key=KEY) as client:
        assert [model.id for model in client.models.list()] == ["pocket-hint"]
        whole = client.chat.completions.create(
            model="pocket-hint", messages=MESSAGES, extra_body={"tacit": True}
        )
        assert whole.usage is not None and whole.model_extra is not None
        said = whole.model_extra["tacit"]["conversation"]
        assert [line["agent"] for line in said] == ["hinter", "actor"]
        spent = sum(line["usage"]["completion_tokens"] for line in said)
        assert whole.usage.completion_tokens == spent > len(answer) // 4
        with pytest.raises(openai.NotFoundError, match="no model"):
            client.chat.completions.create(model="pocket-hunt", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="pocket-hint", messages=[])
        assert refused.value.param == "messages"
    with (
        openai.OpenAI(base_url=url, api_key="wrong") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_openai_sdk_streaming(url: str, answer: str) -> None:
    with openai.OpenAI(base_url=url, api_key=KEY) as client:
        stream = client.chat.completions.create(
            model="pocket-hint",
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    pieces = [
        c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content
    ]
    assert "".join(pieces) == answer
    assert len(pieces) > 1, "told while it was being said"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens > 0


async def test_openai_sdk_async_many_at_once(url: str, answer: str) -> None:
    """Batched through one engine, and each the same as alone."""

    async def whole(client: openai.AsyncOpenAI) -> str | None:
        reply = await client.chat.completions.create(model="pocket-hint", messages=MESSAGES)
        return reply.choices[0].message.content

    async def streamed(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model="pocket-hint", messages=MESSAGES, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        asks = [whole(client) if n % 2 else streamed(client) for n in range(8)]
        assert await asyncio.gather(*asks) == [answer] * 8


def test_langchain_in_a_langgraph_graph(url: str, answer: str) -> None:
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph
    from pydantic import SecretStr

    class State(TypedDict):
        messages: list[AnyMessage]

    model = ChatOpenAI(model="pocket-hint", base_url=url, api_key=SecretStr(KEY), max_retries=0)

    def ask(state: State) -> State:
        reply = model.invoke(state["messages"])
        return {"messages": [*state["messages"], reply]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    *_, last = graph.compile().invoke({"messages": [HumanMessage(QUESTION)]})["messages"]
    assert isinstance(last, AIMessage)
    assert last.content == answer
    assert last.usage_metadata is not None and last.usage_metadata["total_tokens"] > 0
    assert "".join(str(chunk.content) for chunk in model.stream(QUESTION)) == answer


def test_langchain_over_completions_and_responses(url: str, answer: str) -> None:
    from langchain_openai import ChatOpenAI, OpenAI
    from pydantic import SecretStr

    key = SecretStr(KEY)
    plain = OpenAI(
        model="pocket-hint", base_url=url, api_key=key, max_retries=0, temperature=0, seed=1
    )
    assert plain.batch([QUESTION, QUESTION]) == [answer, answer]
    assert "".join(plain.stream(QUESTION)) == answer
    chat = ChatOpenAI(
        model="pocket-hint", base_url=url, api_key=key, max_retries=0, use_responses_api=True
    )
    assert chat.invoke(QUESTION).text == answer
    assert "".join(chunk.text for chunk in chat.stream(QUESTION)) == answer


async def test_openai_agents_sdk_over_responses(url: str, answer: str) -> None:
    from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        model = OpenAIResponsesModel(model="pocket-hint", openai_client=client)
        agent = Agent(name="solver", model=model)
        assert (await Runner.run(agent, QUESTION)).final_output == answer
        streamed = Runner.run_streamed(agent, QUESTION)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == answer


async def test_openai_agents_sdk(url: str, answer: str) -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled

    set_tracing_disabled(True)
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        model = OpenAIChatCompletionsModel(model="pocket-hint", openai_client=client)
        agent = Agent(name="solver", model=model)
        result = await Runner.run(agent, QUESTION)
        assert result.final_output == answer
        assert result.context_wrapper.usage.total_tokens > 0
        streamed = Runner.run_streamed(agent, QUESTION)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == answer


def curl(*arguments: str) -> str:
    done = subprocess.run(["curl", "-sS", "-N", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(url: str, answer: str) -> None:
    body = json.dumps({"model": "pocket-hint", "messages": MESSAGES})
    header = ("-H", f"Authorization: Bearer {KEY}", "-H", "Content-Type: application/json")
    whole = json.loads(curl(*header, "-d", body, f"{url}/chat/completions"))
    assert whole["choices"][0]["message"]["content"] == answer
    stream = body.replace("{", '{"stream": true, ', 1)
    lines = curl(*header, "-d", stream, f"{url}/chat/completions").splitlines()
    assert lines[-2:] == ["data: [DONE]", ""] and all(
        line.startswith("data: ") for line in lines[::2]
    )
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    assert curl(*status, "-d", body, f"{url}/chat/completions") == "401"
    assert curl(*status, *header, "-d", "{", f"{url}/chat/completions") == "400"
    assert curl(*status, url.removesuffix("/v1") + "/healthz") == "200"
