"""The typed configuration, section by section; `file.py` reads it.

Nothing here loads a model or a data file, so a mistake is reported at once.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    field_validator,
    model_validator,
)

from tacit.registry import did_you_mean

Share = Annotated[float, Field(gt=0.0, lt=1.0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TaskConfig(Section):
    """Which tasks: a benchmark, a `.jsonl` file, or a `module:function` of your own."""

    name: str
    split: str = "test"
    folder: str | None = None
    """Folder with the benchmark's original files; default `TACIT_DATA`."""
    hub: bool = False
    """Download from the Hugging Face Hub (extra `hub`)."""
    limit: PositiveInt | None = None
    offset: NonNegativeInt = 0
    shuffle_seed: int | None = None
    level: list[str] | None = None
    subject: list[str] | None = None
    allow_canaried: bool = False
    """Train on BIG-bench files whose authors ask for evaluation only."""
    options: dict[str, Any] = {}
    """Passed on to task sources that take options."""


class ModelConfig(Section):
    """A model that agents refer to by name."""

    engine: Literal["local", "vllm", "api"] = "local"
    path: str = "pocket"
    """local, vllm: `pocket`, a folder as `from_pretrained` reads it, or a Hub id."""
    rows: PositiveInt | None = None
    """local, vllm: sequences decoded together; default 32 on a CPU, 256 on a GPU."""
    context: PositiveInt | None = None
    """local, vllm: most tokens of prompt plus answer, if fewer than the model's own limit."""
    device: str = "auto"
    """local; for vllm, where the trainer's copy of the model lives."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """local, vllm: auto is bfloat16 on a GPU and float32 on a CPU."""
    kv_gib: PositiveFloat = 4.0
    """vllm: memory for keys and values, in addition to the weights."""
    model: str | None = None
    """api: the model id to ask for."""
    base_url: str | None = None
    """api: an OpenAI-compatible URL; default `OPENAI_BASE_URL`."""
    api_key_env: str = "OPENAI_API_KEY"
    """api: the environment variable that holds the key."""
    concurrency: PositiveInt = 16
    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None
    """api: prompt and generated tokens together."""
    timeout: PositiveFloat = 120.0
    """api: seconds allowed for one attempt."""
    deadline: PositiveFloat = 300.0
    """api: seconds allowed for a call with all its attempts and the waits between them."""
    retries: NonNegativeInt = 10
    cache: Literal["none", "greedy", "all"] = "greedy"
    """api: which answers are kept and never paid for twice; `all` tells samples apart by seed."""
    cache_folder: str | None = None
    """api: where answers are kept, to share them between runs; default the run's own folder."""
    parameters: dict[str, Any] = {}
    """api: sent with every call and wins over agents' settings; null leaves a parameter out."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    @model_validator(mode="after")
    def _api_is_whole(self) -> "ModelConfig":
        if self.engine == "api" and not self.model:
            raise ValueError("an api model needs `model: …`, the id to ask the server for")
        url = urlsplit(self.base_url or "http://host")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"base_url: write a whole URL, not {self.base_url!r}")
        if url.username or url.password or url.query:
            raise ValueError("base_url: a config is no place for a key; use `api_key_env`")
        taken = {"model", "messages", "stream", "n"} & self.parameters.keys()
        if taken:
            raise ValueError(f"parameters: `{min(taken)}` is not for you to set here")
        return self

    @property
    def samples(self) -> bool:
        """True if `parameters` make it sample, whatever temperature an agent has."""
        return bool(self.parameters.get("temperature", 0) != 0)


class AgentConfig(Section):
    """A role with a model."""

    model: str = "pocket"
    """A name under `models`, or `pocket`."""
    count: PositiveInt = 1
    """Number of agents with this role, if the topology takes several."""
    trained: bool = False
    silent: bool | None = None
    """Whether the agent may be silent; default as the topology says."""
    silent_above: Share = 0.5
    """local, vllm: an agent that answers greedily is silent where π(silence) is at least this."""
    system: str | None = None
    """Replaces the role's own text. `{instruction}` and `{agent}` are filled in."""
    temperature: NonNegativeFloat | None = None
    """Default 0, but 1 for a trained agent during training."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: NonNegativeInt = 0
    max_tokens: PositiveInt = 256
    max_input_tokens: PositiveInt | None = None
    tools: list[str] = []
    """`python`, `run_tests`, `lookup`, `module:function`, `mcp/SERVER` or `mcp/SERVER/TOOL`."""
    max_tool_calls: PositiveInt = 4
    """Most tools that each agent of this role may call in an episode."""
    max_observation: PositiveInt = 2000
    """Most characters of a tool's result; the middle of a longer one is left out."""
    tool_timeout: PositiveFloat = 20.0
    """Seconds after which a tool call is given up and the agent is told so."""


class McpConfig(Section):
    """A server of tools: a program that is started here, or a URL."""

    command: list[str] = []
    """The program and its arguments; it speaks MCP over stdin and stdout."""
    url: str | None = None
    """URL of a server that speaks MCP's streamable HTTP."""
    allow: list[str] = Field(min_length=1)
    """The tools that agents may call; no other tool of the server exists for them."""
    env: list[str] = []
    """command: environment variables to pass on, by name."""
    api_key_env: str | None = None
    """url: the environment variable with a key, sent as a bearer token."""
    timeout: PositiveFloat = 30.0
    """Seconds allowed to connect and list the tools."""

    @model_validator(mode="after")
    def _has_one_way_in(self) -> "McpConfig":
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either `command: […]` or `url: …`")
        url = urlsplit(self.url or "http://host")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"url: write a whole URL, not {self.url!r}")
        if url.username or url.password:
            raise ValueError("url: a config is no place for a key; use `api_key_env`")
        return self


class Cut(Section):
    """Messages left out of a team's talk: an agent's, a round's, or an agent's to one reader."""

    agent: str | None = None
    """An agent or a role; default all."""
    reader: str | None = None
    """The only agent or role that is not shown them; by default they are not even asked for."""
    round: NonNegativeInt | None = None
    """Default every round."""

    @model_validator(mode="after")
    def _says_what(self) -> "Cut":
        if self.agent is None and self.round is None:
            raise ValueError("a cut names an `agent`, a `round` or both")
        if self.reader is not None and (self.agent is None or self.round is not None):
            raise ValueError("a cut with a `reader` names the `agent` that is not heard, no round")
        return self

    @classmethod
    def of(cls, agents: Iterable[str]) -> "frozenset[Cut]":
        """Everything that these agents or roles say."""
        return frozenset(cls(agent=agent) for agent in agents)

    def __str__(self) -> str:
        what = f"`{self.agent}`" if self.agent else "everyone"
        where = f" in round {self.round}" if self.round is not None else ""
        return what + (f" to `{self.reader}`" if self.reader else where)


class TeamConfig(Section):
    topology: str = "solo"
    """A name that `tacit tasks --topologies` lists, or `module:name`."""
    agents: dict[str, AgentConfig] = Field(min_length=1)
    prompts: Literal["tagged", "role_last", "published"] = "tagged"
    options: dict[str, Any] = {}
    """The topology's own: rounds, samples, shape."""
    without: list[Cut] = []
    """Messages to leave out; `tacit prune` writes this."""
    stop: Literal["agreed"] | None = None
    """`agreed` ends the talk once several agents have answered and their last answers agree."""
    _servers: dict[str, McpConfig] = PrivateAttr(default_factory=dict)

    @property
    def servers(self) -> dict[str, McpConfig]:
        """The MCP servers of the config that the team is part of."""
        return self._servers


class EvaluationConfig(Section):
    samples: PositiveInt = 1
    """Episodes per task: pass@1 is their mean, maj@k and pass@k use them all."""
    concurrency: PositiveInt = 64
    """Episodes played at the same time."""
    without_helpers: bool = True
    """Also play each task once without the helpers, to measure what they change."""
    talk: bool | None = None
    """Also play each task with all who may be silent made to speak, and with the trained weights
    alone; default if the tasks have private views or say who should speak."""
    reworded: bool = False
    """With `talk`: also with every message reworded by a frozen agent's model."""
    confidence: Share = 0.95
    resamples: PositiveInt = 10_000


class AuditConfig(Section):
    """How much `tacit audit` plays to measure what each message is worth."""

    samples: PositiveInt = 1
    """Plays of each task, with and without a message; above 1 only if an agent samples."""
    first: PositiveInt = 16
    """Tasks of the first rung; each further rung has twice as many."""
    margin: Share = 0.03
    """Values that differ by less count as equal."""
    rounds: bool = True
    """Also measure what each round is worth."""
    edges: bool = True
    """Also measure what it is worth that one agent reads another."""
    tokens: PositiveInt | None = None
    """Most tokens that models may generate and read for the audit."""
    messages: NonNegativeInt = 5
    """Number of most helpful and of most harmful messages to show."""
    again: PositiveInt = 4
    """Replays from each of those messages on, with and without it, if agents sample."""


class JudgeConfig(Section):
    """A model that marks answers to tasks whose `grader` is `judge`."""

    model: str = "pocket"
    rubric: str
    """Describes a good answer."""
    max_tokens: PositiveInt = 256
    pass_mark: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Least share of the full mark at which an answer counts as right."""


class RewardConfig(Section):
    """R = r − g·c; see economy/reward.py."""

    shape: Literal["linear", "one_sided", "multiplicative", "priced"] = "linear"
    gate: Literal["success", "group", "always"] = "success"
    cap: Share = 0.5
    repetition: NonNegativeFloat = 0.0
    """λ_rep, the weight of repeated 4-grams."""
    alpha: NonNegativeFloat = 0.0
    """multiplicative: r / (1 + α·T/T̄)."""
    overlong: NonNegativeInt = 0
    """DAPO's soft overlong shaping over this many tokens before a message's cap; 0 is off."""
    parts: dict[str, str] = {}
    """Terms of your own added to R: name → `module:function`, called with an episode."""

    @field_validator("parts")
    @classmethod
    def _names_of_its_own(cls, parts: dict[str, str]) -> dict[str, str]:
        taken = {"task", "total", "tokens", "turns", "repetition", "overlong"} & parts.keys()
        if taken:
            raise ValueError(f"`{min(taken)}` is a part of every reward: name yours differently")
        return parts

    @model_validator(mode="after")
    def _a_factor_needs_success(self) -> "RewardConfig":
        if self.shape == "multiplicative" and self.gate != "success":
            raise ValueError("shape `multiplicative` scales r itself: set reward.gate to `success`")
        return self


class BudgetConfig(Section):
    """Limits on an episode's cost, and how multipliers enforce them; see economy/budget.py."""

    control: Literal["dual", "fixed"] = "dual"
    tokens: PositiveFloat | None = None
    turns: PositiveFloat | None = None
    money: PositiveFloat | None = None
    """For `reward.shape: priced`."""
    rate: PositiveFloat = 0.005
    ceiling: PositiveFloat = 1.0
    weight_tokens: NonNegativeFloat = 0.0
    """λ_tok at the start (dual) or throughout (fixed); of money where that is charged."""
    weight_turns: NonNegativeFloat = 0.0

    def limit(self, name: str) -> float | None:
        """The budget of tokens, turns or money."""
        limit: float | None = getattr(self, name)
        return limit

    def start(self, name: str) -> float:
        """λ at the start, or throughout if `control` is fixed."""
        return self.weight_turns if name == "turns" else self.weight_tokens


class SilenceConfig(Section):
    """How both choices, to speak and to be silent, keep being explored; see silence/."""

    exploration: Literal["arms", "floor", "none"] = "arms"
    floor: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.1
    """floor: least probability of either choice while sampling."""
    warmup_steps: NonNegativeInt = 20
    """arms: most steps of warm-up, in which nothing costs and p is not trained."""
    warmup_gain: float = -0.02
    """arms: the warm-up ends early once speaking gains more than this, over five steps."""
    coefficient: NonNegativeFloat = 15.0
    """arms: how far logit p moves per unit of gain."""
    least_weight: NonNegativeFloat = 0.05
    """arms: lower bound of w = p(1−p) for steps against the current preference."""
    clip: PositiveFloat = 1.0
    """arms: largest change of logit p per batch."""
    contexts: PositiveInt = 32
    """arms: most contexts of a batch that a step of the choice looks at, several times each."""
    solved_weight: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """arms: weight of messages on tasks that silence solves; 0 learns only from the others."""
    silent_samples: PositiveInt = 4
    """arms: plays of the silent arm if the rest of the team samples."""
    seats: PositiveInt = 1
    """arms where several agents choose: agents of each sample whose choice is compared."""


class PolicyConfig(Section):
    """The trained weights."""

    kind: Literal["lora", "full"] = "lora"
    share: Literal["team", "role"] = "team"
    """One set of trained weights for all trained roles of a model, or one per role."""
    rank: PositiveInt = 16
    alpha: PositiveFloat = 32.0
    targets: list[str] = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ]


class OptimizerConfig(Section):
    learning_rate: PositiveFloat = 1e-5
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: NonNegativeFloat = 0.0
    warmup_steps: NonNegativeInt = 5
    schedule: Literal["constant", "late", "linear", "cosine"] = "constant"
    clip_norm: PositiveFloat = 1.0


class LossConfig(Section):
    """Which loss; see learn/loss.py."""

    name: Literal["gspo", "gspo_token", "grpo", "dapo", "dr_grpo", "luspo"] = "gspo"
    sequence: Literal["message", "agent", "episode"] = "message"
    clip_low: PositiveFloat | None = None
    """Defaults differ by loss; see `CLIP_RANGES` there."""
    clip_high: PositiveFloat | None = None
    length_aware: bool | None = None
    """ε·sqrt(1024/L); default only if a batch is used for several updates."""
    kl: NonNegativeFloat = 0.0
    """Weight of k3 KL to the frozen base."""
    mismatch_cap: PositiveFloat | None = None
    """Truncated importance correction for what engines of other numerics or older weights said;
    default off."""
    max_length: PositiveInt | None = None
    """dr_grpo's constant; default the largest `max_tokens` of a trained agent."""


class TrainConfig(Section):
    steps: PositiveInt = 100
    tasks_per_step: PositiveInt = 16
    group: Annotated[int, Field(ge=2)] = 8
    """Episodes of one task that are compared with each other."""
    updates: PositiveInt = 1
    """Optimiser steps per batch."""
    advantage: Literal["grpo", "dr_grpo", "rloo", "gdpo", "batch"] = "grpo"
    dynamic_sampling: NonNegativeInt = 0
    """Rounds of new tasks drawn to replace groups without a signal; 0 is off."""
    microbatch_tokens: PositiveInt = 8192
    gradient_checkpointing: bool = False
    concurrency: PositiveInt = 256
    evaluate_every: NonNegativeInt = 20
    """0: only at the end."""
    checkpoint_every: PositiveInt = 10
    patience: NonNegativeInt = 0
    """Stop after this many evaluations without improvement; 0 is off."""
    dead_steps: PositiveInt = 30
    """Stop if no group had a signal for this many steps."""
    empty_share: Share = 0.9
    """Stop if this share of spoken messages is empty."""
    save_episodes: bool = True
    trackers: list[str] = []
    """trackio, wandb, tensorboard."""


class SearchConfig(Section):
    """How `tacit search` finds a team: successive halving on paired episodes; see search/."""

    start: Literal["own", "shipped"] = "shipped"
    """First candidates: `team` and `teams`, or also the shipped topologies, filled from those."""
    edits: list[Literal["role", "rounds", "shape", "edge", "count", "model", "topology"]] = [
        "role",
        "rounds",
        "shape",
        "count",
        "model",
        "topology",
    ]
    """Kinds of changes to a leading team that make new candidates."""
    newcomers: NonNegativeInt = 4
    """Most edited teams to add after a rung."""
    tokens: PositiveInt | None = None
    """Most tokens that the search may use; see `counted`."""
    counted: Literal["total", "generated"] = "total"
    """Which tokens count: generated and read, or generated only."""
    money: PositiveFloat | None = None
    """In place of `tokens`; needs `prices`."""
    tasks: TaskConfig | None = None
    """Tasks to search on; default `train_tasks`. Tasks that are also in `tasks` are left out."""
    first: PositiveInt = 16
    """Tasks of the first rung."""
    rungs: PositiveInt = 4
    eta: Annotated[int, Field(ge=2)] = 2
    """Each rung plays this many times the tasks of the last, and keeps one team in this many."""
    price: NonNegativeFloat = 0.0
    """Teams are ranked by accuracy − price·cost, in the tokens or money that the budget counts."""
    tie: NonNegativeFloat = 0.01
    """Within this difference, and the paired interval, the cheaper team is ahead."""
    train: bool = True
    """Train the winner afterwards, if it has roles that can be trained."""

    @model_validator(mode="after")
    def _one_budget(self) -> "SearchConfig":
        if self.tokens and self.money:
            raise ValueError("give a budget in `tokens` or in `money`, not in both")
        return self


class ClusterConfig(Section):
    """Where episodes are played: here, or by workers on a Ray cluster (extra `ray`)."""

    address: str | None = None
    """`auto`, `local` or host:port of a Ray cluster; default none, all is played here."""
    workers: PositiveInt = 2
    """Rollout workers; those that are lost are started again."""
    cpus: NonNegativeFloat = 1.0
    """CPUs of each worker."""
    gpus: NonNegativeFloat = 0.0
    """GPUs of each worker."""
    graders: NonNegativeInt = 1
    """Grading workers of one CPU each; 0: the rollout workers grade."""
    learners: NonNegativeInt = 0
    """Learners that share each step's gradients with this process."""
    learner_gpus: NonNegativeFloat = 0.0
    """GPUs of each; it also takes `cpus`."""
    start: PositiveFloat = 600.0
    """Seconds allowed for a worker to load its models."""
    deadline: PositiveFloat = 1800.0
    """Seconds allowed for one episode; then its worker is killed and replaced."""
    heartbeat: PositiveFloat = 60.0
    """Seconds without a sign of life after which a worker is killed and replaced."""
    retries: NonNegativeInt = 2
    """How often an episode that was lost with its worker is played again before it fails."""
    staleness: NonNegativeInt = 0
    """How many updates old the weights of an episode may be; above 0, steps are played while
    earlier ones are learned."""

    @field_validator("address")
    @classmethod
    def _is_no_client(cls, address: str | None) -> str | None:
        if address is not None and (not address.strip() or "://" in address):
            raise ValueError("write `auto`, `local` or host:port, and train on a cluster's node")
        return address


class Config(Section):
    """One experiment."""

    name: str = "run"
    seed: int = 0
    train_tasks: TaskConfig | None = None
    tasks: TaskConfig = TaskConfig(name="arithmetic", limit=200)
    """Held-out tasks to evaluate on."""
    models: dict[str, ModelConfig] = {}
    mcp: dict[str, McpConfig] = {}
    """Servers whose tools agents may have as `mcp/NAME`."""
    prices: str | None = None
    """A YAML price table; see economy/ledger.py."""
    spend_cap: PositiveFloat | None = None
    """Most money a run may spend on API calls. It stops there and resumes with a larger cap."""
    judge: JudgeConfig | None = None
    team: TeamConfig | None = None
    teams: dict[str, TeamConfig] = {}
    """Named teams for `tacit compare`, which compares the others with the first."""
    evaluation: EvaluationConfig = EvaluationConfig()
    audit: AuditConfig = AuditConfig()
    reward: RewardConfig = RewardConfig()
    budget: BudgetConfig = BudgetConfig()
    silence: SilenceConfig = SilenceConfig()
    policy: PolicyConfig = PolicyConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = SearchConfig()
    cluster: ClusterConfig = ClusterConfig()

    @field_validator("name")
    @classmethod
    def _is_a_folders_name(cls, name: str) -> str:
        if not name or name in (".", "..") or {*name} & {*"/\\\0"}:
            raise ValueError("a run's folder is named by it: no slashes, and not empty")
        return name

    @model_validator(mode="after")
    def _a_cap_needs_prices(self) -> "Config":
        for place, money in (("spend_cap", self.spend_cap), ("search.money", self.search.money)):
            if money is not None and self.prices is None:
                raise ValueError(f"{place}: money cannot be counted without `prices: …`")
        return self

    @model_validator(mode="after")
    def _talk_has_one_price(self) -> "Config":
        """Talk is priced in tokens or in money, never in both, and in units of a budget."""
        shape, budget = self.reward.shape, self.budget
        unit = "money" if shape == "priced" else "tokens"
        if shape == "multiplicative" and (budget.tokens or budget.weight_tokens):
            raise ValueError("budget: `reward.shape: multiplicative` has no λ for tokens")
        if shape == "priced" and (budget.tokens or not (self.prices and budget.money)):
            raise ValueError(
                "reward.shape: `priced` needs `prices:`, budget.money, no budget.tokens"
            )
        if budget.money and shape != "priced":
            raise ValueError("budget.money: only `reward.shape: priced` holds it")
        for weight, name in (("weight_tokens", unit), ("weight_turns", "turns")):
            if getattr(budget, weight) and budget.limit(name) is None:
                raise ValueError(f"budget.{weight}: a price needs its unit; set budget.{name}")
        return self

    @model_validator(mode="after")
    def _older_messages_are_corrected(self) -> "Config":
        if self.cluster.staleness and self.loss.mismatch_cap is None:
            raise ValueError(
                "cluster.staleness: messages of older weights need an importance correction; "
                "set loss.mismatch_cap, such as 2"
            )
        return self

    @model_validator(mode="after")
    def _team_names_are_file_names(self) -> "Config":
        for name in self.teams:
            if not name.strip() or name.startswith(".") or {*name} & {"/", "\\", "\0"}:
                raise ValueError(f"teams: `{name}` cannot name a file; use letters and dashes")
        return self

    @model_validator(mode="after")
    def _agents_fit_their_models(self) -> "Config":
        known = {"pocket", *self.models}
        agents: dict[str, AgentConfig | JudgeConfig] = {"judge": self.judge} if self.judge else {}
        for place, team in self.all_teams.items():
            agents |= {f"{place}.agents.{role}": agent for role, agent in team.agents.items()}
        for place, agent in agents.items():
            if agent.model not in known:
                hint = did_you_mean(agent.model, known)
                raise ValueError(f"{place}.model: no model `{agent.model}` under `models`; {hint}")
            limit = isinstance(agent, AgentConfig) and agent.max_input_tokens
            if limit and self.model_named(agent.model).engine == "api":
                raise ValueError(
                    f"{place}.max_input_tokens: the tokens of an api model's prompt "
                    "cannot be counted here; leave it out"
                )
        return self

    @model_validator(mode="after")
    def _teams_know_the_servers(self) -> "Config":
        for team in self.all_teams.values():
            team._servers.update(self.mcp)
        return self

    @property
    def all_teams(self) -> dict[str, TeamConfig]:
        """Every team by its place in the config, the config's own first."""
        own = {"team": self.team} if self.team else {}
        return own | {f"teams.{name}": team for name, team in self.teams.items()}

    def models_used(self, teams: Iterable[TeamConfig]) -> list[str]:
        """Names of the models that the agents of these teams and the judge speak with."""
        names = [agent.model for team in teams for agent in team.agents.values()]
        return list(dict.fromkeys([*names, *([self.judge.model] if self.judge else [])]))

    def model_named(self, name: str) -> ModelConfig:
        """The model of that name; `pocket` always exists."""
        return self.models.get(name) or ModelConfig(path="pocket")
