"""Drop-in help: a Collaborator in front of the Actor that an application calls already.

The team's own topology is played, and its `actor` is the server behind `--actor-url`, asked with
what the client sent: system prompt, earlier turns, tools, sampling settings. Where the team has
nothing to add, the request goes on as it came. A reply with tool calls is the answer at once. A
Collaborator that fails costs its help and nothing else.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tacit.config import TeamConfig
from tacit.engine.base import Completion
from tacit.errors import ConfigError, EngineError, TopologyError
from tacit.serve.actor import CallsTools, Relay
from tacit.serve.app import Service
from tacit.serve.backend import Answer, Emit
from tacit.serve.conversation import question_of
from tacit.serve.keys import check_json, read_body
from tacit.serve.problem import Problem
from tacit.serve.schema import Chat, Json, account, model_json, usage_json
from tacit.serve.upstream import Upstream
from tacit.team.roster import Roster
from tacit.team.team import Answering, Setting
from tacit.types import Call, Task, Usage

log = logging.getLogger(__name__)

ACTOR = "actor"
FORMS = ("audio/transcriptions", "audio/translations", "images/edits", "images/variations")
"""Paths of the Actor's server that are passed on, and whose bodies are no JSON."""
PASSED_ON = (
    "audio/speech",
    "completions",
    "embeddings",
    "images/generations",
    "moderations",
    "rerank",
    "responses",
)
"""The others: what generates or measures, and lets nobody manage the account's files and models.

The Actor's server may keep what it answers, as `responses` do unless `store` is false."""


def with_foreign_actor(team: TeamConfig) -> TeamConfig:
    """The team as it plays in front of a foreign Actor, which has a system prompt of its own."""
    if ACTOR not in team.agents:
        raise ConfigError(f"--actor-url: the team ({team.topology}) has no `{ACTOR}` to stand for")
    if len(team.agents) == 1:
        raise ConfigError(f"--actor-url: the team ({team.topology}) has nobody to help the Actor")
    actor = team.agents[ACTOR].model_copy(update={"system": None, "silent": False})
    return team.model_copy(update={"agents": {**team.agents, ACTOR: actor}})


class ProxyBackend:
    def __init__(self, name: str, roster: Roster, upstream: Upstream, model: str | None) -> None:
        """`model`: the Actor's id for clients that ask for the team by its name."""
        plain = [replace(a, form="tagged") if a.role == ACTOR else a for a in roster.agents]
        self._roster = replace(roster, agents=tuple(plain))
        self._name = name
        self._upstream = upstream
        self._model = model
        self._opened = int(time.time())

    async def models(self, headers: Mapping[str, str]) -> Json:
        theirs = await self._upstream.models(headers)
        ours = [model_json(self._name, self._opened)] if self._model else []
        return theirs | {"data": [*ours, *theirs.get("data", [])]}

    def check(self, chat: Chat) -> list[str]:
        if chat.fields.model == self._name and not self._model:
            raise Problem(
                404,
                f"`{self._name}` helps any model of the Actor's server: ask for one of those",
                param="model",
                code="model_not_found",
            )
        return []  # everything goes on to the Actor

    async def answer(self, chat: Chat, emit: Emit) -> Answer:
        model = self._model if chat.fields.model == self._name else None
        relay = Relay(chat, emit, self._upstream, model)
        text, calls, unhelped = await self._play(chat, relay)
        body = dict(relay.reply(text))
        if body.get("usage"):
            body["usage"] = _team_usage(body["usage"], calls)
        if chat.fields.tacit:
            body["tacit"] = account(calls)
        if chat.streams and (last := chat.last_fields(body)):
            head = {k: v for k, v in body.items() if k not in ("choices", "usage", "tacit")}
            emit(head | {"object": "chat.completion.chunk", "choices": []} | last)
        return Answer(body, calls, unhelped)

    async def _play(self, chat: Chat, relay: Relay) -> tuple[str, list[Call], bool]:
        """The answer's text, the calls it took, and whether a helper failed."""
        try:
            relay.question = question_of(chat.fields.messages, with_system=False)
        except Problem:  # nothing that a helper could read
            done = await relay.ask("", final=True)
            return done.text, [self._call(done)], False
        task = Task(id="serve", question=relay.question, answer="", grader="")
        seed = 0 if chat.fields.seed is None else chat.fields.seed
        team = self._roster.seat(task, Setting(seed=seed, answering=Answering(on_text=_unheard)))
        try:
            answer = await self._roster.play(team)
            return answer.text, team.whole.calls, False
        except CallsTools as tools:
            done, failed = tools.completion, False
        except (EngineError, TopologyError) as error:
            if relay.streamed:
                raise Problem(502, "the team failed after it had begun to answer") from error
            log.warning("no help for one request: %s", type(error).__name__)
            done, failed = await relay.ask("", final=True), True
        return done.text, [*team.whole.calls, self._call(done)], failed

    def _call(self, done: Completion) -> Call:
        """The ledger's record of what the Actor was asked outside the topology."""
        return Call(
            agent=ACTOR,
            model=self._model or ACTOR,
            messages=(),
            text=done.text,
            stop=done.stop,
            usage=done.usage,
            served=done.model,
        )

    async def close(self) -> None:
        await self._upstream.close()

    def routes(self, service: Service) -> list[Route]:
        """What else an application may ask the Actor's server: passed on as it is."""
        return [
            Route(f"/v1/{path}", PassOn(path, service, self._upstream), methods=["POST"])
            for path in (*PASSED_ON, *FORMS)
        ]


class PassOn:
    """One path of the Actor's server, within our limits from the first byte to the last."""

    def __init__(self, path: str, service: Service, upstream: Upstream) -> None:
        self._path = path
        self._service = service
        self._upstream = upstream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, request = self._service, Request(scope, receive)
        until = service.until()
        service.admit(request)
        if self._path not in FORMS:
            check_json(request)
        body = await read_body(request, service.limits.body_bytes, service.limits.deadline)
        query = request.url.query
        path = f"{self._path}?{query}" if query else self._path
        async with (
            service.in_time(until),
            service.gate.place(),
            self._upstream.passed_on(path, request.headers, body) as reply,
        ):
            await reply(scope, receive, send)


def _unheard(piece: str) -> None:
    """The relay streams by itself; that there is a listener marks the call as the final one."""


def _team_usage(actors: Json, calls: list[Call]) -> Json:
    """All the team's tokens, in the shape in which the Actor's server reports its own."""
    ours = usage_json(sum((call.usage for call in calls), Usage()))
    inner = {
        name: {**(actors.get(name) or {}), **details}
        for name, details in ours.items()
        if isinstance(details, dict)
    }
    return {**actors, **ours, **inner}
