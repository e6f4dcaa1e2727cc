"""`tacit doctor`: tries out what a run relies on, and says how to fix what fails.

One line per check. A failure means that numbers would be wrong or that nothing would run, a warning
that something works less well. Servers of tools are started; API models are not called, since that
would cost money.
"""

import importlib.util
import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from importlib import metadata

import torch
from packaging.requirements import Requirement
from rich.text import Text

from tacit.cli.terminal import out
from tacit.config import AgentConfig, Config, ModelConfig
from tacit.doctor.model_checks import MODEL_CHECKS, open_model
from tacit.errors import ConfigError, SandboxError, Unfit
from tacit.grading import grade
from tacit.registry import lookup
from tacit.tasks import answer_form
from tacit.team.tools import open_toolbox
from tacit.types import Task

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
WHOLE = "give a folder as `save_pretrained` writes it, of an instruction-tuned model"


async def run_doctor(config: Config) -> bool:
    """Check the machine, and the tools and models of the config's teams; True if nothing fails."""
    states = [await _line("", name, check(config)) for name, check in MACHINE_CHECKS.items()]
    agents = [agent for team in config.all_teams.values() for agent in team.agents.values()]
    tools = [f"mcp/{server}" for server in config.mcp] + [t for one in agents for t in one.tools]
    opened: dict[tuple[str, ...], str] = {}
    for some in dict.fromkeys([*((name,) for name in tools), *(tuple(a.tools) for a in agents)]):
        if some and all(opened.get((name,), "ok") == "ok" for name in some):  # names may clash
            opened[some] = await _line("", f"tool {', '.join(some)}", _tools(some, config))
    states += opened.values()
    for name in dict.fromkeys(agent.model for agent in agents) or ["pocket"]:
        states += await _check_model(name, config.model_named(name))
    out.print(f"{states.count('fail')} failed, {states.count('warn')} warnings", highlight=False)
    return "fail" not in states


async def _check_model(name: str, model: ModelConfig) -> list[str]:
    if model.engine == "api":
        return [await _line(name, "API key", _api(model))]
    states = [await _line(name, "vLLM", _vllm())] if model.engine == "vllm" else []
    try:
        async with open_model(name, model) as opened:
            checks = MODEL_CHECKS.items()
            return states + [await _line(name, what, check(opened)) for what, check in checks]
    except Exception as error:  # as in `_line`
        return [*states, _print("fail", name, "opens", f"{error}; fix: {WHOLE}")]


async def _line(model: str, what: str, check: Awaitable[str]) -> str:
    try:
        return _print("ok", model, what, await check)
    except ConfigError as error:
        return _print(getattr(error, "state", "fail"), model, what, str(error))
    except Exception as error:  # anything that breaks is a finding; the other checks go on
        return _print("fail", model, what, f"{type(error).__name__}: {error}")


def _print(state: str, model: str, what: str, detail: str) -> str:
    name = f"{model}: {what}" if model else what
    out.print(Text.assemble((f"{state:<5}", STYLES[state]), f"{name}: {detail}"), soft_wrap=True)
    return state


async def _versions(config: Config) -> str:
    needs = [Requirement(line) for line in metadata.requires("tacit") or ()]
    core = [need for need in needs if not (need.marker and "extra" in str(need.marker))]
    for need in core:
        have = metadata.version(need.name)
        if not need.specifier.contains(have, prereleases=True):
            raise Unfit(f"{need.name} is {have}", f"pip install '{need.name}{need.specifier}'")
    main = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, CPU is used"
    return f"Python {platform.python_version()}, {main}; {device}"


async def _sandbox(config: Config) -> str:
    forms = [answer_form(tasks.name) for tasks in (config.tasks, config.train_tasks) if tasks]
    needed = any(form and form[0] == "code" for form in forms)
    fix = "use a Linux that lets this user make user namespaces, or root"
    try:
        walls = await lookup("sandbox", "tacit.sandbox.probe:chosen", {})()
    except SandboxError as error:
        raise Unfit(
            f"code cannot be graded here: {error}", fix, "fail" if needed else "warn"
        ) from error
    if walls.open:
        raise Unfit(f"{walls.method} works, but {'; '.join(walls.open)}", fix, "warn")
    return f"{walls.method}: a program cannot get out"


async def _math(config: Config) -> str:
    task = Task(id="doctor", question="", answer="x^2 + 2x + 1", grader="math")
    for text, right in ((r"\boxed{(x + 1)^2}", True), (r"\boxed{(x + 2)^2}", False)):
        if (await grade(task, text)).right is not right:
            fix = "pip install --force-reinstall 'math-verify[antlr4_13_2]'"
            raise Unfit(f"the grader judges {text} wrongly", fix)
    return "the workers tell equal from unequal formulas"


async def _tools(names: Sequence[str], config: Config) -> str:
    """Imports tools, or starts their servers and asks for all that the config allows of them."""
    toolbox = open_toolbox(AgentConfig(tools=list(names)), config.mcp, "agents")
    return f"models see {', '.join(await toolbox.open())}"


async def _api(model: ModelConfig) -> str:
    if not os.environ.get(model.api_key_env):
        fix = f"export {model.api_key_env}=… (any word, if the server needs none)"
        raise Unfit(f"{model.api_key_env} is not set", fix)
    try:
        metadata.version("openai")
    except metadata.PackageNotFoundError:
        raise Unfit("the openai client is missing", "pip install 'tacit[api]'") from None
    return f"{model.api_key_env} is set; {model.model} was not called"


async def _vllm() -> str:
    if importlib.util.find_spec("vllm") is None:
        raise Unfit("vLLM is missing", "pip install 'tacit[vllm]'")
    return "installed; the model below is checked as the trainer runs it"


MACHINE_CHECKS: dict[str, Callable[[Config], Awaitable[str]]] = {
    "versions": _versions,
    "sandbox": _sandbox,
    "mathematics": _math,
}
