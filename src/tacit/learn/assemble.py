"""Assembles a training run: the team, its models and policies, tasks and updaters."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from tacit.config import AgentConfig, Config, ModelConfig, TeamConfig
from tacit.economy.budget import Warmup
from tacit.economy.reward import overlong_penalty
from tacit.engine.base import Account, Engine, TrainedEngine
from tacit.engine.chat import chat_of
from tacit.engine.factory import open_engine
from tacit.engine.fitness import check_chat
from tacit.engine.gc_freeze import gc_frozen
from tacit.engine.load import LoadedModel, load_model
from tacit.engine.local import LocalEngine
from tacit.errors import ConfigError
from tacit.grading import Grader, grade
from tacit.learn.credit import Credit
from tacit.learn.policy import Policy, build_policies, fingerprint, policy_names
from tacit.learn.update import Gradients, Updater
from tacit.registry import lookup
from tacit.rollout.groups import Player, choosing_roles, several_choices
from tacit.rollout.play import Job
from tacit.run.opening import grader_of, is_greedy, prices_of, seat, tasks_of, teams_of
from tacit.silence import Silence, open_silence
from tacit.tasks import check_trainable, drop_leaks
from tacit.team.roster import Roster, agent_names, build_roster, check_team
from tacit.types import Episode, Task

WEIGHT_SYNC = "tacit.vllm.weight_sync"
"""Sends weights to vLLM; a ring, so found by name."""
CLUSTER = "tacit.cluster.open_cluster:open_cluster"
"""Lets other processes play episodes; a ring, so found by name."""
NEVER_CHARGED = (
    "silence.warmup_steps is not below train.steps: unless speaking pays early, nothing is charged "
    "and the choice to speak is not trained"
)


class RemotePlayers(Protocol):
    """Worker processes that play episodes, with their own engines and the weights they are sent.

    The engines it returns are stand-ins: agents refer to them, but they generate nothing here.
    """

    gradients: Gradients | None
    """Learners that share each step's gradients, or None."""

    def frozen(self, model: str) -> Engine: ...

    def trained(self, policy: Policy) -> TrainedEngine: ...

    async def play(self, roster: Roster, job: Job) -> Episode: ...

    def times(self) -> dict[str, float]:
        """Workers lost and recovered since the last call, for `timing.jsonl`."""
        ...

    def to_json(self) -> dict[str, Any]:
        """For the summary."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Assembly:
    """A team with its engines, and trainable weights for the agents that learn."""

    config: Config
    team: TeamConfig
    roster: Roster
    silence: Silence
    policies: dict[str, Policy]
    trained_engines: list[TrainedEngine]
    frozen: dict[str, LoadedModel]
    engines: dict[str, Engine]
    """Frozen engines by model, also for the teams that a run is compared with."""
    remote: RemotePlayers | None = None
    """Plays the episodes, if this process does not."""
    train_tasks: list[Task] = field(default_factory=list)
    """This field and those below are set only for training."""
    test_tasks: list[Task] = field(default_factory=list)
    dropped_leaks: int = 0
    updaters: dict[str, Updater] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    grader: Grader = grade

    def player(self, on_episode: Callable[[Episode], None]) -> Player:
        fixed = {role for role in self.team.agents if is_greedy(self.config, self.team, role)}
        return Player(self.roster, self.grader, self.config, self.silence, fixed, on_episode)

    def seat(self, team: TeamConfig) -> Roster:
        """Another team, speaking with the frozen engines."""
        return replace(seat(team, self.engines), remote=self.roster.remote)

    def warmup(self) -> Warmup:
        return Warmup(limit=self.silence.warmup_steps, gain=self.config.silence.warmup_gain)

    def credit(self) -> Credit:
        prices, parts = prices_of(self.config), _parts(self.config)
        if self.config.reward.overlong:
            parts["overlong"] = self._overlong
        return Credit(
            config=self.config,
            silence=self.silence,
            roles={a.name: a.role for a in self.roster.agents if a.config.trained},
            money=(lambda e: sum(map(prices.cost, e.calls))) if prices else (lambda e: 0.0),
            user_parts=parts,
        )

    def _overlong(self, episode: Episode) -> float:
        """DAPO's overlong penalty of the trained agents' longest message, relative to its cap."""
        caps = {a.name: a.config.max_tokens for a in self.roster.agents if a.config.trained}
        penalties = (
            overlong_penalty(c.usage.generated, caps[c.agent], self.config.reward.overlong)
            for c in episode.calls
            if c.agent in caps
        )
        return min(penalties, default=0.0)


def _parts(config: Config) -> dict[str, Callable[[Episode], float]]:
    """The user's own reward parts."""
    return {name: lookup("reward part", at, {}) for name, at in config.reward.parts.items()}


def check_training(config: Config) -> TeamConfig:
    """Refuse every mistake that can be detected before a model loads."""
    if config.team is None:
        raise ConfigError("nothing to train: the config has no `team:`")
    if config.train_tasks is None:
        raise ConfigError("nothing to train on: add `train_tasks:`")
    check_team(config.team)
    teams_of(config)
    _parts(config)
    gone = {cut.agent for cut in config.team.without if cut.reader is None and cut.round is None}
    trained = {role: config.team.agents[role] for role in policy_names(config, config.team)}
    if all({*agent_names(r, a.count)} <= gone for r, a in trained.items() if r not in gone):
        raise ConfigError(
            "team.without leaves out every trained agent, so nothing can be learned: keep one of "
            "them, or set `trained` on another role"
        )
    for role, agent in trained.items():
        _check_sampling(role, agent, config.model_named(agent.model))
    tasks = config.train_tasks
    check_trainable(tasks.name, tasks.split, allow_canaried=tasks.allow_canaried)
    return config.team


def check_asked(team: TeamConfig, episodes: Iterable[Episode]) -> None:
    """Refuse cuts by round that leave out every trained agent, seen in the first evaluation."""
    if team.without and not any(call.policy for one in episodes for call in one.calls):
        raise ConfigError(
            "team.without: no held-out task asked a trained agent, so nothing can be learned: "
            "leave out less, and begin again with another --out"
        )


def _check_sampling(role: str, agent: AgentConfig, model: ModelConfig) -> None:
    if agent.top_p != 1.0 or agent.top_k != 0:
        raise ConfigError(
            f"team.agents.{role}: a trained agent samples with top_p 1 and top_k 0, "
            "since anything else biases the ratio in the loss"
        )
    if model.dtype == "float16":
        raise ConfigError(
            f"models.{agent.model}.dtype: gradients vanish in float16; train in bfloat16"
        )
    if agent.temperature not in (None, 1.0):
        raise ConfigError(f"team.agents.{role}.temperature: a trained agent samples at 1")


def _silence(config: Config, team: TeamConfig) -> Silence:
    return open_silence(
        config.silence, choosing=bool(choosing_roles(team)), several=several_choices(team)
    )


@asynccontextmanager
async def open_assembly(
    config: Config,
    team: TeamConfig,
    given: Mapping[str, Engine] | None = None,
    account: Account | None = None,
    remote: RemotePlayers | None = None,
) -> AsyncIterator[Assembly]:
    """Load models and build policies, but no tasks; close everything at the end.

    Engines in `given` replace the models of their roles. With `remote` only the models that
    learn are loaded here.
    """
    given = given or {}
    engines: dict[str, Engine] = {}
    loaded: dict[str, LoadedModel] = {}
    trained_engines: dict[str, TrainedEngine] = {}
    try:
        for name in _models(config, team, given):
            if remote:
                engines[name] = remote.frozen(name)
            else:
                engines[name] = _open(name, config, team, loaded, account)
        names = policy_names(config, team)
        for name in dict.fromkeys(team.agents[role].model for role in names):
            if name not in loaded:
                loaded[name] = _load(name, config)
        if all(one.module.device.type == "cpu" for one in loaded.values()):
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        bases = {role: loaded[team.agents[role].model] for role in names}
        policies = build_policies(names, bases, config.policy, config.seed)
        for name, policy in policies.items():
            trained_engines[name] = (
                remote.trained(policy) if remote else _serve(policy, config, engines)
            )
        by_role: dict[str, Engine] = {
            role: trained_engines[names[role]] if role in names else engines[agent.model]
            for role, agent in team.agents.items()
            if role not in given
        }
        roster = build_roster(team, by_role | dict(given))
        with gc_frozen():
            yield Assembly(
                config=config,
                team=team,
                roster=replace(roster, remote=remote.play if remote else None),
                silence=_silence(config, team),
                policies=policies,
                trained_engines=list(trained_engines.values()),
                frozen=loaded,
                engines=engines,
                remote=remote,
            )
    finally:
        for engine in (*trained_engines.values(), *engines.values()):
            await engine.close()


@asynccontextmanager
async def open_training(config: Config, account: Account | None = None) -> AsyncIterator[Assembly]:
    """`open_assembly`, plus tasks, updaters and a grader."""
    team = check_training(config)
    assert config.train_tasks is not None
    test_tasks = tasks_of(config.tasks, config.judge)
    train_tasks, leaks = drop_leaks(tasks_of(config.train_tasks, config.judge), test_tasks)
    if not train_tasks:
        raise ConfigError("train_tasks: every task is also among the held-out tasks")
    async with (
        _remote_players(config, account) as remote,
        open_assembly(config, team, account=account, remote=remote) as assembly,
    ):
        system = any(one.prompts != "role_last" for one in (team, *config.teams.values()))
        for model in assembly.frozen.values():
            check_chat(chat_of(model), system=system)
        assembly.train_tasks, assembly.test_tasks = train_tasks, test_tasks
        assembly.dropped_leaks = leaks
        assembly.updaters = {name: updater_of(assembly, name) for name in assembly.policies}
        assembly.fingerprints = {name: fingerprint(m.module) for name, m in assembly.frozen.items()}
        assembly.grader = grader_of(config, assembly.engines)
        yield assembly


def _remote_players(
    config: Config, account: Account | None
) -> AbstractAsyncContextManager[RemotePlayers | None]:
    if config.cluster.address is None:
        return nullcontext()
    opened: AbstractAsyncContextManager[RemotePlayers] = lookup("cluster", CLUSTER, {})(
        config, account
    )
    return opened


def _models(config: Config, team: TeamConfig, given: Mapping[str, Engine]) -> list[str]:
    """Models to serve with frozen weights, and those on which adapters are trained."""
    models = [
        agent.model
        for role, agent in team.agents.items()
        if role not in given and not (agent.trained and _apart(config, agent.model))
    ]
    return list(dict.fromkeys([*models, *config.models_used(config.teams.values())]))


def _apart(config: Config, model: str) -> bool:
    """True if vLLM serves the trained weights as a model of their own."""
    return config.policy.kind == "full" and config.model_named(model).engine == "vllm"


def _open(
    name: str,
    config: Config,
    team: TeamConfig,
    loaded: dict[str, LoadedModel],
    account: Account | None,
) -> Engine:
    model = config.model_named(name)
    if model.engine == "api":
        return open_engine(name, model, account)
    if model.engine == "vllm":
        serve = lookup("engine", f"{WEIGHT_SYNC}:serve_base", {})
        served: Engine = serve(name, config, policy_names(config, team), team)
        return served
    loaded[name] = _load(name, config)
    return LocalEngine(loaded[name], rows=model.rows, context=model.context)


def _load(name: str, config: Config) -> LoadedModel:
    model = config.model_named(name)
    return load_model(model.path, name=name, device=model.device, dtype=model.dtype)


def _serve(policy: Policy, config: Config, engines: Mapping[str, Engine]) -> TrainedEngine:
    model = config.model_named(policy.base.name)
    if model.engine == "vllm":
        serve = lookup("engine", f"{WEIGHT_SYNC}:serve_policy", {})
        served: TrainedEngine = serve(policy, model, engines.get(policy.base.name))
        return served
    return LocalEngine(
        policy.loaded,
        policy=policy.name,
        rows=model.rows,
        context=model.context,
        activate=policy.on,
    )


def updater_of(assembly: Assembly, name: str) -> Updater:
    policy = assembly.policies[name]
    module: Any = policy.loaded.module
    if assembly.config.train.gradient_checkpointing:
        module.gradient_checkpointing_enable({"use_reentrant": False})
    longest = max(agent.max_tokens for agent in assembly.team.agents.values() if agent.trained)
    shared = assembly.remote.gradients if assembly.remote else None
    return Updater(policy, assembly.config, longest, shared=shared)
