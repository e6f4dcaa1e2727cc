"""One run from training to record: `python -m experiments.chain RECIPE --out RUN [a.b=c …]`.

Trains until it is done or `--until` seconds have passed, chooses on the validation tasks where the
agents that may be silent draw their line (`silent_above`), plays the tests once with it, and keeps
the outcome. For a rented GPU, where what is not kept in time is lost:

    python -m experiments.chain experiments/split-gsm8k-blind.yaml --until 900 --out runs/blind-s0 \
      --test "trained=tasks={name: 'experiments.split_gsm8k:tasks', split: test}" --keep split-blind

A test whose label begins with `untrained` or `solo` is the recipe's, without the trained weights.
`team=FILE.yaml` in a test plays the team of that file. If a test fails, the record stays in the run
folder, without it; the same command resumes, also after SIGTERM. A recipe that has only `teams:` is
played by `tacit compare`, and then kept.
"""

import argparse
import math
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.keep import dump, record
from tacit import Episode, TacitError, load_config
from tacit.learn.checkpoint import Checkpoints
from tacit.run.folder import RunFolder, write_atomically
from tacit.team.roster import has_role

GRID = [round(0.05 * n, 2) for n in range(1, 20)]
UNTRAINED = ("untrained", "solo")
TACIT = (sys.executable, "-m", "tacit")
GRACE_S = 45
"""For saving, after which a run that was told to end is killed."""
TERMINATED = 128 + signal.SIGTERM
"""The exit code of who was told to end."""


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


def train(recipe: str, run: Path, overrides: list[str], until: float | None) -> bool:
    """Train; whoever is out of time is told to save, and ends with the steps it has.

    False if it ended otherwise, as where memory ran out, or before its first step was saved.
    """
    code = _in_time([*TACIT, "train", recipe, *overrides, "--out", str(run)], until)
    if code is None and (step := Checkpoints(run / "checkpoints").step("last")):
        code = _in_time([*TACIT, "train", str(run), f"train.steps={step}"])
    return code == 0


def _in_time(command: list[str], until: float | None = None) -> int | None:
    """The exit code of a command that saves when it is told to end; None if it had to be told."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(until)
        except subprocess.TimeoutExpired:
            _end(process)
            return None
        except SystemExit:  # told to end ourselves
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def budget_of(recipe: str, overrides: list[str], folder: Path, share: float) -> list[str]:
    """`budget.tokens` as a share of what the untrained team generates on the validation tasks."""
    if not play([recipe, *overrides], ["evaluation.without_helpers=false"], folder):
        sys.exit(1)
    (team,) = RunFolder(folder).read_json("summary.json")["teams"].values()
    tokens = round(share * team["generated"]["mean"])
    print(f"budget.tokens={tokens}", flush=True)
    return [f"budget.tokens={tokens}"]


def play(source: list[str], settings: list[str], folder: Path, verb: str = "eval") -> bool:
    """Play one test; False if that failed."""
    said = [inlined(one) for one in settings]
    command = [*TACIT, verb, *source, *said, "--out", str(folder)]
    if _in_time(command):
        print(f"error: `{folder.name}` could not be played", file=sys.stderr)
        return False
    return True


def inlined(setting: str) -> str:
    """`team=FILE.yaml` with the file's text in its place."""
    name, _, file = setting.partition("=")
    named = name == "team" and file.endswith(".yaml")
    return f"team={Path(file).read_text(encoding='utf-8')}" if named else setting


def write(path: Path, name: str, run: Path, folders: Mapping[str, Path]) -> None:
    write_atomically(path, (dump(record(name, run, folders)) + "\n").encode())
    print(f"wrote {path}")


def compare(args: argparse.Namespace, path: Path) -> int:
    """Play the teams of a recipe in which nothing is trained."""
    complete = play([args.recipe, *args.overrides], [], args.out, "compare")
    if args.keep and complete:
        write(path, args.keep, args.out, {"": args.out})
    return 0 if complete else 1


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
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
    parser.add_argument(
        "--budget", type=float, metavar="SHARE", help="budget.tokens, of the untrained team's"
    )
    parser.add_argument("--keep", metavar="NAME", help="write the record NAME-sSEED.json")
    parser.add_argument("--records", type=Path, default=Path("experiments/results"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parsed(arguments)
    config = load_config(args.recipe, args.overrides)
    path = args.records / f"{args.keep}-s{config.seed}.json"
    if args.keep and path.exists():
        print(f"{path} is there already: nothing to do")
        return 0
    if config.team is None:
        return compare(args, path)
    if args.budget:
        before = args.out.with_name(f"{args.out.name}-untrained")
        args.overrides += budget_of(args.recipe, args.overrides, before, args.budget)
    labels = [test.partition("=")[0] for test in args.test]
    tested = any((args.out / one).exists() for one in labels if not one.startswith(UNTRAINED))
    # weights that were tested stay as they are, or a test that goes on would mix two
    trained = tested or train(args.recipe, args.out, args.overrides, args.until)
    if Checkpoints(args.out / "checkpoints").step("best") is None:
        print(f"error: {args.out} was not evaluated in time", file=sys.stderr)
        return 1
    if not trained:
        print(f"error: {args.out} broke off, and the same command goes on", file=sys.stderr)
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
        write(path if complete else args.out / "record.json", args.keep, args.out, folders)
    return 0 if complete else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        sys.exit(main())
    except TacitError as error:
        sys.exit(f"error: {error}")
