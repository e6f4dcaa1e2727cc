"""`tacit record`: nothing is changed on the way, what was said is kept, and no key is."""

import gzip
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tacit.errors import ConfigError
from tacit.external.calls import read_calls
from tacit.external.reading import read_recording
from tests.helpers.commands import Process, tacit_
from tests.helpers.loopback import Server, completion, failure
from tests.helpers.model_server import ModelServer, model_server
from tests.helpers.serving import log_of, served
from tests.helpers.waiting import wait_for

KEY = "sk-a-secret-of-theirs-0123456789"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CHAT: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "You are the Planner."},
        {"role": "user", "content": [{"type": "text", "text": "What is in it?"}, IMAGE]},
    ],
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
    "tool_choice": "auto",
    "response_format": {"type": "text"},
    "stop": ["\n\n"],
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "a_field_of_next_year": {"deep": [1.0, 1e-300, None, "\u00e9\U0001f600 \ud83d"]},
}
REQUESTS: dict[str, tuple[str, Any]] = {
    "chat": ("chat/completions", CHAT),
    "chat stream": ("chat/completions", CHAT | {"n": 1, "stream": True}),
    "completions": ("completions", {"model": "small", "prompt": "Once"}),
    "completions stream": ("completions", {"model": "small", "prompt": "Once", "stream": True}),
    "responses": ("responses", {"model": "small", "input": "Hello", "instructions": "Be."}),
    "responses stream": ("responses", {"model": "small", "input": "Hello", "stream": True}),
    "embeddings": ("embeddings", {"model": "small", "input": ["a", "b"]}),
    "models": ("models", None),
}


@contextmanager
def recording(here: Path, to: str, *more: str, **variables: str) -> Iterator[tuple[str, Process]]:
    with served(here, "--to", to, "--out", "kept", *more, verb="record", **variables) as found:
        yield found


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


def ask(base: str, path: str, body: bytes | None, **headers: str) -> httpx2.Response:
    named = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    method = "GET" if body is None else "POST"
    return httpx2.request(method, f"{base}/{path}", content=body, headers=named, timeout=30)


def test_requests_and_replies_pass_byte_by_byte(tmp_path: Path, server: ModelServer) -> None:
    bodies = {
        name: (path, None if body is None else json.dumps(body, indent=1).encode())
        for name, (path, body) in REQUESTS.items()
    }
    direct = {name: ask(server.url, *asked) for name, asked in bodies.items()}
    sent, replied = [*server.asked], [*server.replies]
    server.forget()
    with recording(tmp_path, server.url) as (base, process):
        passed = {name: ask(base, *asked) for name, asked in bodies.items()}
        log_of(process)
    assert server.asked == sent and server.replies == replied
    for name in REQUESTS:
        assert passed[name].status_code == direct[name].status_code == 200, name
        assert passed[name].content == direct[name].content, name
        ours, theirs = (dict(reply.headers) for reply in (passed[name], direct[name]))
        assert ours | {"date": ""} == theirs | {"date": ""}, name
    assert all(shown["authorization"] == f"Bearer {KEY}" for shown in server.headers)
    records = [*read_calls(tmp_path / "kept")]
    assert [(r.path, r.request) for r in records] == [*REQUESTS.values()]
    assert records[0].response == direct["chat"].json()


def test_an_app_in_a_container_is_recorded_and_a_rebound_name_is_told_what_to_do(
    tmp_path: Path, server: ModelServer
) -> None:
    with recording(tmp_path, server.url) as (base, _):
        port = base.split(":")[2].removesuffix("/v1")
        path, body = REQUESTS["chat"]
        app = ask(base, path, json.dumps(body).encode(), host=f"host.docker.internal:{port}")
        page = ask(base, "models", None, host=f"host.docker.internal:{port}")
        site = ask(base, "models", None, host=f"evil.example:{port}")
    assert (app.status_code, page.status_code, site.status_code) == (200, 421, 421)
    assert "localhost in the URL, or send `Host: localhost`" in site.json()["error"]["message"]


def test_a_stream_is_kept_as_the_reply_that_would_have_come_whole(
    tmp_path: Path, server: ModelServer
) -> None:
    paths = ("chat/completions", "completions", "responses")
    bodies = [REQUESTS[name][1] for name in ("chat", "completions", "responses")]
    add = {"name": "add", "parameters": {"type": "object", "properties": {}}}
    messages = [{"role": "user", "content": "What is 17 + 25?"}]
    calls_tool = {"model": "small", "messages": messages}
    calls_tool |= {"tools": [{"type": "function", "function": add}]}
    with recording(tmp_path, server.url) as (base, process):
        for path, body in zip((*paths, paths[0]), (*bodies, calls_tool), strict=True):
            for streams in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
                ask(base, path, json.dumps({**body, "n": 1, **streams}).encode())
        log_of(process)
    records = [*read_calls(tmp_path / "kept")]
    for whole, streamed in zip(records[::2], records[1::2], strict=True):
        assert (whole.streamed, streamed.streamed, streamed.error) == (False, True, None)
        assert _plain(streamed.response) == _plain(whole.response)
    assert records[-1].response["choices"][0]["finish_reason"] == "tool_calls"
    assert records[-1].response["usage"]["completion_tokens"] > 0


def _plain(reply: dict[str, Any]) -> Any:
    """Without what depends on the request's bytes, or what no stream tells."""
    text = json.dumps(reply["choices"] if "choices" in reply else reply["output"])
    tag = reply["id"].rpartition("_")[2].removeprefix("chatcmpl-").removeprefix("cmpl-")
    tree = json.loads(text.replace(tag, "TAG").replace('"refusal": null', '"refusal": 0'))
    for choice in tree:
        choice.pop("logprobs", None)
        choice.get("message", {}).pop("refusal", None)
        said = choice.get("message", choice)
        for name in ("content", "text"):  # remarks quote a digest of the request
            if isinstance(said.get(name), str):
                said[name] = said[name].split(":")[-1]
            for part in said[name] if isinstance(said.get(name), list) else ():
                part["text"] = part["text"].split(":")[-1]
    return tree


def test_no_key_is_kept_or_logged(tmp_path: Path) -> None:
    """Not the client's, nor ours, nor those of a tool's server; also where the server quotes it."""
    quoted = f"Incorrect API key provided: {KEY}"
    upstream = Server(
        [failure(401, quoted), completion("yes"), failure(500, "ours-0123456789abcdef")]
    )
    tool = {"type": "mcp", "server_url": "https://x", "authorization": KEY, "headers": {"k": KEY}}
    with recording(tmp_path, upstream.url) as (base, process):
        refused = ask(base, "chat/completions", json.dumps(CHAT).encode())
        ask(base, "responses", json.dumps({"model": "m", "input": "a", "tools": [tool]}).encode())
        log = log_of(process)
    with recording(tmp_path, upstream.url, "--key-env", "OURS", OURS="ours-0123456789abcdef") as (
        base,
        process,
    ):
        ask(base, "chat/completions", json.dumps(CHAT).encode(), api_key=KEY)
        log += log_of(process)
    upstream.stop()
    assert refused.status_code == 401 and quoted in refused.text
    shown = [headers["authorization"] for headers in upstream.headers]
    assert shown == [f"Bearer {KEY}"] * 2 + ["Bearer ours-0123456789abcdef"]
    assert upstream.asked[1]["tools"] == [tool]
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        text = file.read_text(encoding="utf-8")
        assert "sk-a-secret" not in text and "ours-0123" not in text, file
    assert "sk-a-secret" not in log and "ours-0123" not in log
    first, second, third = read_calls(tmp_path / "kept")
    assert first.failed and "[key]" in first.response["error"]["message"]
    assert second.request["tools"][0]["headers"] == "[key]"
    assert (first.key, second.key, third.key) == ("key 1", "key 1", "key 1 of start 2")


def test_no_key_is_kept_or_logged_that_a_program_breaks_with(tmp_path: Path) -> None:
    upstream = Server([failure(401, f"Incorrect API key provided: {KEY}")])
    (tmp_path / "my_app.py").write_text(PROGRAM.replace('"any"', repr(KEY)), encoding="utf-8")
    line = {"id": "sum", "question": "What is 17 + 25?", "answer": "42"}
    (tmp_path / "tasks.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
    order = ("--program", "my_app:solve", "--tasks", "tasks.jsonl", "--port", "0")
    done = tacit_(tmp_path, "record", "--to", upstream.url, "--out", "kept", *order)
    upstream.stop()
    outcome = (tmp_path / "kept" / "outcomes.jsonl").read_text(encoding="utf-8")
    for text in (outcome, done.stderr):
        assert "Incorrect API key provided: [key]" in text and KEY not in text


def test_a_key_may_carry_labels_which_stay_here(tmp_path: Path, server: ModelServer) -> None:
    body = json.dumps(CHAT).encode()
    with recording(tmp_path, server.url) as (base, process):
        for key in (f"tacit/run 7/critic:{KEY}", f"tacit/run 8:{KEY}", "tacit/run 9"):
            ask(base, "chat/completions", body, authorization=f"Bearer {key}")
        log_of(process)
    assert [shown.get("authorization") for shown in server.headers] == [
        *[f"Bearer {KEY}"] * 2,
        None,
    ]
    told = [(record.episode, record.role, record.key) for record in read_calls(tmp_path / "kept")]
    assert told == [("run 7", "critic", "key 1"), ("run 8", None, "key 1"), ("run 9", None, None)]


def test_headers_and_paths_name_episodes_and_agents_and_stay_here(
    tmp_path: Path, server: ModelServer
) -> None:
    body = json.dumps(CHAT).encode()
    with recording(tmp_path, server.url) as (base, process):
        ask(base, "chat/completions", body, x_tacit_episode="one", x_tacit_role="critic")
        ask(base.replace("/v1", "/two%2Fhalves/v1"), "chat/completions?a=b", body)
        nothing = ask(base.removesuffix("/v1"), "chat/completions", body)
        log_of(process)
    assert not any(name.startswith("x-tacit") for shown in server.headers for name in shown)
    told = [(record.episode, record.role) for record in read_calls(tmp_path / "kept")]
    assert told == [("one", "critic"), ("two/halves", None)]
    assert nothing.status_code == 404 and "/v1" in nothing.json()["error"]["message"]


def test_a_recording_can_be_audited_while_it_goes_on(tmp_path: Path, server: ModelServer) -> None:
    with recording(tmp_path, server.url) as (base, process):
        ask(base, "chat/completions", json.dumps(CHAT).encode())
        done = tacit_(tmp_path, "audit", "kept")
        assert done.returncode == 0 and "Planner" in done.stdout, done.stderr
        again = tacit_(tmp_path, "record", "--to", server.url, "--out", "kept", "--port", "0")
        assert again.returncode == 2 and "in use by another process" in again.stderr
        log_of(process)


def test_what_fails_is_passed_on_kept_and_left_out(tmp_path: Path) -> None:
    upstream = Server([failure(429, "slow down", retry_after="7"), completion("42")])
    body = json.dumps(CHAT).encode()
    with recording(tmp_path, upstream.url) as (base, process):
        late = ask(base, "chat/completions", body)
        ask(base, "chat/completions", body)
        log = log_of(process)
    upstream.stop()
    assert (late.status_code, late.headers["retry-after"]) == (429, "7")
    assert late.json()["error"]["message"] == "slow down"
    assert "recorded 2 requests, 1 of them failed" in log
    assert "1 episodes, told apart by pauses, by 1 agents" in log
    assert "note: 1 call failed and is left out" in log
    kept = read_recording(tmp_path / "kept")
    assert kept.failed == 1 and "1 call failed and is left out" in kept.notes
    assert [[call.text for call in episode.calls] for episode in kept.episodes] == [["42"]]


def test_a_server_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        with recording(tmp_path, url) as (base, process):
            broken = ask(base, "chat/completions", json.dumps(CHAT).encode())
            log_of(process)
    assert broken.status_code == 502 and "the server cannot be asked" in broken.text
    (record,) = read_calls(tmp_path / "kept")
    assert record.failed and record.error == "the server cannot be asked (ConnectError)"


def test_a_cookie_goes_back_to_nobody_but_its_client(tmp_path: Path) -> None:
    status, headers, reply = completion("42")
    upstream = Server([(status, {"Set_Cookie": "session=of-one; Path=/"} | headers, reply)])
    body = json.dumps(CHAT).encode()
    with recording(tmp_path, upstream.url) as (base, process):
        first = ask(base, "chat/completions", body)
        ask(base, "chat/completions", body)
        ask(base, "chat/completions", body, cookie="session=of-another")
        log_of(process)
    upstream.stop()
    assert first.headers["set-cookie"] == "session=of-one; Path=/"
    shown = [headers.get("cookie") for headers in upstream.headers]
    assert shown == [None, None, "session=of-another"]


def test_a_reply_without_a_body_took_some_time(tmp_path: Path) -> None:
    upstream = Server([(200, {"Content-Type": "text/plain"}, b"")])
    with recording(tmp_path, upstream.url) as (base, process):
        ask(base, "chat/completions", json.dumps(CHAT).encode())
        log_of(process)
    upstream.stop()
    (record,) = read_calls(tmp_path / "kept")
    assert 0 < record.end - record.start < 60


def test_a_stream_that_breaks_off_breaks_off_for_the_client(tmp_path: Path) -> None:
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "fo"}}]}\n\n'
    head = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
    chunk = b"%x\r\n%s\r\n" % (len(half), half)  # and no chunk that says it is the last
    upstream = Server([(200, {**head, "Connection": "close"}, chunk)])
    with recording(tmp_path, upstream.url) as (base, process):
        with pytest.raises(httpx2.RemoteProtocolError):
            ask(base, "chat/completions", json.dumps(CHAT).encode())
        wait_for(lambda: [*read_calls(tmp_path / "kept")])
        log_of(process)
    upstream.stop()
    (record,) = read_calls(tmp_path / "kept")
    assert record.failed and record.response["choices"][0]["message"]["content"] == "fo"


def test_a_stream_that_makes_no_sense_passes_all_the_same(tmp_path: Path) -> None:
    pieces = [{"index": "0", "delta": {"content": "a"}}, {"index": [1], "delta": [2]}]
    events = [b"data: " + json.dumps({"choices": [piece]}).encode() + b"\n\n" for piece in pieces]
    stream = b"".join(events) + b"data: [DONE]\n\n"
    upstream = Server([(200, {"Content-Type": "text/event-stream"}, stream)])
    with recording(tmp_path, upstream.url) as (base, process):
        passed = ask(base, "chat/completions", json.dumps(CHAT).encode())
        log_of(process)
    upstream.stop()
    assert passed.content == stream
    (record,) = read_calls(tmp_path / "kept")
    assert not record.failed and record.response["choices"][0]["message"]["content"] == "a"


def test_a_compressed_reply_is_passed_on_as_it_is(tmp_path: Path) -> None:
    """We ask for none, but some servers compress all the same."""
    status, headers, reply = completion("42")
    packed = gzip.compress(reply)
    upstream = Server([(status, {"Content_Encoding": "gzip", **headers}, packed)])
    with recording(tmp_path, upstream.url) as (base, process):
        passed = ask(base, "chat/completions", json.dumps(CHAT).encode())
        log_of(process)
    upstream.stop()
    assert passed.json()["choices"][0]["message"]["content"] == "42"
    (record,) = read_calls(tmp_path / "kept")
    assert record.response["choices"][0]["message"]["content"] == "42"


def test_a_client_that_hangs_up_ends_the_call(tmp_path: Path) -> None:
    upstream = Server([completion("late")], delay=3.0)
    with recording(tmp_path, upstream.url) as (base, process):
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{base}/chat/completions", json={"model": "m"}, timeout=0.3)
        wait_for(lambda: [*read_calls(tmp_path / "kept")])
        log_of(process)
    upstream.stop()
    (record,) = read_calls(tmp_path / "kept")
    assert (record.status, record.error) == (0, "the client went away") and record.failed


def test_a_client_that_stops_at_the_end_of_a_stream_has_it_all(
    tmp_path: Path, server: ModelServer
) -> None:
    with recording(tmp_path, server.url) as (base, process):
        client = OpenAI(base_url=base, api_key=KEY)
        messages: Any = [{"role": "user", "content": "Hello"}]
        with client.chat.completions.create(model="m", messages=messages, stream=True) as stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        log_of(process)
    (record,) = read_calls(tmp_path / "kept")
    assert not record.failed
    assert record.response["choices"][0]["message"]["content"] == text


def test_it_survives_a_kill_and_goes_on(tmp_path: Path, server: ModelServer) -> None:
    body = json.dumps(CHAT).encode()
    with recording(tmp_path, server.url) as (base, process):
        ask(base, "chat/completions", body)
        process.send_signal(signal.SIGKILL)
        process.wait()
    path = tmp_path / "kept" / "calls.jsonl"
    with path.open("ab") as file:
        file.write(b'{"start": 1.0, "en')  # half a line, as a kill leaves it
    assert len([*read_calls(tmp_path / "kept")]) == 1
    with recording(tmp_path, server.url) as (base, process):
        ask(base, "chat/completions", body)
        log_of(process)
    keys = [record.key for record in read_calls(tmp_path / "kept")]
    assert keys == ["key 1", "key 1 of start 2"]
    (episode,) = read_recording(tmp_path / "kept").episodes
    assert [call.agent for call in episode.calls] == ["Planner", "Planner"], "still one agent"


def test_a_disk_that_cannot_be_written_does_not_stop_the_app(
    tmp_path: Path, server: ModelServer
) -> None:
    body = json.dumps(CHAT).encode()
    path = tmp_path / "kept" / "calls.jsonl"
    with recording(tmp_path, server.url) as (base, process):
        path.mkdir()
        assert ask(base, "chat/completions", body).status_code == 200
        path.rmdir()
        assert ask(base, "chat/completions", body).status_code == 200
        log = log_of(process)
    assert "a call could not be kept: Is a directory" in log
    assert "recorded 1 requests, 0 of them failed; 1 could not be kept" in log
    assert len([*read_calls(tmp_path / "kept")]) == 1


def test_it_runs_a_program_on_tasks(tmp_path: Path, server: ModelServer) -> None:
    (tmp_path / "my_app.py").write_text(PROGRAM, encoding="utf-8")
    lines = [
        {"id": "sum/1", "question": "What is 17 + 25?", "answer": "42", "grader": "math"},
        {"id": "sum/2", "question": "What is 1 + 1?", "answer": "2", "grader": "math"},
        {"id": "bad", "question": "Fail!", "answer": "2", "grader": "math"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "tasks.jsonl").write_text(text, encoding="utf-8")
    order = ("record", "--to", server.url, "--out", "kept", "--port", "0")
    order += ("--program", "my_app:solve", "--tasks", "tasks.jsonl", "--at-once", "2")
    done = tacit_(tmp_path, *order)
    assert done.returncode == 0, done.stderr
    episodes = {one.task_id: one for one in read_recording(tmp_path / "kept").episodes}
    assert episodes["sum/1"].answer == "The sum is 42" and episodes["sum/1"].grade is not None
    assert episodes["sum/1"].grade.right and len(episodes["sum/1"].calls) == 2
    assert episodes["bad"].error is not None and "no sum" in episodes["bad"].error
    assert episodes["bad"].grade is not None and not episodes["bad"].grade.right
    asked = len(server.asked)
    again = tacit_(tmp_path, *order)
    assert again.returncode == 0 and len(server.asked) == asked, "done tasks are not run again"


def test_a_program_without_an_answer_has_failed_one_task_and_the_others_go_on(
    tmp_path: Path, server: ModelServer
) -> None:
    """Also one that wants to end the whole process."""
    app = "def solve(base_url, task):\n    return exec(task.question) or 'four'\n"
    (tmp_path / "my_app.py").write_text(app.replace("or 'four'", "if task.level else 'four'"))
    rows = [("none", "pass", "hard"), ("exit", "import sys; sys.exit(3)", "hard"), ("fine", "", "")]
    lines = [
        {"id": name, "question": f"0\n{code}", "level": level, "answer": "4"}
        for name, code, level in rows
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    order = ("--program", "my_app:solve", "--tasks", "tasks.jsonl", "--port", "0")
    done = tacit_(tmp_path, "record", "--to", server.url, "--out", "kept", *order)
    assert done.returncode == 0, done.stderr
    assert "none my_app:solve must return its answer as text, not NoneType" in done.stderr
    assert "exit my_app:solve: SystemExit: 3" in done.stderr
    assert "3 of 3: fine" in done.stderr and "3 episodes by 0 agents" in done.stderr


def test_what_the_server_failed_at_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(PROGRAM, encoding="utf-8")
    lines = [{"id": f"sum/{n}", "question": f"What is 17 + {n}?", "answer": "1"} for n in range(2)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    upstream = Server([failure(401, "no such key"), completion("42")])
    order = ("record", "--to", upstream.url, "--out", "kept", "--port", "0")
    order += ("--program", "my_app:solve", "--tasks", "tasks.jsonl")
    first = tacit_(tmp_path, *order)
    told = "not recorded to the end: 1 of the tasks, which `tacit record` with the same options"
    assert told in first.stderr
    second = tacit_(tmp_path, *order)
    upstream.stop()
    assert "1 of 1: sum/0 wrong" in second.stderr and "not recorded" not in second.stderr
    assert len(upstream.asked) == 1 + 2 + 2
    graded = {one.task_id for one in read_recording(tmp_path / "kept").episodes if one.grade}
    assert graded == {"sum/0 (2)", "sum/1"}


PROGRAM = """
import re
from openai import OpenAI

def solve(base_url, task):
    assert not task.answer
    with OpenAI(base_url=base_url, api_key="any") as client:
        for part in ("planner", "solver"):
            told = [{"role": "system", "content": f"You are the {part}."}]
            client.chat.completions.create(
                model="m", messages=[*told, {"role": "user", "content": task.question}]
            )
    found = re.search(r"(\\d+) \\+ (\\d+)", task.question)
    if not found:
        raise ValueError("no sum")
    return f"The sum is {int(found[1]) + int(found[2])}"
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "ftp://x"), "--to: `ftp://x` is no URL"),
        (("--to", "https://key@x/v1"), "--to: an address is no place for a key"),
        (("--to", "http://x/v1", "--key-env", "NOT_SET"), "NOT_SET is not set"),
        (("--to", "http://x/v1", "--program", "a:b"), "--program needs --tasks"),
        (("--to", "http://x/v1", "--tasks", "a.jsonl"), "--tasks is for the tasks that --program"),
        (("--to", "http://x/v1", "--split", "test"), "--split is for the tasks that --program"),
        (("--to", "http://x/v1", "--limit", "3"), "--limit is for the tasks that --program"),
        (("--to", "http://x/v1", "--at-once", "1"), "--at-once is for the tasks that --program"),
        (("--to", "http://x/v1", "--out", "full"), "not a recording and not empty"),
        (("--to", "http://x/v1", "--out", "theirs"), "holds calls to http://y/v1"),
    ],
)
def test_a_mistake_is_answered_in_a_sentence(
    tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    for folder, name, text in (
        ("full", "letter.txt", "Dear"),
        ("theirs", "recording.json", '{"to": "http://y/v1", "pause": 1}'),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text, encoding="utf-8")
    done = tacit_(tmp_path, "record", *arguments)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "theirs"]


def test_a_key_of_ours_is_not_lent_to_other_machines(tmp_path: Path) -> None:
    order = ("record", "--to", "http://x/v1", "--host", "0.0.0.0", "--key-env", "OURS")
    done = tacit_(tmp_path, *order, OURS="a-key")
    assert done.returncode == 2 and "can be reached from other machines" in done.stderr


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no recording"):
        read_recording(tmp_path)
