"""One run from training to record: `python -m experiments.chain RECIPE --out RUN [a.b=c …]`.

Trains until it is done or `--until` seconds have passed, chooses on the validation tasks where the
agents that may be silent draw their line (`silent_above`), plays the tests once with it, and keeps
the outcome. For a rented GPU, where what is not kept in time is lost:

    python -m experiments.chain experiments/split-gsm8k-blind.yaml --until 900 --out runs/blind-s0 \
      --test "trained=tasks={name: 'experiments.split_gsm8k:tasks', split: test}" --keep split-blind

A test whose label begins with `untrained` or `solo` is the recipe's, without the trained weights.
If a test fails, the record stays in the run folder, without it; the same command resumes.
"""

import argparse
import math
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.keep import dump, record
from tacit import Episode, TacitError, load_config
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder
from tacit.team.roster import has_role

GRID = [round(0.05 * n, 2) for n in range(1, 20)]
UNTRAINED = ("untrained", "solo")
GRACE_S = 60
"""For saving, after which a run that was told to end is killed."""


def lines_of(episodes: Iterable[Episode], roles: Iterable[str]) -> dict[str, float]:
    """Role → the π(silence) that best tells those who were needed from the others.

    The best is by the mean of both shares that it gets right, nearest to ½ among equals. Roles
    whose tasks have no truth about need are left out.
    """
    seen: dict[str, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    for episode in episodes:
        for call in episode.calls:
            role = next((one for one in roles if has_role(call.agent, one)), None)
            if role and call.silence_logprob is not None and call.agent in episode.needed:
                p = math.exp(call.silence_logprob)
                seen[role][episode.needed[call.agent]].append(p)

    def right(by: Mapping[bool, list[float]], line: float) -> float:
        spoke, kept = sum(p < line for p in by[True]), sum(p >= line for p in by[False])
        return spoke / len(by[True]) + kept / len(by[False])

    return {
        role: max(GRID, key=lambda line: (round(right(by, line), 6), -abs(line - 0.5)))
        for role, by in seen.items()
        if by[True] and by[False]
    }


def chosen_lines(run: Path) -> dict[str, float]:
    """The lines of a run's best step, by its evaluation on the validation tasks."""
    folder, config = RunFolder.existing(run)
    step = Checkpoints(run / "checkpoints").step("best")
    assert config.team is not None
    return lines_of(folder.episodes(f"eval-{step:06d}"), config.team.agents)


def train(recipe: str, run: Path, overrides: list[str], until: float | None) -> None:
    """Train; whoever is out of time is told to save, and ends with the steps it has."""
    tacit = [sys.executable, "-m", "tacit", "train"]
    command = [*tacit, recipe, *overrides, "--out", str(run)]
    with subprocess.Popen(command) as process:
        try:
            process.wait(until)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    if step := Checkpoints(run / "checkpoints").step("last"):
        subprocess.run([*tacit, str(run), f"train.steps={step}"], check=False)


def play(source: list[str], settings: list[str], folder: Path) -> bool:
    """Play one test; False if that failed."""
    command = [sys.executable, "-m", "tacit", "eval", *source, *settings, "--out", str(folder)]
    if subprocess.run(command, check=False).returncode:
        print(f"error: `{folder.name}` could not be played", file=sys.stderr)
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.chain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="a.b=c", help="for training")
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument("--until", type=float, help="seconds of training, at most")
    parser.add_argument(
        "--test", action="append", default=[], metavar="LABEL=a.b=c;a.b=c", help="settings to play"
    )
    parser.add_argument("--keep", metavar="NAME", help="write the record NAME-sSEED.json")
    parser.add_argument("--records", type=Path, default=Path("experiments/results"))
    args = parser.parse_args(arguments)
    seed = load_config(args.recipe, args.overrides).seed
    path = args.records / f"{args.keep}-s{seed}.json"
    if args.keep and path.exists():
        print(f"{path} is there already: nothing to do")
        return 0
    train(args.recipe, args.out, args.overrides, args.until)
    if Checkpoints(args.out / "checkpoints").step("best") is None:
        print(f"error: {args.out} was not evaluated in time", file=sys.stderr)
        return 1
    chosen = chosen_lines(args.out).items()
    lines = [f"team.agents.{role}.silent_above={line}" for role, line in chosen]
    print("chosen on validation:", *lines, flush=True)
    folders = {"": args.out}
    for test in args.test:
        label, _, said = test.partition("=")
        settings, folder = said.split(";"), args.out / label
        frozen = label.startswith(UNTRAINED)
        source = [args.recipe, *args.overrides] if frozen else [str(args.out)]
        # the lines are the trained team's own, not those of a team in its place
        own = not frozen and not any(one.startswith("team=") for one in settings)
        if play(source, [*settings, *(lines if own else [])], folder):
            folders[label] = folder
    complete = len(folders) > len(args.test)
    if args.keep:
        target = path if complete else args.out / "record.json"
        target.write_text(dump(record(args.keep, args.out, folders)) + "\n", encoding="utf-8")
        print(f"wrote {target}")
    return 0 if complete else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TacitError as error:
        sys.exit(f"error: {error}")
