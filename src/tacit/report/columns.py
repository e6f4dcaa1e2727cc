"""A metrics file as columns."""

from pathlib import Path
from typing import Any

from tacit.report.reading import Tail, number


class Columns:
    """Of a step that was replayed the last numbers count."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self._epoch = 0
        self._rows: dict[float, dict[str, float]] = {}

    @property
    def steps(self) -> list[float]:
        return list(self._rows)

    def refresh(self) -> bool:
        changed = False
        for _, _, tree in self.tail.new():
            self._begin_anew_if_cut()
            step = number(tree.pop("step", None))
            if step is not None:
                kept = {
                    name: one for name, value in tree.items() if (one := number(value)) is not None
                }
                self._rows.setdefault(step, {}).update(kept)
            changed = True
        return self._begin_anew_if_cut() or changed

    def _begin_anew_if_cut(self) -> bool:
        cut = self.tail.epoch != self._epoch
        if cut:
            self._epoch = self.tail.epoch
            self._rows.clear()
        return cut

    def to_json(self) -> dict[str, Any]:
        steps = sorted(self._rows)
        names = dict.fromkeys(name for step in steps for name in self._rows[step])
        return {
            "steps": steps,
            "columns": {
                name: [_rounded(self._rows[step].get(name)) for step in steps] for name in names
            },
        }


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")
