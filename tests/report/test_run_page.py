"""A run folder becomes rows, pieces, flows and notes, whatever state it is in."""

import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from tacit.report.episodes import PIECE, Source
from tacit.report.run_page import Run
from tacit.run.folder import RunFolder
from tests.helpers.report_runs import (
    HOSTILE,
    call,
    episode,
    hostile_run,
    old_run,
    search_run,
    write,
)
from tests.helpers.training_runs import tree


def opened(folder: Path) -> Run:
    run = Run(folder)
    run.refresh()
    return run


def source_of(run: Run, name: str) -> dict[str, Any]:
    return next(one for one in run.overview()["sources"] if one["name"] == name)


def test_rows_say_who_was_right_silent_and_costly(tmp_path: Path) -> None:
    silent = call("hinter", "", silent=True)
    spoken = call("hinter", "add them", usage={"prompt": 10, "generated": 5})
    actor = call("actor", "4", "What is 2 + 2?\nHint: add them", round=1)
    lines = [
        episode("t/1", [silent, actor], True, step=1, reward={"total": 0.9}, task_if_silent=0.0),
        episode("t/2", [spoken, actor], False, step=2, advantages={"hinter": -1.5, "x": 0.5}),
        episode("t/1", [], None),
    ]
    write(tmp_path, "episodes/train.jsonl", b"".join(lines))
    run = opened(tmp_path)
    rows = run.sources["train"].rows()
    columns = rows["columns"]
    assert list(run.agents) == ["actor", "hinter"]
    assert columns["right"] == [1, 0, None]
    assert columns["tokens"] == [14, 12, 0]
    assert columns["turns"] == [1, 2, 0]
    assert columns["silent"] == [0b10, 0, 0]
    assert columns["spoke"] == [0b01, 0b11, 0]
    assert columns["task"] == [0, 1, 0]
    assert rows["tasks"] == ["t/1", "t/2"]
    assert rows["questions"][0] == "What is 2 + 2?"
    assert columns["reward"] == [0.9, None, None]
    assert columns["advantage"] == [None, -1.5, None]
    assert columns["without"] == [0.0, None, None]


def test_a_message_flows_to_whoever_read_it_and_silence_to_nobody(tmp_path: Path) -> None:
    actor = call("actor", "4", "What is 2 + 2?\nHint: add them", round=1)
    plain = call("actor", "4", "What is 2 + 2?", round=1)
    lines = [
        episode("t/1", [call("hinter", "add them"), actor], True),
        episode("t/2", [call("hinter", "", silent=True), plain], True),
    ]
    write(tmp_path, "episodes/solo.jsonl", b"".join(lines))
    flow = source_of(opened(tmp_path), "solo")["flow"]
    assert flow["episodes"] == 2
    hinter, actor_node = flow["nodes"]
    assert (hinter["agent"], hinter["messages"], hinter["silent"], hinter["hushed"]) == (
        "hinter", 2, 1, 7,
    )  # fmt: skip
    assert actor_node["depth"] == 1
    assert flow["links"] == [{"from": 0, "to": 1, "messages": 1, "tokens": 7}]


def test_silence_is_a_share_of_what_could_have_been_silent(tmp_path: Path) -> None:
    """The same in an evaluation's summary, in episodes still being played, and in the flow."""
    told = "What is 2 + 2? reply with exactly <silent>"  # how an older call is known
    lines = [
        episode(
            "t/1", [call("hinter", "", silent=True, may_be_silent=True), call("actor", "4")], True
        ),
        episode("t/2", [call("hinter", "add", told), call("actor", "4")], True),
    ]
    write(tmp_path, "episodes/played.jsonl", b"".join(lines))
    estimate = {"mean": 0.5, "low": 0.25, "high": 0.75}
    hinter = {"agent": "hinter", "calls": 1.0, "choices": 0.5, "silence": 0.5}
    agents = [hinter, {"agent": "actor", "calls": 1.0, "choices": 0.0, "silence": 0.0}]
    now = {"accuracy": estimate, "generated": estimate, "agents": agents}
    write(tmp_path, "evals/now.json", {**now, "silence": 0.75})
    write(tmp_path, "evals/older.json", now)
    write(tmp_path, "evals/solo.json", {**now, "silence": None})
    run = opened(tmp_path)
    shares = {point["name"]: point["silence"] for point in run.overview()["points"]}
    assert shares == {"played": 0.5, "now": 0.75, "older": 0.5, "solo": None}
    nodes = source_of(run, "played")["flow"]["nodes"]
    assert [(node["agent"], node["silent"], node["choices"]) for node in nodes] == [
        ("hinter", 1, 2),
        ("actor", 0, 0),
    ]


def test_two_who_say_the_same_at_once_have_not_read_each_other(tmp_path: Path) -> None:
    first = [call(name, "4", path_tokens=7) for name in ("a", "b")]
    second = [call(name, "4", "What? They said 4", round=1, path_tokens=14) for name in ("a", "b")]
    write(tmp_path, "episodes/debate.jsonl", episode("t", [*first, *second], True))
    flow = source_of(opened(tmp_path), "debate")["flow"]
    assert {(link["from"], link["to"]) for link in flow["links"]} == {
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
    }
    assert [node["depth"] for node in flow["nodes"]] == [0, 0, 1, 1]


def test_a_piece_holds_the_whole_of_its_episodes(tmp_path: Path) -> None:
    lines = [
        episode(
            f"t/{n}", [call("actor", "21", output_ids=[20, 19, 2], logprobs=[-0.1, -2, 0])], True
        )
        for n in range(PIECE + 5)
    ]
    write(tmp_path, "episodes/solo.jsonl", b"".join(lines))
    run = opened(tmp_path)
    second = json.loads(run.sources["solo"].piece(1, run.config))
    assert [one["task_id"] for one in second["episodes"]] == [
        f"t/{n}" for n in range(PIECE, PIECE + 5)
    ]
    said = second["episodes"][0]["calls"][0]
    assert said["surprise"] == [10, 200, 0]
    assert said["lengths"] == [1, 1, 0]
    assert [second["texts"][place] for _, place in said["prompt"]] == [
        "Be brief.",
        "What is 2 + 2?",
    ]


def test_tool_calls_and_what_tools_said_are_told_apart_from_speech(tmp_path: Path) -> None:
    """Older folders have neither, and are read by the other tests here."""
    asked = {"name": "python", "arguments": "{}", "id": "call00001"}
    first = call("actor", "let me see", tool_calls=[asked])
    last = call("actor", "4", usage={"prompt": 50, "generated": 2, "observed": 13})
    last["messages"] = [
        *first["messages"],
        {"role": "assistant", "content": "let me see", "tool_calls": [asked]},
        {"role": "tool", "content": "<b>4</b>", "tool_calls": [asked]},
    ]
    write(tmp_path, "episodes/solo.jsonl", episode("t/1", [first, last], True))
    source = Source(tmp_path / "episodes" / "solo.jsonl", 0, {})
    source.refresh()
    assert source.columns["turns"] == [1] and not source.flow.links
    piece = json.loads(source.piece(0, {}))
    one, two = piece["episodes"][0]["calls"]
    assert one["tool_calls"] == [asked] and "tool_calls" not in two
    role, place, tool = two["prompt"][-1]
    assert (role, piece["texts"][place], tool) == ("tool", "<b>4</b>", "python")
    assert two["usage"]["observed"] == 13


def test_hostile_text_comes_through_as_it_is(tmp_path: Path) -> None:
    run = opened(hostile_run(tmp_path))
    piece = json.loads(run.sources["train"].piece(0, run.config))
    assert [one["calls"][0]["text"] for one in piece["episodes"]][: len(HOSTILE)] == list(HOSTILE)
    json.dumps(run.overview(), allow_nan=False)


def test_an_older_layout_shows_what_it_has_and_says_what_not(tmp_path: Path) -> None:
    run = opened(old_run(tmp_path))
    overview = run.overview()
    assert overview["metrics"] == {"steps": [1], "columns": {"accuracy/sampled": [0.5]}}
    assert overview["points"][0]["accuracy"] == {"mean": 0.5, "low": 0.5, "high": 0.5}
    assert run.sources["train"].columns["right"] == [None, 1, None]
    said = " ".join(overview["notes"])
    for missing in ("timing.jsonl", "summary.json", "started.jsonl"):
        assert missing in said


@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "timing.jsonl", "summary.json", "episodes", "evals"]
)
def test_any_file_may_be_missing_or_damaged(tmp_path: Path, name: str, small_run: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small_run, folder)
    target = folder / name
    if target.is_dir():
        for path in target.iterdir():
            path.write_bytes(path.read_bytes()[:-20])
        assert opened(folder).overview()["notes"]
        shutil.rmtree(target)
    else:
        target.write_bytes(target.read_bytes()[:-20])
        assert opened(folder).overview()["notes"]
        target.unlink()
    assert any(name in note for note in opened(folder).overview()["notes"])


@pytest.fixture
def small_run(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    write(folder, "config.json", tree())
    write(folder, "metrics.jsonl", b'{"step": 1, "reward/total": 0.5}\n{"step": 2, "a": 1.0}\n')
    write(folder, "timing.jsonl", b'{"step": 1, "rollout_s": 2.0, "update_s": 1.0}\n')
    write(folder, "summary.json", {"teams": {}, "best_step": 2, "stopped": None, "pad": "x" * 30})
    write(folder, "episodes/eval-000000.jsonl", episode("t/1", [call("actor", "4")], True))
    write(folder, "evals/eval-000000.json", {"accuracy": {"mean": 1.0}, "pad": "x" * 30})
    write(folder, "started.jsonl", b'{"command": "tacit train x", "versions": {"python": "3"}}\n')
    return folder


def test_what_is_damaged_is_not_called_missing(small_run: Path) -> None:
    for name in ("summary.json", "started.jsonl"):
        path = small_run / name
        path.write_bytes(path.read_bytes()[:-5])
    said = " ".join(opened(small_run).overview()["notes"])
    assert "summary.json is damaged" in said
    assert "started.jsonl: the last line is torn" in said
    assert "There is no s" not in said


def test_agents_without_their_numbers_are_left_out(small_run: Path) -> None:
    whole = {"agent": "actor", "calls": 1.0, "silence": 0.5}
    agents = [whole, {"agent": "hinter"}, {"calls": 1, "silence": None}, 3]
    write(small_run, "evals/eval-000000.json", {"accuracy": {"mean": 1.0}, "agents": agents})
    (point,) = opened(small_run).overview()["points"]
    assert point["agents"] == [whole]


def test_a_whole_run_lacks_nothing(small_run: Path) -> None:
    write(small_run, "episodes/train.jsonl", episode("t/1", [call("actor", "4")], True))
    overview = opened(small_run).overview()
    assert overview["notes"] == []
    assert overview["starts"] == [{"command": "tacit train x", "versions": {"python": "3"}}]
    assert overview["state"] == {"status": "finished", "step": 2, "steps": 5, "best_step": 2}


def test_a_replayed_step_counts_once_with_its_last_numbers(small_run: Path) -> None:
    run = opened(small_run)
    write(small_run, "metrics.jsonl", b'{"step": 1, "reward/total": 0.75}\n')
    assert run.refresh()
    assert run.overview()["metrics"] == {"steps": [1], "columns": {"reward/total": [0.75]}}
    assert not run.refresh()


def test_repeats_differ_in_seed_and_name_only(tmp_path: Path) -> None:
    changed = {"a": {"seed": 1}, "b": {"seed": 2, "name": "other"}, "c": {"budget": {"tokens": 9}}}
    keys = {}
    for name, change in changed.items():
        write(tmp_path / name, "config.json", tree(**change))
        keys[name] = opened(tmp_path / name).overview()["repeats"]
    write(tmp_path / "d", "config.json", {k: v for k, v in tree().items() if k != "silence"})
    write(tmp_path / "e", "config.json", tree(silence={"warmup_steps": 20}))
    assert keys["a"] == keys["b"] != keys["c"]
    defaults = [opened(tmp_path / name).overview()["repeats"] for name in ("d", "e")]
    assert defaults[0] == defaults[1], "a setting left out is its default"


def test_a_run_is_running_while_its_process_is(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_json("config.json", tree())
    run.log_start()
    assert opened(tmp_path).overview()["state"]["status"] == "running"
    gone = {"pid": 2**22 + 1, "host": platform.node(), "time": "then"}
    run.append("started.jsonl", json.dumps(gone).encode())
    assert opened(tmp_path).overview()["state"]["status"] == "unfinished"


def test_an_empty_folder_waits_for_its_run(tmp_path: Path) -> None:
    for folder in (tmp_path / "not yet", tmp_path):
        assert opened(folder).overview()["state"]["status"] == "waiting"


def test_a_run_that_ended_and_was_taken_up_again_is_running(small_run: Path) -> None:
    os.utime(small_run / "summary.json", (1, 1))
    RunFolder(small_run).log_start()
    assert opened(small_run).overview()["state"]["status"] == "running"
    os.utime(small_run / "summary.json")
    os.utime(small_run / "started.jsonl", (1, 1))
    assert opened(small_run).overview()["state"]["status"] == "finished"


def test_talk_is_told_of_the_checkpoint_that_was_measured_at_the_end(tmp_path: Path) -> None:
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6}
    base = {"accuracy": estimate, "generated": estimate}
    play = {"accuracy": 0.5, "messages": 1, "generated": 9.5, "read": 30, "above": None}
    plays = {"free": play, "silent": {**play, "above": estimate}, "odd": "no play"}
    talk = {"plays": plays, "choosing": {"auc": 0.9, "by": "spoke", "silent_idle": None}}
    write(tmp_path, "config.json", tree())
    write(tmp_path, "evals/eval-000000.json", base)
    write(tmp_path, "evals/eval-000004.json", base | {"talk": {"plays": {"free": play}}})
    write(tmp_path, "evals/eval-000006.json", base | {"talk": "damaged"})
    teams = {"trained": {**base, "talk": talk}}
    write(tmp_path, "summary.json", {"best_step": 4, "teams": teams})
    for name in ("eval-000004", "eval-000004 made to speak", "team without helpers"):
        write(tmp_path, f"episodes/{name}.jsonl", episode("t", [call("actor", "4")], True))
    run = opened(tmp_path)
    points = {point["name"]: point["talk"] for point in run.overview()["points"]}
    assert points.keys() == {"eval-000000", "eval-000004", "eval-000006"}, "and no other plays"
    assert points["eval-000000"] is None and points["eval-000006"] is None
    told = points["eval-000004"]
    assert told["plays"]["silent"]["above"] == estimate and told["plays"]["odd"]["read"] is None
    assert told["choosing"] == {"auc": 0.9, "by": "spoke", "silent_idle": None}
    for name in ("eval-000004", "eval-000004 made to speak"):
        assert source_of(run, name)["alone"] == "team without helpers"


def test_paired_tests_are_sentences(tmp_path: Path) -> None:
    test = {
        "difference": {"mean": 0.5, "low": 0.4, "high": 0.6},
        "p_bootstrap": 0.001, "p_mcnemar": 0.002, "only_first": 0, "only_second": 10, "tasks": 20,
    }  # fmt: skip
    write(tmp_path, "config.json", tree())
    summary = {"trained_compared_with": {"solo": test, "debate": None}, "paired": {"x": {"odd": 1}}}
    write(tmp_path, "summary.json", summary)
    (sentence,) = opened(tmp_path).overview()["tests"]
    assert sentence["sure"]
    assert sentence["text"].startswith("trained is significantly above solo by 50.0 points")


def test_a_search_is_told_apart_from_what_its_check_says(tmp_path: Path) -> None:
    search_run(tmp_path)
    overview = opened(tmp_path).overview()
    search = overview["search"]
    assert [one["name"] for one in search["entries"]] == ["holders", "solo", "not played"]
    assert search["entries"][1]["dropped"] == "beaten" and search["winner"] == "holders"
    assert search["entries"][2]["accuracy"] is None
    assert search["spend"] == {"search": 1234.0, "first_pool": 5678.0}
    assert [point["name"] for point in overview["points"]] == ["holders"], "solo's are search tasks"
    assert not any("evals" in note for note in overview["notes"])
    assert overview["confidence"] == 0.95
    write(tmp_path, "config.json", {"evaluation": {"confidence": 0.9}})
    assert opened(tmp_path).overview()["confidence"] == 0.9


@pytest.mark.parametrize("tree", [b"", b"[]", b'{"entries": 3}', b'{"entries": {"a": 1}}'])
def test_a_damaged_search_is_passed_over(tmp_path: Path, tree: bytes) -> None:
    write(tmp_path, "search.json", tree)
    overview = opened(tmp_path).overview()
    search = overview["search"]
    assert search is None or search["entries"][0]["accuracy"] is None
