"""The pocket model's tokenizer: byte-level BPE with one token a digit and about one a word.

A word takes the space behind it along, so that `What is 37 + 48?` is 8 tokens. Any UTF-8 text
encodes and decodes to itself. `<silent>` is ordinary text here, as it is for any other model.
"""

from collections.abc import Iterable
from typing import Any

from tacit.types import ChatMessage

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 1024
CONTEXT = 1024

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_PIECES = r"\\boxed\{|[0-9]| [-+=] |[A-Za-z']+ ?|[^\sA-Za-z0-9\\]+\s?|\\|\s+"


def render(messages: Iterable[ChatMessage]) -> str:
    """What the chat template gives, ready for the reply; much faster over millions of dialogues."""
    said = "".join(f"{START}{message.role}\n{message.content}{END}\n" for message in messages)
    return f"{said}{START}assistant\n"


def train(texts: Iterable[str]) -> Any:
    """A `transformers` tokenizer with the chat template, its merges learnt from the texts."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
