"""The model card: what the weights are, what they were seen to do and cost, and how to use them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tacit import __version__
from tacit.cli.paired_tests import paired_tests
from tacit.export.formats import PolicyWeights
from tacit.export.shapes import Shape, prompt_shapes
from tacit.run.folder import RunFolder
from tacit.team.topologies import TOPOLOGIES
from tacit.types import ChatMessage

PRIVATE = (
    "folder", "cache_folder", "base_url", "api_key_env", "prices", "spend_cap",
    "concurrency", "rows", "trackers",
)  # fmt: skip
"""Settings that say where a run took place and not what it was."""
LIBRARIES = {"adapter": "peft", "merged": "transformers", "gguf": "gguf"}
LOADERS = {"adapter": "AutoPeftModelForCausalLM", "merged": "AutoModelForCausalLM"}
IMPORTS = {
    "adapter": "from peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer",
    "merged": "from transformers import AutoModelForCausalLM, AutoTokenizer",
}
PROGRAM = """\
{imports}

model = {loader}.from_pretrained(".")
tokenizer = AutoTokenizer.from_pretrained(".")
messages = [
{messages}
]
prompt = tokenizer.apply_chat_template(
    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
reply = model.generate(**prompt, max_new_tokens={limit}, do_sample=False)
said = reply[0, prompt["input_ids"].shape[1] :]
print(tokenizer.decode(said, skip_special_tokens=True))"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card is written from: the run's own files, nothing computed anew."""

    run: RunFolder
    weights: PolicyWeights
    forms: Sequence[str]
    """adapter, merged, gguf."""
    lambdas: Mapping[str, float]
    """Each budget's λ at this checkpoint."""

    def read(self, name: str) -> Any:
        """A JSON file of the run; None if it is not there."""
        return self.run.read_json(name) if (self.run.path / name).exists() else None

    @property
    def evaluated(self) -> Any:
        """The summary of this checkpoint on the held-out tasks; None if it was not evaluated."""
        return self.read(f"evals/eval-{self.weights.step:06d}.json")

    @property
    def base(self) -> str:
        """The model they were trained on, as readers know it: a Hub id, or a folder's own name."""
        path = self.weights.model.path
        if path == "pocket":
            return "the pocket model that comes with Tacit"
        return Path(path).name if Path(path).expanduser().is_dir() else path.removeprefix("hub:")

    @property
    def budgets(self) -> dict[str, float]:
        known = self.weights.config.budget.model_dump(include={"tokens", "turns", "money"})
        return {kind: value for kind, value in known.items() if value is not None}


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
    weights, config = facts.weights, facts.weights.config
    known = TOPOLOGIES.get(weights.team.topology)  # the user's own may be gone by now
    meaning = f" ({known.summary})" if known else ""
    roles = " and ".join(f"`{role}`" for role in weights.roles)
    what = "A LoRA adapter" if facts.forms[0] == "adapter" else "A whole model"
    budget = ", ".join(f"{value:g} {name}" for name, value in facts.budgets.items())
    price = f"a budget of {budget} an episode" if budget else "no budget"
    return (
        f"# {config.name}: {', '.join(weights.roles)}\n\n"
        f"{what} for {roles} of a `{weights.team.topology}` team{meaning}. Trained with Tacit "
        f"{__version__} on top of {facts.base}, with {price}; step {weights.step} of "
        f"{config.train.steps}, seed {config.seed}."
    )


def _results(facts: Facts) -> Iterator[str]:
    config, evaluated = facts.weights.config, facts.evaluated
    yield "## Results"
    if evaluated is None:
        yield f"The checkpoint of step {facts.weights.step} was not evaluated on held-out tasks."
        return
    share = 100 * config.evaluation.confidence
    levels = list(evaluated["accuracy_by_level"])
    yield (
        f"{evaluated['tasks']} held-out tasks of `{_public(config.tasks.name)}` "
        f"({config.tasks.split}), the trained agents greedy, {share:g} % intervals. Tokens are "
        "what all agents of the team said, or read, in an episode."
    )
    summary = facts.read("summary.json") or {}
    teams = {name: one for name, one in summary.get("teams", {}).items() if name != "trained"}
    if not teams and (before := facts.read("evals/eval-000000.json")):
        teams = {"untrained": before}
    rows = [["team", "accuracy %", *levels, "tokens said", "tokens read"]]
    for name, one in {**teams, "**this checkpoint**": evaluated}.items():
        by_level = one["accuracy_by_level"]
        shares = [f"{100 * by_level[lv]['mean']:.1f}" if lv in by_level else "–" for lv in levels]
        accuracy, said = _interval(one["accuracy"], 100), _interval(one["generated"])
        rows.append([name, accuracy, *shares, said, f"{one['read']:.1f}"])
    yield _table(rows)
    best = summary.get("best_step") == facts.weights.step
    tests = [f"- {test}" for test in paired_tests(summary) if test.name == "trained"]
    if best and tests:
        yield "Difference in accuracy on the same tasks:\n\n" + "\n".join(tests)


def _economy(facts: Facts) -> Iterator[str]:
    evaluated = facts.evaluated
    if not (facts.budgets or evaluated):
        return
    yield "## Token economy"
    for name, value in facts.budgets.items():
        reached = f", λ {facts.lambdas[name]:.3g} by then" if name in facts.lambdas else ""
        yield f"Budget: {value:g} {name} an episode{reached}."
    if evaluated is None:
        return
    rows = [["role", "model", "calls", "tokens said", "tokens read", "silent %", "by level"]]
    for agent in evaluated["agents"]:
        quiet = " ".join(f"{lv} {100 * s:.0f}" for lv, s in agent["silence_by_level"].items())
        numbers = [f"{agent[what]:.1f}" for what in ("calls", "generated", "prompt")]
        silent = f"{100 * agent['silence']:.0f}"
        rows.append([agent["agent"], agent["model"], *numbers, silent, quiet])
    yield "Of this checkpoint, per episode:\n\n" + _table(rows)
    silent, spoken = evaluated["silent_accuracy"], evaluated["spoken_accuracy"]
    if silent is not None and spoken is not None:
        yield (
            f"Where some agent was silent {100 * silent:.1f} % were right, "
            f"where all spoke {100 * spoken:.1f} %."
        )
    if (solved := evaluated["generated_per_solved"]) is not None:
        yield f"A solved task cost {solved:.1f} tokens said."
    if (money := evaluated["money"]) is not None:
        spend = (facts.read("summary.json") or {}).get("spend") or {}
        currency = spend.get("currency") or ""
        yield f"By the run's price table an episode cost {f'{money:.3g} {currency}'.strip()}."


def _recipe(facts: Facts) -> str:
    config = facts.weights.config
    tree = config.model_dump(mode="json", exclude_defaults=True, exclude={"name", "teams"})
    text = yaml.safe_dump(_public(tree), sort_keys=False, allow_unicode=True, width=96)
    return f"## Recipe\n\nWhat differs from Tacit's defaults:\n\n```yaml\n{text.strip()}\n```"


def _public(value: Any) -> Any:
    """Without private settings; an absolute path becomes its last name."""
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
    shapes = prompt_shapes(facts.run, facts.weights)
    for role, messages in shapes:
        for message in messages:
            yield f"`{role}`, {message.role} message:\n\n```text\n{message.content}\n```"
    if facts.forms[0] in LOADERS:
        yield f"In this folder:\n\n```python\n{_program(facts, shapes)}\n```"
    if "gguf" in facts.forms:
        name = facts.weights.name
        yield f"With llama.cpp:\n\n```bash\nllama-server -m {name}.gguf --jinja\n```"


def _program(facts: Facts, shapes: Sequence[Shape]) -> str:
    form, weights = facts.forms[0], facts.weights
    first = shapes[0][1] if shapes else [ChatMessage("user", "{question}")]
    messages = [{"role": message.role, "content": message.content} for message in first]
    return PROGRAM.format(
        imports=IMPORTS[form],
        loader=LOADERS[form],
        messages="\n".join(f"    {message!r}," for message in messages),
        limit=weights.team.agents[weights.roles[0]].max_tokens,
    )


def _interval(estimate: Mapping[str, float], scale: float = 1.0) -> str:
    mean, low, high = (scale * estimate[key] for key in ("mean", "low", "high"))
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|".join(["---", *["---:"] * (len(rows[0]) - 1)])
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
