"""Random models of a few thousand parameters and a real tokenizer, for the engines' tests."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from tacit.engine.load import LoadedModel

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SMALL = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
_CONFIGS: dict[str, Any] = {
    "llama": (LlamaConfig, _SMALL),
    "qwen2": (Qwen2Config, _SMALL),
    "qwen3": (Qwen3Config, _SMALL),
    "smollm3": (SmolLM3Config, {**_SMALL, "no_rope_layers": [1, 0], "pad_token_id": 0}),
    "mistral": (MistralConfig, {**_SMALL, "sliding_window": 8}),
    "gpt2": (
        GPT2Config,
        {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 512, "initializer_range": 0.2},
    ),
}


def tiny_tokenizer(chat_template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(
        ["<silent> system user assistant 12 + 34 = 46 what is the hint"], trainer
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        chat_template=chat_template,
    )


def tiny_model(
    kind: str = "llama", *, seed: int = 0, vocab: int | None = None, **changed: Any
) -> LoadedModel:
    """A model whose random weights are large enough for its distributions to be peaked."""
    tokenizer = tiny_tokenizer()
    make_config, settings = _CONFIGS[kind]
    torch.manual_seed(seed)
    config = make_config(
        **{**settings, **changed},
        vocab_size=vocab or len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LoadedModel(AutoModelForCausalLM.from_config(config).eval(), tokenizer, f"tiny-{kind}")
