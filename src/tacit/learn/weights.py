"""Loads trained weights from a run folder, to play with them or to start another run from them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.config import Config, PolicyConfig, TeamConfig
from tacit.engine.base import Account, Engine
from tacit.errors import ConfigError
from tacit.learn.assemble import Assembly, open_assembly
from tacit.learn.checkpoint import POINTERS, Checkpoints
from tacit.learn.policy import policy_names
from tacit.run.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Weights:
    """One checkpoint of a run."""

    checkpoints: Path
    step: int

    @classmethod
    def find(cls, text: str | Path) -> "Weights":
        """From `RUN` (its best checkpoint if there is one, else its last), `RUN:best`, `RUN:last`,
        or the folder of a checkpoint."""
        place, _, which = str(text).rpartition(":")
        if which not in POINTERS or Path(text).exists():
            place, which = str(text), ""
        folder = Path(place)
        if not which and (folder / "state.json").exists():
            return cls(folder.parent, _step(folder))
        checkpoints = Checkpoints(folder / "checkpoints")
        found = [checkpoints.step(one) for one in ([which] if which else ("best", "last"))]
        step = next((one for one in found if one is not None), None)
        if step is None:
            raise ConfigError(
                f"`{text}` has no checkpoint: name a run that was trained (RUN, RUN:best or "
                "RUN:last), or the folder of a checkpoint (RUN/checkpoints/step-000040)"
            )
        return cls(checkpoints.folder, step)

    @property
    def folder(self) -> Path:
        return self.checkpoints / f"step-{self.step:06d}"

    def check(self, config: Config, team: TeamConfig) -> None:
        """Refuse, before a model loads, weights that do not fit the run's policies."""
        for name in {*policy_names(config, team).values()}:
            if not (self.folder / f"policy-{name}.safetensors").exists():
                raise ConfigError(
                    f"{self.folder} has no weights called `{name}`: train the same roles with the "
                    "same policy.share"
                )
        run = self.checkpoints.parent
        if not (run / "config.json").exists():
            return
        _, before = RunFolder.existing(run)
        if _shape(before.policy) != _shape(config.policy):
            raise ConfigError(
                f"{self.folder} was trained with another `policy` section: use the same one, or "
                f"train what `tacit export {run} --merged` writes as a model of its own"
            )
        if config.policy.kind == "lora" and before.team:
            old, new = _bases(before, before.team), _bases(config, team)
            if any(old.get(name) != base for name, base in new.items()):
                raise ConfigError(
                    f"{self.folder} was trained on {', '.join(sorted({*old.values()}))}, not on "
                    f"{', '.join(sorted({*new.values()}))}: adapters fit no other model"
                )

    async def put_into(self, assembly: Assembly, *, version: int) -> None:
        """Load the weights into an assembly's policies, and let its engines serve them."""
        checkpoints = Checkpoints(self.checkpoints)
        checkpoints.state(self.step)
        for policy in assembly.policies.values():
            checkpoints.load_policy(self.step, policy)
        for engine in assembly.trained_engines:
            async with engine.paused():
                await engine.refresh(version)


@asynccontextmanager
async def open_trained(
    config: Config,
    folder: Path,
    given: Mapping[str, Engine] | None = None,
    account: Account | None = None,
) -> AsyncIterator[Assembly]:
    """Open a run's team with the weights of its best checkpoint, or else its last.

    No tasks are read. Engines in `given` replace the models of their roles.
    """
    if config.team is None:
        raise ConfigError(f"`{folder}` has no `team:`")
    weights = Weights.find(folder)
    async with open_assembly(config, config.team, given, account) as assembly:
        await weights.put_into(assembly, version=weights.step)
        yield assembly


def _step(folder: Path) -> int:
    number = folder.name.removeprefix("step-")
    if not number.isdecimal():
        raise ConfigError(f"`{folder}` is no checkpoint: its name must be step- and a number")
    return int(number)


def _shape(policy: PolicyConfig) -> dict[str, object]:
    """The settings in which two runs must agree to exchange weights."""
    return policy.model_dump(exclude={"share"}) if policy.kind == "lora" else {"kind": "full"}


def _bases(config: Config, team: TeamConfig) -> dict[str, str]:
    """Policy → the folder name of its base model; the folder may have moved since."""
    return {
        name: Path(config.model_named(team.agents[role].model).path).name
        for role, name in policy_names(config, team).items()
    }
