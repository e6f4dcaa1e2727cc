"""Weights that went through a GGUF file come back."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.gguf_folder import UNPACK, convert, name_of
from tacit.export.gguf import write_gguf
from tests.helpers.tiny_models import tiny_model


def test_names() -> None:
    assert name_of("blk.12.ffn_down.weight") == "model.layers.12.mlp.down_proj.weight"
    assert name_of("output_norm.weight") == "model.norm.weight"


@pytest.mark.parametrize("packing", UNPACK, ids=lambda one: one.name)
def test_packed_weights_are_those_of_the_reference(packing: Any) -> None:
    """Any bytes are weights; scales that are no number would be equal to nothing."""
    size, unpack = UNPACK[packing]
    data = numpy.random.default_rng(0).integers(0, 256, (64, size), dtype=numpy.uint8)
    for place in (0, 2, 208):
        if place < size:
            data[:, place : place + 2] = numpy.array([0.37], numpy.float16).view(numpy.uint8)
    wanted = torch.from_numpy(dequantize(data, packing))
    assert torch.equal(unpack(torch.from_numpy(data)).reshape(64, 256), wanted)


@pytest.mark.slow
def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    model = tiny_model("qwen2", vocab=320)
    write_gguf(model.module, model.tokenizer, tmp_path / "model.gguf", "it")
    convert(tmp_path / "model.gguf", tmp_path / "out", torch.float32)
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).state_dict()
    for name, weight in model.module.state_dict().items():
        assert torch.equal(read[name], weight), name
    assert AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == model.tokenizer.eos_token
    (tmp_path / "out" / "config.json").write_text("ready")
    (tmp_path / "out" / "model.safetensors").unlink()
    convert(tmp_path / "model.gguf", tmp_path / "out", torch.float32)
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert (tmp_path / "out" / "config.json").read_text() == "ready"
