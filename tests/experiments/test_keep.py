"""From a run folder to a record: who spent what, how training went, and not a word of text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tacit
from experiments.keep import columns, main
from experiments.records import Records
from experiments.tables import training_table
from tacit import Call, ChatMessage, ConfigError, Episode, Grade, Usage
from tacit.config.file import parse_config
from tacit.run.folder import RunFolder
from tacit.types import Stop
from tests.helpers.training_runs import tree


def call(agent: str, part: str, text: str, tokens: int, silent: bool = False) -> Call:
    return Call(
        agent=agent,
        model="m",
        messages=(ChatMessage("user", "?"),),
        text=text,
        stop=Stop.EOS,
        usage=Usage(prompt=10 * tokens, generated=tokens),
        silent=silent,
        may_be_silent=part == "hinter",
        silence_logprob=-0.5 if part == "hinter" else None,
        part=part,
        path_tokens=tokens,
    )


def episode(task: str, right: bool | None, *calls: Call) -> Episode:
    grade = None if right is None else Grade(reward=float(right), right=right, answer="so 42")
    return Episode(task_id=task, sample=0, calls=calls, grade=grade, error=None if grade else "x")


def test_columns_say_who_spent_what_and_hold_no_text() -> None:
    solver = call("actor", "solver", "so 42", 30)
    found = columns(
        [
            episode("set/test/10", None, call("hinter", "hinter", "think", 4)),
            episode("set/test/2", True, call("hinter", "hinter", "it is 42", 5), solver),
            episode("set/test/9", False, call("hinter", "hinter", "", 2, silent=True), solver),
        ]
    )
    assert (found["tasks"], found["ids"], found["right"]) == ("set/test", ["2", "9", "10"], "10-")
    assert found["calls"]["hinter/hinter"] == {
        "generated": [5, 2, 4], "read": [50, 20, 40], "calls": 1, "silent": [0, 1, 0], "cut": 0,
    }  # fmt: skip
    assert found["calls"]["actor/solver"]["generated"] == [30, 30, 0]
    assert found["log_silence"] == [-0.5] * 3
    read, other, failed = found["answer"]
    assert len(read) == 8 and read != other and failed == "", "a hash, and another for each task"
    assert "42" not in json.dumps({**found, "answer": []}) and "think" not in json.dumps(found)


def test_partial_rewards_and_every_choice_of_several_agents_are_kept() -> None:
    def holder(number: int, round: int, silent: bool) -> Call:
        said = call(f"holder {number}", "hinter", "so", 3, silent)
        return replace(said, round=round)

    half = Grade(reward=0.5, right=False)
    plays = [
        replace(episode("set/test/1", False, holder(1, 0, True), holder(2, 0, False)), grade=half),
        episode("set/test/2", True, holder(1, 0, False), holder(1, 1, True), holder(2, 0, True)),
    ]
    plays[0] = replace(plays[0], needed={"holder 1": True, "holder 2": False})
    found = columns(plays, {"set/test/1": {"holder 1": True, "holder 2": False}})
    assert found["needed"] == found["named"] == {"holder 1": "1-", "holder 2": "0-"}
    assert found["reward"] == [0.5, 1.0] and found["right"] == "01" and "log_silence" not in found
    silent = {name: one["silent"] for name, one in found["choices"].items()}
    assert silent == {
        "holder 1, round 0": "10", "holder 1, round 1": "-1", "holder 2, round 0": "01",
    }  # fmt: skip
    assert found["choices"]["holder 1, round 1"]["log_silence"] == [None, -0.5]


def test_a_task_that_was_played_again_counts_as_it_ended() -> None:
    solver = call("actor", "solver", "so 42", 30)
    assert columns([episode("a/1", None), episode("a/1", True, solver)])["right"] == "1"
    with pytest.raises(ConfigError, match=r"evaluation\.samples=1"):
        columns([replace(episode("a/1", True, solver), sample=1)])


def test_a_run_is_kept_and_tabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "results"
    out.mkdir()
    tacit.train(tree(train={"steps": 3, "evaluate_every": 2}), out=run)
    line = "team.agents.hinter.silent_above=1e-12"
    tacit.evaluate(str(run), "tasks.limit=3", line, out=run / "test")
    arguments = ["tiny", str(run), f"trained={run / 'test'}", "--out", str(out)]
    assert main(arguments) == 0 and "tiny-s0.json: trained" in capsys.readouterr().out
    text = (out / "tiny-s0.json").read_text()
    assert "What is" not in text, "the question"
    records = Records.read(out)
    assert len(records.get("tiny", "trained").ids) == 3
    assert records.get("tiny", "trained").columns[0]["silent_above"] == {"hinter": 1e-12}
    kept = records.runs["tiny"][0]
    assert kept["training"]["steps"] == 3 and kept["training"]["validation"]["step"] == [0, 2, 3]
    assert (
        kept["training"]["best_step"]
        == json.loads((run / "checkpoints" / "best.json").read_text())["step"]
    )
    assert "| seed 0 | 3 |" in training_table(records, ["tiny"])
    assert main(arguments) == 2 and "there already" in capsys.readouterr().err
    assert main(["other", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_run_without_an_evaluation_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"seed": 0, "models": {}}')
    assert main(["tiny", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "has no episodes" in capsys.readouterr().err


def test_without_the_files_that_only_tell_what_a_question_names_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_DATA", raising=False)
    tasks = {"name": "split_hotpotqa", "split": "test"}
    run = RunFolder.open(tmp_path / "run", parse_config(tree(tasks=tasks)))
    one = episode("split_hotpotqa/test/1", True, call("holder 1", "hinter", "so", 3))
    run.append_episode("holders", replace(one, needed={"holder 1": True, "holder 2": False}))
    run.write_json("evals/holders.json", {"leaks": None})
    assert main(["tiny", str(run.path), "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "TACIT_DATA" in told and "nothing is lost: keep it again where its tasks" in told
    assert not list(tmp_path.glob("*.json"))
