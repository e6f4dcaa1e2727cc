"""The command line as people meet it: one sentence for a mistake, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tacit.pocket
from tacit.cli.commands import for_one
from tacit.config.file import load_config
from tests.helpers.commands import started, tacit_
from tests.helpers.training_runs import tree
from tests.helpers.waiting import wait_for

CONFIG = """
name: mine
tasks: {name: arithmetic, split: test, limit: 4}
evaluation: {resamples: 100}
team:
  topology: hint_actor
  agents: {hinter: {max_tokens: 96}, actor: {max_tokens: 24}}
"""
GOOD_LINE = '{"question": "What is 31 + 25?", "answer": "56"}\n'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a config and files that are wrong in several ways."""
    (tmp_path / "mine.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "good.jsonl").write_text(GOOD_LINE, encoding="utf-8")
    (tmp_path / "torn.jsonl").write_text(GOOD_LINE + '{"question": "What', encoding="utf-8")
    (tmp_path / "bare.jsonl").write_text(GOOD_LINE + '{"question": "2?"}\n', encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    (tmp_path / "broken.py").write_text("async def play(task, team:\n", encoding="utf-8")
    (tmp_path / "own.py").write_text("async def play(task, team):\n    ...\n", encoding="utf-8")
    return tmp_path


def files(here: Path) -> set[str]:
    return {
        str(path.relative_to(here)) for path in here.rglob("*") if "__pycache__" not in str(path)
    }


OUTSIDE = "is code from outside this package"


def refused(here: Path, *arguments: str, code: int = 2, **variables: str) -> str:
    """The one sentence of a command that must fail and leave nothing behind."""
    before = files(here)
    done = tacit_(here, *arguments, **variables)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert files(here) == before
    (line,) = (line for line in done.stderr.splitlines() if not line.endswith(OUTSIDE))
    assert line.startswith("tacit: ")
    return line.removeprefix("tacit: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "no config file or recipe `nowhere.yaml`"),
        (["mine.yaml", "name=up/../../there"], "name: a run's folder is named by it: no slashes"),
        (["mine.yaml", "team.topology=broken:play"], "cannot import topology `broken:play`: "),
        (["mine.yaml", "tasks.name=gsm9k"], "unknown task source `gsm9k`: did you mean `gsm8k`?"),
        (["mine.yaml", "tasks.name=gsm8k"], "gsm8k: its files are needed: name the folder"),
        (["mine.yaml", "tasks.name=gsm8k", "tasks.folder=nowhere"], "nowhere is not a folder"),
        (["mine.yaml", "tasks.name=nowhere.jsonl"], "nowhere.jsonl"),
        (["mine.yaml", "tasks.name=torn.jsonl"], "torn.jsonl"),
        (["mine.yaml", "tasks.name=bare.jsonl"], "`answer` is missing"),
        (["mine.yaml", "tasks.name=empty.jsonl"], "empty.jsonl: it holds no tasks"),
        (["mine.yaml", "tasks={name: good.jsonl, offset: 1}"], "none left after offset 1"),
        (["mine.yaml", "tasks.level=[impossible]"], "has no level impossible; it has: easy, hard"),
        (["mine.yaml", "tasks.limit=-1"], "mine.yaml: tasks.limit: input should be greater than 0"),
        (
            ["mine.yaml", "team.agents.actor.max_tokens=-1"],
            "mine.yaml: team.agents.actor.max_tokens: input should be greater than 0, got -1",
        ),
        (
            ["mine.yaml", "team.agents.actor.max_tokns=3"],
            "`team.agents.actor.max_tokns` is not a setting: did you mean `max_tokens`?",
        ),
        (
            ["mine.yaml", "team.topology=hint_acter"],
            "unknown topology `hint_acter`: did you mean `hint_actor`?",
        ),
        (["mine.yaml", "team.agents.hintr={}"], "team.agents.hintr: hint_actor has no such role"),
        (["mine.yaml", "team.options.rounds=2"], "team.options.rounds: hint_actor has no such"),
        (["mine.yaml", "team.agents.actor.model=gpt"], "no model `gpt` under `models`"),
        (["mine.yaml", "seed"], "override `seed`: write it as section.key=value"),
        (["mine.yaml", "prices=nowhere.yaml"], "prices: `nowhere.yaml` cannot be read"),
        (["mine.yaml", "--out", "mine.yaml"], "`mine.yaml` is a file: name a folder with --out"),
        (["mine.yaml", "--out", "."], "`.` is not a run folder and not empty"),
        (["pocket-compare"], "`tacit eval` needs a `team:`"),
        (
            ["mine.yaml", "team.topology=own:play", "tasks.name=gsm9k"],
            "unknown task source `gsm9k`",  # so the topology of one's own was found
        ),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    here: Path, arguments: list[str], message: str
) -> None:
    assert message in refused(here, "eval", *arguments)


def test_a_malformed_line_is_named_by_its_number(here: Path) -> None:
    assert "torn.jsonl:2" in refused(here, "eval", "mine.yaml", "tasks.name=torn.jsonl")
    assert "bare.jsonl:2" in refused(here, "eval", "mine.yaml", "tasks.name=bare.jsonl")


def test_a_model_folder_without_a_tokenizer_is_refused(here: Path) -> None:
    model = Path(tacit.pocket.__file__).parent / "model"
    (here / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (here / "model" / name).symlink_to(model / name)
    told = refused(here, "eval", "mine.yaml", "models.m.path=model", "team.agents.actor.model=m")
    assert told.startswith("model folder `model` has no tokenizer: ")


def test_a_server_that_cannot_be_reached_ends_the_run_with_its_message(here: Path) -> None:
    model = "models.gpt={engine: api, model: x, base_url: 'http://127.0.0.1:9/v1', retries: 0}"
    done = tacit_(
        here,
        "eval",
        "mine.yaml",
        model,
        "team={topology: solo, agents: {actor: {model: gpt}}}",
        OPENAI_API_KEY="none",
    )
    assert done.returncode == 1 and done.stdout == ""
    assert "tacit: no episode succeeded out of 4: EngineError: x: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "no API key for `x`" in refused(
        here,
        "eval",
        "mine.yaml",
        model,
        "team={topology: solo, agents: {actor: {model: gpt}}}",
        "--out",
        "other",
        OPENAI_API_KEY="",
    )


def test_help_and_slips_of_the_pen() -> None:
    done = tacit_(Path(), "--help")
    assert done.returncode == 0 and done.stderr == ""
    for command in ("eval", "compare", "train", "play", "tasks", "doctor", "init"):
        assert command in done.stdout
    assert tacit_(Path(), "evl").returncode == 2
    assert tacit_(Path(), "eval").returncode == 2


def test_eval_prints_json_for_programs_and_leaves_a_run(here: Path) -> None:
    done = tacit_(here, "eval", "mine.yaml", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    run = here / "runs" / "mine"
    assert result == json.loads((run / "summary.json").read_text(encoding="utf-8"))
    team = result["teams"]["hint_actor"]
    assert team == json.loads((run / "evals/hint_actor.json").read_text(encoding="utf-8"))
    assert (team["tasks"], team["failed"]) == (4, 0)
    assert set(team["accuracy_by_level"]) == {"easy", "hard"}
    assert [agent["agent"] for agent in team["agents"]] == ["hinter", "actor"]
    lines = (run / "episodes/hint_actor.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4 and all(len(json.loads(line)["calls"]) == 2 for line in lines)
    assert load_config(run).name == "mine"

    told = refused(here, "eval", "mine.yaml", "seed=1")
    assert told.startswith("`runs/mine` holds a run with another config (seed differ)")
    assert "another config" in refused(here, "eval", "runs/mine", "seed=1")


def test_silence_is_counted_one_way_in_a_topology_of_ones_own(here: Path) -> None:
    own = """
async def play(task, team):
    note = await team.adviser.ask(task.question)
    return await team.actor.ask(task.question, hint=note)
"""
    (here / "advised.py").write_text(own, encoding="utf-8")
    agents = "{adviser: {silent: true, max_tokens: 24}, actor: {max_tokens: 24}}"
    team = f"team={{topology: 'advised:play', agents: {agents}}}"
    done = tacit_(here, "eval", "mine.yaml", team, "tasks.limit=8", "--json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["teams"].values()
    lines = (here / "runs/mine/episodes/play.jsonl").read_text(encoding="utf-8").splitlines()
    silent = sum(json.loads(line)["calls"][0]["silent"] for line in lines)
    adviser, actor = result["agents"]
    assert result["silence"] == adviser["silence"] == silent / 8
    assert (adviser["choices"], actor["choices"]) == (1.0, 0.0)
    assert result["changed"]["silent"] <= silent < 8


def test_compare_prints_a_table_that_fits_and_a_sentence_for_each_pair(here: Path) -> None:
    teams = """
extends: pocket-compare
name: two
tasks: {limit: 4}
evaluation: {resamples: 100}
"""
    (here / "two.yaml").write_text(teams, encoding="utf-8")
    done = tacit_(here, "compare", "two.yaml", "--out", "there/run")
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "…" not in done.stdout
    said = " ".join(done.stdout.split())
    for name in ("solo *", "untrained hint", "untrained critic", "debate", "self-consistency"):
        assert name in done.stdout
    assert "solo" in done.stdout.partition("Tokens per episode, by agent")[2]
    assert "4 paired tests (p < 0.05, corrected for their number): 4 show no difference" in said
    assert done.stdout.rstrip().endswith("there/run")
    files = {file.stem for file in (here / "there/run/episodes").iterdir()}
    assert len(files) == 7 and {"untrained hint without helpers"} < files
    assert re.search(r"untrained hint: .*episodes, helpers helped in \d, harmed in \d", said)
    assert not (here / "runs").exists()


def test_play_shows_the_conversation_and_the_verdict(here: Path) -> None:
    done = tacit_(here, "play", "What is 31 + 25?", "--answer", "56", "--team", "mine.yaml")
    assert done.returncode == 0, done.stderr
    hinter, actor = done.stdout.index("hinter ("), done.stdout.index("actor (")
    assert hinter < actor
    verdict, tokens = done.stdout.strip().splitlines()[-2:]
    assert verdict.startswith(("right: ", "wrong: ")) and verdict.endswith("reference '56'")
    assert tokens.endswith(" read") and "tokens generated" in tokens
    assert not (here / "runs").exists()


def test_settings_are_changed_in_play_as_everywhere(here: Path) -> None:
    said = refused(here, "play", "2 + 2?", "team.agents.actor.max_tokns=3", "--team", "mine.yaml")
    assert "`team.agents.actor.max_tokns` is not a setting: did you mean `max_tokens`?" in said


def test_version_and_recipes(here: Path) -> None:
    assert tacit_(here, "--version").stdout == f"tacit {tacit.__version__}\n"
    listed = tacit_(here, "recipes").stdout
    assert "pocket-hint\n    A pocket hint team under a token budget" in listed
    assert "template\n" in listed


def test_a_finished_evaluation_is_printed_from_its_summary(here: Path) -> None:
    first = tacit_(here, "eval", "mine.yaml", "--json")
    episodes = here / "runs/mine/episodes/hint_actor.jsonl"
    episodes.unlink()
    assert tacit_(here, "eval", "mine.yaml", "--json").stdout == first.stdout
    assert not episodes.exists(), "nothing was played again"
    os.utime(here / "runs/mine/started.jsonl")  # a start that came to no end
    assert tacit_(here, "eval", "mine.yaml").returncode == 0 and episodes.exists()


def test_only_a_trained_run_has_checkpoints(here: Path) -> None:
    said = refused(here, "eval", "mine.yaml", "--checkpoint", "last")
    assert said == "--checkpoint: `mine.yaml` is no trained run, so it has none"


def test_play_needs_no_files_of_the_benchmark_and_decodes_one_row(here: Path) -> None:
    solo = "{topology: solo, agents: {actor: {model: mine, max_tokens: 8}}}"
    text = f"models: {{mine: {{path: pocket}}}}\ntasks: {{name: gsm8k}}\nteam: {solo}\n"
    (here / "away.yaml").write_text(text, encoding="utf-8")
    done = tacit_(here, "play", "What is 31 + 25?", "--answer", "56", "--team", "away.yaml")
    assert done.returncode == 0, done.stderr
    assert "reference '56'" in done.stdout
    trained_on_a_gpu = load_config(here / "away.yaml", ["models.mine.rows=256"])
    for device, rows in (("cpu", 1), ("cuda", 256)):  # a CPU computes all rows, used or not
        mine = trained_on_a_gpu.models["mine"].model_copy(update={"device": device})
        moved = trained_on_a_gpu.model_copy(update={"models": {"mine": mine}})
        assert for_one(moved).models["mine"].rows == rows


def test_init_writes_a_config_that_works_and_overwrites_nothing(here: Path) -> None:
    done = tacit_(here, "init", "new/team.yaml")
    assert done.returncode == 0 and "wrote new/team.yaml" in done.stdout
    assert load_config(here / "new/team.yaml").team is not None
    assert "exists already" in refused(here, "init", "new/team.yaml")


def test_the_template_is_evaluated_compared_and_trained_in_one_folder(here: Path) -> None:
    assert tacit_(here, "init", "my-team.yaml").returncode == 0
    small = ("tasks.limit=3", "evaluation.resamples=50")
    short = ("train.steps=1", "train.tasks_per_step=2", "train.group=2", "budget.tokens=40")
    for command, more in (("eval", ()), ("compare", ()), ("train", short)):
        done = tacit_(here, command, "my-team.yaml", *small, *more)
        assert done.returncode == 0, done.stderr
    played = {path.stem for path in (here / "runs" / "my-team" / "episodes").glob("*.jsonl")}
    assert {"hint_actor", "solo", "eval-000000", "eval-000001"} <= played


def test_tasks_are_listed_counted_and_shown(here: Path) -> None:
    listed = tacit_(here, "tasks", COLUMNS="160").stdout
    for name in ("gsm8k", "math500", "humaneval", "checkmate_in_one", "arithmetic"):
        assert name in listed
    assert "7473" in listed and "evaluation only" in listed

    shown = tacit_(here, "tasks", "arithmetic", "--samples", "1").stdout
    assert shown.startswith("arithmetic test: 200 tasks (easy 100, hard 100)")
    assert shown.count("answer: ") == 1
    (here / "ok.jsonl").write_text(GOOD_LINE.replace("31", "[bold]31"), encoding="utf-8")
    assert "What is [bold]31 + 25?" in tacit_(here, "tasks", "ok.jsonl").stdout
    assert "unknown task source" in refused(here, "tasks", "arithmetc")


def test_an_unknown_grader_is_told_with_its_task_before_anything_is_shown(here: Path) -> None:
    line = '{"question": "2 + 2?", "answer": "4", "grader": "mahts"}\n'
    (here / "graded.jsonl").write_text(GOOD_LINE + line, encoding="utf-8")
    said = "graded/1: unknown grader `mahts`: did you mean `math`?"
    assert refused(here, "tasks", "graded.jsonl").startswith(said)
    assert refused(here, "eval", "mine.yaml", "tasks.name=graded.jsonl").startswith(said)


def test_topologies_are_listed_with_their_roles(here: Path) -> None:
    listed = tacit_(here, "tasks", "--topologies", COLUMNS="160").stdout
    assert "hint_actor" in listed and "hinter, actor" in listed
    assert "collaborator (optional)" in listed and "evo_agent" in listed


@pytest.mark.parametrize("command", ["train", "doctor"])
def test_a_config_error_is_answered_before_anything_heavy_loads(command: str) -> None:
    program = (
        "import sys\nfrom tacit import cli\n"
        f"sys.argv = ['tacit', '{command}', 'no-such-recipe']\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n"
        "    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False"], done.stderr


def test_what_the_system_refuses_is_one_sentence(here: Path) -> None:
    said = refused(here, "eval", "mine.yaml", "--out", "good.jsonl/run", code=1)
    assert said.startswith("`good.jsonl/run") and said.endswith("Not a directory")


def test_a_terminal_that_cannot_show_a_letter_goes_without_it(here: Path) -> None:
    done = tacit_(here, "tasks", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "arithmetic" in done.stdout


def test_ctrl_c_says_that_the_run_can_go_on(here: Path) -> None:
    process = started(here, "eval", "mine.yaml", "tasks.limit=120")
    played = here / "runs" / "mine" / "episodes" / "hint_actor.jsonl"
    wait_for(lambda: played.exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said.endswith("stopped; the same command goes on from what was saved\n")
    done = tacit_(here, "eval", "mine.yaml", "tasks.limit=120")
    assert done.returncode == 0, done.stderr


def test_an_untrained_team_does_not_write_over_a_trained_one(here: Path) -> None:
    pointer = here / "runs" / "mine" / "checkpoints" / "last.json"
    pointer.parent.mkdir(parents=True)
    pointer.write_text('{"step": 3}', encoding="utf-8")
    for what in ("eval", "compare"):
        said = refused(here, what, "mine.yaml")
        assert said.startswith("`runs/mine` was trained, and `mine.yaml` is not: ")
        assert f"`tacit {what} runs/mine`" in said


def test_a_trained_run_stands_for_its_weights_and_a_checkpoint_is_no_config(here: Path) -> None:
    small = {"train": {"steps": 1}, "tasks": {"name": "arithmetic", "limit": 2}}
    (here / "tiny.json").write_text(json.dumps(tree(**small)), encoding="utf-8")
    assert tacit_(here, "train", "tiny.json").returncode == 0
    saved = "runs/tiny/checkpoints/step-000001"
    done = tacit_(here, "train", "runs/tiny", "--out", "fork")
    assert done.returncode == 0 and "beginning with the weights of runs/tiny/" in done.stderr
    begun = json.loads((here / "fork" / "started.jsonl").read_text(encoding="utf-8"))
    assert begun["from"].startswith(str(here.resolve() / "runs/tiny/checkpoints/step-"))
    said = refused(here, "train", saved)
    assert "is a checkpoint and no config" in said and f"--from {saved}" in said
    assert "is a folder without config.json" in refused(here, "eval", "runs")


def test_a_damaged_pointer_is_one_sentence(here: Path) -> None:
    run = here / "runs" / "mine"
    (run / "checkpoints").mkdir(parents=True)
    config = load_config(here / "mine.yaml").model_dump(mode="json")
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (run / "checkpoints" / "last.json").write_text('{"step": 3}', encoding="utf-8")
    (run / "checkpoints" / "best.json").write_text("", encoding="utf-8")
    assert "best.json cannot be read" in refused(here, "eval", "runs/mine", code=1)


def test_a_topology_that_raises_is_told_in_a_sentence_and_fails_one_episode(here: Path) -> None:
    code = """async def play(task, team):
    if not task.id.endswith("/50-24"):
        raise KeyError("no plan")
    return await team.actor.ask(task.question)
"""
    (here / "raising.py").write_text(code, encoding="utf-8")
    team = "team: {topology: 'raising:play', agents: {actor: {max_tokens: 8}}}"
    tasks = "tasks: {name: arithmetic, split: test, limit: 4}"
    (here / "raising.yaml").write_text(f"name: raising\n{tasks}\n{team}\n", encoding="utf-8")
    evaluated = tacit_(here, "eval", "raising.yaml")
    assert evaluated.returncode == 0, evaluated.stderr
    assert "3 episodes failed" in evaluated.stdout and "Traceback" not in evaluated.stderr
    said = "TopologyError: raising.py, line 3: KeyError: 'no plan'"
    always = tacit_(here, "eval", "raising.yaml", "tasks.limit=1", "--out", "other")
    assert always.returncode == 1
    assert always.stderr.splitlines()[-1] == f"tacit: no episode succeeded out of 1: {said}"
    played = tacit_(here, "play", "What is 1 + 1?", "--team", "raising.yaml")
    assert played.returncode == 1
    assert played.stderr.splitlines()[-1] == f"tacit: the episode failed: {said}"
    assert "Traceback" not in always.stderr + played.stderr
