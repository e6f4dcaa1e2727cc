"""`tacit report`: what is written where, and what is refused in a sentence."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.commands import tacit_
from tests.helpers.report_runs import call, episode, hostile_run, old_run, write
from tests.helpers.training_runs import tree

pytest.importorskip("plotly", reason="needs plotly (extra report)")

from tacit.errors import ConfigError
from tacit.report.page import write_report


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write(folder, "config.json", tree())
    lines = [episode(f"t/{n}", [call("actor", f"message {n}")], True) for n in range(450)]
    write(folder, "episodes/solo.jsonl", b"".join(lines))
    return folder


def test_the_page_goes_into_the_run_and_several_beside_them(tmp_path: Path, run: Path) -> None:
    done = tacit_(tmp_path, "report", "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote run/report.html")
    old_run(tmp_path / "old")
    assert tacit_(tmp_path, "report", "run", "old").returncode == 0
    assert (tmp_path / "report.html").is_file()


def test_all_that_is_fetched_is_in_the_page(run: Path) -> None:
    page = write_report([run], run / "report.html").read_text()
    head = page[: page.index("<style>")]
    assert "default-src 'none'" in head
    tags = re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page[: page.index("plotly.js v")])
    assert tags and not [tag for tag in tags if " src=" in tag or 'href="http' in tag]


def test_hostile_text_cannot_leave_its_element(tmp_path: Path) -> None:
    page = write_report([hostile_run(tmp_path / "run")], tmp_path / "report.html").read_text()
    (overview,) = re.findall(r'<script type="application/json" id="overview">(.*?)</script>', page)
    assert "<" not in overview
    assert (
        json.loads(overview)["runs"][0]["name"] == "</script><script>globalThis.pwned = 2</script>"
    )


def test_pieces_go_beside_a_large_page_and_away_again(run: Path) -> None:
    target, beside = run / "report.html", run / "report.pieces"
    write_report([run], target, inside=0)
    assert sorted(path.name for path in beside.iterdir()) == ["0-0-0.js", "0-0-1.js", "0-0-2.js"]
    write_report([run], target)
    assert not beside.exists(), "an earlier report's pieces are not left lying"
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_is_not_ours_is_not_removed(run: Path) -> None:
    write(run / "report.pieces", "thesis.tex", b"mine")
    with pytest.raises(ConfigError, match=r"report\.pieces` is in the way"):
        write_report([run], run / "report.html")
    assert (run / "report.pieces" / "thesis.tex").read_bytes() == b"mine"


def test_conversations_may_be_left_out(run: Path) -> None:
    page = write_report([run], run / "report.html", conversations=False).read_text()
    assert "piece-0-0-0" not in page and "rows-0-0" not in page
    assert "Conversations were left out of this report." in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report", "nowhere"), "`nowhere` is not a folder: name a run folder"),
        (("report", "empty"), "`empty` is not a run folder: it has no config.json"),
        (
            ("report", "."),
            "`.` is not a run folder: it has no config.json; name the runs in it, like run",
        ),
        (("report", "run", "--out", "run"), "`run` is a folder: name a file with --out"),
        (("watch", "run/config.json"), "`run/config.json` is a file: name a run folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, run: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = tacit_(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"tacit: {sentence}"), done.stderr


def test_the_text_report_says_the_same_without_a_browser(tmp_path: Path, run: Path) -> None:
    write(run, "metrics.jsonl", b'{"step": 1, "cost/tokens": 40}\n{"step": 2, "cost/tokens": 20}\n')
    estimate = {"mean": 0.5, "low": 0.25, "high": 0.75}
    agents = [{"agent": "hinter", "calls": 1.0, "silence": 0.5}]
    write(
        run,
        "evals/eval-000002.json",
        {"accuracy": estimate, "generated": estimate, "agents": agents},
    )
    write(run, "evals/[red]team.json", {"accuracy": estimate})
    done = tacit_(tmp_path, "report", "run", "--text")
    assert done.returncode == 0, done.stderr
    assert "run: unfinished, step 2 of 5" in done.stdout
    # no `silence` in an older summary: whoever was ever silent could always have been
    assert re.search(r"step 2\s+50\.0\s+\[25\.0, 75\.0\]\s+0\.5\s+–\s+50\.0", done.stdout)
    assert re.search(r"\[red\]team\s+50\.0", done.stdout)
    assert re.search(r"tokens an episode\s+█▁\s+40 → 20", done.stdout)
    assert "There is no summary.json" in done.stdout
    assert not (run / "report.html").exists()


def test_the_text_report_has_rows_for_rewards_and_for_the_price_of_money(
    tmp_path: Path, run: Path
) -> None:
    first = {"step": 1, "eval/accuracy": 0.5, "eval/reward": 0.25, "lambda/money": 0.1}
    second = {"step": 2, "eval/accuracy": 0.5, "eval/reward": 0.75, "lambda/money": 0.3}
    write(run, "metrics.jsonl", "".join(f"{json.dumps(one)}\n" for one in (first, second)).encode())
    done = tacit_(tmp_path, "report", "run", "--text")
    assert done.returncode == 0, done.stderr
    assert re.search(r"reward, held-out\s+▁█\s+0\.25 → 0\.75", done.stdout)
    assert re.search(r"λ of money\s+▁█\s+0\.1 → 0\.3", done.stdout)


def test_the_text_report_takes_any_folder(tmp_path: Path) -> None:
    old_run(tmp_path / "old")
    hostile_run(tmp_path / "bad")
    done = tacit_(tmp_path, "report", "old", "bad", "--text")
    assert done.returncode == 0, done.stderr


def test_the_text_report_needs_no_step(tmp_path: Path, run: Path) -> None:
    (run / "metrics.jsonl").unlink(missing_ok=True)
    write(run, "evals/eval-000000.json", {"accuracy": {"mean": 0.5}, "agents": [{"agent": "x"}]})
    done = tacit_(tmp_path, "report", "run", "--text")
    assert done.returncode == 0, done.stderr
    assert "run: unfinished, step 0 of 5" in done.stdout
