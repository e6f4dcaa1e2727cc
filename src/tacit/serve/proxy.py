"""Drop-in help: a Collaborator in front of the Actor that an application calls already.

The team's own topology is played, and its `actor` is the server behind `--actor-url`, asked with
what the client sent: system prompt, earlier turns, tools, sampling settings. If the team has
nothing to add, the request goes on as it came. A reply with tool calls is the answer at once. If
the Collaborator fails, the client loses its help and nothing else.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tacit.config import TeamConfig
from tacit.engine.base import Completion
from tacit.errors import ConfigError, EngineError, TopologyError
from tacit.serve.admission import read_body
from tacit.serve.app import Service, now
from tacit.serve.backend import Answer, Emit, Heard, finished
from tacit.serve.budgets import Budgets
from tacit.serve.guard import BudgetGuard
from tacit.serve.http_error import HttpError
from tacit.serve.relay import CallsTools, Relay
from tacit.serve.schema import ChatRequest, Json, models_json, usage_of
from tacit.serve.team_backend import check_views, question_of
from tacit.serve.upstream import Upstream
from tacit.team.roster import Roster
from tacit.team.setting import Answering, Setting
from tacit.types import Call, Task

log = logging.getLogger(__name__)

ACTOR = "actor"
FORMS = ("audio/transcriptions", "audio/translations", "images/edits", "images/variations")
"""Paths of the Actor's server that are passed on and whose bodies are not JSON."""
PASSED_ON = (
    "audio/speech", "completions", "embeddings", "images/generations", "moderations", "rerank",
    "responses",
)  # fmt: skip
"""The other paths that are passed on: they generate or measure, and none manages the account's
files and models. The Actor's server may keep what it answers (`responses`, unless `store` is
false)."""


def with_foreign_actor(team: TeamConfig) -> TeamConfig:
    """The team as it plays in front of a foreign Actor, which has a system prompt of its own."""
    if ACTOR not in team.agents:
        raise ConfigError(f"--actor-url: the team ({team.topology}) has no `{ACTOR}` to stand for")
    if len(team.agents) == 1:
        raise ConfigError(f"--actor-url: the team ({team.topology}) has nobody to help the Actor")
    actor = team.agents[ACTOR].model_copy(update={"system": None, "silent": False, "tools": []})
    return team.model_copy(update={"agents": {**team.agents, ACTOR: actor}})


class ProxyBackend:
    def __init__(
        self,
        name: str,
        roster: Roster,
        upstream: Upstream,
        model: str | None,
        budgets: Budgets | None = None,
    ) -> None:
        """`model`: the Actor's id for clients that ask for the team by its name.

        Whatever engine the roster has for the Actor, a `Relay` takes its seat.
        """
        self._name = name
        self._roster = roster
        self.upstream = upstream
        self._model = model
        self._budgets = budgets or Budgets()

    async def models(self, headers: Mapping[str, str]) -> Json:
        theirs = await self.upstream.models(headers)
        ours = models_json([self._name] if self._model else [])
        return theirs | {"data": [*ours["data"], *theirs.get("data", [])]}

    def check(self, chat: ChatRequest) -> list[str]:
        if chat.fields.model == self._name and not self._model:
            told = f"`{self._name}` helps any model of the Actor's server: ask for one of those"
            raise HttpError(404, told, param="model", code="model_not_found")
        self._budgets.check(chat)
        check_views(chat, self._roster)
        return []  # everything goes on to the Actor

    async def answer(self, chat: ChatRequest, emit: Emit, heard: Heard) -> Answer:
        if chat.fields.model == self._name:
            chat = replace(chat, body=chat.body | {"model": self._model})
        relay = Relay(chat, emit, self.upstream, self._model or ACTOR)
        with self._budgets.opened(chat, answers=0) as allowance:
            guard = BudgetGuard(allowance, free=frozenset({ACTOR}), listen=heard)
            text, calls, unhelped = await self._play(chat, relay, guard)
        body = relay.reply(text)
        if body.get("usage"):
            body = body | {"usage": _team_usage(body["usage"], calls)}
        return finished(chat, body, calls, emit, unhelped=unhelped, allowance=allowance)

    async def _play(
        self, chat: ChatRequest, relay: Relay, guard: BudgetGuard
    ) -> tuple[str, list[Call], bool]:
        """The answer's text, the calls it took, and whether a helper failed."""
        try:
            relay.question = question_of(chat.fields.messages, with_system=False)
        except HttpError:  # nothing that a helper could read
            done = await relay.ask()
            return done.text, [_call(relay, done, guard)], False
        task = Task(id="serve", question=relay.question, answer="", grader="", views=chat.views)
        seed = 0 if chat.fields.seed is None else chat.fields.seed
        agents = [
            replace(agent, engine=relay, form="tagged") if agent.role == ACTOR else agent
            for agent in self._roster.agents
        ]
        roster = replace(self._roster, agents=tuple(agents))
        # The relay streams by itself: a listener only marks the final call.
        answering = Answering(on_text=lambda piece: None)
        setting = Setting(seed=seed, answering=answering, guard=guard)
        team = roster.seat(task, setting, guard.heard)
        try:
            answer = await roster.play(team)
            return answer.text, team.whole.calls, False
        except CallsTools as tools:
            done, failed = tools.completion, False
        except (ConfigError, EngineError, TopologyError) as error:
            if relay.streamed:
                raise HttpError(502, "the team failed after it had begun to answer") from error
            # of other errors the kind alone: their texts may quote what a client sent
            why = error if isinstance(error, ConfigError) else type(error).__name__
            log.warning("no help for one request: %s", why)
            done, failed = await relay.ask(), True
        return done.text, [*team.whole.calls, _call(relay, done, guard)], failed

    def routes(self, service: Service) -> list[Route]:
        """The other paths that an application may ask the Actor's server for."""
        return [
            Route(f"/v1/{path}", PassOn(path, service, self.upstream), methods=["POST"])
            for path in (*PASSED_ON, *FORMS)
        ]


@dataclass(frozen=True)
class PassOn:
    """Passes on one path of the Actor's server, within our limits to the last byte."""

    path: str
    service: Service
    upstream: Upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, request = self.service, Request(scope, receive)
        began = now()
        service.admit(request)
        body = await read_body(request, service.limits, json=self.path not in FORMS)
        query = request.url.query
        path = f"{self.path}?{query}" if query else self.path
        async with (
            service.in_time(began),
            service.admission.place(),
            self.upstream.passed_on(path, request.headers, body) as reply,
        ):
            await reply(scope, receive, send)


def _call(relay: Relay, done: Completion, guard: BudgetGuard) -> Call:
    """The ledger's record of an answer that the Actor gave outside the topology."""
    call = Call(
        agent=ACTOR,
        model=relay.model,
        messages=(),
        text=done.text,
        stop=done.stop,
        usage=done.usage,
        served=done.model,
    )
    guard.heard(call)
    return call


def _team_usage(actors: Json, calls: list[Call]) -> Json:
    """All the team's tokens, in the shape in which the Actor's server reports its own."""
    ours = usage_of(calls)
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        ours[name] = {**(actors.get(name) or {}), **ours[name]}
    return {**actors, **ours}
