"""`tacit export`: what others load computes what was trained, and the card says the truth."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from tacit.engine.load import load_model
from tacit.errors import ConfigError, RunError
from tacit.export.card import Facts, model_card
from tacit.export.exporting import Order, export_run
from tacit.export.formats import PolicyWeights
from tacit.export.shapes import shapes_of
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.types import Call, ChatMessage, Stop, Usage
from tests.helpers.commands import tacit_
from tests.helpers.exported_runs import (
    LAST_MERGED,
    PROMPT,
    RUNS,
    logits_of,
    program_in,
    train,
    trained_logits,
)
from tests.helpers.training_runs import tiny_config


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("shared", tmp_path_factory)


def test_transformers_loads_the_merged_model_and_computes_what_was_trained(
    run: Path, tmp_path: Path
) -> None:
    ours = trained_logits(run)
    base = load_model("pocket").module
    exported = export_run(run, LAST_MERGED, tmp_path / "out")
    assert len(exported) == len(ours)
    for (wanted, ids), folder in zip(ours.values(), exported, strict=True):
        module = AutoModelForCausalLM.from_pretrained(folder)
        assert module.dtype == torch.float32
        torch.testing.assert_close(logits_of(module, ids), wanted, rtol=1e-5, atol=2e-5)
        assert not torch.allclose(wanted, logits_of(base, ids), atol=1e-3), "it has learnt nothing"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        messages = [{"role": m.role, "content": m.content} for m in PROMPT]
        same = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert tuple(same) == ids
        torch.testing.assert_close(
            logits_of(load_model(str(folder)).module, ids), logits_of(module, ids)
        )


def test_whole_weights_are_exported_where_no_adapter_is(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    (folder,) = export_run(train("full", tmp_path_factory), Order(), tmp_path / "out")
    assert (folder / "model.safetensors").exists()
    assert not (folder / "adapter_config.json").exists()


def test_roles_that_learnt_apart_are_exported_apart(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    run = train("per-role", tmp_path_factory)
    ours = trained_logits(run)
    assert ours.keys() == {"hinter", "actor"}
    assert not torch.equal(ours["hinter"][0], ours["actor"][0])
    assert export_run(run, Order(role="actor"), tmp_path / "one") == [tmp_path / "one"]
    card = (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    assert "# per-role: actor" in card and "`hinter`, system" not in card
    with pytest.raises(ConfigError, match="unknown trained role `hint`: did you mean `hinter`"):
        export_run(run, Order(role="hint"), tmp_path / "two")


def test_half_precision_on_demand(shared: Path, tmp_path: Path) -> None:
    (folder,) = export_run(shared, Order(merged=True, dtype="bfloat16"), tmp_path / "out")
    whole = AutoModelForCausalLM.from_pretrained(folder)
    (exact,) = export_run(shared, Order(merged=True), tmp_path / "exact")
    theirs = AutoModelForCausalLM.from_pretrained(exact)
    assert whole.dtype == torch.bfloat16
    for half, full in zip(whole.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(half, full.bfloat16())  # rounded once, after merging


def test_best_last_and_steps(shared: Path, tmp_path: Path) -> None:
    checkpoints = Checkpoints(shared / "checkpoints")
    last, best = checkpoints.step("last"), checkpoints.step("best")
    assert last == 2 and best is not None
    for number, which in enumerate(("last", "2")):
        (folder,) = export_run(shared, Order(checkpoint=which), tmp_path / str(number))
        source = shared / "checkpoints" / "step-000002" / "policy-team.safetensors"
        assert (folder / "adapter_model.safetensors").read_bytes() == source.read_bytes()
        assert "step 2 of 2" in (folder / "README.md").read_text(encoding="utf-8")
    (folder,) = export_run(shared, Order())
    assert folder == shared / f"export-{best:06d}-adapter"
    for wrong in ("7", "newest", "-1"):
        with pytest.raises(ConfigError, match=r"name best, last or a step that is kept: .*2"):
            export_run(shared, Order(checkpoint=wrong), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_the_card_says_what_was_measured(shared: Path, tmp_path: Path) -> None:
    (folder,) = export_run(shared, Order(checkpoint="last"), tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8")
    _, header, body = card.split("---\n", 2)
    assert yaml.safe_load(header)["library_name"] == "peft"
    measured = json.loads((shared / "evals" / "eval-000002.json").read_text())
    said = measured["generated"]
    assert f"{said['mean']:.1f} [{said['low']:.1f}, {said['high']:.1f}]" in body
    right = measured["accuracy"]
    mean, low, high = (100 * right[key] for key in ("mean", "low", "high"))
    assert f"| **this checkpoint** | {mean:.1f} [{low:.1f}, {high:.1f}] |" in body
    assert "| untrained |" in body
    for agent in measured["agents"]:
        numbers = f"{agent['generated']:.1f} | {agent['prompt']:.1f} | {100 * agent['silence']:.0f}"
        assert f"| {agent['agent']} | pocket | 1.0 | {numbers} |" in body
    state = json.loads((shared / "checkpoints" / "step-000002" / "state.json").read_text())
    assert f"18 tokens an episode, λ {state['duals']['tokens']['value']:.3g} by then" in body
    assert "reply with exactly <silent> and nothing else." in body
    recipe = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", body, re.DOTALL)[0])
    assert recipe["policy"] == {"rank": 4} and recipe["team"]["topology"] == "hint_actor"


def test_the_program_in_the_card_runs(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a whole model; that of an adapter needs peft, and runs in `tests/integration`."""
    (folder,) = export_run(shared, Order(merged=True), tmp_path / "out")
    monkeypatch.chdir(folder)
    exec(program_in(folder), {})
    assert capsys.readouterr().out.strip()


def test_a_card_of_an_unfinished_run_invents_nothing() -> None:
    config = tiny_config(
        models={
            "far": {"engine": "api", "model": "m", "base_url": "http://inside"},
            "pocket": {"path": "org/base"},
        },
        tasks={"name": "/home/me/sums.jsonl", "folder": "/home/me"},
        budget={"tokens": None},
    )
    weights = PolicyWeights(config, ["hinter"], "team", Checkpoints(Path("nowhere")), step=4)
    facts = Facts(RunFolder("nowhere"), weights, ["adapter"], {})
    card = model_card(facts)
    assert "The checkpoint of step 4 was not evaluated" in card
    assert "base_model: org/base" in card and "with no budget" in card and "λ" not in card
    assert "inside" not in card and "/home" not in card, "where a run took place is private"
    assert "name: sums.jsonl" in card


def test_money_in_a_card_has_its_currency_and_a_cap_stays_out(shared: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(shared, run)
    for name, changed in {
        "config.json": {"prices": "p.yaml", "spend_cap": 7.0},
        "evals/eval-000002.json": {"money": 0.25},
        "summary.json": {"spend": {"currency": "EUR"}},
    }.items():
        tree = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(tree | changed))
    (folder,) = export_run(run, Order(checkpoint="last"), tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "an episode cost 0.25 EUR." in card
    assert "spend_cap" not in card and "p.yaml" not in card


def test_shapes_of_prompts_hold_no_task() -> None:
    def call(question: str, hint: str) -> Call:
        told = ChatMessage("system", "Solve it.")
        asked = f"{question}\n\nA teammate's hint:\n<hint>\n{hint}\n</hint>"
        return Call(
            agent="actor 2", model="m", messages=(told, ChatMessage("user", asked)), text="",
            stop=Stop.EOS, usage=Usage(), part="solver",
        )  # fmt: skip

    calls = [call("secret one", "secret two"), call("secret three", "secret four")]
    ((role, messages),) = shapes_of(calls, {"actor 1": "actor", "actor 2": "actor"}, "tagged", {})
    assert role == "actor" and messages[0].content == "Solve it."
    assert messages[1].content == ("{question}\n\nA teammate's hint:\n<hint>\n{hint}\n</hint>")
    last = [
        replace(one, messages=(ChatMessage("user", f"{one.messages[1].content}\n\nSolve it."),))
        for one in calls
    ]
    own = {"actor": "Solve it.\n\nBriefly, {instruction}"}
    ((_, turned),) = shapes_of(last, {"actor 2": "actor"}, "role_last", own)
    asked = messages[1].content
    assert [m.content for m in turned] == [f"{asked}\n\n{own['actor']}"]
    ((_, plain),) = shapes_of(last[:1], {"actor 2": "actor"}, "role_last", {})
    assert [m.content for m in plain] == [f"{asked}\n\n{{instruction}}"]
    ((_, foreign),) = shapes_of(calls, {"actor 2": "actor"}, None, {})
    assert [message.content for message in foreign] == [
        "Solve it.",
        "{what the program asks}",
    ]


def test_a_refusal_leaves_nothing(shared: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty: name another with --out"):
        export_run(shared, Order(), full)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    bare = tmp_path / "bare"
    RunFolder.open(bare, tiny_config())
    with pytest.raises(ConfigError, match="has no checkpoint: train it first"):
        export_run(bare, Order(), tmp_path / "out")
    with pytest.raises(ConfigError, match="not a run folder"):
        export_run(tmp_path, Order(), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "full"]


def test_damaged_weights_are_not_exported(shared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(shared, copy)
    path = next((copy / "checkpoints").glob("step-*/policy-team.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    step = path.parent.name.removeprefix("step-")
    with pytest.raises(RunError, match="does not match its hash"):
        export_run(copy, Order(checkpoint=str(int(step))), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing(shared: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"0" * 5_000_000)
    with pytest.raises(RunError, match="could not write"):
        export_run(shared, Order(merged=True), small_disk / "out")
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_the_command(shared: Path, tmp_path: Path) -> None:
    done = tacit_(tmp_path, "export", str(shared), "--merged", "--out", "model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote model; its README.md")
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert "no config.json" in tacit_(tmp_path, "export", "nowhere").stderr
