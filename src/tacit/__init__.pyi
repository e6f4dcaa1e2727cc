"""The public names: what `import tacit` gives, and where each of them lives."""

from tacit.cli.verbs import compare as compare, evaluate as evaluate, play as play, train as train
from tacit.config import (
    AgentConfig as AgentConfig,
    BudgetConfig as BudgetConfig,
    Config as Config,
    LossConfig as LossConfig,
    ModelConfig as ModelConfig,
    RewardConfig as RewardConfig,
    SilenceConfig as SilenceConfig,
    TeamConfig as TeamConfig,
)
from tacit.config.file import load_config as load_config, parse_config as parse_config
from tacit.economy.reward import (
    EpisodeCost as EpisodeCost,
    Multipliers as Multipliers,
    repetition as repetition,
    reward_group as reward_group,
)
from tacit.engine.base import (
    Completion as Completion,
    Engine as Engine,
    Request as Request,
    Sampling as Sampling,
)
from tacit.engine.factory import open_engine as open_engine
from tacit.engine.load import LoadedModel as LoadedModel, load_model as load_model
from tacit.engine.local import LocalEngine as LocalEngine
from tacit.errors import ConfigError as ConfigError, TacitError as TacitError
from tacit.external.reading import (
    read_recording as read_recording,
    recorded_episodes as recorded_episodes,
)
from tacit.external.replay import Change as Change, replaying as replaying
from tacit.grading import grade as grade, read_answer as read_answer
from tacit.learn.advantage import normalised as normalised
from tacit.learn.loss import LossInputs as LossInputs, batch_sizes as batch_sizes, gspo as gspo
from tacit.learn.score import score as score
from tacit.rollout.play import Job as Job, play_all as play_all
from tacit.silence.conditioning import log_not_silent as log_not_silent
from tacit.silence.step import choice_loss as choice_loss, choice_step as choice_step
from tacit.tasks import load_tasks as load_tasks
from tacit.team.roster import (
    Role as Role,
    Roster as Roster,
    Topology as Topology,
    build_roster as build_roster,
)
from tacit.team.setting import Setting as Setting
from tacit.team.team import Team as Team
from tacit.team.tools import Tool as Tool, ToolContext as ToolContext
from tacit.types import (
    Call as Call,
    ChatMessage as ChatMessage,
    Choice as Choice,
    Episode as Episode,
    Grade as Grade,
    Message as Message,
    Task as Task,
    ToolCall as ToolCall,
    ToolSpec as ToolSpec,
    Usage as Usage,
)

__version__: str
__all__: list[str]
