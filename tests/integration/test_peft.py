"""peft beside our adapters: it loads our files, we load its, and both compute the same."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from tacit.engine.lora import adapter_parameters, peft_config, switched_on
from tacit.export.exporting import Order, export_run
from tests.helpers.adapters import TARGETS, filled, logits
from tests.helpers.exported_runs import logits_of, program_in, train, trained_logits
from tests.helpers.learn_parts import make_policies
from tests.helpers.tiny_models import tiny_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peft = pytest.importorskip("peft", reason="peft is not installed (extra `integration`)")


def save(module: torch.nn.Module, folder: Path) -> None:
    weights = {k: v.detach().clone() for k, v in adapter_parameters(module, "mine").items()}
    save_file(weights, folder / "adapter_model.safetensors")
    config = peft_config("tiny", 4, 12.0, TARGETS)
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def test_peft_loads_our_files_and_computes_our_logits(tmp_path: Path) -> None:
    module = tiny_model().module
    plain = logits(module)
    filled(module)
    save(module, tmp_path)
    theirs = peft.PeftModel.from_pretrained(tiny_model().module, tmp_path)
    with switched_on(module, "mine"):
        ours = logits(module)
    torch.testing.assert_close(ours, logits(theirs), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours, plain, atol=1e-2)


def test_we_load_the_files_of_peft(tmp_path: Path) -> None:
    settings = peft.LoraConfig(r=4, lora_alpha=12.0, target_modules=TARGETS, lora_dropout=0.0)
    theirs = peft.get_peft_model(tiny_model().module, settings)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.1)
    theirs.save_pretrained(tmp_path)
    policy = make_policies("mine", rank=4, alpha=12.0, targets=TARGETS)["mine"]
    policy.load(load_file(tmp_path / "adapter_model.safetensors"), "peft's file")
    with policy.on():
        torch.testing.assert_close(
            logits(policy.loaded.module), logits(theirs), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("kind", ["shared", "per-role"])
def test_peft_loads_the_adapter_and_computes_what_was_trained(
    kind: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    run = train(kind, tmp_path_factory)
    ours = trained_logits(run)
    exported = export_run(run, Order(checkpoint="last"), tmp_path / "out")
    for (name, (wanted, ids)), folder in zip(ours.items(), exported, strict=True):
        assert folder == (tmp_path / "out" if len(ours) == 1 else tmp_path / "out" / name)
        module = peft.AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        torch.testing.assert_close(logits_of(module, ids), wanted, rtol=1e-5, atol=2e-5)
        assert AutoTokenizer.from_pretrained(folder).chat_template


def test_the_program_in_the_card_of_an_adapter_runs(
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder,) = export_run(train("shared", tmp_path_factory), Order(), tmp_path / "out")
    monkeypatch.chdir(folder)
    exec(program_in(folder), {})
    assert capsys.readouterr().out.strip()
