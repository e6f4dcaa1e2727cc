"""An audit in the terminal: tables that fit 80 columns, then what was found in sentences."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from tacit.cli.terminal import Grid
from tacit.traffic.exchange import Example
from tacit.traffic.findings import amount, percent
from tacit.traffic.prompt_pieces import PARTS
from tacit.traffic.tree import Spending, Traffic

MOST_EDGES = 20
MOST_LOOPS = 5
SHORT = {
    "instructions": "instruc-\ntions",
    "observations": "from\ntools",
    "unrecorded": "not\nrecorded",
}
ADD = ["messages", "said", "read\ntimes", "un-\nread", "re-\npeats", "says\nagain", "only\nagrees"]


def traffic_tables(found: Traffic, *, examples: bool = False) -> Iterator[RenderableType]:
    """What to print, in order. With `examples`, each finding is followed by its excerpts."""
    if found.agents:
        yield spending_table(found)
        yield prompts_table(found)
    if found.edges:
        yield edges_table(found)
    if found.sayings:
        yield sayings_table(found)
    if found.path and found.path.path:
        yield path_table(found)
    yield from _sentences(found, examples)


def spending_table(found: Traffic) -> Grid:
    money = found.currency is not None
    headers = ["agent", "calls", "read", "cached", "told", "said", "reasoned"]
    rows: list[list[str] | str] = [_spent(one, money) for one in found.agents]
    if len(found.agents) > 1:
        rows.append(_spent(found.team, money))
    if len(found.models) > 1:
        rows += ["by model", *(_spent(one, money) for one in found.models)]
    return Grid(
        headers + ([found.currency or ""] if money else []),
        rows,
        title=f"Tokens per episode, over {found.episodes} episodes",
        legend="`cached` is the part of `read` that was computed before, `told` the part from "
        "tools, where known. `reasoned` is the part of `said` that others are not shown."
        + (" – means that no price is known." if found.unpriced else ""),
    )


def _spent(one: Spending, money: bool) -> list[str]:
    each = one.per_episode
    row = [one.name, f"{each.calls:.1f}"]
    row += map(amount, (each.prompt, each.cached, each.observed, each.generated, each.reasoning))
    return row + (["–" if each.money is None else f"{each.money:.6f}"] if money else [])


def prompts_table(found: Traffic) -> Grid:
    """Columns are the parts that occur."""
    parts = [
        name for name in PARTS if any(p.name == name for row in found.prompts for p in row.parts)
    ]
    rows: list[list[str] | str] = []
    for row in found.prompts:
        sums = {part.name: part for part in row.parts}
        for title, tokens, which in ((row.agent, row.tokens, "tokens"), ("", row.before, "before")):
            cells = [getattr(sums[name], which) if name in sums else 0.0 for name in parts]
            name = title or "  sent before"
            rows.append([name, *(amount(cell / found.episodes) for cell in (tokens, *cells))])
    return Grid(
        ["agent", "read", *(SHORT.get(name, name) for name in parts)],
        rows,
        title="What prompts consist of, in tokens per episode (estimated by characters)",
        legend="`sent before` was in an earlier prompt of the same agent and episode. `own` and "
        "`others` are messages of the agent itself and of others.",
    )


def edges_table(found: Traffic) -> Grid:
    rows = [
        [edge.sender, edge.reader, str(edge.messages), str(edge.readings)]
        + [amount(tokens / found.episodes) for tokens in (edge.tokens, edge.before)]
        for edge in found.edges[:MOST_EDGES]
    ]
    more = len(found.edges) - MOST_EDGES
    return Grid(
        ["sender", "reader", "messages", "readings", "tokens per\nepisode", "sent\nbefore"],
        rows,
        names=2,
        title="Who was shown whose messages, in all episodes",
        legend="`messages` are found whole in prompts of the reader; `readings` counts them once "
        "for each prompt." + (f" {more} more pairs are not shown." if more > 0 else ""),
    )


def sayings_table(found: Traffic) -> Grid:
    read = {one.agent: one for one in found.senders}
    rows = []
    for one in found.sayings:
        sent = read.get(one.agent)
        each = sent.readings / sent.messages if sent else 0.0
        row = [one.agent, str(one.messages), amount(one.generated / found.episodes)]
        row += [f"{each:.1f}", str(sent.unread)] if sent else ["–", "–"]
        rows.append([*row, percent(one.repetition), str(one.again), str(one.acknowledgements)])
    return Grid(
        ["agent", *ADD],
        rows,
        title="What messages add, in all episodes (said: tokens per episode)",
        legend="`read times`: prompts that hold a message whole. `unread`: messages in no prompt, "
        "except answers. `repeats`: word 4-grams said before. `says again`: messages of mostly "
        "such 4-grams. `only agrees`: courtesy without a new word.",
    )


def path_table(found: Traffic) -> Grid:
    path = found.path
    assert path is not None
    unit = "s" if path.unit == "seconds" else "tokens"
    rows = [
        [one.agent, percent(one.share)]
        + [amount(spent / path.episodes) for spent in (one.amount, one.off)]
        for one in path.agents
    ]
    wall = f" An episode took {amount(path.wall / path.episodes)} s." if path.wall else ""
    return Grid(
        ["agent", "share of\nthe chain", f"on it,\n{unit}", f"beside it,\n{unit}"],
        rows,
        title=f"The longest chain of calls: {amount(path.path / path.episodes)} of "
        f"{amount(path.total / path.episodes)} {unit} per episode",
        legend=f"A call follows those whose messages it was shown.{wall}",
    )


def _sentences(found: Traffic, examples: bool) -> Iterator[Text]:
    if found.findings:
        yield Text("\nFound, the most tokens first", "italic")
    for one in found.findings:
        yield Text(f"- {one.sentence}")
        for place in one.examples if examples else ():
            yield Text(_excerpt(place), "dim")
    for loop in found.loops[:MOST_LOOPS]:
        calls = ", ".join(map(str, loop.calls))
        yield Text(f"  loop: episode {loop.episode} ({loop.task_id}), calls {calls}", "dim")
    for note in found.notes:
        yield Text(note, "yellow")


def _excerpt(one: Example) -> str:
    return f"    episode {one.episode} ({one.task_id}), call {one.call}, {one.agent}: {one.excerpt}"
