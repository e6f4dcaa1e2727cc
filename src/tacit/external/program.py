"""The topology `tacit.external:app`: a function of the user's own plays the episode.

    team:
      topology: tacit.external:app
      options: {program: "my_graph:solve"}     # def solve(base_url: str, task: Task) -> str

The function may be plain or async. It runs in a thread of its own, so it may block.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from tacit.config import TeamConfig
from tacit.errors import ConfigError, EngineError, TacitError
from tacit.registry import lookup
from tacit.team.roster import Topology
from tacit.team.team import Team
from tacit.types import Message, Task

Program = Callable[[str, Task], Any]
"""Takes the base URL and the task, without its answer; returns the team's answer as text."""


async def play(task: Task, team: Team, program: str, seconds: float = 600.0) -> Message:
    """Run the program and serve its calls. What it raises fails the episode, as an engine would."""
    from tacit.external.endpoint import Session, endpoint

    session = Session(team)
    async with endpoint() as here:
        try:
            with here.opened(session) as base_url:
                text = await answer_of(program, base_url, task, seconds)
        except TacitError as error:
            raise session.failure or error from None
        finally:
            session.settle()
    if session.failure:
        raise session.failure
    agents = [call.agent for call in team.whole.calls if call.text == text]
    return Message(agents[-1] if agents else program, text)


async def answer_of(program: str, base_url: str, task: Task, seconds: float = 600.0) -> str:
    """What the program answers, for which it is not shown the reference.

    What it raises is an EngineError, as is a program that takes too long.
    """
    shown = replace(task, answer="", data={})
    done = _in_thread(find_program(program), base_url, shown)
    try:
        text, error = await asyncio.wait_for(done, seconds)
    except TimeoutError:
        raise EngineError(f"{program} did not finish within {seconds:g} seconds") from None
    if error:
        raise EngineError(f"{program}: {type(error).__name__}: {error}") from error
    if not isinstance(text, str):
        raise ConfigError(f"{program} must return its answer as text, not {type(text).__name__}")
    return text


def find_program(name: str) -> Program:
    if ":" not in name:
        raise ConfigError(f"program: write `module:function`, not `{name}`")
    found: Program = lookup("program", name, {})
    if not callable(found):
        raise ConfigError(f"program `{name}` must be a function (base_url, task) -> str")
    return found


def check(config: TeamConfig) -> None:
    if not all(map(find_spec, ("starlette", "uvicorn", "prometheus_client"))):
        raise ConfigError("an external program needs an endpoint: pip install 'tacit[serve]'")
    find_program(config.options["program"])
    for role, agent in config.agents.items():
        if agent.system is not None:
            raise ConfigError(
                f"team.agents.{role}.system: the program writes its own prompts; leave it out"
            )


def _in_thread(
    run: Program, base_url: str, task: Task
) -> asyncio.Future[tuple[Any, BaseException | None]]:
    """What the program returned or raised. Its thread does not keep the process alive."""
    outcome: Future[tuple[Any, BaseException | None]] = Future()
    outcome.set_running_or_notify_cancel()  # the thread cannot be cancelled, only left alone

    def work() -> None:
        try:
            result = run(base_url, task)
            result = asyncio.run(result) if inspect.iscoroutine(result) else result
            outcome.set_result((result, None))
        except BaseException as error:  # `sys.exit` ends the app, and nothing else
            outcome.set_result((None, error))

    threading.Thread(target=work, name=f"episode {task.id}", daemon=True).start()
    return asyncio.wrap_future(outcome)


app = Topology(
    play=play, roles={}, summary="an external program asks the agents over HTTP", check=check
)
