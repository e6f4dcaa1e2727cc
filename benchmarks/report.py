"""Whether a report of many episodes is built, opened and used quickly.

Repeats the training episodes of a real run, each time under later steps, until there are as many as
asked for; builds the page in a process of its own; opens it from disk in Chromium and uses it.

    tacit train pocket-hint --out runs/hint
    python benchmarks/report.py runs/hint --out benchmarks/results/report.json

Exit code 1 when a bar is missed. Needs Chromium and the extras `report` and `dev`.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

BARS = {
    "build_s": 60.0,
    "build_peak_mb": 1000.0,
    "page_mb": 50.0,
    "open_s": 3.0,
}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def make_run(source: Path, target: Path, episodes: int) -> int:
    """The source's folder with its training episodes repeated; returns their bytes."""
    skip = shutil.ignore_patterns("train.jsonl", "checkpoints", "report*")
    shutil.copytree(source, target, ignore=skip)
    lines = (source / "episodes" / "train.jsonl").read_bytes().splitlines(keepends=True)
    last = max(json.loads(line)["step"] for line in lines[-50:])
    with (target / "episodes" / "train.jsonl").open("wb") as file:
        for number in range(episodes):
            line = lines[number % len(lines)]
            head, tail = line.rsplit(b'"step": ', 1)
            step, rest = tail.split(b",", 1)
            later = int(step) + last * (number // len(lines))
            file.write(head + f'"step": {later},'.encode() + rest)
    return (target / "episodes" / "train.jsonl").stat().st_size


def build(run: Path) -> dict[str, float]:
    """Time and peak memory of `tacit report`."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "tacit", "report", str(run)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    pieces = sum(path.stat().st_size for path in run.glob("report.pieces/*.js"))
    return {
        "build_s": time.perf_counter() - began,
        "build_cpu_s": used.ru_utime + used.ru_stime,
        "build_peak_mb": used.ru_maxrss / 1024,
        "page_mb": (run / "report.html").stat().st_size / 1e6,
        "pieces_mb": pieces / 1e6,
    }


def browse(path: Path) -> dict[str, float]:
    """Open the page from disk, then filter, read and search, as a person would."""
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *sandbox])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        clock = page.context.new_cdp_session(page)
        clock.send("Performance.enable", {"timeDomain": "threadTicks"})
        began = time.perf_counter()
        page.goto(path.resolve().as_uri())
        page.wait_for_selector(".said")  # the list is there, and its first episode was read
        opened = time.perf_counter() - began
        metrics = clock.send("Performance.getMetrics")["metrics"]
        times = {
            "open_s": opened,
            "open_cpu_s": next(m["value"] for m in metrics if m["name"] == "TaskDuration"),
            "filter_s": _timed(page, "Answer", "wrong"),
            "read_s": _read_far_down(page),
            "search_s": _search(page),
        }
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        browser.close()
    return {**times, "heap_mb": heap}


def _timed(page: Page, name: str, value: str) -> float:
    """Seconds from choosing a filter to the list showing it."""
    before = page.text_content(".count")
    began = time.perf_counter()
    page.get_by_label(name, exact=True).select_option(value)
    page.wait_for_function(
        "text => document.querySelector('.count').textContent !== text", arg=before
    )
    return time.perf_counter() - began


def _read_far_down(page: Page) -> float:
    """Seconds from asking for the last episode to reading it."""
    before = page.text_content(".reader")
    began = time.perf_counter()
    page.locator(".list").press("End")
    page.wait_for_function(
        "text => document.querySelector('.reader').textContent !== text", arg=before
    )
    return time.perf_counter() - began


def _search(page: Page) -> float:
    """Seconds to look for words that are in no message, so that every one is read."""
    page.get_by_role("button", name="Clear").click()
    began = time.perf_counter()
    page.locator("#talk-search").fill("no such words anywhere")
    page.wait_for_function(
        "() => /^0 episodes/.test(document.querySelector('.count').textContent)"
        " && !document.querySelector('.count').textContent.includes('searched')",
        timeout=300_000,
    )
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("run", type=Path, help="a trained run with its episodes")
    parser.add_argument("--episodes", type=int, default=50_000)
    parser.add_argument("--out", type=Path, help="where to keep the result")
    parser.add_argument("--note", default="", help="what else to know of this measurement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        size = make_run(arguments.run, run, arguments.episodes)
        measured = build(run) | browse(run / "report.html")
    missed = [
        f"{name} {measured[name]:.1f} > {most:g}"
        for name, most in BARS.items()
        if measured[name] > most
    ]
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python benchmarks/report.py {arguments.run} --episodes {arguments.episodes}",
        "versions": {"python": platform.python_version(), "plotly": version("plotly")},
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "note": arguments.note,
        "episodes": arguments.episodes,
        "episodes_mb": round(size / 1e6, 1),
        "measured": {name: round(value, 2) for name, value in measured.items()},
        "bars": BARS,
        "missed": missed,
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if arguments.out:
        arguments.out.write_text(text)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
