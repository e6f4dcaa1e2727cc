"""Take results in: `python -m experiments.joining NEW.json… [--into experiments/results]`.

Teams that nobody trains can be measured a few at a time and on several machines: what a file there
already holds of others stays. A trained run's file is taken as it is.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from experiments.catalogue import EXPERIMENTS
from experiments.result import dump
from tacit.errors import ConfigError, TacitError

FOLDER = Path(__file__).parent / "results"


def join(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One file of both; what was measured again is the new one's."""
    if "training" in new:
        return new
    same = ("experiment", "seed", "overrides")
    if any(old[key] != new[key] for key in same):
        raise ConfigError(f"{new['experiment']}, seed {new['seed']}: not two parts of one result")
    names = EXPERIMENTS[new["experiment"]].evaluations
    both = old["evaluations"] | new["evaluations"]
    return new | {
        "finished": all(name in both for name in names),
        "calls": [*old["calls"], *new["calls"]],
        "evaluations": {name: both[name] for name in names if name in both},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.joining",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=FOLDER)
    args = parser.parse_args(arguments)
    try:
        for file in args.files:
            new = json.loads(file.read_text(encoding="utf-8"))
            path = args.into / file.name
            if path.exists():
                new = join(json.loads(path.read_text(encoding="utf-8")), new)
            path.write_text(dump(new) + "\n", encoding="utf-8")
            print(f"{path}: {', '.join(new['evaluations'])}")
    except (TacitError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
