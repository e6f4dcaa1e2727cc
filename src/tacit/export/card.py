"""The model card: what the weights are, what they were seen to do and cost, and how to use them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit import __version__
from tacit.config import Config, TeamConfig
from tacit.export.shapes import Shape
from tacit.team.topologies import TOPOLOGIES
from tacit.types import ChatMessage

PRIVATE = (
    "folder", "cache_folder", "base_url", "api_key_env", "prices", "spend_cap",
    "concurrency", "rows", "trackers",
)  # fmt: skip
"""Settings that say where a run took place and not what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a card is written from: the run's own files, nothing computed anew."""

    config: Config
    roles: Sequence[str]
    """Whose weights these are."""
    base: str
    """The model they were trained on top of, as readers know it."""
    forms: Sequence[str]
    """adapter, merged, gguf."""
    policy: str
    step: int
    evaluated: Mapping[str, Any] | None
    """Summary of this checkpoint on the held-out tasks, where there is one."""
    others: Mapping[str, Mapping[str, Any]]
    """Summaries of the untrained team and of the baselines."""
    paired: Mapping[str, Mapping[str, Any] | None]
    """Team → the trained team's accuracy minus that team's, on the same tasks."""
    lambdas: Mapping[str, float]
    """What each budget's dual control had come to."""
    shapes: Sequence[Shape]
    currency: str = ""
    """Of the run's price table, where something was paid."""


LIBRARIES = {"adapter": "peft", "merged": "transformers", "gguf": "gguf"}
LOADERS = {
    "adapter": ("peft", "AutoPeftModelForCausalLM"),
    "merged": ("transformers", "AutoModelForCausalLM"),
}


def model_card(facts: Facts) -> str:
    """README.md, with the header that the Hugging Face Hub reads."""
    sections = [_header(facts), _title(facts), *_results(facts), *_economy(facts), _recipe(facts)]
    return "\n\n".join([*sections, *_use(facts)]) + "\n"


def _header(facts: Facts) -> str:
    tree: dict[str, Any] = {
        "library_name": LIBRARIES[facts.forms[0]],
        "pipeline_tag": "text-generation",
        "tags": ["tacit", "multi-agent", "reinforcement-learning"],
    }
    if facts.base.count("/") == 1:
        tree["base_model"] = facts.base
    return f"---\n{yaml.safe_dump(tree, sort_keys=False).strip()}\n---"


def _title(facts: Facts) -> str:
    team = _team(facts.config)
    known = TOPOLOGIES.get(team.topology)  # one of the user's own need not be there any more
    meaning = f" ({known.summary})" if known else ""
    roles = " and ".join(f"`{role}`" for role in facts.roles)
    what = "A LoRA adapter" if facts.forms[0] == "adapter" else "A whole model"
    budget = ", ".join(f"{value:g} {name}" for name, value in _budgets(facts.config).items())
    price = f"a budget of {budget} an episode" if budget else "no budget"
    return (
        f"# {facts.config.name}: {', '.join(facts.roles)}\n\n"
        f"{what} for {roles} of a `{team.topology}` team{meaning}. Trained with Tacit "
        f"{__version__} on top of {facts.base}, with {price}; step {facts.step} of "
        f"{facts.config.train.steps}, seed {facts.config.seed}."
    )


def _results(facts: Facts) -> Iterator[str]:
    tasks = facts.config.tasks
    yield "## Results"
    if facts.evaluated is None:
        yield f"The checkpoint of step {facts.step} was not evaluated on held-out tasks."
        return
    share = 100 * facts.config.evaluation.confidence
    levels = list(facts.evaluated["accuracy_by_level"])
    yield (
        f"{facts.evaluated['tasks']} held-out tasks of `{_public(tasks.name)}` ({tasks.split}), "
        f"the trained agents greedy, {share:g} % intervals. Tokens are what all agents of the team "
        "said, or read, in an episode."
    )
    rows = [["team", "accuracy %", *levels, "tokens said", "tokens read"]]
    for name, one in {**facts.others, "**this checkpoint**": facts.evaluated}.items():
        by_level = one["accuracy_by_level"]
        rows.append(
            [
                name,
                _interval(one["accuracy"], 100),
                *(_number(100 * by_level[lv]["mean"]) if lv in by_level else "–" for lv in levels),
                _interval(one["generated"]),
                _number(one["read"]),
            ]
        )
    yield _table(rows)
    tests = [
        f"- against {name}: {_interval(test['difference'], 100, signed=True)} points, {_p(test)}"
        for name, test in facts.paired.items()
        if test
    ]
    if tests:
        yield "Difference in accuracy on the same tasks:\n\n" + "\n".join(tests)


def _p(test: Mapping[str, Any]) -> str:
    if test["p_mcnemar"] is None:
        return f"p {test['p_bootstrap']:.2g} (bootstrap)"
    return f"p {test['p_mcnemar']:.2g} (McNemar)"


def _economy(facts: Facts) -> Iterator[str]:
    budgets = _budgets(facts.config)
    if not (budgets or facts.evaluated):
        return
    yield "## Token economy"
    for name, value in budgets.items():
        reached = f", λ {facts.lambdas[name]:.3g} by then" if name in facts.lambdas else ""
        yield f"Budget: {value:g} {name} an episode{reached}."
    if facts.evaluated is None:
        return
    rows = [["role", "model", "calls", "tokens said", "tokens read", "silent %", "by level"]]
    for agent in facts.evaluated["agents"]:
        quiet = " ".join(f"{lv} {100 * s:.0f}" for lv, s in agent["silence_by_level"].items())
        numbers = [_number(agent[what]) for what in ("calls", "generated", "prompt")]
        rows.append(
            [agent["agent"], agent["model"], *numbers, f"{100 * agent['silence']:.0f}", quiet]
        )
    yield "Of this checkpoint, per episode:\n\n" + _table(rows)
    silent, spoken = facts.evaluated["silent_accuracy"], facts.evaluated["spoken_accuracy"]
    if silent is not None and spoken is not None:
        yield (
            f"Where some agent was silent {100 * silent:.1f} % were right, "
            f"where all spoke {100 * spoken:.1f} %."
        )
    if (solved := facts.evaluated["generated_per_solved"]) is not None:
        yield f"A solved task cost {solved:.1f} tokens said."
    if (money := facts.evaluated["money"]) is not None:
        yield f"By the run's price table an episode cost {f'{money:.3g} {facts.currency}'.strip()}."


def _recipe(facts: Facts) -> str:
    tree = facts.config.model_dump(mode="json", exclude_defaults=True, exclude={"name", "teams"})
    text = yaml.safe_dump(_public(tree), sort_keys=False, allow_unicode=True, width=96)
    return f"## Recipe\n\nWhat differs from Tacit's defaults:\n\n```yaml\n{text.strip()}\n```"


def _public(value: Any) -> Any:
    """Without what is private; of a path from the root, its last name."""
    if isinstance(value, str) and value.startswith(("/", "~")):
        return Path(value).name
    if not isinstance(value, dict):
        return value
    return {key: _public(inner) for key, inner in value.items() if key not in PRIVATE}


def _use(facts: Facts) -> Iterator[str]:
    yield "## Use"
    yield (
        "It was trained on prompts of exactly this form, with names in braces for what differs. "
        "A reply of exactly `<silent>` means: say nothing to the others."
    )
    for shape in facts.shapes:
        for message in shape.messages:
            yield f"`{shape.role}`, {message.role} message:\n\n```text\n{message.content}\n```"
    if facts.forms[0] in LOADERS:
        yield f"In this folder:\n\n```python\n{_program(facts)}\n```"
    if "gguf" in facts.forms:
        yield f"With llama.cpp:\n\n```bash\nllama-server -m {facts.policy}.gguf --jinja\n```"


def _program(facts: Facts) -> str:
    library, loader = LOADERS[facts.forms[0]]
    names = f"{loader}, AutoTokenizer" if library == "transformers" else loader
    imports = [f"from {library} import {names}"]
    if library != "transformers":
        imports.append("from transformers import AutoTokenizer")
    first = facts.shapes[0].messages if facts.shapes else [ChatMessage("user", "{question}")]
    messages = [{"role": message.role, "content": message.content} for message in first]
    limit = _team(facts.config).agents[facts.roles[0]].max_tokens
    return "\n".join(
        [
            *imports,
            "",
            f'model = {loader}.from_pretrained(".")',
            'tokenizer = AutoTokenizer.from_pretrained(".")',
            "messages = [",
            *(f"    {message!r}," for message in messages),
            "]",
            "prompt = tokenizer.apply_chat_template(",
            '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True',
            ")",
            f"reply = model.generate(**prompt, max_new_tokens={limit}, do_sample=False)",
            'said = reply[0, prompt["input_ids"].shape[1] :]',
            "print(tokenizer.decode(said, skip_special_tokens=True))",
        ]
    )


def _team(config: Config) -> TeamConfig:
    assert config.team is not None
    return config.team


def _budgets(config: Config) -> dict[str, float]:
    kinds = ("tokens", "turns", "money")
    return {kind: value for kind in kinds if (value := getattr(config.budget, kind)) is not None}


def _interval(estimate: Mapping[str, float], scale: float = 1.0, *, signed: bool = False) -> str:
    mean, low, high = (scale * estimate[key] for key in ("mean", "low", "high"))
    sign = "+" if signed else ""
    return f"{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def _number(value: float) -> str:
    return f"{value:.1f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|".join(["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
