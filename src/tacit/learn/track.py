"""Sends metrics to trackers. They must work at the start; one that fails later is dropped."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from tacit.errors import ConfigError
from tacit.registry import lookup


class Tracker(Protocol):
    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class Hosted:
    """A run of wandb, or of trackio, which has the same interface."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def open_trackio(name: str, folder: str, config: Mapping[str, Any]) -> Tracker:
    import trackio

    return Hosted(trackio.init(project="tacit", name=name, config=dict(config)))


def open_wandb(name: str, folder: str, config: Mapping[str, Any]) -> Tracker:
    import wandb

    return Hosted(wandb.init(project="tacit", name=name, dir=folder, config=dict(config)))


class TensorBoard:
    def __init__(self, name: str, folder: str, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for metric, value in metrics.items():
            self._writer.add_scalar(metric, value, step)

    def close(self) -> None:
        self._writer.close()


TRACKERS: dict[str, Callable[[str, str, Mapping[str, Any]], Tracker]] = {
    "trackio": open_trackio,
    "wandb": open_wandb,
    "tensorboard": TensorBoard,
}
EXTRAS = {"trackio": "track", "wandb": "wandb", "tensorboard": "tensorboard"}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse unknown or missing trackers before anything is written."""
    for name in names:
        lookup("tracker", name, TRACKERS)
        if name in EXTRAS and find_spec(name) is None:
            raise ConfigError(
                f"train.trackers: `{name}` is not installed: pip install 'tacit[{EXTRAS[name]}]'"
            )


class Trackers:
    """All trackers of a run."""

    def __init__(
        self, names: Sequence[str], run: str, folder: str, config: Mapping[str, Any]
    ) -> None:
        self._trackers: dict[str, Tracker] = {}
        for name in names:
            try:
                self._trackers[name] = lookup("tracker", name, TRACKERS)(run, folder, config)
            except ImportError as error:
                raise ConfigError(
                    f"train.trackers: `{name}` cannot be imported: {error}"
                ) from error

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._each(lambda tracker: tracker.log(metrics, step))

    def close(self) -> None:
        self._each(lambda tracker: tracker.close())

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except Exception as error:
                print(f"tacit: tracker {name} failed and is left out: {error}", file=sys.stderr)
                del self._trackers[name]
