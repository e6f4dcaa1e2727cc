"""What a run writes as it goes: a line for each step and evaluation, times, episodes.

Whatever may differ between equal runs (times) goes to `timing.jsonl`; all else is the same line for
line whether a run was interrupted or not.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from tacit.economy.meter import Meter
from tacit.learn.credit import Batch
from tacit.learn.track import Fan
from tacit.run.folder import EPISODE, RunFolder
from tacit.types import Episode

DROPPED = "episodes/dropped.jsonl"
PLAYED = "episodes/train.jsonl"
REPLAYED = ("metrics.jsonl", PLAYED, DROPPED)
"""Files that are cut back to what a checkpoint knows of them when a run goes on."""


@dataclass(frozen=True, slots=True, eq=False)
class Journal:
    run: RunFolder
    meter: Meter
    trackers: Fan
    on_line: Callable[[dict[str, float]], None]

    def line(self, step: int, numbers: dict[str, float], times: dict[str, float]) -> None:
        """What is known of a step, or of the evaluation after it."""
        line = {"step": step, **numbers}
        self.run.append("metrics.jsonl", json.dumps(line, allow_nan=False).encode())
        used = {model: asdict(usage) for model, usage in self.meter.take().items()}
        timing = {"step": step, **times, "usage": used}
        self.run.append("timing.jsonl", json.dumps(timing).encode())
        self.trackers.log(numbers, step)
        self.on_line(line | times)

    def failed(self, step: int, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            whole = EPISODE.dump_json(episode)
            self.run.append(DROPPED, whole[:-1] + f',"step":{step}}}'.encode())

    def played(self, step: int, batch: Batch) -> None:
        for record in _records(step, batch):
            self.run.append(PLAYED, record)


def _records(step: int, batch: Batch) -> list[bytes]:
    """Every episode of the step as a line: the play itself, its arm, reward parts, advantages."""
    lines = []
    for group in batch.groups:
        other = [parts.task for parts in group.silent_rewards]
        silent = {"task_if_silent": sum(other) / len(other)} if other else {}
        for number, (episode, parts) in enumerate(zip(group.episodes, group.rewards, strict=True)):
            extra = {
                "step": step,
                "reward": {"total": parts.total, "task": parts.task, **parts.charged},
                "advantages": {role: values[number] for role, values in group.advantages.items()},
                **silent,
            }
            whole = EPISODE.dump_json(episode)
            lines.append(whole[:-1] + b"," + json.dumps(extra).encode()[1:])
    return lines
