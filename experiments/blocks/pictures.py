"""The plots of the page."""

from collections.abc import Callable, Mapping, Sequence

from experiments import plots
from experiments.blocks.rows import (
    CHOOSING,
    DIALOGUE_RUNS,
    MATHS,
    SEVEN,
    SILENCES,
    every,
    first_curve,
    teams_on,
)
from experiments.records import Measured, Results, on_shared


def _frontier(benchmark: str) -> Callable[[Results], str | None]:
    def draw(results: Results) -> str | None:
        teams = on_shared(*every(results, teams_on(benchmark)))
        title = f"{benchmark}, {len(teams[0].ids)} problems" if teams else ""
        return _against_tokens(title, teams)

    return draw


def controls_plot(results: Results) -> str | None:
    """The dialogue's own frontier: dual control, fixed prices, and everything else tried."""
    rows = [(name, name, "trained") for name in DIALOGUE_RUNS]
    return _against_tokens("GSM8K, dialogue", every(results, rows))


def _against_tokens(title: str, teams: Sequence[Measured]) -> str | None:
    if len(teams) < 2:
        return None
    shown = [
        plots.Point(
            team.label.partition(" (")[0],
            team.generated,
            100 * team.accuracy.mean,
            100 * team.accuracy.low,
            100 * team.accuracy.high,
            strong="trained" in team.label.replace("untrained", ""),
        )
        for team in teams
    ]
    return plots.scatter(title, shown, "generated tokens a problem", "accuracy %")


def _training_plot(
    names: Mapping[str, str], curve: str | Sequence[str], title: str, label: str, scale: float = 1.0
) -> Callable[[Results], str | None]:
    """One curve of each run, the first that it has of several."""
    wanted = (curve,) if isinstance(curve, str) else curve

    def draw(results: Results) -> str | None:
        series = {
            f"{shown}, seed {seed}": [
                (step + 1, scale * value)
                for step, value in enumerate(first_curve(training["curves"], wanted))
                if value is not None
            ]
            for name, shown in names.items()
            for seed, training in results.training(name).items()
        }
        series = {name: line for name, line in series.items() if len(line) > 1}
        return plots.curves(title, series, "step", label) if series else None

    return draw


def validation_plot(results: Results) -> str | None:
    series = {
        f"{name}, seed {seed}": [
            (step, 100 * value)
            for step, value in zip(
                training["validation"]["step"], training["validation"]["accuracy"], strict=True
            )
        ]
        for name in ("hint", "critic", "silence-arms", "gspo")
        for seed, training in results.training(name).items()
    }
    series = {name: line for name, line in series.items() if len(line) > 1}
    if not series:
        return None
    return plots.curves("Validation accuracy", series, "step", "accuracy %")


PLOTS: dict[str, Callable[[Results], str | None]] = {
    **{f"frontier-{name}": _frontier(name) for name in dict.fromkeys([*SEVEN, *MATHS])},
    "controls": controls_plot,
    "validation": validation_plot,
    "silence": _training_plot(
        {name: label.replace("`", "") for name, label in SILENCES.items()},
        [f"silence/{role}" for role in CHOOSING],
        "π(silence) in training",
        "%",
        100.0,
    ),
    "hint-training": _training_plot(
        {"hint": "hint", "hint-reader-budget": "hint, read"},
        "accuracy/sampled",
        "Sampled accuracy in training",
        "%",
        100.0,
    ),
    "gspo-tokens": _training_plot(
        {"gspo": "main run", "gspo-role-last": "reference", "gspo-no-cost": "λ = 0"},
        "cost/tokens",
        "Tokens an episode in training",
        "generated tokens",
    ),
}
