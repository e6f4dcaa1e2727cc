"""Lists task sets, topologies and recipes."""

from collections import Counter

from rich.table import Column, Table

from tacit.cli.conversation import show_views
from tacit.cli.terminal import out
from tacit.run.opening import check_graders


def list_tasks() -> None:
    from tacit.tasks import BENCHMARKS, find_benchmark

    columns = (Column("name", no_wrap=True), "splits", "licence", "what")
    table = Table(*columns, title="Task sets", title_justify="left")
    for name in BENCHMARKS:
        benchmark = find_benchmark(name)
        splits = ", ".join(f"{part} {split.rows}" for part, split in benchmark.splits.items())
        only = " (evaluation only)" if benchmark.evaluation_only else ""
        table.add_row(name, splits, benchmark.licence, f"{benchmark.description}{only}")
    sums = "generated sums of one, two or three steps; the same for the same seed"
    table.add_row("arithmetic", "train ∞, test ∞", "Apache-2.0", sums)
    notes = "generated sums; half of them are on a note that only the hinter sees"
    table.add_row("arithmetic_notes", "train ∞, test ∞", "Apache-2.0", notes)
    clues = "generated puzzles (Reasoning Gym) whose clues are dealt to holders"
    table.add_row("clues", "train ∞, validation ∞, test ∞", "Apache-2.0", clues)
    out.print(table)
    out.print("Files are read from TACIT_DATA or `tasks.folder`; `tasks.hub: true` downloads them.")


def show_tasks(name: str, split: str, folder: str | None, samples: int) -> None:
    from tacit.tasks import load_tasks

    tasks = load_tasks(name, split=split, folder=folder, allow_canaried=True)
    check_graders(tasks)
    levels = Counter(task.level for task in tasks if task.level)
    counts = ", ".join(f"{level} {n}" for level, n in sorted(levels.items()))
    out.print(f"{name} {split}: {len(tasks)} tasks{f' ({counts})' if counts else ''}")
    for task in tasks[:samples]:
        out.print(f"\n{task.id}", style="bold")
        out.print(task.question)
        show_views(task.views)
        out.print(f"answer: {task.answer}", style="dim")


def list_recipes() -> None:
    from tacit.config.file import recipe_files

    rows = []
    for name, file in recipe_files().items():
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        rows.append(f"{name}\n    {first.removeprefix('# ')}")
    out.print("\n".join(rows))
    out.print("Run one with `tacit train NAME`, `tacit compare NAME` and so on.", style="dim")


def list_topologies() -> None:
    from tacit.team.topologies import TOPOLOGIES

    table = Table("name", "roles", "what", title="Topologies", title_justify="left")
    for name, topology in TOPOLOGIES.items():
        roles = ", ".join(
            f"{role}{' (optional)' if r.optional else ''}" for role, r in topology.roles.items()
        )
        table.add_row(name, roles, topology.summary)
    out.print(table)
