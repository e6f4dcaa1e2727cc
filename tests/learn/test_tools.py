"""Training with tools on the pocket model: only what was sampled is learnt from.

The pocket model does not call tools by itself. Here some of its messages are taken for calls, by
their own text alone, so that everything else is as in any run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.config import Config
from tacit.engine.chat import Chat
from tacit.learn.assemble import open_training
from tacit.learn.batch import Row
from tacit.learn.loop import Trainer
from tacit.learn.update import Updater
from tacit.run.folder import RunFolder
from tacit.types import Call, Choice, Episode, Stop, ToolCall, ToolSpec
from tests.helpers.training_runs import tiny_config


@pytest.fixture(autouse=True)
def calling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def read(
        self: Chat, text: str, stop: Stop, tools: tuple[ToolSpec, ...]
    ) -> tuple[ToolCall, ...]:
        if stop is not Stop.EOS or len(text) % 2:
            return ()
        return (ToolCall("add", '{"a": 41}', "call00001"),)

    monkeypatch.setattr(Chat, "tool_calls", read)
    yield
    torch.use_deterministic_algorithms(False)


def config(exploration: str = "arms") -> Config:
    hinter = {"max_tokens": 24, "trained": True, "tools": ["tests.helpers.outside_tools:add"]}
    return tiny_config(
        team={
            "topology": "hint_actor",
            "agents": {"hinter": {**hinter, "max_tool_calls": 2}, "actor": {"max_tokens": 16}},
        },
        budget={"tokens": 60},
        silence={"warmup_steps": 1, "exploration": exploration},
        train={"steps": 3, "tasks_per_step": 2, "group": 3, "evaluate_every": 0},
    )


async def trained(config: Config, folder: Path, *pauses: int) -> list[Episode]:
    run = RunFolder(folder)
    for until in (*pauses, 9):
        async with open_training(config) as made:
            trainer = Trainer(made, run)
            trainer.pause = lambda t=trainer, n=until: t.state.step >= n
            await trainer.train()
    return [episode for episode in run.episodes("train") if episode.grade]


@dataclass(frozen=True)
class Whole:
    """A run that nobody paused, and the rows that it learnt from."""

    folder: Path
    episodes: list[Episode]
    learnt: list[Row]


_WHOLE: dict[str, Whole] = {}


async def whole(exploration: str, factory: pytest.TempPathFactory) -> Whole:
    """Trained once, by the first test that needs it."""
    if exploration not in _WHOLE:
        learnt: list[Row] = []
        update = Updater.update

        def watched(self: Updater, rows: Sequence[Row], *more: Any, **named: Any) -> Any:
            learnt.extend(rows)
            return update(self, rows, *more, **named)

        folder = factory.mktemp(exploration)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Updater, "update", watched)
            episodes = await trained(config(exploration), folder)
        _WHOLE[exploration] = Whole(folder, episodes, learnt)
    return _WHOLE[exploration]


def messages(episode: Episode) -> Iterator[list[Call]]:
    """The hinter's calls, those of one message together."""
    one: list[Call] = []
    for call in episode.calls:
        if call.agent == "hinter":
            one.append(call)
            if not call.tool_calls:
                yield one
                one = []


@pytest.mark.parametrize("exploration", ["arms", "floor", "none"])
async def test_rows_hold_what_was_sampled_and_prompts_what_was_observed(
    exploration: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = await whole(exploration, tmp_path_factory)
    several = [calls for episode in run.episodes for calls in messages(episode) if len(calls) > 1]
    assert several, "no message of the test was taken for a call"
    spoken = {(row.prompt_ids, row.output_ids) for row in run.learnt}
    for calls in several:
        for before, after in pairwise(calls):
            begun = before.prompt_ids + before.output_ids
            assert after.prompt_ids[: len(begun)] == begun
            assert after.usage.observed == len(after.prompt_ids) - len(begun) > 0
            assert after.choice is Choice.FREE and after.silence_logprob is None
        assert calls[0].silence_logprob is not None and not calls[0].is_turn
        assert {(call.prompt_ids, call.output_ids) for call in calls} <= spoken
    sampled = {(c.prompt_ids, c.output_ids) for e in run.episodes for c in e.calls if c.policy}
    assert spoken <= sampled, "nothing but sampled ids is learnt from"


async def test_observations_count_against_the_budget(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = await whole("arms", tmp_path_factory)
    told = [episode for episode in run.episodes if episode.usage.observed]
    assert told and all(e.usage.spent == e.usage.generated + e.usage.observed for e in told)
    assert '"observed/hinter"' in (run.folder / "metrics.jsonl").read_text()


async def test_paused_and_gone_on_it_is_the_run_that_was_never_paused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = await whole("arms", tmp_path_factory)
    await trained(config(), tmp_path, 1, 2)
    paused, never = (folder / "metrics.jsonl" for folder in (tmp_path, run.folder))
    assert paused.read_bytes() == never.read_bytes()
