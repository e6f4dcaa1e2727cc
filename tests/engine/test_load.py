import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tacit.config import ModelConfig
from tacit.engine.base import Request, Sampling, SilenceRule
from tacit.engine.factory import open_engine
from tacit.engine.load import POCKET_FOLDER, load_model
from tacit.engine.local import LocalEngine
from tacit.errors import ConfigError
from tacit.types import ChatMessage
from tests.helpers.tiny_models import tiny_model, tiny_tokenizer


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="its device is cuda, and torch finds no GPU here"):
        load_model("pocket", device="cuda")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    loaded = tiny_model()
    loaded.module.to(torch.float16).save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    return tmp_path


async def test_a_saved_model_is_upcast_and_speaks(folder: Path) -> None:
    loaded = load_model(str(folder), device="cpu", name="mine")
    assert loaded.module.dtype == torch.float32
    assert not loaded.module.training
    engine = LocalEngine(loaded, rows=2)
    messages = (ChatMessage("user", "what is 12 + 34"),)
    request = Request(
        messages=messages, prompt_ids=engine.encode(messages), sampling=Sampling(max_tokens=3)
    )
    assert 1 <= (await engine.generate(request)).usage.generated <= 3
    assert engine.model == "mine"
    await engine.close()


def test_a_model_is_called_by_its_path_unless_named(folder: Path) -> None:
    assert load_model(str(folder), device="cpu").name == str(folder)


async def test_the_pocket_model_opens_and_says_the_same_alone_and_among_others() -> None:
    loaded = load_model("pocket", device="cpu")
    assert loaded.name == "pocket"
    engine = LocalEngine(loaded)
    rule = SilenceRule(ids=engine.silence_ids())
    requests = []
    for i in range(48):
        messages = (ChatMessage("user", f"What is {i % 7} + {i}?"),)
        ids, sampling = engine.encode(messages), Sampling(temperature=1.0, max_tokens=12)
        requests.append(
            Request(messages=messages, prompt_ids=ids, sampling=sampling, seed=i, silence=rule)
        )
    together = await asyncio.gather(*map(engine.generate, requests))
    alone = [await engine.generate(request) for request in requests[::4]]
    await engine.close()
    assert alone == together[::4]


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer: copy"),
        ("model.safetensors", "has no weights in safetensors"),
    ],
)
def test_what_is_missing_from_a_folder_is_named(folder: Path, missing: str, complaint: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=complaint):
        load_model(str(folder))


def test_a_model_without_a_chat_template_is_refused(folder: Path) -> None:
    for file in folder.glob("*.jinja"):
        file.unlink()
    tiny_tokenizer(chat_template=None).save_pretrained(folder)
    with pytest.raises(ConfigError, match="has no chat template"):
        load_model(str(folder))


def test_broken_weights_are_one_sentence(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


def change_json(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}), encoding="utf-8")


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_code_that_a_folder_brings_is_not_run_whatever_is_answered(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = folder / "ran"
    (folder / "theirs.py").write_text(f"open({str(ran)!r}, 'w').close()\n", encoding="utf-8")
    if where == "config.json":
        own = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Model"}
        change_json(folder / where, model_type="theirs", auto_map=own)
    else:
        own = {"AutoTokenizer": ["theirs.Tokenizer", None]}
        change_json(folder / where, tokenizer_class="Theirs", auto_map=own)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    with pytest.raises(ConfigError, match="brings Python code of its own, which is not run"):
        load_model(str(folder), device="cpu")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("q_proj", r"no values for model\.layers\.0\.self_attn\.q_proj\.weight and 1 more"),
        ("extra", r"values the model has no place for: model\.strange\.weight"),
    ],
)
def test_weights_that_do_not_fill_the_model_exactly_are_refused(
    folder: Path, change: str, complaint: str
) -> None:
    file = folder / "model.safetensors"
    weights = {name: value for name, value in load_file(file).items() if change not in name}
    if change == "extra":
        weights["model.strange.weight"] = torch.zeros(3)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=complaint):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("text", ["[]", "null", "1", "[" * 100_000, '{"model_type": []}'])
def test_files_of_the_wrong_shape_are_one_sentence(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_model(str(folder), device="cpu")
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["no/such/folder", "./nowhere", "nowhere"])
def test_a_missing_folder_is_said_to_be_one(path: str) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        load_model(path)


def test_a_hub_id_is_not_downloaded_unasked() -> None:
    with pytest.raises(ConfigError, match="`hub:nobody/no-such-model` would download it"):
        load_model("nobody/no-such-model")


def test_what_training_would_refuse_is_pointed_out_wherever_a_model_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(POCKET_FOLDER, tmp_path / "model"))
    template = folder / "chat_template.jinja"
    only_users = "{% for message in messages if message['role'] != 'system' %}"
    template.write_text(template.read_text().replace("{% for message in messages %}", only_users))
    open_engine("mine", ModelConfig(path=str(folder)))
    assert "model `mine`: system message: the chat template drops system" in caplog.text
