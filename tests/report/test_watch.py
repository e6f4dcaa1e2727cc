"""The server of `tacit watch` answers this machine and its token, and nobody else."""

import json
import platform
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.report_runs import call, episode, write
from tests.helpers.training_runs import tree

pytest.importorskip("plotly", reason="needs plotly (extra report)")

from tacit.errors import ConfigError
from tacit.report.watch import WatchServer, open_server, serve
from tacit.run.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    one = RunFolder(tmp_path / "runs" / "first")
    one.write_json("config.json", tree())
    one.log_start()
    write(one.path, "metrics.jsonl", b'{"step": 1, "reward/total": 0.5}\n')
    write(one.path, "episodes/train.jsonl", episode("t/1", [call("actor", "four")], True, step=1))
    return one


@pytest.fixture
def server(run: RunFolder) -> Iterator[WatchServer]:
    one = open_server([run.path.parent], 0)
    thread = threading.Thread(target=serve, args=(one, 0.05))
    thread.start()
    yield one
    one.shutdown()
    thread.join()


def ask(
    server: WatchServer, path: str, method: str = "GET", token: str | None = "", **headers: str
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    own = server.token if token == "" else token
    more = {"X-Tacit-Token": own} if own else {}
    connection.request(method, path, headers={**more, **headers})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def told(server: WatchServer, path: str) -> Any:
    answer, body = ask(server, path)
    assert answer.status == 200, body
    return json.loads(body)


def test_only_loopback_is_listened_on(server: WatchServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError):
        other.settimeout(5)
        other.connect((_own_address(), server.server_port))


def _own_address() -> str:
    """This machine's address on its network, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        pytest.skip("this machine has no network")
    return address


def test_a_page_and_its_data(server: WatchServer) -> None:
    answer, body = ask(server, "/", token=None)
    assert answer.status == 200
    policy = answer.getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert b"<script>" not in body, "scripts are files of the page's own"
    for script in ("main.js", "plotly.min.js", "page.css"):
        assert ask(server, f"/assets/{script}", token=None)[0].status == 200
    (run,) = told(server, "/data/runs")["runs"]
    assert run["label"] == "first"
    assert run["state"]["status"] == "running"
    assert told(server, "/data/rows/0/0?from=0")["tasks"] == ["t/1"]
    assert told(server, "/data/rows/0/0?from=1")["columns"]["step"] == []
    (played,) = told(server, "/data/piece/0/0/0")["episodes"]
    assert played["calls"][0]["text"] == "four"


@pytest.mark.parametrize("token", [None, "wrong", "é"])
@pytest.mark.parametrize("path", ["/data/runs", "/data/piece/0/0/0", "/events"])
def test_data_needs_the_token(server: WatchServer, path: str, token: str | None) -> None:
    answer, body = ask(server, path, token=token and token.encode().decode("latin-1"))
    assert answer.status == 403
    assert b"four" not in body
    assert b"tacit watch" in body


@pytest.mark.parametrize("token", [None, "wrong"])
def test_actions_need_the_token(server: WatchServer, run: RunFolder, token: str | None) -> None:
    assert ask(server, "/act/stop/0", "POST", token=token)[0].status == 403
    assert not run.take("stop")


def test_actions_are_left_as_word_in_the_folder(server: WatchServer, run: RunFolder) -> None:
    for what in ("stop", "save"):
        assert ask(server, f"/act/{what}/0", "POST")[0].status == 200
        assert run.take(what)  # type: ignore[arg-type]
    for path in ("/act/delete/0", "/act/stop/7", "/act/stop/..", "/act/stop/0/x"):
        assert ask(server, path, "POST")[0].status == 404
    assert ask(server, "/act/stop/0", "GET")[0].status == 404
    assert not (run.path / "asked").exists() or not list((run.path / "asked").iterdir())


def test_nobody_is_asked_to_stop_where_nobody_runs(server: WatchServer, run: RunFolder) -> None:
    gone = {"pid": 2**22 + 1, "host": platform.node()}
    run.append("started.jsonl", json.dumps(gone).encode())
    server.watched.refresh()
    assert ask(server, "/act/stop/0", "POST")[0].status == 409
    assert not run.take("stop")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_sites_name_gets_nothing(server: WatchServer, run: RunFolder, host: str) -> None:
    for path, method in (("/", "GET"), ("/data/runs", "GET"), ("/act/stop/0", "POST")):
        answer, body = ask(server, path, method, Host=host)
        assert answer.status == 421
        assert b"first" not in body
    assert not run.take("stop")


@pytest.mark.parametrize(
    "path",
    ["/assets/../watch.py", "/assets/page.html", "/data/rows/9/0", "/data/rows/0/9", "/data/x",
     "/data/piece/0/0/-1", "/data/rows/-1/0", "/data/rows/a/b", "/nothing"],
)  # fmt: skip
def test_what_is_not_there_is_not_found(server: WatchServer, path: str) -> None:
    assert ask(server, path)[0].status == 404


def test_news_are_told_as_they_come(server: WatchServer, run: RunFolder) -> None:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", f"/events?token={server.token}")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    first = answer.readline()
    assert first.startswith(b"data: ")
    run.append("metrics.jsonl", b'{"step": 2, "reward/total": 0.75}')
    answer.readline()
    assert answer.readline() not in (first, b""), "another version"
    told_steps = told(server, "/data/runs?shown=0")["runs"][0]["metrics"]["steps"]
    assert told_steps == [1, 2]
    answer.close()
    connection.close()


def test_runs_that_come_later_are_found(server: WatchServer, run: RunFolder) -> None:
    later = RunFolder(run.path.parent / "later")
    later.write_json("config.json", tree(name="later"))
    server.watched.refresh()
    assert [one["label"] for one in told(server, "/data/runs")["runs"]] == ["first", "later"]
    RunFolder(run.path.parent / "app").write_json("recording.json", {"to": "http://127.0.0.1/v1"})
    server.watched.refresh()
    app = told(server, "/data/runs")["runs"][-1]
    assert app["label"] == "app" and "has not been audited" in app["notes"][0]


def test_a_folder_that_waits_for_its_first_run_gives_it_its_place(tmp_path: Path) -> None:
    server = open_server([tmp_path / "runs"], 0)
    try:
        assert [run.overview()["state"]["status"] for run in server.watched.runs] == ["waiting"]
        for name in ("one", "two"):
            RunFolder(tmp_path / "runs" / name).write_json("config.json", tree(name=name))
        server.watched.refresh()
        assert sorted(run.label for run in server.watched.runs) == ["one", "two"]
    finally:
        server.server_close()


def test_conversations_of_runs_not_shown_are_not_read(server: WatchServer, run: RunFolder) -> None:
    other = run.path.parent / "other"
    write(other, "config.json", tree())
    write(other, "episodes/x.jsonl", episode("t", [call("a", "b")], True))
    server.watched.refresh()
    assert [len(one["sources"]) for one in told(server, "/data/runs")["runs"]] == [1, 0]
    assert [len(one["sources"]) for one in told(server, "/data/runs?shown=1")["runs"]] == [1, 1]


def test_a_port_that_is_taken_is_one_sentence(server: WatchServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"port {server.server_port} is taken: .*--port"):
        open_server([tmp_path], server.server_port)
