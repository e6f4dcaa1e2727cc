"""A Qwen2 GGUF file as a model folder: `python -m experiments.gguf_folder FILE OUT`.

The same weights to the bit as `from_pretrained(…, gguf_file=…)`, which unpacks them with numpy on
one core; here the two packings that such files mostly consist of are unpacked with torch, on a GPU
where there is one. Not covered: other families, some of which order rows anew.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def name_of(tensor: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    if found := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor):
        return f"model.layers.{found[1]}.{LAYER[found[2]]}.{found[3]}"
    base, _, kind = tensor.rpartition(".")
    return f"{WHOLE[base]}.{kind}"


def fields(packed: Tensor, bits: int, run: int) -> Tensor:
    """Numbers of so many bits: each run of bytes holds the lowest ones of all, then the next."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    runs = packed.reshape(len(packed), -1, 1, run)
    shifted: Tensor = (runs >> shifts.reshape(1, 1, -1, 1)) & (2**bits - 1)
    return shifted.reshape(len(packed), -1)


def half(packed: Tensor) -> Tensor:
    return packed.contiguous().view(torch.float16).float()


def unpack_q4(blocks: Tensor) -> Tensor:
    """Q4_K: 256 weights of a block are scale·q − least, both by groups of 32 in six bits."""
    scale, least, packed, q = torch.split(blocks, [2, 2, 12, 128], dim=1)
    first, second, tops = torch.split(packed, 4, dim=1)
    scales = torch.cat([first & 63, (tops & 15) | ((first >> 2) & 48)], dim=1)
    leasts = torch.cat([second & 63, (tops >> 4) | ((second >> 2) & 48)], dim=1)
    groups = fields(q, 4, 32).reshape(len(blocks), 8, 32).float()
    wide = (half(scale) * scales.float())[..., None] * groups
    return wide - (half(least) * leasts.float())[..., None]


def unpack_q6(blocks: Tensor) -> Tensor:
    """Q6_K: 256 weights of a block are scale·(q − 32), the scales by groups of 16."""
    low, high, scales, scale = torch.split(blocks, [128, 64, 16, 2], dim=1)
    q = (fields(low, 4, 64) | (fields(high, 2, 32) << 4)).to(torch.int8) - 32
    wide = half(scale) * scales.contiguous().view(torch.int8).float()
    return wide[..., None] * q.reshape(len(blocks), 16, 16).float()


UNPACK: dict[Any, tuple[int, Callable[[Tensor], Tensor]]] = {
    GGMLQuantizationType.Q4_K: (144, unpack_q4),
    GGMLQuantizationType.Q6_K: (210, unpack_q6),
}
"""Packing → bytes of a block, and how it is unpacked."""


def weight(tensor: Any, device: str) -> Tensor:
    """One tensor of the file, in float32."""
    shape = tuple(reversed(tensor.shape.tolist()))
    if tensor.tensor_type not in UNPACK:
        wide = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        return torch.from_numpy(wide.reshape(shape))
    size, unpack = UNPACK[tensor.tensor_type]
    blocks = torch.from_numpy(numpy.array(tensor.data)).reshape(-1, size).to(device)
    return unpack(blocks).reshape(shape)


def convert(source: Path, out: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the weights, and unless they are there config and tokenizer, which take as long."""
    out.mkdir(parents=True, exist_ok=True)
    reader, device = GGUFReader(source), "cuda" if torch.cuda.is_available() else "cpu"
    weights = {
        name_of(str(one.name)): weight(one, device).to("cpu", dtype).contiguous()
        for one in reader.tensors
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    if (out / "tokenizer.json").exists():
        return
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    config.dtype, config.tie_word_embeddings = dtype, "lm_head.weight" not in weights
    config.save_pretrained(out)
    GenerationConfig.from_model_config(config).save_pretrained(out)
    # the end of a turn is the one that the file names
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    end = reader.fields["tokenizer.ggml.eos_token_id"]
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(int(end.parts[end.data[0]][0]))
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
