"""The typed configuration, section by section; `file.py` reads it.

Nothing here loads a model or a data file, so that a mistake is answered at once.
"""

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
    """Where the benchmark's original files lie; `TACIT_DATA` when not given."""
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
    """Passed on to a task source that has options of its own."""


class ModelConfig(Section):
    """A model that agents can use by its name."""

    engine: Literal["local", "vllm", "api"] = "local"
    path: str = "pocket"
    """local, vllm: `pocket`, a folder as `from_pretrained` reads it, or a Hub id."""
    rows: PositiveInt | None = None
    """local, vllm: how many sequences are decoded together; 32 on a CPU, 256 on a GPU."""
    context: PositiveInt | None = None
    """local, vllm: the longest prompt plus answer, if shorter than the model's own."""
    device: str = "auto"
    """local, and where what vllm serves is trained."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """local, vllm: auto is bfloat16 on a GPU and float32 on a CPU."""
    kv_gib: PositiveFloat = 4.0
    """vllm: memory for keys and values, beside the weights."""
    model: str | None = None
    """api: the model id to ask for."""
    base_url: str | None = None
    """api: an OpenAI-compatible URL; `OPENAI_BASE_URL` when not given."""
    api_key_env: str = "OPENAI_API_KEY"
    """api: the environment variable that holds the key."""
    concurrency: PositiveInt = 16
    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None
    """api: read and generated ones together."""
    timeout: PositiveFloat = 120.0
    """api: seconds that one attempt may take."""
    deadline: PositiveFloat = 300.0
    """api: seconds that a call may take, all its attempts and the waits between them."""
    retries: NonNegativeInt = 10
    cache: Literal["none", "greedy", "all"] = "greedy"
    """api: which answers a run keeps and never pays twice; `all` tells samples apart by seed."""
    cache_folder: str | None = None
    """api: where they are kept, to share them between runs; the run's own folder when not given."""
    parameters: dict[str, Any] = {}
    """api: sent with every call, over what agents ask for; null leaves one of ours out."""
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
        """Whether it samples whatever temperature an agent asks for."""
        return bool(self.parameters.get("temperature", 0) != 0)


class AgentConfig(Section):
    """A role with a model."""

    model: str = "pocket"
    """A name under `models`, or `pocket`."""
    count: PositiveInt = 1
    """How many agents play this role, where the topology takes several."""
    trained: bool = False
    silent: bool | None = None
    """Whether it may be silent; the topology's default when not given."""
    system: str | None = None
    """Replaces the role's own text. `{instruction}` and `{agent}` are filled in."""
    temperature: NonNegativeFloat | None = None
    """Default: greedy, but 1 for a trained agent while training."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: NonNegativeInt = 0
    max_tokens: PositiveInt = 256
    max_input_tokens: PositiveInt | None = None


class TeamConfig(Section):
    topology: str = "solo"
    """A name `tacit tasks --topologies` lists, or `module:name`."""
    agents: dict[str, AgentConfig] = Field(min_length=1)
    prompts: Literal["tagged", "role_last", "published"] = "tagged"
    options: dict[str, Any] = {}
    """What the topology takes: rounds, samples, shape."""


class EvaluationConfig(Section):
    samples: PositiveInt = 1
    """Episodes per task: pass@1 is their mean, maj@k and pass@k use them all."""
    concurrency: PositiveInt = 64
    """Episodes under way at once."""
    without_helpers: bool = True
    """Play each task once more with the helpers left out, to say what they changed."""
    confidence: Share = 0.95
    resamples: PositiveInt = 10_000


class JudgeConfig(Section):
    """A model that marks answers to tasks whose `grader` is `judge`."""

    model: str = "pocket"
    rubric: str
    """What a good answer is, in words."""
    max_tokens: PositiveInt = 256
    pass_mark: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """From which share of the full mark an answer counts as right."""


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
    """DAPO's soft overlong shaping over the last so many tokens of a message's cap; 0 is off."""
    parts: dict[str, str] = {}
    """Parts of your own: name → `module:function` of an episode, added to R."""

    @model_validator(mode="after")
    def _a_factor_needs_success(self) -> "RewardConfig":
        if self.shape == "multiplicative" and self.gate != "success":
            raise ValueError("shape `multiplicative` scales r itself: set reward.gate to `success`")
        return self


class BudgetConfig(Section):
    """What an episode may cost, and how the multipliers hold it; see economy/budget.py."""

    control: Literal["dual", "fixed"] = "dual"
    tokens: PositiveFloat | None = None
    turns: PositiveFloat | None = None
    money: PositiveFloat | None = None
    """For `reward.shape: priced`."""
    rate: PositiveFloat = 0.005
    ceiling: PositiveFloat = 1.0
    weight_tokens: NonNegativeFloat = 0.0
    """λ_tok at the start (dual) or throughout (fixed)."""
    weight_turns: NonNegativeFloat = 0.0

    def limit(self, name: str) -> float | None:
        """The budget of tokens, turns or money."""
        limit: float | None = getattr(self, name)
        return limit

    def start(self, name: str) -> float:
        """λ at the start, and throughout where it is fixed."""
        return {"tokens": self.weight_tokens, "turns": self.weight_turns}.get(name, 0.0)


class SilenceConfig(Section):
    """How the choice to speak goes on being tried; see silence/."""

    exploration: Literal["arms", "floor", "none"] = "arms"
    floor: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.1
    """floor: least probability of either choice while sampling."""
    warmup_steps: NonNegativeInt = 20
    """arms: at most so many steps without cost and with p untrained."""
    warmup_gain: float = -0.02
    """arms: these steps end early when speaking is, over five of them, so much better than not."""
    coefficient: NonNegativeFloat = 15.0
    """arms: how far a gain asks logit p to move."""
    least_weight: NonNegativeFloat = 0.05
    """arms: w = p(1−p) is raised to this where the step goes against the present leaning."""
    clip: PositiveFloat = 1.0
    """arms: the largest change of logit p that one batch asks for."""
    solved_weight: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """arms: how much messages count on tasks that silence solves; 0 learns where it fails alone."""
    silent_samples: PositiveInt = 4
    """arms: plays of the silent arm when the rest of the team samples."""


class PolicyConfig(Section):
    """What learns."""

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
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    clip_norm: PositiveFloat = 1.0


class LossConfig(Section):
    """Which loss; see learn/loss.py."""

    name: Literal["gspo", "gspo_token", "grpo", "dapo", "dr_grpo", "luspo"] = "gspo"
    sequence: Literal["message", "agent", "episode"] = "message"
    clip_low: PositiveFloat | None = None
    """Each loss has its own default; see `CLIP_RANGES` there."""
    clip_high: PositiveFloat | None = None
    length_aware: bool | None = None
    """ε·sqrt(1024/L); by default only when a batch is used for several updates."""
    kl: NonNegativeFloat = 0.0
    """Weight of k3 KL to the frozen base."""
    mismatch_cap: PositiveFloat | None = None
    """Truncated importance correction for engine mismatch; off when not given."""
    max_length: PositiveInt | None = None
    """dr_grpo's constant; the largest cap of a trained agent when not given."""


class TrainConfig(Section):
    steps: PositiveInt = 100
    tasks_per_step: PositiveInt = 16
    group: Annotated[int, Field(ge=2)] = 8
    """Episodes of one task that are compared with each other."""
    updates: PositiveInt = 1
    """Optimiser steps a batch."""
    advantage: Literal["grpo", "dr_grpo", "rloo", "gdpo", "batch"] = "grpo"
    dynamic_sampling: NonNegativeInt = 0
    """Rounds of fresh tasks drawn to replace groups without a signal; 0 is off."""
    microbatch_tokens: PositiveInt = 8192
    gradient_checkpointing: bool = False
    concurrency: PositiveInt = 256
    evaluate_every: NonNegativeInt = 20
    """0: only at the end."""
    checkpoint_every: PositiveInt = 10
    patience: NonNegativeInt = 0
    """Stop after so many evaluations without a better one; 0 is off."""
    dead_steps: PositiveInt = 30
    """Stop when no group had a signal for so many steps."""
    empty_share: Share = 0.9
    """Stop when this share of spoken messages is empty."""
    save_episodes: bool = True
    trackers: list[str] = []
    """trackio, wandb, tensorboard."""


class Config(Section):
    """One experiment."""

    name: str = "run"
    seed: int = 0
    train_tasks: TaskConfig | None = None
    tasks: TaskConfig = TaskConfig(name="arithmetic", limit=200)
    """Held-out tasks to evaluate on."""
    models: dict[str, ModelConfig] = {}
    prices: str | None = None
    """A YAML price table; see economy/ledger.py."""
    spend_cap: PositiveFloat | None = None
    """Money that a run's API calls may cost. It stops cleanly, and goes on with a larger one."""
    judge: JudgeConfig | None = None
    team: TeamConfig | None = None
    teams: dict[str, TeamConfig] = {}
    """Named teams for `tacit compare`; the first is what the others are compared with."""
    evaluation: EvaluationConfig = EvaluationConfig()
    reward: RewardConfig = RewardConfig()
    budget: BudgetConfig = BudgetConfig()
    silence: SilenceConfig = SilenceConfig()
    policy: PolicyConfig = PolicyConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()

    @field_validator("name")
    @classmethod
    def _is_a_folders_name(cls, name: str) -> str:
        if not name or name in (".", "..") or {*name} & {*"/\\\0"}:
            raise ValueError("a run's folder is named by it: no slashes, and not empty")
        return name

    @model_validator(mode="after")
    def _a_cap_needs_prices(self) -> "Config":
        if self.spend_cap is not None and self.prices is None:
            raise ValueError("spend_cap: money cannot be counted without `prices: …`")
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
        if self.judge and self.judge.model not in known:
            hint = did_you_mean(self.judge.model, known)
            raise ValueError(f"judge.model: no model `{self.judge.model}` under `models`; {hint}")
        teams = {"team": self.team, **{f"teams.{k}": v for k, v in self.teams.items()}}
        for place, team in teams.items():
            for role, agent in team.agents.items() if team else ():
                where = f"{place}.agents.{role}"
                if agent.model not in known:
                    hint = did_you_mean(agent.model, known)
                    raise ValueError(
                        f"{where}.model: no model `{agent.model}` under `models`; {hint}"
                    )
                if agent.max_input_tokens and self.model_named(agent.model).engine == "api":
                    raise ValueError(
                        f"{where}.max_input_tokens: the tokens of an api model's prompt "
                        "cannot be counted here; leave it out"
                    )
        return self

    def model_named(self, name: str) -> ModelConfig:
        """The model of that name; `pocket` is always there."""
        return self.models.get(name) or ModelConfig(path="pocket")
