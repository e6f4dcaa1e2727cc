"""Speed on a CPU beside TRL: one learning cycle of the pocket model and of SmolLM2-135M, float32.

    python benchmarks/cpu.py --smollm models/smollm2-135m --out benchmarks/results/cpu.json

What a cycle is and how the two are kept equal, `trl_cycle.py` says. Runs anywhere; SmolLM2 takes
some minutes a cycle on two cores, and is left out without its folder. Exit code 1 where TRL's cycle
takes less than 1.5 times ours.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from trl_cycle import Setting, compare

BAR = 1.5
"""TRL's seconds over ours."""
POCKET = Setting(prompts=16, slots=128)
SMOLLM = Setting(prompts=4, slots=32)
SMALLEST = Setting(prompts=2, group=2, prompt_tokens=24, new_tokens=4, updates=2, slots=8)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smollm", metavar="FOLDER", help="SmolLM2-135M; left out without")
    parser.add_argument("--cycles", type=int, default=5, help="timed, after one to warm up")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch chooses")
    parser.add_argument("--smallest", action="store_true", help="a few tokens, to see it run")
    parser.add_argument("--out", type=Path, help="where to write the numbers as JSON")
    asked = parser.parse_args()
    result: dict[str, Any] = about()
    for name, setting in settings(asked).items():
        print(f"{name}: {said(setting)}", flush=True)
        result[name] = compare(setting, asked.cycles, 1, lambda line: print(line, flush=True))
        result["load_after"] = round(os.getloadavg()[0], 1)
        print(table(result[name]), flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    missed = [name for name in settings(asked) if result[name]["ratio"] < BAR]
    for name in missed:
        print(f"bar missed: {name}, TRL takes {result[name]['ratio']:.2f} times as long as ours")
    return bool(missed)


def about() -> dict[str, Any]:
    """When, where and with what."""
    return {
        "command": " ".join(["python", "benchmarks/cpu.py", *sys.argv[1:]]),
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{package: version(package) for package in ("tacit", "torch", "transformers", "trl")},
    }


def settings(asked: argparse.Namespace) -> dict[str, Setting]:
    pocket = replace(SMALLEST if asked.smallest else POCKET, threads=asked.threads)
    smollm = replace(SMALLEST if asked.smallest else SMOLLM, threads=asked.threads)
    found = {"pocket": pocket}
    if asked.smollm:
        found["smollm2-135m"] = replace(smollm, model=asked.smollm)
    return found


def said(setting: Setting) -> str:
    return (
        f"{setting.prompts} prompts × {setting.group} completions, "
        f"{setting.prompt_tokens} + {setting.new_tokens} tokens, {setting.updates} updates"
    )


def table(found: dict[str, Any]) -> str:
    ours, trl = found["ours"], found["trl"]
    rows = [("seconds a cycle", ours["seconds"], trl["seconds"])]
    rows += [(f"  {name}", ours["phases"][name], trl["phases"][name]) for name in ours["phases"]]
    rows += [
        ("tokens/s, all", ours["tokens_per_s"], trl["tokens_per_s"]),
        ("tokens/s, generating", ours["decode_tokens_per_s"], trl["decode_tokens_per_s"]),
        ("peak GiB", ours["peak_gib"], trl["peak_gib"]),
    ]
    lines = [f"{'':<22}{'ours':>10}{'TRL':>10}"]
    lines += [f"{name:<22}{mine:>10.2f}{theirs:>10.2f}" for name, mine, theirs in rows]
    each = ", ".join(f"{ratio:.2f}" for ratio in found["ratios"])
    return "\n".join([*lines, f"TRL's seconds over ours: {found['ratio']:.2f} (median of {each})"])


if __name__ == "__main__":
    sys.exit(main())
