"""The files a run appends to: metrics of each step and evaluation, times, episodes.

Times differ between equal runs and go to `timing.jsonl`; everything else is the same line for line
whether a run was interrupted or not.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tacit.learn.credit import Batch
from tacit.learn.track import Trackers
from tacit.run.folder import EPISODE, RunFolder
from tacit.types import Episode, Usage

DROPPED = "episodes/dropped.jsonl"
PLAYED = "episodes/train.jsonl"
REPLAYED = ("metrics.jsonl", PLAYED, DROPPED)
"""Files that are cut back to their size at the last checkpoint when a run resumes."""


class Meter:
    """Counts tokens of every episode, including those that training leaves out."""

    def __init__(self) -> None:
        self.failed: list[Episode] = []
        self._used: dict[str, Usage] = {}

    def add(self, episode: Episode) -> None:
        for call in episode.calls:
            self._used[call.model] = self._used.get(call.model, Usage()) + call.usage
        if episode.grade is None:
            self.failed.append(episode)

    def take(self) -> dict[str, Usage]:
        """Tokens by model since the last call."""
        used, self._used = self._used, {}
        return used


@dataclass(frozen=True, slots=True, eq=False)
class Journal:
    run: RunFolder
    meter: Meter
    trackers: Trackers
    on_line: Callable[[dict[str, float]], None]

    def line(self, step: int, numbers: dict[str, float], times: dict[str, float]) -> None:
        """Write the metrics of a step, or of the evaluation after it."""
        line = {"step": step, **numbers}
        self.run.append("metrics.jsonl", json.dumps(line, allow_nan=False).encode())
        used = {model: asdict(usage) for model, usage in self.meter.take().items()}
        timing = {"step": step, **times, "usage": used}
        self.run.append("timing.jsonl", json.dumps(timing).encode())
        self.trackers.log(numbers, step)
        self.on_line(line | times)

    def failed(self, step: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            self.run.append(DROPPED, _with(episode, f'"step":{step}}}'))

    def played(self, step: int, batch: Batch) -> None:
        """Write every episode with its reward parts and advantages."""
        for group in batch.groups:
            other = [parts.task for parts in group.silent_rewards]
            mean = sum(other) / len(other) if other else 0.0
            for i, (episode, parts) in enumerate(zip(group.episodes, group.rewards, strict=True)):
                silent = {"task_if_silent": other[i] if group.paired else mean} if other else {}
                extra = {
                    "step": step,
                    "reward": {"total": parts.total, "task": parts.task, **parts.charged},
                    "advantages": {role: values[i] for role, values in group.advantages.items()},
                    **silent,
                }
                self.run.append(PLAYED, _with(episode, json.dumps(extra)[1:]))


def _with(episode: Episode, fields: str) -> bytes:
    """The episode as JSON, with more fields at the end."""
    return EPISODE.dump_json(episode)[:-1] + f",{fields}".encode()
