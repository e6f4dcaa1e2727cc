"""Make the pocket model: `python -m tools.pocket.make --out DIR`.

Trains the tokenizer and a small Llama from scratch on `corpus.py`, measures it on held-out sums and
writes half-precision weights, tokenizer and card. It knows nothing of teams or engines.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from tools.pocket import tokenizer as words
from tools.pocket.corpus import Dialogue, any_problem, dialogue
from tools.pocket.measure import Speaker, measure, table

HIDDEN, LAYERS, HEADS, FEEDFORWARD = 160, 4, 4, 416
BATCH_TOKENS = 8192
POOL = 4096
"""Dialogues drawn at once and sorted by length, so that a batch needs little padding."""
LEARNT_TOKENS = BATCH_TOKENS / 8
"""About how many tokens of a batch are learnt. Dividing by this and not by each batch's own count
keeps a token's weight, and so the shares of long and short replies, whatever batch it is in."""
DRILL, EQUATIONS = 0.11, 24
"""The first so much of the tokens are plain equations, so many a row: the cheapest way to add."""
PEAK_RATE, WARM_UP = 3e-3, 0.03
_IGNORED = -100


def new_model(tokenizer: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=FEEDFORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=words.CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def batches(tokenizer: Any, rng: random.Random) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (ids, labels), padded on the right; only replies and their end are learnt."""
    while True:
        pool = sorted(_encode(tokenizer, [dialogue(rng) for _ in range(POOL)]), key=_length)
        cut: list[list[tuple[list[int], list[int]]]] = [[]]
        for row in pool:
            if (len(cut[-1]) + 1) * _length(row) > BATCH_TOKENS:
                cut.append([])
            cut[-1].append(row)
        rng.shuffle(cut)
        for rows in cut:
            yield _pad(rows, tokenizer.pad_token_id)


def drills(tokenizer: Any, rng: random.Random) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless rows of equations, of which only the results are learnt."""
    while True:
        rows = []
        for _ in range(BATCH_TOKENS // (9 * EQUATIONS)):
            steps = [step for _ in range(EQUATIONS) for step in any_problem(rng).steps][:EQUATIONS]
            texts = [
                text for s in steps for text in (f"{s.left} {s.sign} {s.right} = ", f"{s.result}")
            ]
            ids = tokenizer(texts)["input_ids"]
            rows.append(
                [(given, result) for given, result in zip(ids[::2], ids[1::2], strict=True)]
            )
        yield _pad_drills(rows, tokenizer)


def _pad_drills(
    rows: list[list[tuple[list[int], list[int]]]], tokenizer: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    comma = tokenizer(", ")["input_ids"]
    flat = [[token for g, r in row for token in (*g, *r, *comma)] for row in rows]
    learnt = [
        [
            token
            for g, r in row
            for token in (*(_IGNORED for _ in g), *r, *(_IGNORED for _ in comma))
        ]
        for row in rows
    ]
    width = max(map(len, flat))
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), _IGNORED)
    for i, (row, label) in enumerate(zip(flat, learnt, strict=True)):
        ids[i, : len(row)], labels[i, : len(row)] = torch.tensor(row), torch.tensor(label)
    return ids, labels


def _encode(tokenizer: Any, dialogues: list[Dialogue]) -> list[tuple[list[int], list[int]]]:
    asked = tokenizer([words.render(d.messages) for d in dialogues])["input_ids"]
    said = tokenizer([d.reply + words.END for d in dialogues])["input_ids"]
    return list(zip(asked, said, strict=True))


def _length(row: tuple[list[int], list[int]]) -> int:
    return len(row[0]) + len(row[1])


def _pad(rows: list[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(_length, rows))
    ids = torch.full((len(rows), width), pad)
    labels = torch.full((len(rows), width), _IGNORED)
    for i, (prompt, reply) in enumerate(rows):
        ids[i, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
        labels[i, len(prompt) : len(prompt) + len(reply)] = torch.tensor(reply)
    return ids, labels


def loss_of(model: Any, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the replies; the vocabulary is only looked at where something is learnt."""
    targets = labels[:, 1:]
    learnt = targets != _IGNORED
    hidden = model.model(ids[:, :-1]).last_hidden_state[learnt]
    logits = model.lm_head(hidden).float()
    return cross_entropy(logits, targets[learnt], reduction="sum") / LEARNT_TOKENS


def optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for the rest: adding is learnt in a third of AdamW's tokens."""
    named = list(model.named_parameters())
    matrices = [w for name, w in named if w.ndim == 2 and "embed" not in name]
    rest = [w for name, w in named if w.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, PEAK_RATE, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, PEAK_RATE, betas=(0.9, 0.98)),
    ]


def train(
    model: Any, tokenizer: Any, *, seed: int, tokens: float, minutes: float, device: str
) -> dict[str, float]:
    """Down a cosine that ends with the tokens or with the time, whichever is first."""
    both = optimizers(model)
    drill = drills(tokenizer, random.Random(f"drill/{seed}"))
    talk = batches(tokenizer, random.Random(f"pocket/{seed}"))
    began, seen, step, running = time.monotonic(), 0, 0, 0.0
    while (done := max(seen / tokens, (time.monotonic() - began) / (60 * minutes))) < 1:
        for group in (group for one in both for group in one.param_groups):
            group["lr"] = PEAK_RATE * min(1, done / WARM_UP, (1 + math.cos(math.pi * done)) / 2)
        ids, labels = (tensor.to(device) for tensor in next(drill if done < DRILL else talk))
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(model, ids, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one in both:
            one.step()
            one.zero_grad()
        seen, step = seen + ids.numel(), step + 1
        running = loss.item() if step == 1 else 0.98 * running + 0.02 * loss.item()
        if step % 200 == 0:
            pace = seen / (time.monotonic() - began)
            print(f"step {step}  {100 * done:.0f} %  loss {running:.3f}  {pace:,.0f} tokens/s")
    seconds = time.monotonic() - began
    return {"tokens": seen, "steps": step, "minutes": seconds / 60, "loss": running}


def save(model: Any, tokenizer: Any, out: Path, facts: dict[str, object]) -> None:
    """Weights in half precision, and the card filled in."""
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    card = Template((Path(__file__).parent / "card.md").read_text(encoding="utf-8"))
    (out / "README.md").write_text(card.substitute(facts), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--tokens", type=float, default=25e6, help="how much to train on")
    parser.add_argument("--minutes", type=float, default=55, help="stop training by then")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=800, help="how many to measure on")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    rng = random.Random(f"tokenizer/{args.seed}")
    sample = (dialogue(rng) for _ in range(20_000))
    tokenizer = words.train(words.render(d.messages) + d.reply for d in sample)
    model = new_model(tokenizer).to(args.device)
    parameters = sum(weight.numel() for weight in model.parameters())
    print(f"{parameters:,} parameters, {len(tokenizer)} tokens in the vocabulary")
    trained = train(
        model,
        tokenizer,
        seed=args.seed,
        tokens=args.tokens,
        minutes=args.minutes,
        device=args.device,
    )
    model = model.half().float().eval()  # what is measured is what is saved
    rows = measure(Speaker(model, tokenizer), args.problems)
    print(table(rows))
    facts = {
        "parameters": f"{parameters:,}",
        "device": args.device,
        "seed": args.seed,
        "problems": args.problems,
        "tokens": f"{trained['tokens']:,}",
        "minutes": f"{trained['minutes']:.0f}",
        "table": table(rows),
    }
    save(model, tokenizer, args.out, facts)
    (args.out / "measured.json").write_text(
        json.dumps({"training": trained, "rows": rows}, indent=1)
    )


if __name__ == "__main__":
    main()
