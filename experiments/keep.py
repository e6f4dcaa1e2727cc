"""Keep what a run found: `python -m experiments.keep NAME RUN [LABEL=FOLDER …]`.

From the run folder come its config and its course of training, from each evaluation's folder the
outcome and the token counts of every task. No text of a task or a message is kept. A label is what
the tables call the team; without one it is called what its folder calls it. For holders of
paragraphs the benchmark's files must be there (TACIT_DATA), as they were for training: only they
say which paragraphs a question names.

    tacit train experiments/hint.yaml --out runs/hint-s0
    tacit eval runs/hint-s0 "tasks={name: gsm8k, split: test}" --out runs/hint-s0/test
    python -m experiments.keep hint runs/hint-s0 trained=runs/hint-s0/test
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit import Call, ConfigError, Episode, TacitError
from tacit.config import TaskConfig
from tacit.run.folder import VARIANTS
from tacit.run.opening import tasks_of
from tacit.team.roster import has_role

RESULTS = Path(__file__).parent / "results"
EPISODE: TypeAdapter[Episode] = TypeAdapter(Episode)
CURVES = (
    "accuracy/sampled", "accuracy/silent_arm", "accuracy/policy", "cost/tokens", "cost/turns",
    "lambda/tokens", "lambda/turns", "lambda/money", "groups/mixed", "groups/too_easy",
    "groups/too_hard", "train/gradient_norm", "train/entropy", "train/base_loss",
    "train/engine_gap", "train/clip_fraction", "train/dropped", "train/ref_kl",
)  # fmt: skip
"""Of every step's numbers, those that are kept; tokens and silence by role too."""


def record(name: str, run: Path, evaluations: Mapping[str, Path]) -> dict[str, Any]:
    """Everything that is kept of one run."""
    config = _json(run / "config.json")
    for model in config["models"].values():
        model["path"] = Path(model["path"]).name
    starts = list(_lines(run / "started.jsonl"))
    found = {
        label: columns
        for given, folder in evaluations.items()
        for label, columns in _measured(given, folder)
    }
    metrics, pointer = list(_lines(run / "metrics.jsonl")), run / "checkpoints" / "best.json"
    best = _json(pointer)["step"] if pointer.exists() else None
    timing = _lines(run / "timing.jsonl")
    return {
        "experiment": name,
        "seed": config["seed"],
        "config": config,
        "calls": [{"date": one["time"][:10], **one["versions"]} for one in starts],
        "evaluations": found,
        **({"training": training_of(metrics, timing, best)} if metrics else {}),
    }


def _measured(label: str, folder: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """The columns of every team that was played in a folder, and of its other plays."""
    files = sorted((folder / "episodes").glob("*.jsonl"))
    summaries = {path.stem: path for path in (folder / "evals").glob("*.json")}
    teams = [file.stem for file in files if file.stem in summaries]
    if not teams:
        raise ConfigError(f"`{folder}` has no episodes: evaluate the run there first")
    for file in files:
        if file.stem not in teams and not file.stem.endswith(VARIANTS):
            continue  # of training
        episodes = [_episode(line, file) for line in file.read_bytes().splitlines()]
        leaks = {"leaks": _json(summaries[file.stem])["leaks"]} if file.stem in teams else {}
        alone = label and len(teams) == 1
        name = file.stem.replace(teams[0], label, 1) if alone else file.stem
        named = _named(folder) if any(len(episode.needed) > 1 for episode in episodes) else {}
        yield name, {**columns(episodes, named), **leaks, **_lines_of(folder, episodes)}


def _named(folder: Path) -> dict[str, dict[str, bool]]:
    """Task → who holds a supporting paragraph whose title the question names."""
    settings = TaskConfig.model_validate(_json(folder / "config.json")["tasks"])
    try:
        tasks = tasks_of(settings)
    except TacitError as error:
        raise ConfigError(
            f"`{folder}` does not say which paragraphs a question names ({error}); nothing is "
            "lost: keep it again where its tasks can be read"
        ) from None
    return {task.id: task.data["named"] for task in tasks if "named" in task.data}


def _lines_of(folder: Path, episodes: Sequence[Episode]) -> dict[str, Any]:
    """The `silent_above` of roles in which somebody was silent."""
    team = _json(folder / "config.json").get("team") or {}
    quiet = {call.agent for episode in episodes for call in episode.calls if call.silent}
    agents = {
        role: agent
        for role, agent in team.get("agents", {}).items()
        if any(has_role(one, role) for one in quiet)
    }
    lines = {role: agent.get("silent_above", 0.5) for role, agent in agents.items()}
    return {"silent_above": lines} if lines else {}


def _episode(line: bytes, file: Path) -> Episode:
    try:
        return EPISODE.validate_json(line)
    except ValidationError:
        raise ConfigError(
            f"{file}: a line is no episode; evaluate again, and keep it then"
        ) from None


def columns(
    episodes: Sequence[Episode], named: Mapping[str, Mapping[str, bool]] | None = None
) -> dict[str, Any]:
    """One evaluation, a position for each task. A task that was played again counts as it ended."""
    by_task = {episode.task_id: episode for episode in episodes}
    if any(episode.sample for episode in episodes):
        raise ConfigError("one episode of each task is kept: evaluate with evaluation.samples=1")
    mine = [by_task[task] for task in sorted(by_task, key=_natural)]
    tasks, ids = _ids([episode.task_id for episode in mine])
    made: dict[str, Any] = {
        "tasks": tasks,
        "ids": ids,
        "right": "".join("-" if e.grade is None else "01"[e.grade.right] for e in mine),
        "answer": [_answer(e) for e in mine],
        "path": _column([e.path_tokens for e in mine]),
        "calls": _calls(mine),
    }
    if any(episode.level for episode in mine):
        made["level"] = [episode.level for episode in mine]
    rewards = [e.grade.reward if e.grade else None for e in mine]
    if any(reward not in (None, 0.0, 1.0) for reward in rewards):
        made["reward"] = [None if reward is None else round(reward, 4) for reward in rewards]
    chosen = [[c for c in e.calls if c.may_be_silent] for e in mine]
    if all(len(one) == 1 for one in chosen):
        made["log_silence"] = [_log_silence(call) for (call,) in chosen]
    elif any(chosen):
        made["choices"] = _choices(chosen)
    truths = {"needed": [e.needed for e in mine]}
    truths["named"] = [(named or {}).get(e.task_id, {}) for e in mine]
    return made | {name: by_agent for name, some in truths.items() if (by_agent := _flags(some))}


def _flags(truths: Sequence[Mapping[str, bool]]) -> dict[str, str]:
    """Agent → what is true of it, a position for each task."""
    agents = dict.fromkeys(agent for one in truths for agent in one)
    return {
        agent: "".join("01"[one[agent]] if agent in one else "-" for one in truths)
        for agent in agents
    }


def _log_silence(call: Call) -> float | None:
    return None if call.silence_logprob is None else round(call.silence_logprob, 4)


def _choices(chosen: Sequence[Sequence[Call]]) -> dict[str, dict[str, Any]]:
    """`holder 2, round 0` → its silences and log π(silence), a position for each task."""
    found: dict[str, dict[str, Any]] = {}
    for place, calls in enumerate(chosen):
        for call in calls:
            own = found.setdefault(f"{call.agent}, round {call.round}", {})
            own.setdefault("silent", ["-"] * len(chosen))[place] = "01"[call.silent]
            own.setdefault("log_silence", [None] * len(chosen))[place] = _log_silence(call)
    return {
        name: {"silent": "".join(one["silent"]), "log_silence": one["log_silence"]}
        for name, one in sorted(found.items())
    }


def _natural(task: str) -> tuple[str, int, str]:
    """`gsm8k/test/10` after `gsm8k/test/9`."""
    start, _, number = task.rpartition("/")
    return start, int(number) if number.isdecimal() else 0, number


def _ids(ids: Sequence[str]) -> tuple[str, list[str]]:
    """`gsm8k/test/7` → (`gsm8k/test`, `7`): what all ids begin with is said once."""
    shared = ""
    for parts in zip(*(task.split("/")[:-1] for task in ids), strict=False):
        if len({*parts}) > 1:
            break
        shared += f"{parts[0]}/"
    return shared.rstrip("/"), [task.removeprefix(shared) for task in ids]


def _answer(episode: Episode) -> str:
    """A hash, so that teams can be asked later where they agree; empty where nothing was read."""
    read = episode.grade.answer if episode.grade else ""
    whole = f"{episode.task_id}\n{read}".encode()
    return hashlib.blake2b(whole, digest_size=4).hexdigest() if read else ""


def _calls(episodes: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """Tokens and silences by agent and by what it was asked to be."""
    wanted: dict[str, Callable[[Sequence[Call]], Any]] = {
        "generated": lambda some: sum(call.usage.generated for call in some),
        "read": lambda some: sum(call.usage.prompt for call in some),
        "calls": len,
        "silent": lambda some: sum(call.silent for call in some),
        "cut": lambda some: sum(call.stop == "length" for call in some),
        "observed": lambda some: sum(call.usage.observed for call in some),
    }
    kinds = dict.fromkeys(f"{c.agent}/{c.part}" for e in episodes for c in e.calls)
    found = {}
    for kind in kinds:
        mine = [[c for c in e.calls if f"{c.agent}/{c.part}" == kind] for e in episodes]
        kept = {name: _column([count(some) for some in mine]) for name, count in wanted.items()}
        found[kind] = {name: one for name, one in kept.items() if one or name != "observed"}
    return found


def _column(values: list[Any]) -> Any:
    return values[0] if values and all(value == values[0] for value in values) else values


def training_of(
    metrics: Sequence[Mapping[str, Any]],
    timing: Iterable[Mapping[str, Any]] = (),
    best_step: int | None = None,
) -> dict[str, Any]:
    """The course of a training; without a `best_step` the most accurate one is taken for it."""
    steps = [line for line in metrics if "reward/total" in line]
    held_out = [line for line in metrics if "eval/accuracy" in line]
    best = max(held_out, key=lambda line: (line["eval/accuracy"], -line["eval/tokens"]))
    names = sorted({name for line in steps for name in line if _is_kept(name)})
    spent = list(timing)
    return {
        "steps": steps[-1]["step"] if steps else 0,
        "best_step": best["step"] if best_step is None else best_step,
        "validation": {
            "step": [line["step"] for line in held_out],
            "accuracy": [round(line["eval/accuracy"], 4) for line in held_out],
            "tokens": [round(line["eval/tokens"], 2) for line in held_out],
        },
        "curves": {name: [_short(line.get(name)) for line in steps] for name in names},
        "seconds": {
            name: round(sum(line.get(f"{name}_s", 0.0) for line in spent), 1)
            for name in ("rollout", "update", "evaluate")
            if spent
        },
    }


def _is_kept(name: str) -> bool:
    return name in CURVES or (name.startswith(("tokens/", "silence/")) and name.count("/") == 1)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    """The whole lines of a JSONL file; a torn last one is left out."""
    if path.exists():
        yield from (
            json.loads(line) for line in path.read_text().splitlines(True) if line[-1:] == "\n"
        )


def dump(tree: Any, indent: str = "") -> str:
    """JSON, a line for each key of an object, lists on one line."""
    if not isinstance(tree, dict) or not tree:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    inner = indent + " "
    rows = (f"{inner}{json.dumps(key)}: {dump(value, inner)}" for key, value in tree.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.keep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="of the record: NAME-s0.json for seed 0")
    parser.add_argument(
        "run", type=Path, help="the run folder, or an evaluation's where nothing was trained"
    )
    parser.add_argument("evaluations", nargs="*", metavar="LABEL=FOLDER")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    pairs = [one.rpartition("=") for one in args.evaluations] or [("", "", str(args.run))]
    try:
        tree = record(args.name, args.run, {label: Path(folder) for label, _, folder in pairs})
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    path = args.out / f"{args.name}-s{tree['seed']}.json"
    if path.exists():
        print(f"error: {path} is there already: give another name", file=sys.stderr)
        return 2
    path.write_text(dump(tree) + "\n", encoding="utf-8")
    print(f"wrote {path}: {', '.join(tree['evaluations'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
