"""Run experiments: `python -m experiments NAME… --model FOLDER --data FOLDER [section.key=value…]`.

Exit code 0: finished. 75: the time was up, and the same command with --resume goes on.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.catalogue import EXPERIMENTS, Experiment, find
from experiments.clock import Clock
from experiments.side_by_side import TO_BE_CONTINUED, SideBySide
from tacit.errors import ConfigError, TacitError

if TYPE_CHECKING:
    from experiments.running import Order

LEAST_MINUTES = 2.0
"""Side by side, nothing is begun with less time than that."""


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_intermixed_args(arguments)
    if args.list:
        _list()
        return 0
    try:
        return _run_all(args)
    except (TacitError, RuntimeError) as error:
        from tacit.engine.memory import ADVICE, ran_out  # only now: it takes torch

        full, ours = ran_out(error), isinstance(error, TacitError)
        if not (full or ours):
            raise
        print(f"error: {error if ours else ADVICE}", file=sys.stderr)
        return TO_BE_CONTINUED if full else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("what", nargs="*", help="names of experiments (gspo, gspo@1 for seed 1), overrides a.b=c")
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
    add("--at-once", type=int, default=1, help="so many side by side, in processes of their own")
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
    orders = [_order(*_parts(name, args.seed), args) for name in names]
    if len({order.folder for order in orders}) < len(orders):
        raise ConfigError(f"an experiment is named twice: {' '.join(names)}")
    if args.data:
        os.environ["TACIT_DATA"] = str(Path(args.data).resolve())
    clock = Clock(args.minutes)
    if args.at_once > 1:
        return _run_side_by_side(orders, args, clock)
    finished = [_run_one(order, args, clock) for order in orders]
    return 0 if all(finished) else TO_BE_CONTINUED


def _parts(name: str, seed: int) -> tuple[Experiment, int]:
    """`gspo@1` is `gspo` with seed 1."""
    experiment, at, other = name.partition("@")
    if at and not other.isdigit():
        raise ConfigError(f"`{name}`: the seed behind the @ is no number")
    return find(experiment), int(other) if at else seed


def _order(experiment: Experiment, seed: int, args: argparse.Namespace) -> "Order":
    from experiments.running import Order

    order = Order(
        experiment=experiment,
        seed=seed,
        models=_models(experiment, args),
        runs=args.runs,
        overrides=tuple(one for one in args.what if "=" in one),
        only=None if args.only is None else tuple(filter(None, args.only)),
        tag=args.tag,
        first=args.first,
    )
    if order.folder.exists() and not args.resume:
        raise ConfigError(f"`{order.folder}` exists: go on with --resume, or remove it")
    return order


def _run_side_by_side(orders: Sequence["Order"], args: argparse.Namespace, clock: Clock) -> int:
    from experiments.running import still_trains

    by_name = {f"{order.experiment.name}@{order.seed}": order for order in orders}
    training = Clock(args.minutes if args.train_minutes is None else args.train_minutes)
    options = {
        "--model": args.model, "--small": args.small, "--data": args.data, "--rows": args.rows,
        "--runs": args.runs, "--out": args.out, "--tag": args.tag, "--first": args.first,
    }  # fmt: skip
    given = [part for name, value in options.items() if value for part in (name, str(value))]
    given += [part for one in args.only or () for part in ("--only", one)]
    given += ["--pack"] if args.pack else []
    given += [one for one in args.what if "=" in one]

    def command(name: str) -> list[str] | None:
        ends = (clock, training) if still_trains(by_name[name]) else (clock,)
        if min(one.minutes_left for one in ends) < LEAST_MINUTES:
            return None
        limits = ["--minutes", f"{clock.minutes_left:.2f}"]
        if args.train_minutes is not None:
            limits += ["--train-minutes", f"{training.minutes_left:.2f}"]
        return [sys.executable, "-m", "experiments", name, *given, *limits, "--resume"]

    return SideBySide(command, args.runs, _say).run(list(by_name), args.at_once)


def _run_one(order: "Order", args: argparse.Namespace, clock: Clock) -> bool:
    from experiments import packing, result
    from experiments.running import run

    if args.train_minutes is not None:
        order = replace(order, training=Clock(args.train_minutes))
    print(f"== {order.name}, seed {order.seed}", flush=True)
    began = clock.spent
    try:
        finished = asyncio.run(run(order, clock, _say))
    finally:
        if order.folder.exists():
            result.note_call(order, clock.spent - began)
            print(f"wrote {result.write(order, args.out)}", flush=True)
    if args.pack:
        keep = "best" if finished else "both"
        for part in packing.pack(order.folder, args.out, keep=keep):
            print(f"wrote {part}", flush=True)
    return finished


def _say(line: str) -> None:
    print(line, flush=True)


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
