"""Prints conversations: who sees what, each message, the outcome."""

import itertools
from collections.abc import Mapping

from rich.text import Text

from tacit.cli.terminal import out
from tacit.errors import RunError
from tacit.types import Call, Episode, Grade


def show_views(views: Mapping[str, str]) -> None:
    """Print what each agent alone is shown."""
    for agent, text in views.items():
        out.print(Text.assemble((agent, "bold cyan"), (" alone sees  ", "dim"), text))


def show_call(call: Call) -> None:
    """Print one message of a conversation, after the results of its agent's tools."""
    new = itertools.takewhile(lambda one: one.role == "tool", reversed(call.messages))
    for observed in reversed([*new]):  # tool results since the agent's last call
        tool = observed.tool_calls[0].name
        told = Text.assemble((tool, "bold magenta"), (" told ", "dim"), call.agent, "  ")
        out.print(told + Text(observed.content))
    said = ("silent", "dim") if call.silent else call.text
    if call.tool_calls and not call.text.strip():
        said = "\n".join(f"{one.name}({one.arguments})" for one in call.tool_calls)
    calls = " calls tools" if call.tool_calls else ""
    tokens = (f" ({call.usage.generated} tokens){calls}  ", "dim")
    out.print(Text.assemble((call.agent, "bold cyan"), tokens, said))


def show_played(episode: Episode, reference: str | None) -> None:
    """Print the outcome of one conversation, with its grade if there is a reference."""
    if episode.error:
        raise RunError(f"the episode failed: {episode.error}")
    if reference is not None and episode.grade:
        _show_grade(episode.grade, reference)
    usage = episode.usage
    told = f" ({usage.observed} of them from tools)" if usage.observed else ""
    out.print(f"{usage.generated} tokens generated, {usage.prompt} read{told}", style="dim")


def _show_grade(grade: Grade, reference: str) -> None:
    verdict = ("right", "green") if grade.right else ("wrong", "red")
    read = f"read {grade.answer!r}, " if grade.answer else ""
    out.print(Text.assemble(verdict, f": {read}reference {reference!r}"))
