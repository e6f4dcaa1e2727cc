"""What `tacit record` does: stands between an app and its model server, and keeps who said what.

With `--program` it also runs the app, once for each task, and keeps what it answered.
"""

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tacit.cli.terminal import err
from tacit.economy.ledger import ledger
from tacit.errors import ConfigError, EngineError, GradingError
from tacit.external.calls import CALLS, CallLog, KeylessFolder, Record, read_calls
from tacit.external.passing import Exchange, PassThrough
from tacit.external.program import answer_of, find_program
from tacit.external.reading import ABOUT, OUTCOMES, Recording, about, read_recording
from tacit.grading import grade
from tacit.report.loopback import is_loopback
from tacit.serve.http_server import BACKLOG, asked_to_stop, bind, serve
from tacit.serve.upstream import Upstream
from tacit.tasks import load_tasks
from tacit.types import Task

GRACE = 30.0
"""Seconds for calls under way to end when the recording is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """The command's options; docs/external.md says what they are for."""

    to: str
    out: Path
    host: str
    port: int
    key_env: str | None
    pause: float
    program: str | None
    tasks: str | None
    split: str | None
    limit: int | None
    at_once: int | None
    quiet: bool


async def run_record(options: RecordOptions) -> None:
    """Record until told to stop, or until the program has done its tasks."""
    tasks, key = _tasks(options), _key(options)
    upstream = Upstream(
        options.to, key, pass_keys=True, name="the server", options=("--to", "--key-env")
    )
    run = check_folder(options)
    run.hide(key)
    sock = bind(options.host, options.port)
    with run.held():
        run.write_json(ABOUT, {"to": upstream.url, "pause": options.pause})
        run.log_start()
        kept = CallLog(run)

        def keep(exchange: Exchange) -> None:
            record = kept.keep(exchange)
            if not options.quiet:
                _say(_line(record))

        app = PassThrough(upstream, keep, keys=kept.keys)
        sock.listen(BACKLOG)  # whoever reads the next line can connect
        host, port = sock.getsockname()[:2]
        base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        _say(f"recording calls to {upstream.url} at {base}/v1, in {run.path}")
        with asked_to_stop() as asked:
            serving = asyncio.create_task(serve(app, app, sock, GRACE, asked))
            try:
                if options.program:
                    await _play(run, options, tasks, base, serving)
            finally:
                if options.program:
                    asked.release()
                await serving
                await upstream.close()
        lost = f"; {kept.lost} could not be kept" if kept.lost else ""
        _say(f"recorded {kept.kept} requests, {kept.failed} of them failed{lost}")
        show_recording(read_recording(run.path))


_say = partial(err.print, soft_wrap=True)


def check_folder(options: RecordOptions) -> KeylessFolder:
    """A new folder, or one with a recording of the same server, which goes on."""
    path = options.out
    if path.exists() and not path.is_dir():
        raise ConfigError(f"`{path}` is a file: name a folder with --out")
    if (path / ABOUT).exists():
        if (before := about(path)["to"]) != options.to.rstrip("/"):
            raise ConfigError(f"`{path}` holds calls to {before}: name another folder with --out")
    elif path.exists() and any(path.iterdir()):
        raise ConfigError(f"`{path}` is not a recording and not empty: name another with --out")
    return KeylessFolder(path)


def show_recording(recording: Recording) -> None:
    """Who said how much in which episodes, and what is missing."""
    rows = ledger(recording.episodes)
    records = [one for group in recording.records.values() for one in group]
    how = ", told apart by pauses," if any(one.episode is None for one in records) else ""
    _say(f"{len(recording.episodes)} episodes{how} by {len({row.agent for row in rows})} agents")
    for row in rows:
        _say(
            f"  {row.agent} ({row.model}): {row.calls} calls, {row.tool_calls} of tools, "
            f"{row.usage.prompt} tokens read, {row.usage.generated} generated"
        )
    for note in recording.notes:
        _say(f"note: {note}")


def _line(record: Record) -> str:
    said = record.error or ("refused" if record.failed else "")
    episode = f" of {record.episode}" if record.episode else ""
    took = record.end - record.start
    return f"{record.status} {record.path}{episode} {took:.2f} s {said}".rstrip()


def _tasks(options: RecordOptions) -> list[Task]:
    if not options.program:
        given = [name for name in ("tasks", "split", "limit", "at_once") if getattr(options, name)]
        if given:
            flag = given[0].replace("_", "-")
            raise ConfigError(f"--{flag} is for the tasks that --program runs on: add --program")
        return []
    if not options.tasks:
        raise ConfigError("--program needs --tasks: a task set, or a .jsonl file")
    find_program(options.program)
    return load_tasks(options.tasks, split=options.split or "test", limit=options.limit)


def _key(options: RecordOptions) -> str | None:
    """The server's key. Without the option, clients show their own."""
    if options.key_env is None:
        return None
    key = os.environ.get(options.key_env)
    if not key:
        raise ConfigError(f"--key-env: the environment variable {options.key_env} is not set")
    if not is_loopback(options.host):
        raise ConfigError(
            f"{options.host} can be reached from other machines, which would all use the key in "
            f"{options.key_env}: leave --key-env out and let the app send its own"
        )
    return key


async def _play(
    run: KeylessFolder,
    options: RecordOptions,
    tasks: Sequence[Task],
    base: str,
    serving: asyncio.Task[None],
) -> None:
    """Run the program on each task that has no outcome yet, until all are done or it is stopped."""
    run.mend(OUTCOMES)
    known = read_recording(run.path)
    used = {record.episode for record in read_calls(run.path, CALLS)}
    left = [task for task in tasks if task.id not in known.done]
    total, ended = len(left), itertools.count(1)

    async def player() -> None:
        while left:
            task = left.pop(0)
            line = await _outcome(options, task, base, _unused(task.id, used))
            run.append(OUTCOMES, json.dumps(line).encode())
            mark = line["grade"] and ("right" if line["grade"]["right"] else "wrong")
            said = line["error"] or mark or ""
            _say(run.hidden(f"{next(ended)} of {total}: {task.id} {said}".rstrip()))

    playing: asyncio.Future[Any] = asyncio.gather(*(player() for _ in range(options.at_once or 1)))
    await asyncio.wait({playing, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        playing.cancel()
    with suppress(asyncio.CancelledError):
        await playing


async def _outcome(options: RecordOptions, task: Task, base: str, episode: str) -> dict[str, Any]:
    """Run the program on one task; says why it has no answer, or no grade."""
    assert options.program is not None
    answer, graded, error, broke = "", None, None, False
    try:
        url = f"{base}/{quote(episode, safe='')}/v1"
        answer = await answer_of(options.program, url, task)
        graded = await grade(task, answer) if task.answer else None
    except GradingError as failure:
        error = str(failure)
    except (ConfigError, EngineError) as failure:
        error, broke = str(failure), True
    return {
        "episode": episode,
        "task": task.id,
        "level": task.level,
        "answer": answer,
        "grade": asdict(graded) if graded else None,
        "error": error,
        "broke": broke,
    }


def _unused(name: str, used: set[str | None]) -> str:
    """A task that was broken off is another episode the next time."""
    number, found = 1, name
    while found in used:
        number += 1
        found = f"{name} ({number})"
    used.add(found)
    return found
