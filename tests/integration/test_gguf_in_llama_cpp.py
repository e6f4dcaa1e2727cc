"""llama.cpp's own answers beside ours, from the GGUF files we write."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import httpx2
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tacit.engine.base import Request, Sampling
from tacit.engine.chat import Chat
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.export.exporting import Order, export_run
from tacit.export.gguf import write_gguf
from tests.helpers.exported_runs import LAST_MERGED, PROMPT, train
from tests.helpers.llama_cpp import llama_server
from tests.helpers.tiny_models import tiny_model
from tools.pocket import corpus

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, Llama 3 positions": {"rope_parameters": LLAMA3_ROPE},
    "llama, tied with biases": {"tie_word_embeddings": True, "attention_bias": True},
    "qwen2": {},
    "qwen3": {},
}


def family(name: str) -> LoadedModel:
    return tiny_model(name.partition(",")[0], **FAMILIES[name])


@torch.no_grad()
def next_logprobs(module: Any, ids: list[int]) -> torch.Tensor:
    return torch.log_softmax(module(input_ids=torch.tensor([ids])).logits[0, -1], -1)


def prompts(model: LoadedModel) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Short and long, the likeliest next token whole text: half a character is held back."""
    draw = random.Random(0)
    for length in (1, 2, 40, 200):
        for _ in range(100):
            ids = [draw.randrange(3, model.module.config.vocab_size) for _ in range(length)]
            ours = next_logprobs(model.module, ids)
            if model.tokenizer.decode([int(ours.argmax())]).isascii():
                yield ids, ours
                break
        else:
            raise AssertionError(f"no such prompt of {length} tokens")


@pytest.mark.parametrize("name", FAMILIES)
def test_llama_cpp_computes_the_same_probabilities(name: str, tmp_path: Path) -> None:
    """A wrong layout of heads, biases or positions would show: the weights are large."""
    model = family(name)
    write_gguf(model.module, model.tokenizer, tmp_path / "it.gguf", "it")
    server = llama_server(tmp_path / "it.gguf")
    for ids, ours in prompts(model):
        answer = server.handle_completions(
            {"prompt": ids, "max_tokens": 1, "logprobs": 8, "temperature": 0.0}
        )
        top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        assert [one["id"] for one in top[:2]] == ours.topk(2).indices.tolist()
        for one in top:  # llama.cpp keeps keys and values in half precision
            assert one["logprob"] == pytest.approx(ours[one["id"]].item(), abs=0.05)


def test_the_pocket_model_answers_the_same_in_llama_cpp(tmp_path: Path) -> None:
    """Its chat template, its way of cutting text, its end of sequence and its weights."""
    model = load_model("pocket")
    chat = Chat(model.tokenizer, "pocket")
    write_gguf(model.module, model.tokenizer, tmp_path / "pocket.gguf", "pocket")
    server = llama_server(tmp_path / "pocket.gguf")
    draw = random.Random(1)
    for _ in range(12):
        messages = corpus.dialogue(draw).messages
        ids = chat.encode(messages)
        answer = server.handle_chat_completions(
            {
                "messages": [{"role": m.role, "content": m.content} for m in messages],
                "max_tokens": 40,
                "temperature": 0.0,
            }
        )
        prompt = torch.tensor([ids])
        ours = model.module.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=False
        )
        said = ours[0, len(ids) :].tolist()
        assert answer["usage"]["prompt_tokens"] == len(ids)
        assert answer["choices"][0]["message"]["content"] == chat.decode(said)
        assert answer["usage"]["completion_tokens"] == len(said)


_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
CUTS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    ),
    "qwen2": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_ENDS + r"\p{N}" + _REST), "isolated"), BYTES]
    ),
    "llama-bpe": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_ENDS + r"\p{N}{1,3}" + _REST), "isolated"), BYTES]
    ),
}
TEXTS = (
    "It's 3.5% of €100, isn't it?\n\n  def f(x):\n\treturn x**2  # we'll see",
    "Add 12345 and 678: WE'RE done.   Trailing blanks   ",
    "naïve café, 東京タワー 2024, x_1=y_2;;; ...!?\r\nnext",
)


@pytest.mark.parametrize("name", CUTS)
def test_llama_cpp_cuts_text_up_as_the_tokenizer_does(name: str, tmp_path: Path) -> None:
    """Merges are learnt from the very texts, so that a cut at another place gives other ids."""
    model = tiny_model()
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = CUTS[name], decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(TEXTS * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", chat_template=model.tokenizer.chat_template
    )
    model.module.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    write_gguf(model.module, tokenizer, tmp_path / "it.gguf", "it")
    field = gguf.GGUFReader(tmp_path / "it.gguf").get_field("tokenizer.ggml.pre")
    assert field.contents() == name
    server = llama_server(tmp_path / "it.gguf")
    for text in TEXTS:
        asked = {"content": text, "add_special": False}
        theirs = httpx2.post(f"{server.listening_address}/tokenize", json=asked).json()["tokens"]
        assert theirs == tokenizer.encode(text, add_special_tokens=False), text


def test_llama_cpp_says_what_the_trained_model_says(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    shared = train("shared", tmp_path_factory)
    (folder,) = export_run(shared, replace(LAST_MERGED, gguf=True), tmp_path / "out")
    server = llama_server(folder / "team.gguf")
    messages = [{"role": m.role, "content": m.content} for m in PROMPT]
    asked = {"messages": messages, "max_tokens": 48, "temperature": 0.0}
    theirs = server.handle_chat_completions(asked)["choices"][0]["message"]["content"]

    async def ours() -> str:
        engine = LocalEngine(load_model(str(folder)))
        sampling = Sampling(max_tokens=48)
        ids = engine.encode(PROMPT)
        try:
            done = await engine.generate(
                Request(messages=PROMPT, prompt_ids=ids, sampling=sampling)
            )
        finally:
            await engine.close()
        return done.text

    assert theirs == asyncio.run(ours())
    (alone,) = export_run(shared, Order(gguf=True), tmp_path / "alone")
    assert sorted(path.name for path in alone.iterdir()) == ["README.md", "team.gguf"]
