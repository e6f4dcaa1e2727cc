"""`tacit watch`: the report's page, live, from a server that only this machine can reach.

The server follows the run folders and tells the page when there is more (server-sent events).
Reading and acting need the token of the printed address, so that other users and other web pages on
this machine can do neither. Stop and save are left as requests in the run folder, which the
training process takes up after its step.
"""

import errno
import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qsl, urlsplit

from tacit.errors import ConfigError, RunError
from tacit.report.episodes import PIECE, Source, to_json
from tacit.report.loopback import names_loopback
from tacit.report.page import ASSETS, KINDS, SCRIPTS, fill_template, plotly_script
from tacit.report.run_page import Run
from tacit.run.folder import RunFolder, RunRequest

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Styles may be inline, since plotly writes some; scripts are the page's own files only."""

ALIVE_S = 15.0
"""How often a quiet connection is told that it is still open."""


class Watched:
    """The runs under the given folders, kept up to date."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._changed = threading.Condition()
        self.runs: list[Run] = []
        self._shown = {0}
        self.version = 0
        self.closed = False
        self.refresh()

    def refresh(self) -> None:
        """Look once, and wake whoever waits for news if there is any."""
        with self._changed:
            known = {run.folder for run in self.runs}
            there = _run_folders(self._folders)
            new = [Run(folder) for folder in there if folder not in known]
            found = len(new)
            for number, run in enumerate(self.runs):
                if new and run.folder in self._folders and run.folder not in there:
                    self.runs[number] = new.pop(0)  # it waited for a run, and holds several
            self.runs += new
            changed = [
                run.refresh(episodes=number in self._shown) for number, run in enumerate(self.runs)
            ]
            if any(changed) or found:
                self.version += 1
                self._changed.notify_all()

    def wait(self, version: int) -> int:
        """Wait for another version, or for `ALIVE_S`; returns the version then."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version or self.closed, ALIVE_S)
            return self.version

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def overviews(self, shown: Sequence[int]) -> dict[str, Any]:
        with self._changed:
            there = [number for number in shown if number < len(self.runs)]
            self._shown |= {*there}
            for number in there:
                self.runs[number].refresh()
            runs = [{"id": number, **run.overview()} for number, run in enumerate(self.runs)]
        return {"runs": runs, "piece": PIECE}

    @contextmanager
    def source(self, run: int, source: int) -> Iterator[tuple[Run, Source]]:
        """One file of episodes, which is not refreshed meanwhile."""
        with self._changed:
            one = self.runs[run]
            yield one, list(one.sources.values())[source]

    def ask(self, run: int, request: RunRequest) -> bool:
        """Leave a request for the run; False if it is not under way."""
        with self._changed:
            one = self.runs[run]
        if not one.is_running():
            return False
        RunFolder(one.folder).ask(request)
        return True


def _run_folders(folders: Sequence[Path]) -> list[Path]:
    """The run folders named or found below, the newest first; one may not be there yet."""
    found: list[Path] = []
    for folder in folders:
        ways = [f"{depth}/{name}" for depth in ("*", "*/*") for name in KINDS]
        below = [path.parent for way in ways for path in folder.glob(way)]
        found += [folder] if any((folder / name).exists() for name in KINDS) or not below else below
    return sorted(dict.fromkeys(found), key=_last_change, reverse=True)


def _last_change(run: Path) -> float:
    names = ("metrics.jsonl", "summary.json", "audit.json", *KINDS)
    return max((path.stat().st_mtime for n in names if (path := run / n).exists()), default=0.0)


class WatchServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, watched: Watched, port: int) -> None:
        self.watched = watched
        self.token = secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        """What to open. The token stands after the #, which browsers do not send."""
        return f"http://127.0.0.1:{self.server_port}/#token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error worth a traceback."""


class Handler(BaseHTTPRequestHandler):
    server: WatchServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers POST as well."""
        url = urlsplit(self.path)
        path, query = url.path.strip("/").split("/"), dict(parse_qsl(url.query))
        header = self.headers.get("X-Tacit-Token", "")
        token = query.get("token", "") if path == ["events"] else header  # events send no headers
        if not names_loopback(self.headers.get("Host", "")):  # how another site would get in
            told = "Open the address that `tacit watch` printed."
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, told)
        elif self.command == "GET" and path == [""]:
            self._send(_page().encode(), "text/html; charset=utf-8")
        elif self.command == "GET" and path[0] == "assets":
            self._asset("/".join(path[1:]))
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            told = "Open the address that `tacit watch` printed: it holds the key."
            self._refuse(HTTPStatus.FORBIDDEN, told)
        else:
            try:
                self._data([self.command, *path], query)
            except (ValueError, IndexError, OSError, RunError):
                told = "There is no such data any more; reload the page."
                self._refuse(HTTPStatus.NOT_FOUND, told)

    do_POST = do_GET

    def _asset(self, name: str) -> None:
        ours = {name: ASSETS / name for name in ("page.css", *SCRIPTS)}
        files = {**ours, "plotly.min.js": plotly_script()}
        if name not in files:
            return self._refuse(HTTPStatus.NOT_FOUND, "There is no such file.")
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        self._send(files[name].read_bytes(), f"{kind}; charset=utf-8")

    def _data(self, path: list[str], query: dict[str, str]) -> None:
        watched = self.server.watched
        match path:
            case ["GET", "events"]:
                self._events()
            case ["GET", "data", "runs"]:
                shown = [_place(one) for one in query.get("shown", "0").split(",") if one]
                self._json(watched.overviews(shown))
            case ["GET", "data", "rows", run, place]:
                with watched.source(_place(run), _place(place)) as (_, source):
                    rows = source.rows(_place(query.get("from", "0")))
                self._json(rows)
            case ["GET", "data", "piece", run, place, piece]:
                with watched.source(_place(run), _place(place)) as (one, source):
                    data = source.piece(_place(piece), one.config)
                self._send(data, "application/json")
            case ["POST", "act", what, run] if what in get_args(RunRequest):
                if watched.ask(_place(run), what):  # type: ignore[arg-type]
                    self._json({"asked": what})
                else:
                    self._refuse(HTTPStatus.CONFLICT, "This run is not under way on this machine.")
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _events(self) -> None:
        """Send each new version, and now and then a sign that the connection is open."""
        self._begin(HTTPStatus.OK, "text/event-stream", None)
        watched, version = self.server.watched, -1
        try:
            while not watched.closed:
                now = watched.wait(version)
                said = f'data: {{"version": {now}}}\n\n' if now != version else ": open\n\n"
                version = now
                self.wfile.write(said.encode())
                self.wfile.flush()
        except OSError:
            return

    def _json(self, value: Any) -> None:
        self._send(to_json(value), "application/json")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self._send(sentence.encode(), "text/plain; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._begin(status, kind, len(body))
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        """Send the head of a reply; without a length the body ends with the connection."""
        self.send_response(status)
        end = ("Connection", "close") if length is None else ("Content-Length", str(length))
        for name, value in (("Content-Type", kind), *HEADERS.items(), end):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line each."""


def _place(text: str) -> int:
    """A number from an address; a negative one would count from the end."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no place")
    return int(text)


def _page() -> str:
    names = ("plotly.min.js", *SCRIPTS)
    scripts = "\n".join(f'<script src="assets/{name}"></script>' for name in names)
    return fill_template(styles='<link rel="stylesheet" href="assets/page.css">', scripts=scripts)


def open_server(folders: Sequence[Path], port: int) -> WatchServer:
    """A server that is bound but not yet serving."""
    plotly_script()
    try:
        return WatchServer(Watched(folders), port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise ConfigError(f"port {port} is taken: name another with --port, or 0 for any") from None


def serve(server: WatchServer, every_s: float = 1.0) -> None:
    """Answer until interrupted, looking at the folders once a second."""
    answering = threading.Thread(target=server.serve_forever, daemon=True)
    answering.start()
    try:
        while answering.is_alive():
            server.watched.refresh()
            answering.join(every_s)
    finally:
        server.watched.close()
        server.shutdown()
        server.server_close()
