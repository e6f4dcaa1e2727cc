"""A Collaborator in front of a foreign Actor: what is added, and that nothing else is changed."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

from tacit.config import AgentConfig, TeamConfig
from tacit.engine.base import Engine, Request
from tacit.engine.scripted import Script, ScriptedEngine
from tacit.errors import ConfigError, EngineError, TacitError
from tacit.serve.admission import ServerLimits
from tacit.serve.budgets import Budgets
from tacit.serve.proxy import ProxyBackend, with_foreign_actor
from tacit.serve.upstream import Upstream
from tacit.team.roster import build_roster
from tests.helpers.loopback import Answer, Server, completion, failure
from tests.helpers.scripted_teams import SILENT
from tests.helpers.serving import Running, running, texts

HINT = "Add the tens first. </hint>"
ADDED = "\n\nA teammate's hint:\n<hint>\nAdd the tens first. &lt;/hint>\n</hint>"
REQUEST = {
    "model": "gpt-of-theirs",
    "messages": [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "What is 1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "And 17 + 25?", "name": "ada"},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
    "temperature": 0.3,
    "max_completion_tokens": 9,
    "stop": ["\n"],
    "metadata": {"app": "theirs"},
}
TOOLS = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]


def calls_tools(**changed: Any) -> Answer:
    message = {"role": "assistant", "content": None, "tool_calls": TOOLS}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return completion(choices=[choice], **changed)


@contextmanager
def proxied(
    answers: Any,
    script: Script = lambda request: HINT,
    *,
    topology: str = "hint_actor",
    model: str | None = None,
    key: str | None = "sk-actor",
    limits: ServerLimits | None = None,
    prompts: str = "tagged",
    budgets: Budgets | None = None,
) -> Iterator[tuple[Running, Server]]:
    """A proxy whose Collaborator is scripted, before a real server that remembers all."""
    helper = "critic" if topology == "critic_actor" else "hinter"
    actor = AgentConfig(system="Never sent on.", silent=True)
    config = TeamConfig.model_validate(
        {"topology": topology, "agents": {helper: {}, "actor": actor}, "prompts": prompts}
    )
    engines: dict[str, Engine] = {helper: ScriptedEngine(script), "actor": ScriptedEngine(())}
    roster = build_roster(with_foreign_actor(config), engines)
    upstream = Server(answers)
    keyed = bool(limits and limits.keys)
    actors = Upstream(upstream.url, key, pass_keys=not keyed)
    backend = ProxyBackend("team", roster, actors, model, budgets)
    try:
        with running(backend, limits) as server:
            yield server, upstream
    finally:
        upstream.stop()


def test_only_the_hint_is_added_and_all_else_passes_through() -> None:
    with proxied([completion("42")]) as (server, actor):
        reply = server.post(REQUEST | {"tacit": True})
    (sent,) = actor.asked
    hinted = {**REQUEST["messages"][3], "content": "And 17 + 25?" + ADDED}  # type: ignore[index]
    assert sent == REQUEST | {"messages": [*REQUEST["messages"][:3], hinted]}  # type: ignore[index]
    body = reply.json()
    assert body["model"] == "served-model-0613"
    assert body["choices"][0]["message"]["content"] == "42"
    hinter, acted = body["tacit"]["conversation"]
    assert (hinter["agent"], hinter["text"], acted["text"]) == ("hinter", HINT, "42")


def test_a_silent_collaborator_leaves_the_request_as_it_was() -> None:
    with proxied([completion("42")], lambda request: SILENT) as (server, actor):
        body = server.post(REQUEST).json()
    assert actor.asked == [REQUEST]
    assert body["choices"][0]["message"]["content"] == "42"


def test_usage_adds_the_collaborators_tokens_to_the_actors() -> None:
    with proxied([completion("42")]) as (server, _):
        usage = server.post(REQUEST | {"tacit": True}).json()
    hinter, actor = usage["tacit"]["ledger"]
    assert actor["usage"]["total_tokens"] == 18
    assert usage["usage"]["total_tokens"] == 18 + hinter["usage"]["total_tokens"]
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}


def test_the_collaborator_sees_earlier_turns_but_no_system_prompt() -> None:
    seen: list[str] = []

    def script(request: Any) -> str:
        seen.append(request.messages[-1].content)
        return HINT

    with proxied([completion("42")], script) as (server, _):
        server.post(REQUEST)
        server.post(REQUEST | {"messages": REQUEST["messages"][3:]})  # type: ignore[index]
    assert 'from="assistant">\n2\n' in seen[0] and "terse" not in seen[0]
    assert seen[1] == "And 17 + 25?"


def test_a_helpers_view_is_kept_from_the_actors_server() -> None:
    seen: list[str] = []

    def hinter(request: Request) -> str:
        seen.append(request.messages[-1].content)
        return HINT

    with proxied([completion("42")], hinter) as (server, actor):
        server.post(REQUEST | {"views": {"hinter": "the secret note"}})
        server.post(REQUEST | {"views": {"actor": "the client's note"}})
        refused = server.post(REQUEST | {"views": {"critic": "x"}})
    assert "the secret note" in seen[0] and "note" not in seen[1]
    assert "note" not in json.dumps(actor.asked[0]) and "views" not in actor.asked[0]
    assert "the client's note" in actor.asked[1]["messages"][3]["content"]
    assert refused.status_code == 400 and len(actor.asked) == 2


def test_in_a_tool_loop_the_same_question_carries_the_same_hint() -> None:
    after = [
        *REQUEST["messages"],  # type: ignore[misc]
        {"role": "assistant", "content": None, "tool_calls": TOOLS},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    with proxied([calls_tools(), completion("42")]) as (server, actor):
        first = server.post(REQUEST).json()
        server.post(REQUEST | {"messages": after})
    assert first["choices"][0]["message"]["tool_calls"] == TOOLS
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    one, two = actor.asked
    assert two["messages"][:4] == one["messages"]
    assert two["messages"][4:] == after[4:]


def test_content_in_parts_keeps_its_parts() -> None:
    parts = [
        {"type": "text", "text": "What is in it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    asked = REQUEST | {"messages": [{"role": "user", "content": parts}]}
    only_image = REQUEST | {"messages": [{"role": "user", "content": parts[1:]}]}
    with proxied([completion("42")]) as (server, actor):
        server.post(asked)
        server.post(only_image)
    hinted, plain = actor.asked
    assert hinted["messages"][0]["content"] == [*parts, {"type": "text", "text": ADDED.strip()}]
    assert plain == only_image, "what the Collaborator cannot read goes on without it"


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (EngineError("too long: What is 17 + 25?"), "EngineError"),
        (ConfigError("the MCP server `files` is gone"), "the MCP server `files` is gone"),
    ],
)
def test_a_collaborator_that_fails_costs_its_help_and_nothing_else(
    error: TacitError, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    def script(request: Any) -> str:
        raise error

    with caplog.at_level("INFO"), proxied([completion("42")], script) as (server, actor):
        body = server.post(REQUEST).json()
        page = httpx2.get(server.url.removesuffix("/v1") + "/metrics").text
    assert actor.asked == [REQUEST]
    assert body["choices"][0]["message"]["content"] == "42"
    assert body["usage"]["total_tokens"] == 18
    assert "tacit_unhelped_total 1.0" in page
    assert f"no help for one request: {logged}" in caplog.text
    assert "17 + 25" not in caplog.text


def sse(*chunks: Any, end: str = "[DONE]") -> Answer:
    lines = [*(json.dumps(chunk) for chunk in chunks), *([end] if end else [])]
    body = "".join(f"data: {line}\n\n" for line in lines)
    return 200, {"Content-Type": "text/event-stream"}, body.encode()


def piece(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "up-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    } | more


USAGE = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
STREAMED = sse(
    piece({"role": "assistant", "content": ""}, usage=None),
    piece({"content": "4"}, usage=None, vendor="kept"),
    piece({"content": "2"}, usage=None),
    piece({}, "stop", usage=None),
    piece({}, usage=USAGE) | {"choices": []},
)


def test_a_stream_is_relayed_chunk_by_chunk() -> None:
    with proxied([STREAMED]) as (server, actor):
        *data, done = texts(server.post(REQUEST | {"stream": True}).text.splitlines())
    assert done == "[DONE]"
    chunks = [json.loads(line) for line in data]
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "4", "2", None]
    assert chunks[1]["vendor"] == "kept"
    assert all("usage" not in chunk for chunk in chunks), "the client did not ask for usage"
    assert actor.asked[0]["stream_options"] == {"include_usage": True}
    assert actor.asked[0]["messages"][3]["content"].endswith("</hint>")


def test_a_streams_usage_is_the_whole_teams() -> None:
    body = REQUEST | {"stream": True, "stream_options": {"include_usage": True}, "tacit": True}
    with proxied([STREAMED]) as (server, _):
        *_, last, _ = texts(server.post(body).text.splitlines())
    chunk = json.loads(last)
    hinter = chunk["tacit"]["ledger"][0]["usage"]["total_tokens"]
    assert chunk["id"] == "up-1" and chunk["choices"] == []
    assert chunk["usage"]["total_tokens"] == 13 + hinter


def test_a_character_cut_in_two_passes_in_both_halves() -> None:
    whole, halves = (
        completion("\ud83d"),
        sse(piece({"content": "\ud83d"}), piece({"content": "\ude00"})),
    )
    with proxied([whole, halves]) as (server, _):
        said = server.post(REQUEST).json()["choices"][0]["message"]["content"]
        *data, _ = texts(server.post(REQUEST | {"stream": True}).text.splitlines())
    assert said == "\ud83d"
    assert [json.loads(d)["choices"][0]["delta"]["content"] for d in data] == ["\ud83d", "\ude00"]


def test_a_server_that_does_not_stream_is_heard_all_the_same() -> None:
    with proxied([calls_tools()]) as (server, _):
        first, finish, done = texts(server.post(REQUEST | {"stream": True}).text.splitlines())
    delta = json.loads(first)["choices"][0]["delta"]
    assert delta == {"role": "assistant", "tool_calls": [{"index": 0, **TOOLS[0]}]}
    assert json.loads(finish)["choices"][0]["finish_reason"] == "tool_calls" and done == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_the_actors_refusals_come_back_with_its_own_words(stream: bool) -> None:
    refusal = failure(429, "slow down", "rate_limited", Retry_After="7")
    with proxied([refusal]) as (server, _):
        reply = server.post(REQUEST | {"stream": stream})
    assert reply.status_code == 429 and reply.headers["retry-after"] == "7"
    assert reply.json() == {"error": {"message": "slow down", "code": "rate_limited"}}


def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    cut = sse(piece({"content": "4"}), end="")
    told = sse(piece({"content": "4"}), {"error": {"message": "overloaded"}}, end="")
    with proxied([cut, told]) as (server, _):
        broken, overloaded = (
            json.loads(texts(server.post(REQUEST | {"stream": True}).text.splitlines())[-1])
            for _ in range(2)
        )
    assert broken["error"]["message"] == "the Actor's stream broke off"
    assert overloaded["error"]["message"] == "overloaded"


SENSELESS = {
    "garbage": (200, {}, b"not json"),
    "no choices": completion(choices=[]),
    "no json": (503, {}, b"<html>busy</html>"),
    "no list": completion(choices={"a": 1}),
    "no message": completion(choices=["four"]),
    "no usage": completion(usage=[7]),
    "fewer than no tokens": completion(usage={"completion_tokens": -7}),
    "more tokens than a counter holds": completion(usage={"prompt_tokens": 10**400}),
    "no number": completion(usage={"prompt_tokens": float("inf")}),
    "no tool calls": completion(
        choices=[{"message": {"content": None, "tool_calls": {"id": "1"}}, "index": 0}]
    ),
    "too many digits": (200, {}, b'{"choices": ' + b"9" * 5000 + b"}"),
    "too deep": (200, {}, b"[" * 100_000),
    "no such status": (999, {}, b"{}"),
    "no gzip": (200, {"Content_Encoding": "gzip"}, b"{}"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", SENSELESS.values(), ids=SENSELESS.keys())
def test_an_actor_that_makes_no_sense_is_a_gateway_error(answer: Answer, stream: bool) -> None:
    with proxied([answer]) as (server, _):
        reply = server.post(REQUEST | {"stream": stream})
    assert reply.status_code in (502, 503)
    assert reply.json()["error"]["code"] == "actor_failed"


@pytest.mark.parametrize(
    "chunk",
    [
        [],
        {"choices": "x"},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 7}}]},
        {"choices": [], "usage": {"completion_tokens": -1}},
        {"choices": [], "usage": "x"},
    ],
    ids=str,
)
def test_a_chunk_that_makes_no_sense_ends_the_stream_with_an_error(chunk: Any) -> None:
    with proxied([sse(piece({"content": "4"}), chunk)]) as (server, _):
        reply = server.post(REQUEST | {"stream": True})
    *_, last = texts(reply.text.splitlines())
    assert json.loads(last)["error"]["code"] == "actor_failed"


@pytest.mark.parametrize("listed", [{"data": "x"}, {"data": ["x"]}, {"data": [{"name": "x"}]}])
def test_a_list_of_models_that_makes_no_sense_is_a_gateway_error(listed: Any) -> None:
    with proxied([(200, {}, json.dumps(listed).encode())]) as (server, _):
        replies = [httpx2.get(f"{server.url}/models{more}") for more in ("", "/m")]
    assert [reply.status_code for reply in replies] == [502, 502]


def test_an_actor_that_is_down_is_a_gateway_error() -> None:
    with proxied([completion()]) as (server, actor):
        actor.stop()
        reply = server.post(REQUEST)
    assert reply.status_code == 502
    assert reply.json()["error"]["message"] == "the Actor cannot be asked (ConnectError)"


@pytest.mark.parametrize("stream", [False, True])
def test_a_critic_comments_on_the_actors_own_draft(stream: bool) -> None:
    answers = [completion("41"), STREAMED if stream else completion("42")]
    with proxied(answers, lambda request: "Check it.", topology="critic_actor") as (server, actor):
        reply = server.post(REQUEST | {"stream": stream, "tacit": True})
    draft, revised = actor.asked
    assert draft == {key: value for key, value in REQUEST.items() if key != "stream"}
    told = revised["messages"][3]["content"]
    assert told.startswith("And 17 + 25?\n\nSolution so far:\n<draft>\n41\n</draft>")
    assert "<comment>\nCheck it.\n</comment>" in told
    assert told.endswith("Improve your solution where the comment shows an error.")
    assert revised["messages"][0] == REQUEST["messages"][0]  # type: ignore[index]
    said = reply.text if stream else reply.json()["choices"][0]["message"]["content"]
    assert "41" not in said.partition('"tacit"')[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_draft_that_calls_tools_or_finds_no_critic_is_the_answer(stream: bool) -> None:
    critic_asked = 0

    def critic(request: Any) -> str:
        nonlocal critic_asked
        critic_asked += 1
        return SILENT

    answers = [calls_tools(), completion("41")]
    with proxied(answers, critic, topology="critic_actor") as (server, actor):
        replies = [server.post(REQUEST | {"stream": stream}) for _ in range(2)]
    assert len(actor.asked) == 2 and critic_asked == 1
    assert "tool_calls" in replies[0].text and "41" in replies[1].text
    if not stream:
        assert replies[0].json()["usage"]["total_tokens"] == 18


def test_the_published_form_wraps_nothing_around_the_clients_words() -> None:
    with proxied([completion("42")], prompts="published") as (server, actor):
        server.post(REQUEST)
    assert actor.asked[0]["messages"][3]["content"].startswith("And 17 + 25?\n\nA teammate's hint")


@pytest.mark.parametrize(
    ("key", "keys", "shown"),
    [
        ("sk-actor", (), "Bearer sk-actor"),
        (None, (), "Bearer sk-client"),
        ("sk-actor", ("sk-client",), "Bearer sk-actor"),
        (None, ("sk-client",), None),
    ],
    ids=["the actor's", "the client's own", "ours stays here", "ours stays here, none there"],
)
def test_which_key_the_actor_is_shown(
    key: str | None, keys: tuple[str, ...], shown: str | None
) -> None:
    with proxied([completion()], key=key, limits=ServerLimits(keys=keys)) as (server, actor):
        assert server.post(REQUEST, key="sk-client").status_code == 200
        headers = {name.lower(): value for name, value in actor.headers[0].items()}
    assert headers.get("authorization") == shown


def test_other_headers_pass_and_other_paths_too() -> None:
    with proxied(lambda sent: (200, {"X_Theirs": "kept"}, json.dumps(sent).encode())) as (
        server,
        actor,
    ):
        reply = httpx2.post(
            f"{server.url}/embeddings?a=b",
            json={"input": "x"},
            headers={"openai-organization": "org-1"},
        )
    assert reply.json() == {"input": "x"} and reply.headers["x-theirs"] == "kept"
    headers = {name.lower(): value for name, value in actor.headers[0].items()}
    assert headers["openai-organization"] == "org-1"


@pytest.mark.parametrize(
    "path",
    ["%252e%252e/admin", "..%5cadmin", "..;/admin", "../admin", "fine_tuning/jobs", "files", "x"],
)
def test_only_known_paths_reach_the_actor(path: str) -> None:
    with proxied([completion()]) as (server, actor):
        for method in (b"POST", b"DELETE"):
            with socket.create_connection(("127.0.0.1", port_of(server))) as raw:
                raw.sendall(
                    method + b" /v1/" + path.encode() + b" HTTP/1.1\r\nhost: localhost\r\n"
                    b"content-type: application/json\r\nconnection: close\r\n"
                    b"content-length: 2\r\n\r\n{}"
                )
                reply = b"".join(iter(lambda: raw.recv(4096), b""))
            assert reply.startswith(b"HTTP/1.1 404 ")
        assert httpx2.delete(f"{server.url}/embeddings").status_code == 405
    assert actor.asked == []


def port_of(server: Running) -> int:
    return int(server.url.split(":")[2].removesuffix("/v1"))


class Dripping:
    """A real server that sends the head of a reply and half of its body, and no more."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._socket.accept()
                self._open.append(taken)
                taken.recv(65536)
                taken.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha")
                self.asked.release()

    def stop(self) -> None:
        for one in (self._socket, *self._open):
            one.close()


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    server = Dripping()
    yield server
    server.stop()


def passing(url: str, limits: ServerLimits) -> AbstractContextManager[Running]:
    team = TeamConfig.model_validate(
        {"topology": "hint_actor", "agents": {"hinter": {}, "actor": {}}}
    )
    engines: dict[str, Engine] = {
        "hinter": ScriptedEngine(lambda request: HINT),
        "actor": ScriptedEngine(()),
    }
    roster = build_roster(with_foreign_actor(team), engines)
    return running(ProxyBackend("team", roster, Upstream(url, "k", pass_keys=False), None), limits)


def test_what_is_passed_on_keeps_its_place_until_its_body_ends(dripping: Dripping) -> None:
    with passing(dripping.url, ServerLimits(places=2, waiting=0)) as server, ExitStack() as stack:
        for _ in range(2):
            asked = httpx2.stream("POST", f"{server.url}/embeddings", json={}, timeout=20)
            assert stack.enter_context(asked).status_code == 200
            assert dripping.asked.acquire(timeout=10)
        refused = httpx2.post(f"{server.url}/embeddings", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        stack.close()  # the clients go away, and so do their requests
        while server.service.admission.inside:
            time.sleep(0.01)


def test_a_passed_on_body_that_never_ends_is_cut_at_the_deadline(dripping: Dripping) -> None:
    with (
        passing(dripping.url, ServerLimits(deadline=0.3)) as server,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        httpx2.post(f"{server.url}/embeddings", json={}, timeout=20)


def test_a_website_reaches_no_actor() -> None:
    page = {"origin": "http://evil.example", "content-type": "text/plain"}
    with proxied([completion()]) as (server, actor):
        for path in ("chat/completions", "embeddings", "audio/transcriptions"):
            reply = httpx2.post(f"{server.url}/{path}", content=json.dumps(REQUEST), headers=page)
            assert reply.status_code == 403
        del page["origin"]
        for path in ("chat/completions", "embeddings"):
            reply = httpx2.post(f"{server.url}/{path}", content=json.dumps(REQUEST), headers=page)
            assert reply.status_code == 415
    assert actor.asked == []


def test_an_actor_that_hangs_is_given_up_at_the_deadline() -> None:
    with proxied([completion()], limits=ServerLimits(deadline=0.3)) as (server, actor):
        actor.delay = 2.0
        late = [server.post(REQUEST), httpx2.post(f"{server.url}/embeddings", json={})]
    assert [reply.status_code for reply in late] == [504, 504]


def test_clients_may_ask_for_the_team_by_name() -> None:
    with proxied([completion("42")], model="gpt-of-ours") as (server, actor):
        server.post(REQUEST | {"model": "team"})
        server.post(REQUEST)
    assert [sent["model"] for sent in actor.asked] == ["gpt-of-ours", "gpt-of-theirs"]
    with proxied([completion("42")]) as (server, actor):
        assert server.post(REQUEST | {"model": "team"}).status_code == 404
    assert actor.asked == []


@pytest.mark.parametrize(
    ("team", "says"),
    [
        ({"topology": "debate", "agents": {"debater": {"count": 3}}}, "no `actor` to stand for"),
        ({"topology": "solo", "agents": {"actor": {}}}, "nobody to help the Actor"),
    ],
)
def test_a_team_without_an_actor_or_a_helper_is_refused(team: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_foreign_actor(TeamConfig.model_validate(team))


@pytest.mark.parametrize("url", ["host/v1", "ftp://host/v1", "http://", "http://host:port/v1"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no URL"):
        Upstream(url, None, pass_keys=True)


@pytest.mark.parametrize("url", ["http://me:sesame@host/v1", "https://host/v1?key=sesame"])
def test_a_url_with_a_key_in_it_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="name the key's environment variable") as told:
        Upstream(url, None, pass_keys=True)
    assert "sesame" not in str(told.value)
