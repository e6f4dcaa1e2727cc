"""Weights and bytes of a model, by hand."""

import json
from pathlib import Path

import pytest

import tacit.pocket
from tacit.errors import ConfigError
from tacit.plan.model_shapes import Shape, shape_of, standard

TINY = Shape(layers=2, hidden=8, heads=4, kv_heads=2, width=2, mlp=16, vocabulary=100, tied=False)


def test_weights_by_hand() -> None:
    layer = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 3 * 8 * 16 + 2 * 8  # q, k, v, o, MLP, norms
    assert TINY.layer_weights == layer
    assert TINY.multiplied == 2 * layer + 100 * 8
    assert TINY.weights == 2 * layer + 2 * 100 * 8
    assert TINY.kv_bytes == 2 * 2 * (4 + 4)  # two bytes, two layers, keys and values
    assert TINY.saved_bytes == 2 * (4 * 8 + 2 * 8 + 2 * 4 + 3 * 16)
    sides = 2 * (8 + 8) + 2 * (8 + 4) + 3 * (8 + 16)
    assert TINY.adapter(3) == 2 * 3 * sides


def test_a_folder_is_read_and_so_is_its_file() -> None:
    folder = Path(tacit.pocket.__file__).parent / "model"
    found = shape_of(str(folder))
    assert found == shape_of(str(folder / "config.json"))
    assert (found.layers, found.hidden, found.width, found.vocabulary) == (4, 160, 40, 920)
    assert found.tied


@pytest.mark.parametrize(("asked", "weights"), [("70B", 70e9), ("8b", 8e9), ("135M", 135e6)])
def test_a_bare_size_has_that_size(asked: str, weights: float) -> None:
    found = shape_of(asked)
    assert found.weights == pytest.approx(weights, rel=0.05)
    assert found.heads * found.width == found.hidden


def test_the_rule_is_near_the_model_that_it_is_taken_from() -> None:
    """Llama 3 8B: 32 layers of 4,096, and 8 of 32 heads for keys and values."""
    found = standard(8.03e9)
    assert abs(found.layers - 32) <= 3 and abs(found.hidden - 4096) <= 256
    assert found.kv_heads == 8 and found.mlp == 3.5 * found.hidden


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "does not describe a model's shape"),
        ("[]", "does not describe a model's shape"),
        ('{"hidden_size": 8}', "num_attention_heads"),
        ('{"num_experts": 64}', "mixture of experts"),
    ],
)
def test_what_is_no_model_is_said_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=said):
        shape_of(str(tmp_path))


def test_sizes_below_one_are_refused(tmp_path: Path) -> None:
    names = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
    whole = {**dict.fromkeys(names, 4), "vocab_size": 0}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match="below 1"):
        shape_of(str(tmp_path))


@pytest.mark.parametrize("asked", ["seventy", "70", "1T", "no/such/folder"])
def test_what_is_no_size_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="neither a size such as 7B"):
        shape_of(asked)
    with pytest.raises(ConfigError, match="outside 50M to 2000B"):
        shape_of("3M")
