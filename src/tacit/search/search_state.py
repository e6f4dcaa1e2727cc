"""What a search knows, kept in `search.json`: written whole or not at all, after every decision.

A search that was killed goes on from it, and it is what people and the report read in the end.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tacit.config import Config, TeamConfig
from tacit.errors import ConfigError
from tacit.evaluation.statistics import Estimate
from tacit.run.folder import MODEL_MAY_CHANGE, RunFolder, differences
from tacit.search.candidates import Candidate

FILE = "search.json"
EXTENDING = {"tokens", "money", "train", "rungs"}
"""Settings of `search` that may change when a search goes on."""
Stage = Literal["search", "check", "train", "done"]


@dataclass(slots=True, kw_only=True)
class Entry:
    """One candidate, and what it did on the tasks that it has played."""

    name: str
    team: dict[str, Any]
    parent: str | None = None
    edit: str = ""
    born: int = 0
    """The turn in which it joined; 0 for the first pool."""
    rung: int = 0
    """The last rung that it played, from 1; 0 if none was finished."""
    tasks: int = 0
    accuracy: Estimate | None = None
    behind: Estimate | None = None
    """How far from the leader it was when last judged, with the paired interval."""
    generated: float = 0.0
    """Tokens per episode, as is `read`."""
    read: float = 0.0
    cost: float = 0.0
    """Per episode, in what the budget counts."""
    dropped: str = ""
    """Why; empty while it is in."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """Some candidates on the first so many tasks; `kept` is None until they have been judged."""

    kind: Literal["probe", "rung", "newcomers"]
    """`probe`: a few tasks of the first rung, to learn what each candidate costs."""
    tasks: int
    teams: list[str]
    kept: list[str] | None = None
    """Those that stay, best first."""
    spent: float = 0.0
    """By the search so far, once it is over."""


@dataclass(slots=True, kw_only=True)
class State:
    unit: str
    """What the budget counts."""
    budget: float = math.inf
    planned: int = 0
    """Rungs there would be if the budget allowed all."""
    stage: Stage = "search"
    entries: dict[str, Entry] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    stopped: str = ""
    """Why the search ended, in a sentence."""
    start: str = ""
    """The start team; then the best of the first pool, and the winner."""
    best_of_first: str | None = None
    winner: str | None = None
    spend: dict[str, float] = field(default_factory=dict)
    """What the search took, what it would have taken to play all candidates (or all of the first
    pool) on all tasks of the last rung, and what the check took."""
    check: dict[str, Any] | None = None
    """The winner and others on tasks that the search did not see."""
    training: dict[str, Any] | None = None
    """Which roles of the winner were trained, or why none; then how it came out."""

    @property
    def alive(self) -> list[str]:
        """Candidates that are in, best first once they have been judged."""
        judged = next((t.kept for t in reversed(self.turns) if t.kept is not None), None)
        return list(self.entries) if judged is None else judged

    @property
    def rungs(self) -> list[Turn]:
        """Those that are over."""
        return [one for one in self.turns if one.kind == "rung" and one.kept is not None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


STATE: TypeAdapter[State] = TypeAdapter(State)


def decisive(config: Config) -> dict[str, Any]:
    """The settings that a search's decisions depend on."""
    whole = config.model_dump(mode="json")
    search = {name: v for name, v in whole["search"].items() if name not in EXTENDING}
    models = {
        n: m.model_dump(mode="json", exclude=MODEL_MAY_CHANGE) for n, m in config.models.items()
    }
    names = ["seed", "train_tasks", "tasks", "team", "teams", "judge", "mcp"]
    names += ["prices"] if config.search.money else []
    return {name: whole[name] for name in names} | {"models": models, "search": search}


def read_state(run: RunFolder, config: Config) -> State | None:
    """The state of a search that has begun; a ConfigError if it began with other settings."""
    if not (run.path / FILE).exists():
        return None
    try:
        state = STATE.validate_python(run.read_json(FILE))
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"{run.path / FILE} is no search's ({place}): remove it, and the search begins anew "
            "with the episodes that are there"
        ) from None
    then, now = decisive(run.existing(run.path)[1]), decisive(config)
    if other := differences(then, now):
        raise ConfigError(
            f"`{run.path}` holds a search with other settings ({', '.join(other)} differ): "
            "name another folder with --out"
        )
    return state


def entry_of(one: Candidate, born: int) -> Entry:
    team = one.team.model_dump(mode="json")
    return Entry(name=one.name, team=team, parent=one.parent, edit=one.edit, born=born)


def candidate_of(entry: Entry, config: Config) -> Candidate:
    team = TeamConfig.model_validate(entry.team)
    team.servers.update(config.mcp)
    return Candidate(name=entry.name, team=team, parent=entry.parent, edit=entry.edit)


def amount(value: float) -> str:
    """Tokens as whole numbers, money as far as it says something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
