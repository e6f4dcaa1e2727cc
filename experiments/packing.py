"""A run folder in few small files, to carry it from one machine to the next and go on there.

    python -m experiments.packing pack RUN OUT [--optimizer none|bfloat16|float32] [--keep both]
    python -m experiments.packing unpack PART… --into RUNS

Weights are kept in bfloat16, half their size: one rounding of at most 0.4 % of each weight, once a
move. Left out: played episodes (an evaluation that was cut short starts anew; finished ones are in
`outcomes/`). The optimiser's state is left out too unless asked for: then Adam's averages start
from zero where the run goes on, which makes the first steps there about as large as the learning
rate whatever the gradient's size, and a resumed run no longer equals one that was never stopped.
"""

import argparse
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, TacitError

PART_BYTES = 15 * 2**20
TOTAL_BYTES = 62 * 2**20
"""What is brought home at once, with some room for the results beside it."""
SKIPPED = ("test", "episodes", "checkpoints", "tracker")
DTYPES = ("none", "bfloat16", "float32")


def pack(run: Path, out: Path, *, optimizer: str = "none", keep: str = "both") -> list[Path]:
    """Write `NAME.tar.00`, `NAME.tar.01`, …; keep: best, last or both checkpoints.

    Where both are too large, the best is kept of a run whose training is over, as that is what is
    measured. Else it is the last, from which the run can go on, and it counts as the best until a
    better one comes.
    """
    if not run.is_dir():
        raise ConfigError(f"`{run}` is not a run folder")
    data = _packed(run, optimizer, keep)
    if len(data) > TOTAL_BYTES and keep == "both":
        data = _packed(run, optimizer, "best" if (run / "trained.json").exists() else "last")
    if len(data) > TOTAL_BYTES:
        raise ConfigError(
            f"{run.name} packs to {len(data) / 2**20:.0f} MiB, over {TOTAL_BYTES // 2**20}: "
            "leave the optimiser out (--optimizer none), or train a LoRA of lower rank"
        )
    out.mkdir(parents=True, exist_ok=True)
    parts = [out / f"{run.name}.tar.{n:02d}" for n in range(-(-len(data) // PART_BYTES))]
    for number, part in enumerate(parts):
        part.write_bytes(data[number * PART_BYTES : (number + 1) * PART_BYTES])
    return parts


def unpack(parts: list[Path], runs: Path) -> list[Path]:
    """Put packed runs back in their folders, ready for --resume."""
    groups: dict[str, list[Path]] = {}
    for part in sorted(parts):
        groups.setdefault(part.stem, []).append(part)
    found = []
    for name, mine in groups.items():
        data = b"".join(part.read_bytes() for part in mine)
        folder = runs / name.removesuffix(".tar")
        if folder.exists():
            raise ConfigError(f"`{folder}` exists: remove it, or unpack elsewhere with --into")
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(runs, filter="data")
        except tarfile.TarError as error:
            raise ConfigError(f"{name}: a part is missing or damaged ({error})") from None
        for checkpoint in (folder / "train" / "checkpoints").glob("step-*"):
            _widen(checkpoint)
        found.append(folder)
    return found


def _packed(run: Path, optimizer: str, keep: str) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path in sorted(run.rglob("*")):
            inside = path.relative_to(run)
            if path.is_file() and not {*inside.parts} & {*SKIPPED}:
                _add(tar, str(Path(run.name) / inside), path.read_bytes())
        for name, data in _checkpoints(run / "train" / "checkpoints", optimizer, keep):
            _add(tar, f"{run.name}/train/checkpoints/{name}", data)
    return whole.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _checkpoints(folder: Path, optimizer: str, keep: str) -> list[tuple[str, bytes]]:
    """The files of the kept checkpoints; with one kept, both pointers name it."""
    pointers = {
        which: json.loads(path.read_text())["step"]
        for which in ("best", "last")
        if (path := folder / f"{which}.json").exists()
    }
    if not pointers:
        return []
    if keep != "both":
        kept = pointers.get(keep, pointers["last"])
        pointers = {"best": kept, "last": kept}
    files = [(f"{w}.json", json.dumps({"step": step}).encode()) for w, step in pointers.items()]
    for step in sorted({*pointers.values()}):
        name = f"step-{step:06d}"
        wanted = optimizer if step == pointers["last"] else "none"
        files.append((f"{name}/state.json", (folder / name / "state.json").read_bytes()))
        for path in sorted((folder / name).glob("*.safetensors")):
            dtype = wanted if path.name.startswith("optimizer") else "bfloat16"
            files.append((f"{name}/{path.name}", _narrowed(path, dtype)))
    return files


def _narrowed(path: Path, dtype: str) -> bytes:
    """Tensors in fewer bytes; `none` keeps no tensor at all, which is a fresh optimiser."""
    import torch
    from safetensors.torch import load_file, save

    tensors = {} if dtype == "none" else load_file(path)
    narrow: dict[str, Any] = {
        name: tensor if name.endswith("|step") else tensor.to(getattr(torch, dtype))
        for name, tensor in tensors.items()
    }
    return save(narrow)


def _widen(checkpoint: Path) -> None:
    """Back to float32, and the hashes to what the files are now."""
    import torch
    from safetensors.torch import load_file, save_file

    state = json.loads((checkpoint / "state.json").read_text())
    for name in state["files"]:
        path = checkpoint / name
        tensors = {key: tensor.to(torch.float32) for key, tensor in load_file(path).items()}
        save_file(tensors, path)
        state["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (checkpoint / "state.json").write_text(json.dumps(state, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.packing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("pack")
    packs.add_argument("run", type=Path)
    packs.add_argument("out", type=Path)
    packs.add_argument("--optimizer", choices=DTYPES, default="none")
    packs.add_argument("--keep", choices=("best", "last", "both"), default="both")
    unpacks = commands.add_parser("unpack")
    unpacks.add_argument("parts", type=Path, nargs="+")
    unpacks.add_argument("--into", type=Path, default=Path("runs/experiments"))
    args = parser.parse_args()
    try:
        if args.command == "pack":
            made = pack(args.run, args.out, optimizer=args.optimizer, keep=args.keep)
        else:
            made = unpack(args.parts, args.into)
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(map(str, made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
