"""The shape of a model: how many weights it has, and how much it keeps for each token.

Read from a model folder's `config.json`, or made up for a bare size such as `70B`. Covers decoders
with a gated MLP (Llama, Mistral, Qwen2, Qwen3, SmolLM). Not covered: mixtures of experts.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError

HALF = 2
"""Bytes of a bfloat16 or float16 number."""
PAGE = 16
"""Tokens in a page of the cache of keys and values."""
UNITS = {"M": 1e6, "B": 1e9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([MB])", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a config.json says of a model's size."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    width: int
    """Of one head."""
    mlp: int
    """Inner size of the MLP."""
    vocabulary: int
    tied: bool
    """True if embedding and output head are the same weights."""

    @property
    def layer_weights(self) -> int:
        """Weights of one layer, its biases aside."""
        attention = 2 * self.hidden * self.width * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden

    @property
    def multiplied(self) -> int:
        """Weights that every token is multiplied with: all but the embedding that is looked up."""
        return self.layers * self.layer_weights + self.vocabulary * self.hidden

    @property
    def weights(self) -> int:
        return self.multiplied + (0 if self.tied else self.vocabulary * self.hidden)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one token leaves, in half precision."""
        return 2 * HALF * self.layers * self.kv_heads * self.width

    @property
    def saved_bytes(self) -> int:
        """Bytes that one token keeps in one layer for the backward pass, without checkpointing.

        Two residual streams and their norms, queries, the attention's output, keys and values, and
        the MLP's gate, its other half and their product.
        """
        attention = self.width * (2 * self.heads + 2 * self.kv_heads)
        return HALF * (4 * self.hidden + attention + 3 * self.mlp)

    def adapter(self, rank: int) -> int:
        """Weights of a LoRA on every projection."""
        heads, kv = self.heads * self.width, self.kv_heads * self.width
        sides = 2 * (self.hidden + heads) + 2 * (self.hidden + kv) + 3 * (self.hidden + self.mlp)
        return self.layers * rank * sides


def shape_of(asked: str) -> Shape:
    """The shape of `70B` or `135M`, of a model folder, or of a config.json."""
    if size := _SIZE.fullmatch(asked.strip()):
        return standard(float(size[1]) * UNITS[size[2].upper()])
    path = Path(asked).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(
            f"`{asked}` is neither a size such as 7B nor a model folder or config.json: "
            "give one of these"
        )
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return _read(tree)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"`{file}` does not describe a model's shape ({error!r})") from None


def _read(tree: dict[str, Any]) -> Shape:
    if any("expert" in key and isinstance(value, int) and value > 1 for key, value in tree.items()):
        raise ConfigError("a mixture of experts cannot be planned: its shape is not modelled")
    hidden, heads = int(tree["hidden_size"]), int(tree["num_attention_heads"])
    shape = Shape(
        layers=int(tree["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(tree.get("num_key_value_heads") or heads),
        width=int(tree.get("head_dim") or hidden // heads),
        mlp=int(tree["intermediate_size"]),
        vocabulary=int(tree["vocab_size"]),
        tied=bool(tree.get("tie_word_embeddings", False)),
    )
    if min(shape.layers, hidden, heads, shape.kv_heads, shape.mlp, shape.vocabulary) < 1:
        raise ValueError("a size below 1")
    return shape


def standard(weights: float) -> Shape:
    """A shape with this many weights, in the proportions of Llama 3.

    Heads of 128 (64 below 1B), at most 8 for keys and values, an MLP 3.5 times as wide as the
    model, 128,256 tokens, embedding and head shared below 4B, and about one layer for every 112 of
    the width.
    """
    if not 5e7 <= weights <= 2e12:
        raise ConfigError(f"a model of {weights:g} weights is outside 50M to 2000B")
    candidates = [_of_width(128 * number, weights) for number in range(2, 400)]
    return min(candidates, key=lambda one: abs(one.layers - one.hidden / 112))


def _of_width(hidden: int, weights: float) -> Shape:
    width, tied = 64 if weights < 1e9 else 128, weights < 4e9
    heads, vocabulary = hidden // width, 128_256
    one = Shape(
        layers=1,
        hidden=hidden,
        heads=heads,
        kv_heads=min(8, heads),
        width=width,
        mlp=7 * hidden // 2,
        vocabulary=vocabulary,
        tied=tied,
    )
    outside = vocabulary * hidden * (1 if tied else 2)
    layers = max(1, round((weights - outside) / one.layer_weights))
    return replace(one, layers=layers)
