"""An audit becomes what the page draws, with outcomes or without, whatever the file holds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tacit.report.audit_page import audit_of, without_texts
from tacit.report.run_page import Run
from tests.helpers.commands import tacit_
from tests.helpers.report_runs import HOSTILE, PRUNE, audit, call, episode, write


def edge_of(found: dict[str, Any], sender: str, reader: str) -> dict[str, Any]:
    return next(e for e in found["edges"] if (e["sender"], e["reader"]) == (sender, reader))


def found_in(tree: dict[str, Any]) -> dict[str, Any]:
    found = audit_of(tree)
    assert found is not None
    return found


def test_parts_are_ranked_by_worth_within_their_kind() -> None:
    tree = audit()
    tree["parts"].reverse()
    found = found_in(tree)
    assert [part["name"] for part in found["parts"]][:5] == ["a", "b", "c", "round 0", "a to c"]
    assert found["parts"][0]["value"] == {"mean": 0.5, "low": 0.3, "high": 0.7}


def test_edges_have_their_tokens_per_episode_and_their_worth() -> None:
    found = found_in(audit())
    tokens = [edge["tokens"] for edge in found["edges"]]
    assert tokens == sorted(tokens, reverse=True) and tokens[0] == 45.0
    assert edge_of(found, "c", "a")["worth"]["value"]["mean"] == -0.5
    assert edge_of(found, "a", "b")["worth"] is None, "it was not played"
    assert edge_of(found, "a", "a")["worth"] is None


def test_the_only_reader_of_an_agent_has_the_worth_of_the_agent() -> None:
    found = found_in(audit(("hinter", "actor")))
    edge = edge_of(found, "hinter", "actor")
    assert edge["whole"] and edge["worth"]["name"] == "hinter"
    played = edge_of(found, "actor", "hinter")
    assert not played["whole"] and played["worth"]["name"] == "actor to hinter"


def test_plays_that_failed_are_counted_and_their_error_is_no_text_to_pass_on() -> None:
    tree = audit() | {"notes": ["without a, 2 of 10 plays failed: ValueError: the word is plum"]}
    tree["parts"][0]["failed"] = 2
    found = found_in(tree)
    assert found["parts"][0]["failed"] == 2 and found["notes"][0].endswith("plum")
    assert found["notes"][-1] == "Tokens are estimated."
    bare = without_texts(found)["notes"]
    assert bare == ["without a, 2 of 10 plays failed", "Tokens are estimated."]


def test_a_recording_has_traffic_and_no_worth() -> None:
    found = found_in({"traffic": audit()["traffic"]})
    assert found["parts"] == [] and found["reward"] is None
    assert [agent["name"] for agent in found["agents"]] == ["a", "b", "c"]
    assert all(agent["worth"] is None for agent in found["agents"])
    assert found["agents"][0]["parts"] == {"instructions": {"tokens": 60.0, "before": 15.0}}
    assert found["team"] == {"calls": 2.0, "read": 100.0, "said": 10.0, "money": None}


def test_a_recording_needs_no_episodes_and_is_told_to_be_audited(tmp_path: Path) -> None:
    write(tmp_path, "recording.json", {"to": "http://127.0.0.1:1/v1"})
    run = opened(tmp_path)
    assert [note for note in run.notes() if "audit" in note] and "episodes" not in str(run.notes())
    write(tmp_path, "audit.json", {"traffic": audit()["traffic"]})
    notes = opened(tmp_path).notes()
    assert "audited" not in str(notes) and "episodes" not in str(notes)


def test_an_audit_says_with_which_weights_it_played() -> None:
    assert found_in(audit())["weights"] == ""
    assert found_in(audit() | {"checkpoint": "/a/step-000025"})["weights"] == "step 25"
    assert found_in(audit() | {"checkpoint": "/a/step-000000"})["weights"] == "step 0"


def test_what_prune_checked_is_told_as_far_as_it_is_there(tmp_path: Path) -> None:
    write(tmp_path, "audit.json", audit())
    run = opened(tmp_path)
    assert run.overview()["prune"] is None
    write(tmp_path, "prune.json", PRUNE)
    assert run.refresh(), "a page that is live sees it"
    found = run.overview()["prune"]
    assert found["chosen"] == "without `a`" and found["config"] == "runs/x/x-pruned.yaml"
    assert [one["name"] for one in found["proposals"]] == ["without `a`", "AgentPrune"]
    assert [one["passed"] for one in found["proposals"]] == [True, False]
    assert found["proposals"][1]["reward"] is None
    write(tmp_path, "prune.json", {"proposals": "none"})
    assert run.refresh() and run.overview()["prune"] is None


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"parts": [], "traffic": None},
        {"parts": [{"name": "a", "value": "much"}], "traffic": {"edges": [{}], "notes": "none"}},
        {"traffic": {"episodes": 0, "agents": [{"name": 3}], "findings": [{"examples": [4]}]}},
    ],
)
def test_damaged_files_give_what_they_hold(tree: dict[str, Any]) -> None:
    found = audit_of(tree)
    assert found is None or found["parts"] == []
    json.dumps(found, allow_nan=False)


def test_long_messages_are_cut() -> None:
    found = found_in(audit(said="x" * 30_000))
    assert found["messages"][0]["text"].endswith("x … and 10,000 more characters")


def opened(folder: Path) -> Run:
    run = Run(folder)
    run.refresh()
    return run


def test_an_audited_folder_is_finished_and_its_plays_are_no_teams(tmp_path: Path) -> None:
    for name in ("audited", "without a", "solo"):
        write(tmp_path, f"episodes/{name}.jsonl", episode("t", [call("a", "4")], True))
    run = opened(tmp_path)
    assert run.overview()["state"]["status"] == "unfinished"
    assert run.overview()["audit"] is None
    write(tmp_path, "audit.json", audit())
    assert run.refresh(), "a page that is live sees it"
    overview = run.overview()
    assert overview["state"]["status"] == "finished"
    assert [point["name"] for point in overview["points"]] == ["solo"]
    assert {source["name"] for source in overview["sources"]} == {"audited", "without a", "solo"}
    assert not any("summary.json" in note for note in overview["notes"])
    write(tmp_path, "audit.json", b'{"parts": [')
    assert run.refresh()
    assert any("audit.json is damaged" in note for note in run.overview()["notes"])


def test_an_audited_recording_lacks_no_config_and_its_plays_are_no_teams(tmp_path: Path) -> None:
    write(tmp_path, "recording.json", {"to": "http://127.0.0.1:1/v1"})
    write(tmp_path, "episodes/without a 3b9fd1c6.jsonl", episode("t", [call("b", "4")], True))
    write(tmp_path, "audit.json", audit())
    overview = opened(tmp_path).overview()
    assert overview["points"] == []
    assert [source["audits"] for source in overview["sources"]] == [True]
    assert not any("config.json" in note for note in overview["notes"])
    (tmp_path / "recording.json").unlink()
    overview = opened(tmp_path).overview()
    assert [point["name"] for point in overview["points"]] == ["without a 3b9fd1c6"]
    assert any("config.json" in note for note in overview["notes"])


def test_the_page_quotes_messages_and_may_leave_them_out(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="needs plotly (extra report)")
    from tacit.report.page import write_report

    write(tmp_path, "audit.json", audit(said=HOSTILE[0] + " SAID"))
    for conversations in (True, False):
        page = write_report([tmp_path], tmp_path / "report.html", conversations=conversations)
        (overview,) = re.findall(
            r'<script type="application/json" id="overview">(.*?)</script>', page.read_text()
        )
        assert ("SAID" in overview) is conversations
        assert "<" not in overview, "nothing that was said can be a tag"
        assert "repeats itself" in overview


@pytest.mark.slow
def test_an_audit_names_the_command_that_makes_its_page(tmp_path: Path) -> None:
    agents = {"debater": {"count": 2, "max_tokens": 8, "temperature": 0.7}}
    config = {
        "name": "two words",
        "tasks": {"name": "arithmetic", "split": "test", "limit": 4},
        "team": {"topology": "debate", "agents": agents, "options": {"rounds": 2}},
    }
    (tmp_path / "x.yaml").write_text(json.dumps(config))
    done = tacit_(tmp_path, "audit", "x.yaml", "--out", "runs/two words")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "as a page: tacit report 'runs/two words'"
    found = found_in(json.loads((tmp_path / "runs/two words/audit.json").read_text()))
    assert {part["kind"] for part in found["parts"]} == {"agent", "round", "edge"}
    assert edge_of(found, "debater 1", "debater 2")["worth"]["name"] == "debater 1 to debater 2"
    assert found["agents"][0]["worth"] and found["agents"][0]["parts"]["instructions"]["tokens"]
    assert tacit_(tmp_path, "report", "runs/two words").returncode == 0
