"""A run on disk survives being killed, and is never mistaken for another."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.config import BudgetConfig, Config, EvaluationConfig, TaskConfig
from tacit.config.file import load_config, parse_config
from tacit.errors import ConfigError
from tacit.evaluation.measure import evaluate_team
from tacit.run.folder import RunFolder, read_lines, write_atomically
from tacit.run.opening import open_engines, seat, tasks_of, teams_of
from tacit.types import Call, ChatMessage, Choice, Episode, Grade, Stop, Usage
from tests.helpers.commands import started, tacit_
from tests.helpers.waiting import wait_for

EPISODE = Episode(
    task_id="sum/1",
    sample=3,
    level="hard",
    calls=(
        Call(
            agent="hinter",
            model="pocket",
            messages=(ChatMessage("system", "s\n\u2028"), ChatMessage("user", "ü<|eos|>\0")),
            text="7 + 5 = 12",
            stop=Stop.LENGTH,
            usage=Usage(prompt=5, generated=3, cached=1, reasoning=1),
            prompt_ids=(1, 2, 3),
            output_ids=(4, 5, 6),
            logprobs=(-0.1, -1e-12, -123.456789012345678),
            policy="team",
            version=4,
            choice=Choice.FLOOR,
            silence_logprob=-17.25,
            part="hinter",
            round=1,
            seconds=0.125,
            path_tokens=9,
        ),
    ),
    answer="12",
    grade=Grade(reward=0.5, right=False, answer="12", note="close"),
    seconds=1.5,
)
FAILED = Episode(task_id="sum/2", sample=0, error="EngineError: gone")


def test_an_episode_comes_back_as_it_was_to_the_bit(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", Config())
    run.append_episode("t", EPISODE)
    run.append_episode("t", FAILED)
    assert list(run.episodes("t")) == [EPISODE, FAILED]
    assert len((tmp_path / "run/episodes/t.jsonl").read_bytes().split(b"\n")) == 3
    assert list(run.episodes("another")) == []


def test_a_torn_last_line_is_passed_over_and_cut_off_before_going_on(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", Config())
    run.append_episode("t", EPISODE)
    run.append_episode("t", FAILED)
    path = tmp_path / "run/episodes/t.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in (len(whole) - 1, len(whole) - 7, first + 1, first):
        path.write_bytes(whole[:end])
        assert list(run.episodes("t")) == [EPISODE]
        run.mend("episodes/t.jsonl")
        assert path.read_bytes() == whole[:first]
    path.write_bytes(whole[: first - 1])
    assert list(run.episodes("t")) == []
    run.mend("episodes/t.jsonl")
    run.append_episode("t", FAILED)
    assert list(run.episodes("t")) == [FAILED]


def test_mending_what_is_whole_or_missing_changes_nothing(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", Config())
    run.mend("episodes/t.jsonl")
    assert not (tmp_path / "run/episodes").exists()
    run.append_episode("t", EPISODE)
    before = (tmp_path / "run/episodes/t.jsonl").read_bytes()
    run.mend("episodes/t.jsonl")
    assert (tmp_path / "run/episodes/t.jsonl").read_bytes() == before


def test_the_same_config_goes_on_and_another_is_refused(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, Config(seed=1))
    RunFolder.open(tmp_path, Config(seed=1))
    with pytest.raises(ConfigError, match=r"another config \(seed, tasks.limit differ\)") as said:
        RunFolder.open(tmp_path, Config(seed=2, tasks=TaskConfig(name="arithmetic", limit=9)))
    assert "remove" not in str(said.value), "a run is never to be thrown away"
    assert RunFolder.existing(tmp_path)[1] == Config(seed=1)


def team_config(**changed: Any) -> Config:
    solo = {"topology": "solo", "agents": {"actor": {}}}
    hint = {"topology": "hint_actor", "agents": {"hinter": {}, "actor": {}}}
    return parse_config({"team": hint, "teams": {"solo": solo, "other": solo}, **changed})


def without(config: Config, *names: str) -> Config:
    teams = {name: team for name, team in config.teams.items() if name not in names}
    return config.model_copy(update={"teams": teams})


def test_only_what_the_stored_results_depend_on_may_not_change(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, team_config())
    run.append_episode("hint_actor", EPISODE)
    run.append_episode("solo", EPISODE)
    another = {"topology": "solo", "agents": {"actor": {"max_tokens": 7}}}
    solo = {"topology": "solo", "agents": {"actor": {}}}
    free: list[Config] = [
        team_config(train={"steps": 3}, optimizer={"learning_rate": 1.0}, budget={"tokens": 9}),
        team_config(train_tasks={"name": "arithmetic"}, evaluation={"samples": 4}, name="b"),
        team_config(teams={"solo": solo, "other": another, "new": another}),
        team_config(models={"unused": {"path": "elsewhere"}}),
        without(team_config(), "other"),
    ]
    for config in free:
        assert RunFolder.existing(RunFolder.open(tmp_path, config).path)[1] == config
    refused: dict[str, Config] = {
        "teams.solo.agents.actor.max_tokens": team_config(teams={"solo": another}),
        "teams.solo": without(team_config(), "solo"),
        "team.agents.hinter, team.topology": team_config(team=solo),
        "models.pocket.path": team_config(models={"pocket": {"path": "elsewhere"}}),
    }
    for place, config in refused.items():
        with pytest.raises(ConfigError, match="differ") as said:
            RunFolder.open(tmp_path, config)
        assert place in str(said.value)


def test_a_training_run_may_be_extended_and_not_changed(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, team_config())
    run.append("metrics.jsonl", b"{}")
    longer = {"steps": 200, "patience": 9, "evaluate_every": 1, "trackers": ["tensorboard"]}
    elsewhere = {"address": "auto", "workers": 9}
    RunFolder.open(
        tmp_path, team_config(train=longer, evaluation={"resamples": 9}, cluster=elsewhere)
    )
    for changed in (
        {"cluster": {"staleness": 1}, "loss": {"mismatch_cap": 2}},
        {"train": {"group": 3}},
        {"optimizer": {"learning_rate": 1.0}},
        {"evaluation": {"samples": 2}},  # the checkpoints before had one each
        {"train_tasks": {"name": "arithmetic"}},
    ):
        with pytest.raises(
            ConfigError, match=r"differ\).*--out; `--from .*` starts with its"
        ) as said:
            RunFolder.open(tmp_path, team_config(**changed))
        assert ("cluster.staleness" in str(said.value)) == ("cluster" in changed)


def api_config(**changed: object) -> Config:
    model = {"engine": "api", "model": "m", **changed}
    team = {"topology": "solo", "agents": {"actor": {"model": "actor"}}}
    more = {"team": team, "prices": "p.yaml", "spend_cap": 1.0}
    return parse_config({"models": {"actor": model}, **more})


def test_the_cap_and_the_manners_of_asking_may_change_and_are_written_down(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", api_config())
    kinder = api_config(concurrency=2, requests_per_minute=10, deadline=20, retries=1, timeout=5)
    richer = kinder.model_copy(update={"spend_cap": 2.0})
    run = RunFolder.open(tmp_path / "run", richer)
    assert RunFolder.existing(run.path)[1] == richer
    with pytest.raises(ConfigError, match=r"models\.actor\.cache differ"):
        RunFolder.open(tmp_path / "run", api_config(cache="none"))


def test_a_setting_that_an_older_run_did_not_have_was_at_its_default(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", Config())
    older = run.read_json("config.json")
    del older["tasks"]["offset"], older["spend_cap"]
    run.write_json("config.json", older)
    RunFolder.open(tmp_path / "run", Config())
    with pytest.raises(ConfigError, match=r"tasks\.offset differ"):
        later = TaskConfig(name="arithmetic", limit=200, offset=1)
        RunFolder.open(tmp_path / "run", Config(tasks=later))


def test_what_a_refused_run_paid_for_is_taken_up_again(tmp_path: Path) -> None:
    (tmp_path / "run/cache").mkdir(parents=True)
    (tmp_path / "run/spend.jsonl").write_text("{}\n")
    RunFolder.open(tmp_path / "run", Config())
    assert (tmp_path / "run/spend.jsonl").exists()


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious", encoding="utf-8")
    for open_it in (RunFolder.check, RunFolder.open):
        with pytest.raises(ConfigError, match="is not a run folder and not empty"):
            open_it(tmp_path, Config())
        with pytest.raises(ConfigError, match="is a file: name a folder"):
            open_it(tmp_path / "thesis.tex", Config())
    with pytest.raises(ConfigError, match=r"it has no config\.json"):
        RunFolder.existing(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_checking_writes_nothing(tmp_path: Path) -> None:
    RunFolder.check(tmp_path / "run", Config())
    assert list(tmp_path.iterdir()) == []


def test_a_run_killed_before_its_config_was_written_can_start_again(tmp_path: Path) -> None:
    (tmp_path / ".config.json.x1y2").write_bytes(b'{"name": ')
    RunFolder.open(tmp_path, Config())
    assert RunFolder.existing(tmp_path)[1] == Config()


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"name": ', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config\.json is damaged"):
        RunFolder.open(tmp_path, Config())


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, Config())
    run.write_json("summary.json", {"a": 1})
    with pytest.raises(ValueError):
        run.write_json("summary.json", {"a": float("nan")})
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "summary.json", "text")  # type: ignore[arg-type]
    assert run.read_json("summary.json") == {"a": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "summary.json"]


def test_lines_of_a_file_that_is_not_there_are_none(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "nothing.jsonl")) == []


CONFIG = """
name: killed
tasks: {name: arithmetic, split: test, limit: 30}
evaluation: {concurrency: 2, resamples: 100}
models: {small: {path: pocket, rows: 4}}
team:
  topology: hint_actor
  agents: {hinter: {model: small, max_tokens: 96}, actor: {model: small, max_tokens: 24}}
"""


async def test_a_killed_evaluation_repeats_only_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    path = tmp_path / "run/episodes/hint_actor.jsonl"
    command = ("eval", "config.yaml", "--out", "run", "--json")
    process = started(tmp_path, *command)
    wait_for(lambda: _lines(path) >= 4 or process.poll() is not None)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    kept = b"".join(read_lines(path))
    assert 4 <= kept.count(b"\n") < 30
    assert not (tmp_path / "run/summary.json").exists()

    again = tacit_(tmp_path, *command)
    assert again.returncode == 0, again.stderr
    assert path.read_bytes().startswith(kept), "what was done was not kept as it was"
    ids = [json.loads(line)["task_id"] for line in read_lines(path)]
    assert len(ids) == len(set(ids)) == 30
    summary = json.loads(again.stdout)
    assert summary == json.loads((tmp_path / "run/summary.json").read_bytes())
    assert summary["teams"]["hint_actor"]["tasks"] == 30

    never_killed = await _whole(tmp_path)
    mended = {episode.task_id: _untimed(episode) for episode in _episodes(tmp_path / "run")}
    assert mended == {episode.task_id: _untimed(episode) for episode in never_killed}


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _episodes(folder: Path) -> list[Episode]:
    return list(RunFolder(folder).episodes("hint_actor"))


async def _whole(folder: Path) -> list[Episode]:
    config = load_config(folder / "config.yaml")
    teams = teams_of(config)
    settings = EvaluationConfig(concurrency=64)
    run = RunFolder.open(folder / "whole", config)
    async with open_engines(config, teams) as engines:
        return await evaluate_team(
            "hint_actor",
            seat(teams["hint_actor"], engines),
            tasks_of(config.tasks),
            settings,
            run,
            seed=config.seed,
        )


def _untimed(one: Episode) -> Episode:
    return replace(one, seconds=0.0, calls=tuple(replace(c, seconds=0.0) for c in one.calls))


def test_what_is_asked_of_a_run_is_taken_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert not run.take("stop")
    run.ask("stop")
    run.ask("stop")
    assert not run.take("save")
    assert run.take("stop")
    assert not run.take("stop")


def test_each_start_is_a_line_with_its_command_and_versions(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.log_start()
    run.log_start()
    first, second = (json.loads(line) for line in read_lines(run.path / "started.jsonl"))
    assert first.keys() == second.keys() == {"time", "command", "versions", "host", "pid"}
    assert first["versions"].keys() >= {"python", "tacit", "torch", "transformers"}
    assert first["pid"] == os.getpid()


def test_a_folder_in_use_is_refused_until_it_is_done_with(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "one")
    with run.held():
        with pytest.raises(ConfigError, match="is in use by another process"), run.held():
            pass
        run.write_json("config.json", {})
    assert [path.name for path in run.path.iterdir()] == ["config.json"]
    with run.held():
        pass


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunFolder(tmp_path / "runs" / "one").held():
        raise KeyError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [b"short\n", b"a line that ends elsewhere\n"])
def test_a_file_that_was_changed_is_not_cut_in_the_middle_of_a_line(
    text: bytes, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(text)
    with pytest.raises(ConfigError, match="remove it, and the run goes on without"):
        run.cut("metrics.jsonl", 12)
    assert (tmp_path / "metrics.jsonl").read_bytes() == text


def test_a_folder_of_an_older_version_opens_without_the_settings_that_are_gone(
    tmp_path: Path,
) -> None:
    run = RunFolder.open(tmp_path, Config(seed=1))
    tree = run.read_json("config.json")
    tree["train"]["overlap"] = True
    run.write_json("config.json", tree)
    assert RunFolder.existing(tmp_path)[1] == load_config(tmp_path) == Config(seed=1)
    tree["team"] = {"topology": "tacit.record:outside", "agents": {"actor": {}}}
    run.write_json("config.json", tree)
    team = load_config(tmp_path).team
    assert team is not None and team.topology == "tacit.external:app"
    with pytest.raises(ConfigError, match=r"`train\.overlap` is not a setting"):
        parse_config({"train": {"overlap": True}})


def test_a_price_without_its_unit_in_an_older_run_is_still_ignored(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path, Config(seed=1, budget=BudgetConfig(turns=2.0, weight_turns=0.1)))
    tree = run.read_json("config.json")
    tree["budget"]["weight_tokens"] = 0.3
    run.write_json("config.json", tree)
    budget = RunFolder.existing(tmp_path)[1].budget
    assert (budget.weight_tokens, budget.weight_turns) == (0.0, 0.1)
    with pytest.raises(ConfigError, match=r"set budget\.tokens"):
        parse_config({"budget": {"weight_tokens": 0.3}})


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/bin/tacit", "tacit eval 'my run'"),
        ("/lib/tacit/__main__.py", "tacit eval 'my run'"),
        ("/lib/pytest/__main__.py", "pytest eval 'my run'"),
        ("/mine/train_all.py", "train_all.py eval 'my run'"),
    ],
)
def test_a_start_is_logged_with_the_program_that_it_was(
    program: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [program, "eval", "my run"])
    RunFolder(tmp_path).log_start()
    (line,) = read_lines(tmp_path / "started.jsonl")
    assert json.loads(line)["command"] == command
