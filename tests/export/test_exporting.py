"""`tacit export`: what others load computes what was trained, and the card says the truth."""

import asyncio
import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from tacit.cli.training import run_training
from tacit.engine.base import Request, Sampling
from tacit.engine.load import load_model
from tacit.engine.local import LocalEngine
from tacit.errors import ConfigError, RunError
from tacit.export.card import Facts, model_card
from tacit.export.exporting import Order, export_run
from tacit.export.formats import PolicyWeights
from tacit.export.shapes import shapes_of
from tacit.learn.assemble import open_training
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.types import Call, ChatMessage, Stop, Usage
from tests.helpers.commands import tacit_
from tests.helpers.training_runs import tiny_config

SHORT = {"steps": 2, "evaluate_every": 1, "checkpoint_every": 1, "tasks_per_step": 2, "group": 3}
BOTH = {"hinter": {"max_tokens": 32, "trained": True}, "actor": {"max_tokens": 16, "trained": True}}
RUNS: dict[str, dict[str, Any]] = {
    "shared": {"silence": {"warmup_steps": 0, "coefficient": 50.0}, "seed": 3},
    "per-role": {
        "team": {"topology": "hint_actor", "agents": BOTH},
        "policy": {"kind": "lora", "rank": 4, "share": "role"},
        "budget": {"tokens": 60},
        "silence": {"silent_samples": 1},
    },
    "full": {"policy": {"kind": "full"}},
}
PROMPT = (
    ChatMessage("system", "Give your teammate one short hint for this question."),
    ChatMessage("user", "What is 37 + 48 - 15?"),
)
LAST_MERGED = Order(checkpoint="last", merged=True)


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train("shared", tmp_path_factory)


_TRAINED: dict[str, Path] = {}


def train(name: str, factory: pytest.TempPathFactory) -> Path:
    """A real run of two steps, made once."""
    if name not in _TRAINED:
        folder = factory.mktemp("run") / name
        config = tiny_config(**{"name": name, "train": SHORT, **RUNS[name]})
        asyncio.run(run_training(config, folder))
        torch.use_deterministic_algorithms(False)
        _TRAINED[name] = folder
    return _TRAINED[name]


@torch.no_grad()
def logits(module: Any, ids: tuple[int, ...]) -> torch.Tensor:
    result: torch.Tensor = module(input_ids=torch.tensor([ids])).logits
    return result


def trained_logits(run: Path) -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
    """Policy → what the last checkpoint's team itself computes, and the prompt's ids."""

    async def compute() -> dict[str, tuple[torch.Tensor, tuple[int, ...]]]:
        _, config = RunFolder.existing(run)
        found = {}
        async with open_training(config) as made:
            ids = made.trained_engines[0].encode(PROMPT)
            for name, policy in made.policies.items():
                Checkpoints(run / "checkpoints").load_policy(SHORT["steps"], policy)
                with policy.on():
                    found[name] = logits(policy.loaded.module, ids), ids
        torch.use_deterministic_algorithms(False)
        return found

    return asyncio.run(compute())


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
        torch.testing.assert_close(logits(module, ids), wanted, rtol=1e-5, atol=2e-5)
        assert not torch.allclose(wanted, logits(base, ids), atol=1e-3), "it has learnt nothing"
        tokenizer = AutoTokenizer.from_pretrained(folder)
        messages = [{"role": m.role, "content": m.content} for m in PROMPT]
        same = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert tuple(same) == ids
        torch.testing.assert_close(logits(load_model(str(folder)).module, ids), logits(module, ids))


def test_peft_loads_the_adapter_and_computes_what_was_trained(run: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = pytest.importorskip("peft", reason="peft is not installed (extra `dev`)")
    if run.name == "full":
        (folder,) = export_run(run, Order(), tmp_path / "out")
        assert (folder / "model.safetensors").exists(), "whole weights, where no adapter is"
        assert not (folder / "adapter_config.json").exists()
        return
    ours = trained_logits(run)
    exported = export_run(run, Order(checkpoint="last"), tmp_path / "out")
    for (name, (wanted, ids)), folder in zip(ours.items(), exported, strict=True):
        assert folder == (tmp_path / "out" if len(ours) == 1 else tmp_path / "out" / name)
        module = peft.AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        torch.testing.assert_close(logits(module, ids), wanted, rtol=1e-5, atol=2e-5)
        assert AutoTokenizer.from_pretrained(folder).chat_template


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


def test_llama_cpp_says_what_the_trained_model_says(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed (extra `gguf`)")
    xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed (extra `dev`)")
    (folder,) = export_run(shared, replace(LAST_MERGED, gguf=True), tmp_path / "out")
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "team.gguf")
    params.n_ctx, params.n_parallel, params.port, params.verbosity = 512, 1, 0, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    messages = [{"role": m.role, "content": m.content} for m in PROMPT]
    asked = {"messages": messages, "max_tokens": 48, "temperature": 0.0}
    theirs = server.handle_chat_completions(asked)["choices"][0]["message"]["content"]

    async def ours() -> str:
        engine = LocalEngine(load_model(str(folder)))
        sampling = Sampling(max_tokens=48)
        ids = engine.encode(PROMPT)
        try:
            done = await engine.generate(
                Request(messages=PROMPT, prompt_ids=ids, sampling=sampling)
            )
        finally:
            await engine.close()
        return done.text

    assert theirs == asyncio.run(ours())
    (alone,) = export_run(shared, Order(gguf=True), tmp_path / "alone")
    assert sorted(path.name for path in alone.iterdir()) == ["README.md", "team.gguf"]


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


@pytest.mark.parametrize("merged", [False, True])
def test_the_program_in_the_card_runs(
    merged: bool,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not merged:
        pytest.importorskip("peft", reason="peft is not installed (extra `dev`)")
    (folder,) = export_run(shared, Order(merged=merged), tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(folder)
    exec(program, {})
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
