"""Run experiments: `python -m experiments NAME… --model FOLDER --data FOLDER [section.key=value…]`.

Exit code 0: finished. 75: the time was up, and the same command with --resume goes on.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from experiments.catalogue import EXPERIMENTS, Experiment, find
from experiments.clock import Clock
from tacit.errors import ConfigError, TacitError

TO_BE_CONTINUED = 75


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_intermixed_args(arguments)
    if args.list:
        _list()
        return 0
    try:
        return _run_all(args)
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        from tacit.engine.memory import ADVICE, ran_out  # only now: it takes torch

        if not ran_out(error):
            raise
        print(f"error: {ADVICE} (--resume)", file=sys.stderr)
        return TO_BE_CONTINUED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("what", nargs="*", help="names of experiments, and overrides a.b=c")
    add("--list", action="store_true", help="list the experiments and do nothing")
    add("--seed", type=int, default=0)
    add("--model", default="pocket", help="folder of the base model")
    add("--small", help="folder of the small Collaborator (hint-small)")
    add("--data", help="folder of the benchmarks' files; TACIT_DATA when not given")
    add("--rows", type=int, default=256, help="sequences decoded together")
    add("--runs", type=Path, default=Path("runs/experiments"), help="where run folders are kept")
    add("--out", type=Path, default=Path("experiments/results"), help="where the JSON goes")
    add("--minutes", type=float, default=9.0, help="time box of this call, all names together")
    add("--train-minutes", type=float, help="end training then, and measure what was learned")
    add("--resume", action="store_true", help="go on with what is in the run folder")
    add("--only", action="append", help="an evaluation wanted, may be repeated; '' measures none")
    add("--tag", default="", help="name of a variant made by overrides, kept beside the others")
    add("--first", type=int, help="measure on the first so many test tasks only")
    add("--pack", action="store_true", help="also pack the run folder into --out, in parts")
    return parser


def _run_all(args: argparse.Namespace) -> int:
    names = [one for one in args.what if "=" not in one]
    if not names:
        raise ConfigError("name an experiment; `python -m experiments --list` shows them")
    experiments = [find(name) for name in names]
    if args.data:
        os.environ["TACIT_DATA"] = str(Path(args.data).resolve())
    clock = Clock(args.minutes)
    finished = [_run_one(experiment, args, clock) for experiment in experiments]
    return 0 if all(finished) else TO_BE_CONTINUED


def _run_one(experiment: Experiment, args: argparse.Namespace, clock: Clock) -> bool:
    from experiments import packing, result
    from experiments.running import Order, run

    order = Order(
        experiment=experiment,
        seed=args.seed,
        models=_models(experiment, args),
        runs=args.runs,
        overrides=tuple(one for one in args.what if "=" in one),
        only=None if args.only is None else tuple(filter(None, args.only)),
        tag=args.tag,
        first=args.first,
        training=None if args.train_minutes is None else Clock(args.train_minutes),
    )
    if order.folder.exists() and not args.resume:
        raise ConfigError(f"`{order.folder}` exists: go on with --resume, or remove it")
    print(f"== {order.name}, seed {order.seed}", flush=True)
    began = clock.spent
    try:
        finished = asyncio.run(run(order, clock, lambda line: print(line, flush=True)))
    finally:
        if order.folder.exists():
            result.note_call(order, clock.spent - began)
            print(f"wrote {result.write(order, args.out)}", flush=True)
    if args.pack:
        keep = "best" if finished else "both"
        for part in packing.pack(order.folder, args.out, keep=keep):
            print(f"wrote {part}", flush=True)
    return finished


def _models(experiment: Experiment, args: argparse.Namespace) -> dict[str, Any]:
    models = {"base": {"path": args.model, "rows": args.rows}}
    if experiment.name == "hint-small":
        if not args.small:
            raise ConfigError("hint-small: name the small model's folder with --small")
        models["small"] = {"path": args.small, "rows": args.rows}
    return models


def _list() -> None:
    for one in EXPERIMENTS.values():
        seeds = ", ".join(map(str, one.seeds))
        print(f"{one.item}  {one.name:<24} ~{one.minutes:>3.0f} min  seeds {seeds}: {one.title}")


if __name__ == "__main__":
    sys.exit(main())
