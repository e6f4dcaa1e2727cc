"""What there is to name: task sets, topologies, recipes."""

from rich.table import Table

from tacit.cli.tables import out
from tacit.run.opening import check_graders


def list_tasks() -> None:
    from tacit.tasks import describe

    table = Table(title="Task sets", title_justify="left")
    for header in ("name", "splits", "licence", "what"):
        table.add_column(header, no_wrap=header == "name")
    for entry in describe():
        splits = ", ".join(f"{split} {rows or '∞'}" for split, rows in entry.splits.items())
        what = entry.description + (" (evaluation only)" if entry.evaluation_only else "")
        table.add_row(entry.name, splits, entry.licence, what)
    out.print(table)
    out.print("Files are read from TACIT_DATA or `tasks.folder`; `tasks.hub: true` downloads them.")


def show_tasks(name: str, split: str, folder: str | None, samples: int) -> None:
    from tacit.tasks import load_tasks

    tasks = load_tasks(name, split=split, folder=folder, allow_canaried=True)
    check_graders(tasks)
    levels: dict[str, int] = {}
    for task in tasks:
        levels[task.level] = levels.get(task.level, 0) + 1
    counts = ", ".join(f"{level} {n}" for level, n in sorted(levels.items()) if level)
    out.print(f"{name} {split}: {len(tasks)} tasks{f' ({counts})' if counts else ''}")
    for task in tasks[:samples]:
        out.print(f"\n{task.id}", style="bold")
        out.print(task.question)
        out.print(f"answer: {task.answer}", style="dim")


def list_recipes() -> None:
    from tacit.config.file import recipe_files

    rows = []
    for name, file in recipe_files().items():
        first = file.read_text(encoding="utf-8").partition("\n")[0]
        rows.append(f"{name}\n    {first.removeprefix('# ')}")
    out.print("\n".join(rows))
    out.print("`tacit train NAME`, `tacit compare NAME` and so on run one.", style="dim")


def list_topologies() -> None:
    from tacit.team.topologies import TOPOLOGIES

    table = Table(title="Topologies", title_justify="left")
    for header in ("name", "roles", "what"):
        table.add_column(header)
    for name, topology in TOPOLOGIES.items():
        roles = ", ".join(
            f"{role}{' (optional)' if r.optional else ''}" for role, r in topology.roles.items()
        )
        table.add_row(name, roles, topology.summary)
    out.print(table)
