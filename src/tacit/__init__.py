"""Tacit trains teams of language-model agents to solve tasks, saying only what pays.

Everything here may be relied on; what lies deeper may move. Names are looked up when they are first
used, so that `import tacit` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "cli.verbs": ("compare", "evaluate", "play", "train"),
    "config": ("AgentConfig", "Config", "ModelConfig", "TeamConfig"),
    "config.file": ("load_config", "parse_config"),
    "economy.reward": (
        "EpisodeCost",
        "Multipliers",
        "RewardSettings",
        "repetition",
        "reward_group",
    ),
    "engine.base": ("Completion", "Engine", "Request", "Sampling"),
    "engine.factory": ("open_engine",),
    "engine.load": ("LoadedModel", "load_model"),
    "engine.local": ("LocalEngine",),
    "errors": ("ConfigError", "TacitError"),
    "grading": ("grade", "read_answer"),
    "learn.advantage": ("normalised",),
    "learn.loss": ("LossInputs", "LossSettings", "batch_sizes", "gspo"),
    "learn.score": ("score",),
    "learn.silence": ("ChoiceSettings", "choice_loss", "choice_step", "log_not_silent"),
    "rollout": ("Job", "play_all"),
    "tasks": ("load_tasks",),
    "team.roster": ("Role", "Roster", "Topology", "build_roster"),
    "team.team": ("Setting", "Team"),
    "types": ("Call", "ChatMessage", "Choice", "Episode", "Grade", "Message", "Task", "Usage"),
}
"""Where each public name lives."""
_MODULE = {name: f"tacit.{module}" for module, names in _HOME.items() for name in names}

__all__ = sorted([*_MODULE, "__version__"])

if TYPE_CHECKING:
    from tacit.cli.verbs import compare as compare
    from tacit.cli.verbs import evaluate as evaluate
    from tacit.cli.verbs import play as play
    from tacit.cli.verbs import train as train
    from tacit.config import AgentConfig as AgentConfig
    from tacit.config import Config as Config
    from tacit.config import ModelConfig as ModelConfig
    from tacit.config import TeamConfig as TeamConfig
    from tacit.config.file import load_config as load_config
    from tacit.config.file import parse_config as parse_config
    from tacit.economy.reward import EpisodeCost as EpisodeCost
    from tacit.economy.reward import Multipliers as Multipliers
    from tacit.economy.reward import RewardSettings as RewardSettings
    from tacit.economy.reward import repetition as repetition
    from tacit.economy.reward import reward_group as reward_group
    from tacit.engine.base import Completion as Completion
    from tacit.engine.base import Engine as Engine
    from tacit.engine.base import Request as Request
    from tacit.engine.base import Sampling as Sampling
    from tacit.engine.factory import open_engine as open_engine
    from tacit.engine.load import LoadedModel as LoadedModel
    from tacit.engine.load import load_model as load_model
    from tacit.engine.local import LocalEngine as LocalEngine
    from tacit.errors import ConfigError as ConfigError
    from tacit.errors import TacitError as TacitError
    from tacit.grading import grade as grade
    from tacit.grading import read_answer as read_answer
    from tacit.learn.advantage import normalised as normalised
    from tacit.learn.loss import LossInputs as LossInputs
    from tacit.learn.loss import LossSettings as LossSettings
    from tacit.learn.loss import batch_sizes as batch_sizes
    from tacit.learn.loss import gspo as gspo
    from tacit.learn.score import score as score
    from tacit.learn.silence import ChoiceSettings as ChoiceSettings
    from tacit.learn.silence import choice_loss as choice_loss
    from tacit.learn.silence import choice_step as choice_step
    from tacit.learn.silence import log_not_silent as log_not_silent
    from tacit.rollout import Job as Job
    from tacit.rollout import play_all as play_all
    from tacit.tasks import load_tasks as load_tasks
    from tacit.team.roster import Role as Role
    from tacit.team.roster import Roster as Roster
    from tacit.team.roster import Topology as Topology
    from tacit.team.roster import build_roster as build_roster
    from tacit.team.team import Setting as Setting
    from tacit.team.team import Team as Team
    from tacit.types import Call as Call
    from tacit.types import ChatMessage as ChatMessage
    from tacit.types import Choice as Choice
    from tacit.types import Episode as Episode
    from tacit.types import Grade as Grade
    from tacit.types import Message as Message
    from tacit.types import Task as Task
    from tacit.types import Usage as Usage


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module `tacit` has no `{name}`")
    found = getattr(import_module(_MODULE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
