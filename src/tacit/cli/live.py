"""Shows the progress of training: a live panel in a terminal, plain lines elsewhere."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tacit.cli.terminal import err, percent
from tacit.config import Config

BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24

OnStep = Callable[[Mapping[str, float]], None]


def sparkline(
    values: Sequence[float], width: int, low: float | None = None, high: float | None = None
) -> str:
    """The values as bars; more than `width` values are averaged over neighbours.

    Example: sparkline([0, 1, 2, 3], 4) == "▁▃▆█"
    """
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    least = min(values, default=0.0) if low is None else low
    span = (max(values, default=0.0) if high is None else high) - least
    top = len(BARS) - 1
    return "".join(BARS[round(top * (v - least) / span) if span > 0 else 0] for v in values)


@contextmanager
def step_display(config: Config) -> Iterator[OnStep]:
    """Gives the function to call with the numbers of each step."""
    if not err.is_terminal:
        yield print_step
        return
    shown = Shown(config.name, config.train.steps, config.budget.tokens)
    with Live(get_renderable=shown.render, console=err, refresh_per_second=2):
        yield shown.add


@dataclass(slots=True)
class Shown:
    """The numbers shown in the panel."""

    name: str
    steps: int
    budget: float | None
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    history: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    silence: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    held_out: list[tuple[int, float, float]] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    first: int | None = None
    step: int = 0

    def __post_init__(self) -> None:
        self.began = self.clock()

    def add(self, line: Mapping[str, float]) -> None:
        self.step = int(line["step"])
        if "eval/accuracy" in line:
            self.held_out.append((self.step, line["eval/accuracy"], line["eval/tokens"]))
            return
        self.first = self.step - 1 if self.first is None else self.first
        self.history["solved"].append(accuracy_of(line))
        self.history["tokens"].append(line["cost/tokens"])
        for name, value in silence_of(line).items():
            self.silence[name].append(value)
        self.prices = {n[7:]: v for n, v in line.items() if n.startswith("lambda/")}

    def left_s(self) -> float | None:
        """Seconds to go at the pace so far, evaluations included."""
        done = self.step - (self.step if self.first is None else self.first)
        return (self.clock() - self.began) / done * (self.steps - self.step) if done else None

    def render(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(style="cyan", no_wrap=True, width=_WIDTH)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        if not self.history:
            waiting = "evaluating the untrained team" if not self.held_out else "playing"
            grid.add_row("now", "", f"{waiting} …")
        for row in self._rows():
            grid.add_row(*row)
        title = Text.assemble((self.name, "bold"), f"  {clock_time(self.clock() - self.began)}")
        return Panel(grid, title=title, title_align="left", border_style="dim")

    def _rows(self) -> Iterator[tuple[str, RenderableType, str]]:
        if solved := self.history.get("solved"):
            line = sparkline(solved, _WIDTH, low=0.0, high=1.0)
            yield "solved", line, f"{percent(solved[-1])} %"
        if self.held_out:
            line = sparkline([accuracy for _, accuracy, _ in self.held_out], _WIDTH, 0.0, 1.0)
            step, accuracy, said = self.held_out[-1]
            yield "held-out", line, f"{percent(accuracy)} %, {said:.1f} tokens at step {step}"
        if tokens := self.history.get("tokens"):
            budget = f" of {self.budget:g}" if self.budget else ""
            prices = "".join(f"   λ {name} {value:.3f}" for name, value in self.prices.items())
            line = sparkline(tokens, _WIDTH, low=0.0)
            yield "tokens", line, f"{tokens[-1]:.1f}{budget}{prices}"
        for name, values in sorted(self.silence.items()):
            line = sparkline(values, _WIDTH, low=0.0, high=1.0)
            yield f"silent {name}", line, f"{100 * values[-1]:.0f} %"
        if self.history:
            bar = ProgressBar(total=self.steps, completed=self.step, width=_WIDTH)
            left = self.left_s()
            pace = "" if left is None else f"about {clock_time(left)} left"
            yield "steps", bar, f"{self.step} of {self.steps}   {pace}"


def accuracy_of(line: Mapping[str, float]) -> float:
    return line.get("accuracy/policy", line["accuracy/sampled"])


def silence_of(line: Mapping[str, float]) -> dict[str, float]:
    """The probability of silence by difficulty if that is known, else by agent."""
    own = {n[8:]: v for n, v in line.items() if n.startswith("silence/")}
    by_level = {name: value for name, value in own.items() if "/" in name}
    agents = {n: v for n, v in own.items() if "/" not in n and n not in ("warming", "gain")}
    several = len({name.partition("/")[0] for name in by_level}) > 1
    if not by_level or several:
        return agents
    return {name.rpartition("/")[2]: value for name, value in by_level.items()}


def clock_time(seconds: float) -> str:
    """125 → 2:05, 3700 → 1:01:40."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_step(line: Mapping[str, float]) -> None:
    """Print one line per step: what is solved, what it costs, who is silent."""
    step = int(line["step"])
    if "eval/accuracy" in line:
        reward = f"reward {line['eval/reward']:.3f}  " if "eval/reward" in line else ""
        err.print(
            f"step {step:>4}  held-out: solved {percent(line['eval/accuracy'])} %  {reward}"
            f"tokens {line['eval/tokens']:.1f}",
            style="bold",
        )
        return
    silent = sorted(silence_of(line).items())
    quiet = " ".join(f"{name} {100 * value:.0f}" for name, value in silent)
    prices = " ".join(f"λ {v:.3f}" for n, v in line.items() if n.startswith("lambda/"))
    seconds = line.get("rollout_s", 0.0) + line.get("update_s", 0.0)
    err.print(
        f"step {step:>4}  solved {percent(accuracy_of(line)):>5} %  "
        f"tokens {line['cost/tokens']:>6.1f}  silent % {quiet or '–'}  {prices}  {seconds:.1f} s",
        soft_wrap=True,
    )
