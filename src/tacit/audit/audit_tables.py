"""What an audit found, in the terminal: the parts by worth, then the messages to read."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter
from rich.console import RenderableType
from rich.text import Text

from tacit.cli.terminal import Grid, points
from tacit.evaluation.statistics import Estimate
from tacit.traffic.traffic_tables import traffic_tables
from tacit.traffic.tree import Traffic

TRAFFIC = TypeAdapter(Traffic)
EXCERPT = 300
"""Characters of a message that are shown."""
LEGEND = (
    "`worth` is the reward with the part minus that without it, in points. `helped` and `harmed` "
    "count plays that were right only with it and only without it. `costs` are tokens that it adds "
    "to an episode. `tasks` were played both ways. The verdict goes by an interval that is widened "
    "for the number of looks."
)


def audit_tables(result: Mapping[str, Any], *, details: bool = False) -> Iterator[RenderableType]:
    """What to print of an audit's JSON, in order; `details` are where the tokens go."""
    worth = "parts" in result
    if details or not worth:
        yield from traffic_tables(TRAFFIC.validate_python(result["traffic"]), examples=details)
    if worth and result["parts"]:
        yield worth_table(result)
    elif worth:
        yield Text("\nThere is nothing to leave out: one agent gives every answer by itself.")
    if worth:
        yield from messages_text(result["messages"])
        yield Text(spent_line(result))
    for sentence in result.get("notes", ()):
        yield Text(f"note: {sentence}")


def worth_table(result: Mapping[str, Any]) -> Grid:
    rows: list[list[str] | str] = []
    money, failed = result["currency"], any(part["failed"] for part in result["parts"])
    for part in result["parts"]:
        row = [part["name"], points(Estimate(**part["value"])), part["verdict"]]
        row += [str(part[name]) for name in ("helped", "harmed")]
        row += [f"{part[name]:z.0f}" for name in ("generated", "read")]
        row += [str(part[name]) for name in ("tasks", *(["failed"] if failed else []))]
        rows.append(row + ([f"{part['money']:.6f}"] if money else []))
    headers = ["part", "worth", "", "helped", "harmed", "costs\nsaid", "costs\nread", "tasks"]
    headers += ["failed"] if failed else []
    reward = result["reward"]
    return Grid(
        headers + ([str(money)] if money else []),
        rows,
        title=f"What each part is worth; the whole team's reward is {100 * reward:.1f}"
        if reward is not None
        else "What each part is worth",
        legend=LEGEND,
    )


def messages_text(messages: list[dict[str, Any]]) -> Iterator[Text]:
    """The messages that helped most, then those that harmed most."""
    for harmful, title in ((False, "helped"), (True, "harmed")):
        mine = [one for one in messages if (one["value"] < 0) == harmful]
        if mine:
            yield Text(f"\nMessages that {title} most", "italic")
        for one in mine[::-1] if harmful else mine:
            plays = f", mean of {one['plays']} plays" if one["plays"] > 1 else ""
            head = f" {one['agent']} in {one['task']}: {100 * one['value']:+.0f} points{plays}"
            yield Text(head, "bold")
            yield Text(f"   {_excerpt(one['text'])}")
            yield Text(f"   answer {_last(one['answer'])} · without it {_last(one['without'])}")


def spent_line(result: Mapping[str, Any]) -> str:
    line = f"\n{result['ended']}; the audit took {result['spent']:,} tokens"
    if result["equal"] > result["spent"]:
        line += f" ({result['equal']:,} if every part had played as many tasks as the longest)"
    line += f"; {result['failed']} plays failed" if result["failed"] else ""
    models = (result.get("spend") or {}).get("models", ())
    asked = sum(one["usage"]["prompt"] + one["usage"]["generated"] for one in models)
    if asked > result["spent"]:
        line += f"; {asked:,} paid for in this folder, with plays that were broken off or repeated"
    return line


def prune_tables(result: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What to print of a check of smaller teams."""
    failed = any(one["failed"] for one in result["proposals"])
    counted = ["tasks", *(["failed"] if failed else [])]
    rows = [
        [one["name"], f"{100 * one['share']:.0f}", points(Estimate(**one["difference"]))]
        + ["passed" if one["passed"] else "–", f"{100 * one['reward']:.1f}"]
        + [f"{one[name]:.0f}" for name in ("generated", "read", *counted)]
        for one in result["proposals"]
    ]
    again = " A team with failed plays does not pass; the same command tries them again."
    headers = ["smaller team", "tokens\n%", "reward − whole team's", "", "reward", "said", "read"]
    yield Grid(
        headers + counted,
        rows,
        title="Smaller teams on tasks that the audit did not use",
        legend="`tokens` are said and read, as a share of the whole team's. A team passed if its "
        f"interval, widened for all proposals and looks so far, is above −1 point.{again * failed}",
    )
    for sentence in result.get("notes", ()):
        yield Text(f"note: {sentence}")
    if result["chosen"]:
        yield Text(f"\n{result['chosen']}: written to {result['config']}")
        if command := result["weights"]:
            yield Text(f"a config holds no weights; to play with the checked ones: {command}")
    elif any(one["passed"] for one in result["proposals"]):
        yield Text("\nwhat passed takes no fewer tokens than the whole team: nothing is written")
    else:
        yield Text("\nno smaller team is shown to be as good; more tasks narrow the intervals")


def estimate_lines(found: Mapping[str, Any]) -> Iterator[Text]:
    """What a dry run found."""
    if not found["parts"]:
        yield Text("nothing could be left out: one agent gives every answer by itself")
        return
    yield Text(f"{len(found['parts'])} parts could be left out: {', '.join(found['parts'])}")
    money = found["money_most"]
    most = f"about {found['tokens_most']:,} tokens if all {found['tasks']} tasks were needed"
    if money is not None:
        most += f", {money:.4f} {found['currency']}"
    first = f"about {found['tokens_first']:,} tokens for the first {found['first']} tasks"
    yield Text(f"{first}, {most}")
    if found["tokens_again"]:
        yield Text(f"at most about {found['tokens_again']:,} more to play on from single messages")
    if found["limit"]:
        yield Text(f"it stops before audit.tokens={found['limit']:,}")
    if found["cap"]:
        yield Text(f"it stops at spend_cap={found['cap']:g} {found['currency']}")


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EXCERPT else f"{flat[:EXCERPT]} …"


def _last(answer: str) -> str:
    """The end of an answer, where its result stands."""
    flat = " ".join(answer.split())
    return f"“{flat if len(flat) <= 40 else f'… {flat[-40:]}'}”"
