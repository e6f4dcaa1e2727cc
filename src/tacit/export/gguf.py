"""A model as one GGUF file, for llama.cpp and what is built on it.

Covered: Llama, Qwen2 and Qwen3 models with a byte-level BPE tokenizer that llama.cpp can repeat.
Not covered: quantising, which llama.cpp's own `llama-quantize` does from such a file.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError

FAMILIES = ("llama", "qwen2", "qwen3")
"""`model_type` of transformers, which for these is llama.cpp's name of the architecture too."""

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}{_REST}": "qwen2",
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}{{1,3}}{_REST}": "llama-bpe",
    # The pocket model's words carry the space behind them, which no split that llama.cpp knows
    # does. This one splits at numbers alone; all merges stay inside words in any case, and on what
    # the pocket model was trained on the ids are the same.
    r"\\boxed\{|[0-9]| [-+=] |[A-Za-z']+ ?|[^\sA-Za-z0-9\\]+\s?|\\|\s+": "superbpe",
}
"""How a tokenizer cuts text before merging → llama.cpp's name for it, `tokenizer.ggml.pre`."""

FLOATS = {
    torch.float32: ("F32", "ALL_F32"),
    torch.float16: ("F16", "MOSTLY_F16"),
    torch.bfloat16: ("BF16", "MOSTLY_BF16"),
}
"""llama.cpp's name for a tensor of this precision, and for a file of them."""


def check_gguf_tools() -> None:
    if find_spec("gguf") is None:
        raise ConfigError("--gguf needs the package `gguf`: pip install 'tacit[gguf]'")


def write_gguf(module: Any, tokenizer: Any, path: Path, name: str) -> None:
    """Write a model in its own precision. What would come out wrong is refused before writing.

    Vectors (norms, biases) are always float32, as llama.cpp wants them.
    """
    check_gguf_tools()
    import gguf

    config = module.config
    _check_family(config, name)
    split = _split_of(tokenizer, name)
    writer = gguf.GGUFWriter(path, config.model_type)
    try:
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[FLOATS[module.dtype][1]])
        _describe(writer, config)
        _add_tokenizer(writer, tokenizer, split, config.vocab_size)
        for key, tensor in _tensors(module):
            kind = gguf.GGMLQuantizationType[FLOATS[tensor.dtype][0]]
            writer.add_tensor(key, _raw(tensor), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _check_family(config: Any, name: str) -> None:
    if config.model_type not in FAMILIES:
        raise ConfigError(
            f"--gguf: `{name}` is a {config.model_type} model; "
            f"GGUF files can be written of {', '.join(FAMILIES)}"
        )
    if getattr(config, "use_sliding_window", False):
        raise ConfigError(f"--gguf: `{name}` uses a sliding window, which is not covered")
    kind = _rope(config)["rope_type"]
    if kind not in ("default", "llama3"):
        raise ConfigError(f"--gguf: `{name}` scales its positions by `{kind}`, not covered")


def _rope(config: Any) -> dict[str, Any]:
    return {"rope_type": "default", **config.rope_parameters}


def _describe(writer: Any, config: Any) -> None:
    """The numbers of the architecture."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(_rope(config)["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _tensors(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Every weight under llama.cpp's name and in its layout; a shared weight comes once."""
    import gguf

    config = module.config
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == config.model_type)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for path, weight in module.named_parameters():
        key = names.get_name(path, try_suffixes=(".weight", ".bias"))
        if key is None:
            raise ConfigError(f"--gguf: llama.cpp has no place for the weight {path}")
        tensor = weight.detach().cpu()
        layer = path.split(".")[-2]
        if config.model_type == "llama" and layer in heads:
            tensor = _interleaved(tensor, heads[layer])
        yield key, tensor.float() if tensor.dim() == 1 else tensor
    if _rope(config)["rope_type"] == "llama3":
        yield "rope_freqs.weight", _slowdown(module)


def _interleaved(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp rotates neighbouring pairs of a Llama head, transformers the head's two halves."""
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def _slowdown(module: Any) -> Tensor:
    """The factor by which Llama 3 slows each rotation down."""
    scaled: Tensor = module.model.rotary_emb.inv_freq.float().cpu()
    theta: float = _rope(module.config)["rope_theta"]
    steps = torch.arange(len(scaled), dtype=torch.float32) / len(scaled)
    return theta**-steps / scaled


def _raw(tensor: Tensor) -> Any:
    """As a numpy array, bfloat16 as 16-bit integers, since numpy does not know it."""
    whole = tensor.contiguous()
    return (whole.view(torch.int16) if whole.dtype is torch.bfloat16 else whole).numpy()


def _split_of(tokenizer: Any, name: str) -> str:
    """llama.cpp's name for the way in which the tokenizer cuts text up."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    stages = spec["pre_tokenizer"] or {}
    stages = stages.get("pretokenizers", [stages])
    kinds = [stage.get("type") for stage in stages]
    if spec["model"]["type"] == "BPE" and kinds[-1:] == ["ByteLevel"]:
        own = stages[-1]["use_regex"]
        if kinds == ["ByteLevel"] and own:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and own and stages[0]["individual_digits"]:
            return "smollm"
        if kinds == ["Split", "ByteLevel"] and not own:
            known = _SPLITS.get(stages[0]["pattern"].get("Regex", ""))
            if known:
                return known
    raise ConfigError(f"--gguf: llama.cpp does not know how the tokenizer of `{name}` cuts text up")


def _add_tokenizer(writer: Any, tokenizer: Any, split: str, size: int) -> None:
    import gguf

    spec = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    texts = {number: text for text, number in tokenizer.get_vocab().items()}
    kinds = dict.fromkeys(texts, gguf.TokenType.NORMAL)
    for number, token in tokenizer.added_tokens_decoder.items():
        kinds[number] = gguf.TokenType.CONTROL if token.special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([texts.get(number, f"[unused {number}]") for number in range(size)])
    writer.add_token_types([kinds.get(number, gguf.TokenType.UNUSED) for number in range(size)])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in spec["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    if tokenizer.pad_token_id is not None:
        writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
    first = tokenizer("a").input_ids[0]
    writer.add_add_bos_token(first == tokenizer.bos_token_id)
    template = tokenizer.chat_template
    writer.add_chat_template(template if isinstance(template, str) else template["default"])
