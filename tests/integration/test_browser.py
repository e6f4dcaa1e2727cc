"""The page in a real browser: opened from disk, used, attacked; and live, followed and stopped."""

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.report_runs import (
    HOSTILE,
    PRUNE,
    audit,
    call,
    episode,
    hostile_run,
    old_run,
    search_run,
    write,
)
from tests.helpers.training_runs import start, tree

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (extra `integration`)"
)
pytest.importorskip("plotly", reason="needs plotly (extra report)")

from tacit.report.page import write_report  # noqa: E402
from tacit.report.watch import open_server, serve  # noqa: E402
from tacit.run.folder import RunFolder  # noqa: E402

FLAGS = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WIDE, NARROW = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        pytest.skip("there is no Chromium: install Debian's package `chromium`")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as tool:
        one = tool.chromium.launch(executable_path=path, args=[*FLAGS, *sandbox])
        yield one
        one.close()


class Tab:
    """A page with what it complained of and asked for."""

    def __init__(self, browser: Any, size: tuple[int, int] = WIDE, theme: str = "light") -> None:
        view = {"width": size[0], "height": size[1]}
        self.context = browser.new_context(viewport=view, color_scheme=theme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, path: Path) -> Any:
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector(".claim")
        return self.page

    def fits(self) -> bool:
        """Whether nothing sticks out to the right."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    one = Tab(browser)
    yield one
    one.context.close()


@contextmanager
def opened(browser: Any, size: tuple[int, int], theme: str) -> Iterator[Tab]:
    one = Tab(browser, size, theme)
    yield one
    one.context.close()


def draw_all(page: Any) -> None:
    """Scroll to every chart, as a reader does, and wait until it is drawn."""
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    for chart in page.locator(".chart:visible").all():
        chart.evaluate("element => element.scrollIntoView()")
        chart.locator(".main-svg").first.wait_for(state="attached")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: two steps of the pocket hint team, compared with solo."""
    here = tmp_path_factory.mktemp("trained")
    teams = {"solo": {"topology": "solo", "agents": {"actor": {"max_tokens": 16}}}}
    config = tree(teams=teams, train={"steps": 2, "evaluate_every": 1})
    (here / "tiny.json").write_text(json.dumps(config))
    process = start(here, "tiny.json", "--out", "run")
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return here / "run"


@pytest.fixture(scope="module")
def report(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([trained], tmp_path_factory.mktemp("report") / "report.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_it_opens_from_disk_and_draws_everything(
    browser: Any, report: Path, size: tuple[int, int], theme: str
) -> None:
    with opened(browser, size, theme) as tab:
        page = tab.open(report)
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        draw_all(page)
        drawn = {card.get_attribute("data-chart") for card in page.locator(".card:visible").all()}
        assert {"accuracy", "reward", "tokens", "silence", "entropy"} <= drawn
        some = {"clip": "Clip fraction", "kl": "KL", "lambda": "Price of talk, λ"}
        for card, title in (some | {"groups": "Groups without a signal"}).items():
            zero = title in page.inner_text("#curves-missing").partition("Zero at every step: ")[2]
            assert (card in drawn) is not zero, "a chart of zeros is a word"
        axes = page.evaluate(
            "[...document.querySelectorAll('#curves .js-plotly-plot')]"
            ".map((e) => e.layout.xaxis.title.text)"
        )
        assert set(axes) == {"step"}
        frontier = page.evaluate("document.getElementById('frontier-chart').layout.annotations")
        names = {one["text"]: one.get("bgcolor") for one in frontier}
        assert names["untrained"] and names["solo"], "names stand on a ground of their own"
        team = page.locator("#teams tbody td").first
        pinned = team.evaluate("(e) => getComputedStyle(e).position")
        assert pinned == ("sticky" if size == NARROW else "static")
        assert {"mismatch", "time", "silence-levels"} <= drawn
        assert page.locator(".flow svg").count() == 2
        assert page.locator("tbody tr").count() >= 3
        assert "trained is" in page.inner_text("#tests") or "level on" in page.inner_text("#tests")
        assert tab.fits()
        assert tab.errors == []
        assert tab.requests == [report.resolve().as_uri()]


def test_conversations_are_filtered_searched_read_and_compared(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.wait_for_selector(".said")
    everything = number(page.inner_text(".count"))
    page.get_by_label("Where", exact=True).select_option(label="all training")
    shows(page, lambda n: 0 < n < everything)
    page.get_by_label("Answer", exact=True).select_option("right")
    right = number(page.inner_text(".count"))
    page.get_by_label("Answer", exact=True).select_option("wrong")
    shows(page, lambda n: n != right or n == 0)
    page.get_by_role("button", name="Clear").click()
    shows(page, lambda n: n == everything)
    page.locator("#talk-search").fill("BOXED{")
    shows(page, lambda n: 0 < n <= everything)
    page.locator("#talk-search").fill("no such words anywhere")
    shows(page, lambda n: n == 0)
    page.get_by_role("button", name="Clear").click()
    page.locator(".row").nth(1).click()
    page.get_by_text("Exact prompt").first.click()
    assert "What is" in page.locator(".said pre").last.inner_text()
    page.get_by_role("button", name="Before and after training").click()
    page.wait_for_selector(".reader.both")
    left, right_side = page.locator(".side .question").all_inner_texts()
    assert left == right_side, "the same task"
    assert page.locator(".side-name").first.inner_text() == "untrained"
    assert tab.errors == []


def test_any_other_play_of_a_task_can_be_chosen(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.wait_for_selector(".said")
    page.get_by_label("Compare with", exact=True).select_option(label="solo")
    page.wait_for_selector(".reader.both")
    assert page.locator(".side-name").first.inner_text() == "solo"
    page.get_by_label("Flow on the left", exact=True).select_option(label="solo")
    drawn = page.locator(".flow").first.locator("svg")
    until(lambda: "hinter" not in (drawn.get_attribute("aria-label") or ""), "the other flow")
    assert tab.errors == []


def test_the_frontier_can_be_drawn_against_money(tab: Tab, tmp_path: Path) -> None:
    for name, share, money in (("cheap", 0.5, 0.001), ("dear", 0.9, 0.02), ("beaten", 0.4, 0.01)):
        estimate = {"mean": share, "low": share - 0.1, "high": share + 0.1}
        summary = {"accuracy": estimate, "generated": estimate, "money": money}
        write(tmp_path, f"evals/{name}.json", summary)
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    draw_all(page)
    page.get_by_label("Cost", exact=True).select_option("money")
    until(lambda: "money a task" in page.inner_text("#frontier-chart"), "the axis of money")
    joined = page.evaluate("document.getElementById('frontier-chart').data[0].x")
    assert joined == [0.001, 0.02], "the beaten one is not on the frontier"
    assert not page.locator("#sections a[href='#curves']").is_visible(), "nothing was trained"
    assert tab.errors == []


def test_a_search_shows_its_candidates_and_how_far_they_got(tab: Tab, tmp_path: Path) -> None:
    search_run(tmp_path)
    write(tmp_path, "config.json", {"name": "found", "evaluation": {"confidence": 0.9}})
    write(tmp_path, "episodes/a first.jsonl", episode("t/1", [call("actor", "4")], True))
    write(tmp_path, "episodes/holders.jsonl", episode("t/1", [call("actor", "4")], True))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    draw_all(page)
    assert "1,234 of 2,000 tokens" in page.inner_text("#search-lead")
    heads = page.locator("#search-table th").all_inner_texts()
    assert heads[2] == "accuracy, 90 % interval" and heads[5] == "cost, tokens"
    assert "Filled: the winner" in page.inner_text("#search")
    assert "beaten, its paired interval" in page.inner_text("#search-table")
    shown = page.locator("#flows select").first.evaluate("one => one.selectedOptions[0].text")
    assert shown == "holders", "the winner, not whoever is first by name"
    rows = page.locator("#search-table tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["holders", "solo"]
    assert rows[0].endswith("winner") and rows[1].endswith("rung 1: beaten")
    drawn = page.evaluate("document.getElementById('search-chart').data.map((t) => t.x)")
    assert drawn == [[], [40], [300]], "a trace for each rung"
    assert tab.errors == []


def test_help_is_judged_by_plays_without_it(tab: Tab, tmp_path: Path) -> None:
    hint, actor = call("hinter", "add"), call("actor", "4", "What is 2 + 2? add", round=1)
    helped = [episode(f"t/{n}", [hint, actor], n != 1) for n in range(3)]
    alone = [episode(f"t/{n}", [call("actor", "4")], n != 0) for n in range(3)]
    write(
        tmp_path, "config.json", tree(teams={"solo": {"topology": "solo", "agents": {"actor": {}}}})
    )
    write(tmp_path, "episodes/hint_actor.jsonl", b"".join(helped))
    write(tmp_path, "episodes/solo.jsonl", b"".join(alone))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    for effect, expected in (("helped", 1), ("harmed", 1), ("same", 1)):
        page.get_by_label("Help", exact=True).select_option(effect)
        shows(page, lambda n, expected=expected: n == expected)


def test_who_knew_what_is_shown_beside_what_was_said(tab: Tab, tmp_path: Path) -> None:
    spoke = call("holder 1", "it is 4", "Who knows?")
    actor = call("actor", "4", "What? it is 4", round=1)
    quiet = call("holder 2", "", silent=True)
    views = {"holder 1": "<b>2 + 2</b>", "holder 2": "9 + 9", "holder 3": "1 + 1"}
    needed = {"holder 1": True, "holder 2": True}
    played = episode("t", [spoke, quiet, actor], True, views=views, needed=needed)
    write(tmp_path, "config.json", tree())
    write(tmp_path, "episodes/holders.jsonl", played + episode("old", [actor], True))
    alone = episode("t", [call("actor", "5")], False)
    write(tmp_path, "episodes/holders without helpers.jsonl", alone)
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    page.locator(".row", has_text="Who knows?").click()
    known = page.locator(".known")
    known.wait_for()
    agents = known.locator("dt").all_inner_texts()
    assert [agent.split("\n") for agent in agents] == [
        ["holder 1", "needed", "spoke"],
        ["holder 2", "needed", "said nothing"],
        ["holder 3", "was not asked"],
    ]
    assert known.locator("dd").first.inner_text() == "<b>2 + 2</b>"
    assert known.locator("dt .tag.wrong").inner_text() == "said nothing"
    assert known.locator("p").inner_text() == "Without help ✗ wrong · as played ✓ right"
    assert tab.errors == []


def test_what_a_tool_said_is_shown_as_that(tab: Tab, tmp_path: Path) -> None:
    asked = {"name": "python", "arguments": '{"code": "2 + 2"}', "id": "1"}
    first = call("actor", "", tool_calls=[asked])
    last = call("actor", "It is four.", usage={"prompt": 50, "generated": 2, "observed": 13})
    last["messages"] = [
        *first["messages"],
        {"role": "assistant", "content": "", "tool_calls": [asked]},
        {"role": "tool", "content": "<b>4</b>", "tool_calls": [asked]},
    ]
    write(tmp_path, "config.json", tree())
    write(tmp_path, "episodes/solo.jsonl", episode("t/1", [first, last], True))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    page.locator(".row").first.click()
    page.wait_for_selector(".said")
    calls = page.locator(".said").all_inner_texts()
    assert "calls python" in calls[0] and 'python({"code": "2 + 2"})' in calls[0]
    assert "13 from tools" in calls[1] and "It is four." in calls[1]
    observed = page.locator(".observed")
    assert observed.count() == 1 and observed.locator("pre").inner_text() == "<b>4</b>"
    assert observed.locator(".quiet").inner_text() == "python told it"
    assert tab.fits() and tab.errors == []


HOLDER = {"auc": 0.95, "by": "spoke", "recall": 1}


def test_what_talk_is_worth_is_a_table_where_it_was_measured(tab: Tab, tmp_path: Path) -> None:
    estimate = {"mean": 0.25, "low": -0.1, "high": 0.6}
    play = {"messages": 1, "generated": 10, "read": 40, "above": estimate}
    talk = {"plays": {"free": {**play, "messages": 0.5, "above": None}, "speaking": play}}
    choosing = {"needed": 10, "auc": 0.9, "silent_needed": 0.1, "silent_idle": 0.8}
    talk |= {"choosing": choosing | {"precision": 0.7, "recall": 0.9}}
    talk |= {"choosing_by_agent": {"holder 1": HOLDER, "holder 2": {}}}
    talk |= {"kept": 0.4, "missing": {"alone": "nobody was trained"}}
    summary = {"accuracy": estimate | {"low": 0}, "generated": estimate}
    write(tmp_path, "evals/told.json", summary | {"talk": talk})
    write(tmp_path, "evals/plain.json", summary)
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    (row,) = page.locator("#teams .talk tbody tr").all()
    cells = row.locator("td").all_inner_texts()
    assert cells == ["told", "+25.0 [−10.0, 60.0]", "40.0", "50, 100, 100"]
    chose = page.get_by_role("region", name="Who spoke, and who was needed").locator("tbody tr")
    assert [row.locator("td").all_inner_texts() for row in chose.all()] == [
        ["told", "0.90", "10.0", "80.0", "70.0", "90.0"],
        ["holder 1", "0.95*", "–", "–", "–", "100.0"],
        ["holder 2", "–", "–", "–", "–", "–"],
    ]
    legend = page.locator("#teams .talk > p").inner_text()
    assert legend.endswith("Of told, not played: weights alone (nobody was trained).")
    assert tab.fits() and tab.errors == []
    write(tmp_path, "evals/told.json", summary)
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    assert page.locator("#teams .talk").count() == 0
    assert page.locator("#teams table").count() == 1


def test_help_is_not_judged_where_nothing_says(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, "episodes/hint.jsonl", episode("t", [call("hinter", "x")], True))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    page.wait_for_selector(".row")
    assert page.get_by_label("Help", exact=True).is_disabled()


def test_the_keyboard_reaches_charts_legends_lists_and_readers(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.wait_for_selector(".said")
    draw_all(page)
    chart = page.locator('[data-chart="tokens"] .chart')
    chart.focus()
    page.keyboard.press("ArrowLeft")
    until(lambda: page.locator(".cursor:not([hidden])").count() > 1, "a cursor in every chart")
    key = page.locator('[data-chart="tokens"] .key').first
    key.focus()
    page.keyboard.press("Enter")
    assert page.locator('[data-chart="tokens"] .key').first.get_attribute("aria-pressed") == "false"
    page.locator(".list").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator('.row[aria-selected="true"]').get_attribute("aria-posinset") == "3"
    assert tab.errors == []


def test_who_uses_the_keyboard_stays_where_they_are(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.wait_for_selector(".said")
    draw_all(page)
    for control, key in (
        (page.locator("#frontier").get_by_label("Log scale"), "Space"),
        (page.locator('[data-chart="tokens"] .key').nth(1), "Enter"),
        (page.get_by_role("button", name="Clear"), "Enter"),
        (page.get_by_label("Colour by surprise"), "Space"),
    ):
        control.focus()
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        assert control.evaluate("one => one === document.activeElement"), control
    page.get_by_role("button", name="Before and after training").press("Enter")
    page.wait_for_selector(".reader.both")
    assert page.evaluate("document.activeElement.closest('.reader') != null")
    assert tab.errors == []


def test_the_results_can_be_copied_as_markdown(tab: Tab, report: Path) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.open(report)
    page.locator("#copy-markdown").click()
    page.wait_for_selector(".toast")
    table = page.evaluate("navigator.clipboard.readText()")
    assert table.startswith("| team | accuracy % [95 %] |")
    assert "| solo |" in table
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_how_the_run_was_started_can_be_read(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    panel = page.locator("#details .panel", has_text="Started with")
    assert "tiny.json" in panel.locator("pre").first.inner_text()
    assert "[object" not in page.locator("body").inner_text()


@pytest.mark.parametrize(
    ("seed", "table"), [(0, ["They do not."]), (1, ["setting\ta\tb", "seed\t0\t1"])]
)
def test_where_the_settings_of_runs_differ_is_a_table_and_else_a_sentence(
    tab: Tab, tmp_path: Path, seed: int, table: list[str]
) -> None:
    for name, own in (("a", 0), ("b", seed)):
        write(tmp_path / name, "config.json", tree(seed=own))
        write(tmp_path / name, "evals/eval-000000.json", {"accuracy": {"mean": 0.5}})
    page = tab.open(write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html"))
    panel = page.locator("#details .panel", has_text="Where the settings differ")
    lines = [line.strip(" \r") for line in panel.inner_text().splitlines() if line.strip()]
    assert lines == ["Where the settings differ", *table]
    assert tab.errors == []


def test_it_prints_to_paper(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.wait_for_selector(".said")
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", paper))
    assert 2 <= pages <= 12
    assert page.locator(".chart .main-svg").count() > 12, "charts out of sight are drawn too"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_what_models_say_is_shown_and_never_obeyed(
    browser: Any, tmp_path: Path, size: tuple[int, int]
) -> None:
    run = hostile_run(tmp_path / "run<img src=x onerror=alert(1)>")
    page_file = write_report([run], tmp_path / "report.html")
    with opened(browser, size, "light") as tab:
        page = tab.open(page_file)
        page.wait_for_selector(".row")
        draw_all(page)
        page.locator(".list").press("Home")
        for _ in range(len(HOSTILE) + 1):
            page.locator(".list").press("Enter")
            page.wait_for_selector(".said")
            for prompt in page.get_by_text("Exact prompt").all():
                prompt.click()
            assert tab.fits()
            if size == NARROW:
                page.get_by_role("button", name="Back").click()
            page.locator(".list").press("ArrowDown")
        said = page.evaluate(
            "page.talks.found.map(({one, i}) => page.talks.pieces.episode(one.run, one.source, i))"
            ".reduce((all, next) => all.then(list => next.then(e => [...list, e.calls[0].text])),"
            " Promise.resolve([]))"
        )
        assert {text for text in HOSTILE if "\ud800" not in text} <= set(said)
        assert page.evaluate("globalThis.pwned") is None
        assert tab.errors == []


def test_characters_that_hide_or_turn_text_are_named(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, "episodes/x.jsonl", episode("t", [call("a", "abc\u202edef\x07")], True))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    page.wait_for_selector(".said")
    assert page.locator(".said .text").inner_text() == "abcU+202EdefU+0007"


def test_a_script_that_got_into_the_page_would_not_run(tab: Tab, report: Path) -> None:
    page = tab.open(report)
    page.evaluate("document.body.innerHTML += '<img src=x onerror=\"globalThis.pwned = 1\">'")
    page.wait_for_timeout(200)
    assert page.evaluate("globalThis.pwned") is None


def test_conversations_beside_the_page_are_loaded_when_wanted(tab: Tab, tmp_path: Path) -> None:
    lines = [episode(f"t/{n}", [call("a", f"message {n}")], True) for n in range(450)]
    write(tmp_path / "a run#1", "episodes/x.jsonl", b"".join(lines))
    target = write_report([tmp_path / "a run#1"], tmp_path / "the report#1.html", inside=0)
    assert len(list((tmp_path / "the report#1.pieces").iterdir())) == 3
    page = tab.open(target)
    page.wait_for_selector(".said")
    page.locator(".list").press("End")
    page.get_by_text("message 449").wait_for()
    page.locator("#talk-search").fill("message 44")
    shows(page, lambda n: n == 11)
    assert tab.errors == []
    assert all(url.startswith("file:") for url in tab.requests)


def test_an_older_or_emptied_folder_says_what_is_missing(tab: Tab, tmp_path: Path) -> None:
    page = tab.open(write_report([old_run(tmp_path / "old")], tmp_path / "report.html"))
    assert "There is no timing.jsonl" in page.inner_text(".missing")
    draw_all(page)
    page.wait_for_selector(".row")
    assert tab.errors == []


def test_repeats_are_drawn_as_a_band(tab: Tab, tmp_path: Path, trained: Path) -> None:
    runs = [trained]
    for seed in (1, 2):
        copy = tmp_path / f"seed{seed}"
        shutil.copytree(trained, copy)
        config = json.loads((copy / "config.json").read_text()) | {"seed": seed}
        write(copy, "config.json", config)
        runs.append(copy)
    page = tab.open(write_report(runs, tmp_path / "report.html"))
    draw_all(page)
    fills = "document.querySelectorAll('[data-chart=tokens] .scatterlayer .fills path').length"
    assert page.evaluate(fills) > 0
    page.get_by_label("Hours").check()
    until(lambda: page.evaluate(fills) == 0, "runs of their own: they share no moment")
    page.get_by_label("Hours").uncheck()
    until(lambda: page.evaluate(fills) > 0, "the band again")
    times = "document.querySelector('[data-chart=time] .chart').data.map(one => one.stackgroup)"
    page.locator("[data-chart=time]").evaluate("element => element.scrollIntoView()")
    assert all(page.evaluate(times)), "no band lies over times that are stacked"
    page.get_by_label("Band over repeats").uncheck()
    until(lambda: page.evaluate(fills) == 0, "no band")
    page.locator(".chip").last.click()
    assert page.locator('.chip[aria-pressed="false"]').count() == 1
    assert tab.errors == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_an_audit_is_a_graph_a_ranking_and_the_messages_behind_it(
    browser: Any, tmp_path: Path, size: tuple[int, int]
) -> None:
    write(tmp_path, "audit.json", audit(("a", "b", HOSTILE[0]), said=HOSTILE[2]))
    with opened(browser, size, "dark") as tab:
        page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
        assert page.inner_text(".claim").startswith(
            "a helps most: +50.0 [+30.0, +70.0] points; <script>"
        )
        arrows = page.locator(".arrow")
        assert arrows.count() == 6, "both directions of each pair, and nobody to itself"
        tones = {
            arrow.locator("title").text_content().split(":")[0]: arrow.get_attribute("style")
            for arrow in arrows.all()
        }
        assert "--c0" in tones["a → " + HOSTILE[0]] and "--faint" in tones["b → a"]
        assert "--faint" in tones["a → b"], "not measured"
        assert "--c1" in tones[HOSTILE[0] + " → a"]
        dashed = page.locator(".arrow path[stroke-dasharray]")
        assert dashed.count() == 2, "who reads b was not played"
        ranking = page.get_by_role("region", name="What each part is worth")
        assert ranking.locator("tbody tr").first.inner_text() == "Agents"
        cells = ranking.locator("tbody tr").nth(1).locator("td").all_inner_texts()
        assert cells[0] == "a" and cells[1].strip() == "+50.0 [+30.0, +70.0]"
        assert cells[2:] == ["helps", "3", "1", "10.0", "50.0", "10"]
        assert "90 % interval" in ranking.locator("thead").inner_text()
        assert ranking.locator(".forest").first.bounding_box()["width"] > 100
        said = page.locator("#audits .said").first
        assert said.locator(".text").inner_text() == HOSTILE[2]
        assert said.locator(".tag").all_inner_texts() == [f"answer: {HOSTILE[2]}", "without it: 41"]
        example = page.locator(".findings .said .text")
        assert not example.is_visible()
        page.get_by_text("1 example").click()
        assert example.inner_text() == HOSTILE[2]
        assert page.evaluate("globalThis.pwned") is None
        assert tab.fits() and tab.errors == []


def test_colours_and_the_claim_of_an_audit_follow_its_verdicts(tab: Tab, tmp_path: Path) -> None:
    """A verdict's interval is wider than the one that is shown, so both may disagree."""
    tree_ = audit()
    for part in tree_["parts"]:
        part["verdict"] = "helps" if part["name"] == "b" else "undecided"
    write(tmp_path, "audit.json", tree_)
    write(tmp_path, "episodes/solo.jsonl", episode("t", [call("a", "4")], True))
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    claim = "b helps most: +0.0 [−20.0, +20.0] points"
    assert page.inner_text(".claim") == claim, "and not which team is best"
    rings = [ring.get_attribute("style") for ring in page.locator("#audits circle").all()]
    assert ["--c0" in style for style in rings] == [False, True, False]
    assert ["--faint" in style for style in rings] == [True, False, True]
    assert tab.errors == []


def test_smaller_teams_stand_under_the_audit(tab: Tab, tmp_path: Path) -> None:
    write(tmp_path, "audit.json", audit())
    write(tmp_path, "prune.json", PRUNE)
    page = tab.open(write_report([tmp_path], tmp_path / "report.html"))
    panel = page.get_by_role("region", name="Smaller teams")
    rows = [row.locator("td").all_inner_texts() for row in panel.locator("tbody tr").all()]
    assert rows == [
        ["without a", "55.0", "+1.0 [−0.5, +2.5]", "passed", "50.0", "20.0", "180.0", "512"],
        ["AgentPrune", "–", "+0.0 [−2.0, +2.0]", "–", "–", "–", "–", "–"],
    ]
    assert "Written to runs/x/x-pruned.yaml: without a." in panel.inner_text()
    assert tab.fits() and tab.errors == []


def test_a_recording_is_shown_without_worth_and_a_live_audit_when_it_ends(
    tab: Tab, tmp_path: Path
) -> None:
    page, run = tab.page, RunFolder(tmp_path / "run")
    run.write_json("config.json", tree())
    with watching(run.path) as server:
        page.goto(server.address)
        page.get_by_text("No evaluation yet").wait_for()
        assert not page.locator("#audit").is_visible()
        run.write_json("audit.json", {"traffic": audit()["traffic"]})
        page.get_by_text("100 tokens read and 10 said an episode").wait_for()
        assert page.locator("#sections a[href='#audit']").is_visible()
        assert page.locator(".arrow").count() == 6 and page.locator(".forest").count() == 0
        run.write_json("audit.json", audit())
        page.get_by_role("region", name="What each part is worth").wait_for()
    assert [e for e in tab.errors if "ERR_" not in e] == []


@contextmanager
def watching(*folders: Path) -> Iterator[Any]:
    server = open_server(folders, 0)
    thread = threading.Thread(target=serve, args=(server, 0.2))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()


def test_a_live_run_is_followed_and_stopped(tab: Tab, tmp_path: Path) -> None:
    config = tree(train={"steps": 500, "evaluate_every": 0, "checkpoint_every": 100})
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    page, run = tab.page, tmp_path / "runs" / "live"
    with watching(run) as server:
        page.goto(server.address)
        page.get_by_text("waiting to start").wait_for()
        page.evaluate("globalThis.sameage = 1")
        process = start(tmp_path, "tiny.json", "--out", str(run))
        try:
            page.get_by_text("running", exact=True).first.wait_for(timeout=300_000)
            later = re.compile(r"step ([2-9]|\d\d+) of 500")
            until(lambda: bool(later.search(page.inner_text("#headline"))), "the second step")
            page.wait_for_selector(".said", timeout=60_000)
            page.get_by_role("button", name="Save a checkpoint now").click()
            until(lambda: saved(run) > 0, "no checkpoint was saved")
            page.get_by_role("button", name="Stop after this step").click()
            page.get_by_text("Asked: the run stops").wait_for()
            asked = steps(run)
            process.communicate(timeout=300)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
        assert process.returncode == 0
        assert steps(run) <= asked + 2, "it stopped after the step it was in"
        assert saved(run) == steps(run), "what was learned is kept"
        page.get_by_text("not finished").wait_for()
        assert page.get_by_role("button", name="Stop after this step").is_disabled()
        assert page.evaluate("globalThis.sameage") == 1, "the page was never loaded again"
    assert [e for e in tab.errors if "ERR_" not in e] == []


def test_a_live_page_leaves_its_reader_alone(tab: Tab, tmp_path: Path) -> None:
    page, run = tab.page, RunFolder(tmp_path / "runs" / "first")
    plays = [episode(f"t/{n}", [call("actor", "four")], True, step=1) for n in range(60)]
    run.write_json("config.json", tree())
    write(run.path, "metrics.jsonl", b'{"step": 1, "reward/total": 0.5}\n')
    write(run.path, "episodes/train.jsonl", b"".join(plays))
    with watching(tmp_path / "runs") as server:
        page.goto(server.address)
        page.wait_for_selector(".said")
        page.get_by_text("Resolved config").click()
        page.locator("#talk-search").press_sequentially("fo")
        run.append("metrics.jsonl", b'{"step": 2, "reward/total": 0.5}')
        run.append("episodes/train.jsonl", plays[0].strip())
        run.write_json("evals/eval-000002.json", {"accuracy": {"mean": 0.75}})
        RunFolder(tmp_path / "runs" / "second").write_json("config.json", tree())
        page.locator("#talk-search").press_sequentially("ur")
        page.get_by_text("step 2 of 5").wait_for()
        page.locator(".chip", has_text="second").wait_for()
        shows(page, lambda n: n == 61)
        assert page.locator("#talk-search").input_value() == "four"
        assert "75.0" in page.locator("#markdown").inner_text()
        assert page.locator("details.config").first.get_attribute("open") is not None
        chips = page.locator(".chip").evaluate_all("all => all.map(one => one.ariaPressed)")
        assert chips == ["true", "false"], "a run that comes later waits to be chosen"
    assert [e for e in tab.errors if "ERR_" not in e] == []


def test_a_live_flow_follows_the_newest_team(tab: Tab, tmp_path: Path) -> None:
    page, run = tab.page, RunFolder(tmp_path / "run")
    right = page.get_by_label("Flow on the right", exact=True)
    run.write_json("config.json", tree())
    with watching(run.path) as server:
        page.goto(server.address)
        for step in (0, 3, 6):
            write(run.path, f"episodes/eval-{step:06d}.jsonl", episode("t", [call("a", "b")], True))
            run.write_json(f"evals/eval-{step:06d}.json", {"accuracy": {"mean": 0.5}})
            if step:
                newest = f"0/eval-{step:06d}"
                until(lambda newest=newest: right.input_value() == newest, "the newest")
        right.select_option(label="step 3")
        write(run.path, "episodes/eval-000009.jsonl", episode("t", [call("a", "b")], True))
        page.get_by_label("Where", exact=True).get_by_text("step 9").wait_for(state="attached")
        assert right.input_value() == "0/eval-000003", "what was chosen stays"


def test_a_live_list_stays_where_it_was_scrolled(browser: Any, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    plays = [episode(f"t/{n}", [call("actor", "four")], True, step=1) for n in range(60)]
    run.write_json("config.json", tree())
    write(run.path, "episodes/train.jsonl", b"".join(plays))
    with opened(browser, NARROW, "light") as tab, watching(run.path) as server:
        page = tab.page
        page.goto(server.address)
        page.wait_for_selector(".row")
        page.locator(".list").evaluate("list => list.scrollTop = 900")
        run.append("episodes/train.jsonl", plays[0].strip())
        shows(page, lambda n: n == 61)
        assert page.locator(".list").evaluate("list => list.scrollTop") == 900


def steps(run: Path) -> int:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return int(json.loads(lines[-1])["step"])


def saved(run: Path) -> int:
    return int(json.loads((run / "checkpoints" / "last.json").read_text())["step"])


def number(text: str) -> int:
    return int(text.split()[0].replace(",", ""))


def shows(page: Any, wanted: Callable[[int], bool]) -> None:
    until(
        lambda: (
            "searched" not in page.inner_text(".count")
            and wanted(number(page.inner_text(".count")))
        ),
        "the list",
    )


def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(1800):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not in three minutes: {what}")
