"""GGUF files: every weight and token read back. llama.cpp reads them in `tests/integration`."""

import sys
from pathlib import Path

import pytest
import torch
from tokenizers import pre_tokenizers

from tacit.errors import ConfigError
from tacit.export.gguf import write_gguf
from tests.helpers.tiny_models import tiny_model

gguf = pytest.importorskip("gguf", reason="gguf is not installed (extra `gguf`)")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_and_tokens_are_read_back(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model("qwen2", vocab=320)  # more rows than tokens, as Qwen has
    write_gguf(model.module.to(dtype), model.tokenizer, tmp_path / "it.gguf", "it")
    reader = gguf.GGUFReader(tmp_path / "it.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert len(tensors) == len(list(model.module.parameters()))
    down = model.module.get_parameter("model.layers.1.mlp.down_proj.weight")
    read = gguf.dequantize(
        tensors["blk.1.ffn_down.weight"].data, tensors["blk.1.ffn_down.weight"].tensor_type
    )
    assert torch.equal(torch.from_numpy(read.copy()), down.detach().float())
    assert tensors["blk.1.ffn_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    kinds = reader.get_field("tokenizer.ggml.token_type").contents()
    assert len(tokens) == len(kinds) == 320
    vocabulary = model.tokenizer.get_vocab()
    assert all(tokens[number] == text for text, number in vocabulary.items())
    end = model.tokenizer.eos_token_id
    assert kinds[end] == gguf.TokenType.CONTROL and kinds[319] == gguf.TokenType.UNUSED
    assert reader.get_field("tokenizer.ggml.eos_token_id").contents() == end
    assert reader.get_field("tokenizer.chat_template").contents() == model.tokenizer.chat_template


@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
def test_other_families_are_refused_before_anything_is_written(kind: str, tmp_path: Path) -> None:
    model = tiny_model(kind)
    with pytest.raises(ConfigError, match=f"`it` is a {kind} model; GGUF files can be written of"):
        write_gguf(model.module, model.tokenizer, tmp_path / "it.gguf", "it")
    assert not list(tmp_path.iterdir())


def test_positions_and_tokenizers_that_would_come_out_wrong_are_refused(tmp_path: Path) -> None:
    model = tiny_model(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(ConfigError, match="scales its positions by `linear`"):
        write_gguf(model.module, model.tokenizer, tmp_path / "it.gguf", "it")
    model = tiny_model()
    model.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel()]
    )
    with pytest.raises(ConfigError, match="does not know how the tokenizer of `it` cuts text"):
        write_gguf(model.module, model.tokenizer, tmp_path / "it.gguf", "it")
    assert not list(tmp_path.iterdir())


def test_without_the_tools_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    model = tiny_model()
    with pytest.raises(ConfigError, match=r"needs the package `gguf`: pip install 'tacit\[gguf\]'"):
        write_gguf(model.module, model.tokenizer, tmp_path / "it.gguf", "it")
