"""What `tacit report` and `tacit watch` do."""

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from tacit.cli.tables import err, out
from tacit.errors import ConfigError
from tacit.report.page import open_runs, write_report
from tacit.report.text import print_runs


def run_report(
    folders: Sequence[Path], target: Path | None, *, text: bool, conversations: bool, show: bool
) -> None:
    if text:
        runs = open_runs(folders)
        for run in runs:
            run.refresh(episodes=False)
        print_runs(runs)
        return
    target = target or _target(folders)
    if target.is_dir():
        raise ConfigError(f"`{target}` is a folder: name a file with --out, like report.html")
    if target.exists() and not target.is_file():
        raise ConfigError(f"`{target}` is no plain file: name one with --out, like report.html")
    with err.status("reading"):
        write_report(folders, target, conversations=conversations)
    beside = target.with_name(f"{target.stem}.pieces")
    kept = f", with its conversations in {beside.name}/ beside it" if beside.is_dir() else ""
    out.print(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB){kept}", soft_wrap=True)
    if show:
        webbrowser.open(target.resolve().as_uri())


def _target(folders: Sequence[Path]) -> Path:
    """In the run, or beside the runs where there are several."""
    if len(folders) == 1:
        return folders[0] / "report.html"
    return Path(os.path.commonpath([folder.resolve() for folder in folders])) / "report.html"


def run_watch(folders: Sequence[Path], port: int, *, show: bool) -> None:
    from tacit.report.watch import open_server, serve

    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"`{folder}` is a file: name a run folder, or a folder of them")
    server = open_server(folders, port)
    out.print(f"watching at {server.address}", soft_wrap=True)
    out.print("Ctrl-C ends the watching; the runs go on.", style="dim")
    if show:
        webbrowser.open(server.address)
    try:
        serve(server)
    except KeyboardInterrupt:
        err.print("no longer watching")
