"""Checkpoints: whole or not there, equal bit for bit, and readable after whatever happened."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.errors import ConfigError, RunError
from tacit.learn import checkpoint as saving
from tacit.learn.checkpoint import Checkpoints
from tacit.learn.update import Updater
from tests.helpers.learn_parts import (
    ids,
    make_choices,
    make_policies,
    make_rows,
    make_updater,
    moved,
    weights_of,
)

PROMPTS = [ids(seed, 8) for seed in (1, 2)]


def trained(steps: int = 2, **settings: Any) -> dict[str, Updater]:
    """An updater with moments in both of its optimisers."""
    updater = make_updater(make_policies(**settings)["team"])
    for _ in range(steps):
        step(updater)
    return {"team": updater}


def step(updater: Updater) -> None:
    choices = make_choices(updater.policy, PROMPTS, gain=0.5)
    updater.update(make_rows(4), choices, train_choice=True)


def moments(updater: Updater) -> dict[tuple[str, str], torch.Tensor]:
    state = updater.optimizer.state
    return {
        (name, key): value
        for name, weight in updater.policy.parameters.items()
        for key, value in state.get(weight, {}).items()
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_what_is_loaded_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    updaters = trained(kind=kind)
    updaters["team"].step.missed = -1.5
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(7, {"position": 21, "best": None}, updaters)
    fresh = trained(0, kind=kind)
    state = checkpoints.load(7, fresh)
    assert (state["step"], state["position"], state["best"]) == (7, 21, None)
    assert fresh["team"].taken == updaters["team"].taken == 2
    assert fresh["team"].step.missed == updaters["team"].step.missed == -1.5
    assert moved(weights_of(updaters["team"].policy), fresh["team"].policy) == 0.0
    for _ in range(2):
        for one in (updaters["team"], fresh["team"]):
            step(one)
        assert moved(weights_of(updaters["team"].policy), fresh["team"].policy) == 0.0
    a, b = (moments(one["team"]) for one in (updaters, fresh))
    assert a.keys() == b.keys() and len(a) > 0
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_restored_optimiser_matters(tmp_path: Path) -> None:
    updaters = trained()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {}, updaters)
    fresh = trained(0)
    checkpoints.load_policy(1, fresh["team"].policy)
    for one in (updaters["team"], fresh["team"]):
        step(one)
    assert moved(weights_of(updaters["team"].policy), fresh["team"].policy) > 0.0


def test_loading_forgets_what_the_optimiser_held_before(tmp_path: Path) -> None:
    untouched = trained(0)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, {}, untouched)
    used = trained(3)
    checkpoints.load(0, used)
    assert not used["team"].optimizer.state
    assert used["team"].taken == 0


def test_best_and_last_are_kept_and_the_others_removed(tmp_path: Path) -> None:
    checkpoints, updaters = Checkpoints(tmp_path), trained(0)
    assert checkpoints.step("last") is None and checkpoints.step("best") is None
    for number in range(4):
        checkpoints.save(number, {}, updaters)
        if number == 1:
            checkpoints.point("best", 1)
    assert (checkpoints.step("best"), checkpoints.step("last")) == (1, 3)
    assert names(tmp_path) == ["best.json", "last.json", "step-000001", "step-000003"]
    checkpoints.point("best", 3)
    assert names(tmp_path) == ["best.json", "last.json", "step-000003"]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("policy-team.safetensors", lambda data: data[: len(data) // 2]),
        ("policy-team.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("optimizer-team.safetensors", lambda data: b""),
        ("optimizer-team.safetensors", None),
        ("state.json", lambda data: data[:-9]),
        ("state.json", lambda data: b"\xff" + data),
        ("state.json", lambda data: b"{}"),
        ("state.json", lambda data: b"[]"),
        ("state.json", lambda data: b"[" * 10**5),
        ("state.json", lambda data: b'{"step": 5, "files": []}'),
        ("state.json", lambda data: b'{"step": 5, "files": {"../last.json": 1}}'),
        ("state.json", lambda data: data.replace(b'"taken": {', b'"taken": 3, "x": {')),
        ("state.json", lambda data: data.replace(b'"missed": {', b'"missed": 3, "x": {')),
        ("state.json", lambda data: re.sub(rb'("taken": {\s*"team": )2', rb"\1[]", data)),
        ("state.json", lambda data: re.sub(rb'("taken": {\s*"team": )2', rb"\g<1>1e999", data)),
        ("state.json", None),
    ],
)
def test_a_damaged_checkpoint_is_named_and_nothing_is_loaded(
    file: str, damage: Any, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, {}, trained())
    path = tmp_path / "step-000005" / file
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    fresh = trained(0)
    before = weights_of(fresh["team"].policy)
    with pytest.raises(RunError, match="step-000005"):
        checkpoints.load(5, fresh)
    assert moved(before, fresh["team"].policy) == 0.0


@pytest.mark.parametrize(
    "text", ["", "{", '{"step": "x"}', "[]", '{"step": 1e999}', "[" * 10**5], ids=range(6)
)
def test_a_damaged_pointer_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "last.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"last\.json"):
        Checkpoints(tmp_path).step("last")


def test_weights_cut_short_are_named_when_read_alone(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, {}, trained())
    path = tmp_path / "step-000005" / "policy-team.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match=r"policy-team\.safetensors cannot be read"):
        checkpoints.load_policy(5, trained(0)["team"].policy)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, {}, trained())
    other = trained(0, rank=2)
    with pytest.raises(ConfigError, match=r"policy-team\.safetensors does not fit policy `team`"):
        checkpoints.load(5, other)


def test_what_a_killed_save_left_is_swept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(2, {}, trained(0))
    half = tmp_path / ".step-000004.123"
    half.mkdir()
    (half / "policy-team.safetensors").write_bytes(b"half")
    (tmp_path / ".last.json.abc").write_bytes(b"{")
    checkpoints.sweep()
    assert names(tmp_path) == ["last.json", "step-000002"]
    checkpoints.load(2, trained(0))


def test_a_checkpoint_that_was_replaced_while_nobody_pointed_at_it(tmp_path: Path) -> None:
    """Killed after the rename and before `last` moved: the step is saved once more."""
    checkpoints, updaters = Checkpoints(tmp_path), trained(0)
    checkpoints.save(2, {}, updaters)
    stale = tmp_path / "step-000004"
    stale.mkdir()
    (stale / "state.json").write_text("{}", encoding="utf-8")
    checkpoints.save(4, {"position": 1}, updaters)
    assert checkpoints.state(4)["position"] == 1
    assert checkpoints.step("last") == 4


def test_killed_while_a_step_is_saved_again_it_still_has_the_first_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, updaters = Checkpoints(tmp_path), trained(0)
    checkpoints.save(4, {"position": 1}, updaters)
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if Path(target).name == "step-000004":
            raise KeyboardInterrupt  # which nothing here cleans up after, as nothing would
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(4, {"position": 2}, updaters)
    monkeypatch.undo()
    assert "step-000004" not in names(tmp_path)
    checkpoints.sweep()
    assert names(tmp_path) == ["last.json", "step-000004"]
    assert checkpoints.state(4)["position"] == 1
    checkpoints.save(4, {"position": 3}, updaters)
    assert checkpoints.state(4)["position"] == 3 and names(tmp_path) == ["last.json", "step-000004"]


@pytest.mark.parametrize("room", [0, 4096, 100_000])
def test_a_full_disk_leaves_the_last_checkpoint_readable(room: int, small_disk: Path) -> None:
    checkpoints, updaters = Checkpoints(small_disk / "checkpoints"), trained(kind="full")
    checkpoints.save(3, {"position": 9}, updaters)
    free = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - room))
    with pytest.raises(
        RunError, match=r"could not save the checkpoint of step 4.*the one of step 3"
    ):
        checkpoints.save(4, {"position": 12}, updaters)
    assert names(checkpoints.folder) == ["last.json", "step-000003"]
    fresh = trained(0, kind="full")
    assert checkpoints.load(3, fresh)["position"] == 9
    assert moved(weights_of(updaters["team"].policy), fresh["team"].policy) == 0.0
    (small_disk / "filler").unlink()
    checkpoints.save(4, {"position": 12}, updaters)
    assert checkpoints.step("last") == 4


@pytest.mark.parametrize("broken", ["save_file", "write_atomically"])
def test_a_write_that_fails_leaves_the_last_checkpoint_readable(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, updaters = Checkpoints(tmp_path), trained(0)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoints.save(3, {}, updaters)
    with monkeypatch.context() as patch:
        patch.setattr(saving, broken, full)
        with pytest.raises(RunError, match="No space left on device"):
            checkpoints.save(4, {}, updaters)
    assert "step-000004" not in names(tmp_path)
    assert checkpoints.step("last") == 3
    assert checkpoints.load(3, trained(0))["step"] == 3


def test_a_first_save_that_fails_says_that_the_run_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints").write_text("a file in the way", encoding="utf-8")
    with pytest.raises(RunError, match="the run can go on from its start"):
        Checkpoints(tmp_path / "checkpoints").save(0, {}, trained(0))


def test_state_is_plain_json(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(5, {"position": 3}, trained())
    state = json.loads((tmp_path / "step-000005" / "state.json").read_text())
    assert sorted(state["files"]) == ["optimizer-team.safetensors", "policy-team.safetensors"]
    assert state["taken"] == {"team": 2}
