"""What `tacit serve` does: checks everything, loads the team, serves it until told to stop."""

import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.cli.terminal import err
from tacit.config import Config
from tacit.economy.ledger import PriceTable
from tacit.engine.base import Engine
from tacit.engine.scripted import ScriptedEngine
from tacit.errors import ConfigError, DataError
from tacit.grading import GRADERS
from tacit.registry import did_you_mean
from tacit.report.loopback import is_loopback
from tacit.run.opening import answer_form_of, open_engines, prices_of
from tacit.serve.admission import ServerLimits, keys_from
from tacit.serve.app import Service
from tacit.serve.budgets import STOPS, BudgetRules, Budgets, parse_budget
from tacit.serve.http_server import BACKLOG, asked_to_stop, bind, serve
from tacit.serve.proxy import ACTOR, ProxyBackend, with_foreign_actor
from tacit.serve.team_backend import TeamBackend
from tacit.serve.upstream import Upstream
from tacit.team.roster import Roster, build_roster, check_team

SHARE_OF_DEADLINE = 0.8
"""The part of a request's deadline after which a model behind a URL is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The command's options; docs/serving.md says what they are for."""

    host: str
    port: int
    name: str | None
    instruction: str | None
    key_env: str
    without_key: bool
    actor_url: str | None
    actor_model: str | None
    actor_key_env: str
    places: int
    waiting: int
    rate: float | None
    body_kb: int
    deadline: float
    strict: bool
    request_budget: str
    conversation_budget: str
    answer_tokens: int
    conversations: int
    conversation_hours: float
    stop_when: str
    grace: float
    quiet: bool

    def limits(self) -> ServerLimits:
        return ServerLimits(
            keys=_keys(self),
            body_bytes=self.body_kb << 10,
            rate=self.rate,
            places=self.places,
            waiting=self.waiting,
            deadline=self.deadline,
            strict=self.strict,
        )

    def budgets(self) -> BudgetRules:
        stops = [stop.strip() for stop in self.stop_when.split(",") if stop.strip()]
        for stop in stops:
            if stop not in STOPS:
                hint = did_you_mean(stop, STOPS)
                raise ConfigError(f"--stop-when: `{stop}` ends no talk; {hint}")
        return BudgetRules(
            request=parse_budget(self.request_budget, "--request-budget"),
            conversation=parse_budget(self.conversation_budget, "--conversation-budget"),
            answer_tokens=self.answer_tokens,
            conversations=self.conversations,
            hours=self.conversation_hours,
            stops=frozenset(stops),
        )


async def run_serve(config: Config, options: ServeOptions, trained: Path | None) -> None:
    """Serve a config's team, with a run's trained weights if there is one."""
    if config.team is None:
        raise ConfigError("`tacit serve` serves the config's `team:`, and there is none: add it")
    team = config.team
    check_team(team)
    if options.actor_url is None and options.actor_model is not None:
        raise ConfigError("--actor-model names a model of the server at --actor-url: give both")
    if options.actor_url is not None and options.instruction is not None:
        raise ConfigError("--instruction: an Actor at --actor-url is told by its client; leave it")
    limits, rules = options.limits(), options.budgets()
    name = options.name or config.name
    config = within_deadline(config.model_copy(update={"teams": {}, "judge": None}), limits)
    async with AsyncExitStack() as stack:
        if options.actor_url is None:
            reader, instruction = _answer_form(config, options)
            budgets = Budgets(rules, _prices(config, rules), reader)
            sock = bind(options.host, options.port)
            roster = await stack.enter_async_context(open_roster(config, trained, {}))
            service = Service(TeamBackend(name, roster, instruction, budgets), limits)
            app = service.app()
        else:
            upstream = _upstream(options.actor_url, options, bool(limits.keys))
            stack.push_async_callback(upstream.close)
            budgets = Budgets(rules, _prices(config, rules, without=ACTOR))
            foreign = config.model_copy(update={"team": with_foreign_actor(team)})
            sock = bind(options.host, options.port)
            seat: dict[str, Engine] = {ACTOR: ScriptedEngine(())}  # nobody: requests bring a Relay
            roster = await stack.enter_async_context(open_roster(foreign, trained, seat))
            model = options.actor_model or config.model_named(team.agents[ACTOR].model).model
            proxy = ProxyBackend(name, roster, upstream, model, budgets)
            service = Service(proxy, limits)
            app = service.app(proxy.routes(service))
        _log_to_stderr(quiet=options.quiet)
        sock.listen(BACKLOG)  # whoever reads the next line can connect
        _say_where(name, sock, options, bool(limits.keys))
        with asked_to_stop() as asked:
            await serve(service, app, sock, options.grace, asked)
    err.print("stopped")


def within_deadline(config: Config, limits: ServerLimits) -> Config:
    """Give up models behind a URL before the client's deadline, so that it hears why."""
    longest = SHARE_OF_DEADLINE * limits.deadline
    models = {
        name: model.model_copy(update={"deadline": min(model.deadline, longest)})
        for name, model in config.models.items()
    }
    return config.model_copy(update={"models": models})


@asynccontextmanager
async def open_roster(
    config: Config, trained: Path | None, given: dict[str, Engine]
) -> AsyncIterator[Roster]:
    """The config's team in its seats; for roles in `given` no model is loaded."""
    assert config.team is not None
    if trained is not None:
        from tacit.learn.weights import open_trained

        async with open_trained(config, trained, given) as cast:
            yield cast.roster
        return
    own = {role: agent for role, agent in config.team.agents.items() if role not in given}
    loaded = config.team.model_copy(update={"agents": own})
    async with open_engines(config, {"team": loaded}) as engines:
        by_role = {role: engines[agent.model] for role, agent in own.items()}
        yield build_roster(config.team, by_role | given)


def _keys(options: ServeOptions) -> tuple[str, ...]:
    keys = keys_from(options.key_env)
    if keys and options.without_key:
        raise ConfigError(f"--without-key, but {options.key_env} holds a key: choose one")
    if not (keys or options.without_key or is_loopback(options.host)):
        raise ConfigError(
            f"{options.host} can be reached from other machines: put the key that clients must "
            f"show into the environment variable {options.key_env}, or insist on --without-key"
        )
    return keys


def _prices(config: Config, rules: BudgetRules, without: str = "") -> PriceTable | None:
    """The prices of the team's models, if money is counted. Who is `without` costs nothing here."""
    if not rules.counts_money or config.team is None:
        return None
    agents = {role: agent for role, agent in config.team.agents.items() if role != without}
    team = config.team.model_copy(update={"agents": agents})
    prices = prices_of(config.model_copy(update={"team": team}))
    if prices is None:
        return None
    used = {config.model_named(agent.model).model or agent.model for agent in agents.values()}
    return replace(prices, models={model: prices.of(model) for model in used})


def _answer_form(config: Config, options: ServeOptions) -> tuple[str, str]:
    """Which grader reads an answer, and how to answer: as in the team's tasks.

    No grader is known to read an answer that is judged, or given as an option says.
    """
    if options.instruction is not None:
        return "", options.instruction
    try:
        grader, instruction = answer_form_of(config)
    except DataError as error:
        raise ConfigError(f"{error}; or say how to answer with --instruction") from None
    return grader if grader in GRADERS else "", instruction


def _upstream(url: str, options: ServeOptions, keyed: bool) -> Upstream:
    """A client's key goes on to the Actor only if it is not a key of ours."""
    key = os.environ.get(options.actor_key_env)
    if keyed and not key:
        raise ConfigError(
            f"clients show {options.key_env}, so the Actor's own key must be in the environment "
            f"variable {options.actor_key_env} (any word, if its server needs none)"
        )
    return Upstream(url, key, pass_keys=not keyed)


def _log_to_stderr(*, quiet: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    ours = logging.getLogger("tacit.serve")
    ours.addHandler(handler)
    ours.setLevel(logging.WARNING if quiet else logging.INFO)
    ours.propagate = False


def _say_where(name: str, sock: socket.socket, options: ServeOptions, keyed: bool) -> None:
    host, port = sock.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    key = f"with a key of {options.key_env}" if keyed else "without a key"
    before = f" in front of {options.actor_url}" if options.actor_url else ""
    err.print(f"serving {name}{before} at {url}, {key}", soft_wrap=True)
