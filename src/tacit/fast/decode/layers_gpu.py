"""A transformers model's forward pass in few kernels, on the model's own weights, without padding.

Covers the families whose layers are RMS norm, rotary attention and a gated MLP: Llama, Mistral,
Qwen2, Qwen3, SmolLM. `check_gpu.py` compares the logits with the model's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.engine.forward import FAMILIES
from tacit.engine.lora import LoraLinear, active_adapter
from tacit.fast.decode.kernels import add_norm, gate, rotate_store

ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles depend only on the position."""

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""(q, k, v of some tokens, layer) → the attention's output."""


def why_not_fused(module: Any, context: int | None = None) -> str | None:
    """None if this module is covered, else the reason."""
    config = module.config
    context = context or config.max_position_embeddings
    if config.model_type not in FAMILIES:
        return f"`{config.model_type}` is not one of {', '.join(FAMILIES)}"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its MLP uses {config.hidden_act}"
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return "it has layers other than full attention"
    if (window := getattr(config, "sliding_window", None)) is not None and window < context:
        return f"its attention window of {window} is shorter than the context of {context}"
    if isinstance(module.get_output_embeddings(), LoraLinear):
        return "its output head has an adapter"
    if module.model.rotary_emb.rope_type not in ROTATIONS:
        return f"its rotary embedding is `{module.model.rotary_emb.rope_type}`"
    return None


class Projection:
    """Linear layers with the same input as one product, with the active adapter, if any.

    Their weights are moved next to each other in memory and stay the layers' own parameters. The
    adapter is copied in the model's precision and refreshed in place, so that captured graphs see
    new weights; the base is never copied.
    """

    def __init__(self, layers: list[Any], adapter: str | None) -> None:
        bases = [layer.base if isinstance(layer, LoraLinear) else layer for layer in layers]
        self._weight = _side_by_side([base.weight for base in bases])
        biased = bases[0].bias is not None
        self._bias = _side_by_side([base.bias for base in bases]) if biased else None
        self._ends = list(accumulate((len(base.weight) for base in bases), initial=0))
        self._adapted = {
            number: layer
            for number, layer in enumerate(layers)
            if isinstance(layer, LoraLinear) and adapter is not None and adapter in layer.lora_A
        }
        self._adapter = adapter or ""
        self._copy = self._copied() if self._adapted else None

    def __call__(self, x_TW: Tensor) -> Tensor:
        """The layers' outputs side by side."""
        out_TW = functional.linear(x_TW, self._weight, self._bias)
        if self._copy is not None:
            down, up = self._copy
            out_TW.addmm_(functional.linear(x_TW, down), up)
        return out_TW

    def split(self, out_TW: Tensor) -> list[Tensor]:
        """Each layer's own part of the outputs."""
        return [out_TW[:, a:b] for a, b in pairwise(self._ends)]

    def refresh(self) -> None:
        """Copy the adapter's current weights."""
        if self._copy is not None:
            for mine, theirs in zip(self._copy, self._copied(), strict=True):
                mine.copy_(theirs)

    def _copied(self) -> tuple[Tensor, Tensor]:
        """All ranks side by side; each layer's reach its own outputs and are zero elsewhere."""
        layers, name = self._adapted, self._adapter
        down = torch.cat([layer.lora_A[name].detach() for layer in layers.values()])
        up, rank = down.new_zeros(len(down), self._ends[-1]), 0
        for number, layer in layers.items():
            own = layer.lora_B[name].detach().T * layer.scale(name)
            up[rank : rank + len(own), self._ends[number] : self._ends[number + 1]] = own
            rank += len(own)
        return down.to(self._weight.dtype), up.to(self._weight.dtype)


def _side_by_side(parts: list[Any]) -> Tensor:
    """One tensor of which the given parameters are pieces; moves them into one if necessary."""
    first: Tensor = parts[0].detach()
    home, place = first.untyped_storage().data_ptr(), first.data_ptr()
    for part in parts:
        if part.untyped_storage().data_ptr() != home or part.data_ptr() != place:
            break
        place += part.numel() * part.element_size()
    else:
        shape = (sum(map(len, parts)), *first.shape[1:])
        return torch.as_strided(first, shape, first.stride())
    whole = torch.cat([part.detach() for part in parts])
    for part, piece in zip(parts, torch.split(whole, [len(p) for p in parts]), strict=True):
        part.data = piece
    return whole


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    norm: Any
    qkv: Projection
    gains: tuple[Tensor, Tensor] | None
    rotates: bool
    scale: float
    out: Projection
    mlp_norm: Any
    gate_up: Projection
    down: Projection

    @property
    def projections(self) -> tuple[Projection, ...]:
        return self.qkv, self.out, self.gate_up, self.down


class FusedModel:
    """Tokens in, hidden states or logits out; keys and values go into the slots of a cache."""

    def __init__(self, module: Any, context: int) -> None:
        """Uses the adapter that is active now."""
        config = module.config
        self._module = module
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.vocabulary = module.get_output_embeddings().weight.shape[0]
        adapter = active_adapter(module)
        self.layers = [_layer(layer, adapter) for layer in module.model.layers]
        self._angles = _angles(module, context)

    @property
    def device(self) -> torch.device:
        return torch.device(self._module.device)

    @property
    def dtype(self) -> torch.dtype:
        return self._module.model.layers[0].input_layernorm.weight.dtype  # type: ignore[no-any-return]

    def refresh(self) -> None:
        """Copy the adapters' current weights; base weights are read in place."""
        for layer in self.layers:
            for projection in layer.projections:
                projection.refresh()

    def hidden(
        self, token_T: Tensor, position_T: Tensor, slot_T: Tensor, cache: Tensor, attend: Attend
    ) -> Tensor:
        """The last hidden states. `cache` is [2, layers, slots, kv heads, width]."""
        body = self._module.model
        x_TW = functional.embedding(token_T, body.embed_tokens.weight)
        delta_TW: Tensor | None = None
        tokens = len(token_T)
        for number, layer in enumerate(self.layers):
            normed = add_norm(x_TW, delta_TW, layer.norm.weight, layer.norm.variance_epsilon)
            q, k, v = (
                torch.unflatten(part, -1, (-1, self.width))
                for part in layer.qkv.split(layer.qkv(normed))
            )
            rotate_store(
                q, k, v, self._angles if layer.rotates else None, layer.gains,
                layer.norm.variance_epsilon, position_T, slot_T, cache[0, number], cache[1, number],
            )  # fmt: skip
            delta_TW = layer.out(attend(q, k, v, number).view(tokens, -1))
            normed = add_norm(
                x_TW, delta_TW, layer.mlp_norm.weight, layer.mlp_norm.variance_epsilon
            )
            delta_TW = layer.down(gate(layer.gate_up(normed)))
        return add_norm(x_TW, delta_TW, body.norm.weight, body.norm.variance_epsilon)

    def logits(self, hidden_NW: Tensor) -> Tensor:
        head = self._module.get_output_embeddings()
        return functional.linear(hidden_NW, head.weight, head.bias)


def _layer(layer: Any, adapter: str | None) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    normed = hasattr(attention, "q_norm")
    return Layer(
        norm=layer.input_layernorm,
        qkv=Projection([attention.q_proj, attention.k_proj, attention.v_proj], adapter),
        gains=(attention.q_norm.weight, attention.k_norm.weight) if normed else None,
        rotates=bool(getattr(attention, "use_rope", True)),
        scale=attention.scaling,
        out=Projection([attention.o_proj], adapter),
        mlp_norm=layer.post_attention_layernorm,
        gate_up=Projection([mlp.gate_proj, mlp.up_proj], adapter),
        down=Projection([mlp.down_proj], adapter),
    )


def _angles(module: Any, context: int) -> tuple[Tensor, Tensor]:
    """cos and sin of every position, half a head wide, rounded as the model rounds them."""
    weight = module.model.embed_tokens.weight
    positions = torch.arange(context, device=weight.device)[None]
    cos, sin = module.model.rotary_emb(weight[:1, None], positions)
    half = cos.shape[-1] // 2
    return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
