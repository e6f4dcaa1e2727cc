"""Write the tables, the plot and the pages of the results: `python -m experiments.pages [--check]`.

Every number comes from `results/*.json`. Generated are docs/results/*.md (a page for each
experiment, one of comparisons, one of audits, one of ways to choose, one list), the plot, and what
stands between `<!-- main -->` and `<!-- end -->` in docs/results.md. `--check` writes nothing and
says what differs.
"""

import argparse
import re
import sys
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

import yaml

from experiments import audits, choices, tables
from experiments.plots import Point, scatter
from experiments.records import FOLDER, Measured, Records, difference, on_shared
from experiments.tables import interval, p_value, points, table
from experiments.talk import holders_table, talk_table, tools_table
from tacit import ConfigError, TacitError

DOCS = Path(__file__).parents[1] / "docs"
MAIN = re.compile(r"(?<=<!-- main -->\n).*?(?=<!-- end -->)", re.S)
BLIND, SEEING = "split-gsm8k-blind", "split-gsm8k-seeing"
WRONG_END = (
    "Measured with the wrong end of silence (see [limits](../results.md#limits)){but}. What is "
    "said here about agents that may be silent has to be measured again."
)
RIGHT_END_SINCE = "2026-11-17"
"""Runs that began before may have the wrong end."""


@dataclass(frozen=True, slots=True)
class Team:
    """What a table calls a team, and where its numbers are."""

    label: str
    name: str
    evaluation: str = "trained"
    marks: str = ""
    """† made with the wrong end of silence, ¹ trained with one seed, ² with two."""
    seed: int | None = None
    """Only this one."""

    def found(self, records: Records) -> Measured:
        if self.seed is None:
            return records.get(self.name, self.evaluation)
        return Measured((records.runs[self.name][self.seed]["evaluations"][self.evaluation],))


SOLO = Team("Actor alone", "baselines", "solo")
CONSISTENCY = Team("self-consistency, 8 samples", "baselines", "self-consistency")
ROLES = Team("role assignment", "baselines", "role assignment")
DEBATE = Team("debate, 3 agents, 2 rounds", "baselines-dialogue", "debate")
UNTRAINED_HINT = Team("untrained hint", "baselines", "untrained hint")
UNTRAINED_CRITIC = Team("untrained critic", "baselines", "untrained critic")
UNTRAINED_DIALOGUE = Team("untrained dialogue", "baselines-dialogue", "untrained, gsm8k", "†")
HINT = Team("trained hint", "hint")
READ = Team("trained hint, read", "hint-reader-budget")
CRITIC = Team("trained critic", "critic", marks="¹")
DIALOGUE = Team("trained dialogue", "gspo", marks="†")
OPINION = Team("trained second opinion", "gspo-second", marks="¹ †")
FINE_TUNED = Team("Actor fine-tuned", "actor-finetune")
TUNED_HINTER = Team("fine-tuned Actor as hinter", "finetuned-hinter")
SPLIT_ALONE = Team("Actor alone", f"{BLIND}-untrained", "alone")
TOLD = Team("Actor told the missing sentence", f"{BLIND}-untrained", "told the missing sentence")
BLIND_HELPER = Team("trained helper, blind", BLIND)
SEEING_HELPER = Team("trained helper, seeing", SEEING, marks="²")
ADAPTIVE = Team("adaptive consistency, at most 8", "rivals", "adaptive consistency")
STOPPING = Team("early-stopping consistency, at most 8", "rivals", "early stopping")
AGREED = Team("debate until agreed", "rivals", "debate until agreed")
SPARSE = Team("sparse debate, 4 agents, 2 rounds", "rivals", "sparse debate")
SELECTIVE = Team("after S2-MAD, 3 agents, 3 rounds", "rivals", "S2-MAD")

GSM8K = (
    SOLO, Team("Actor alone, measured again", "baselines+right-end", "solo"), CONSISTENCY,
    ADAPTIVE, STOPPING, ROLES, DEBATE, AGREED, SPARSE, SELECTIVE, UNTRAINED_HINT,
    UNTRAINED_CRITIC, UNTRAINED_DIALOGUE, HINT, READ, CRITIC, DIALOGUE, OPINION, FINE_TUNED,
    TUNED_HINTER,
)  # fmt: skip
SPLIT = (
    SPLIT_ALONE,
    TOLD,
    Team("untrained helper, blind, must speak", f"{BLIND}-untrained", "must speak"),
    Team("untrained helper, blind, free to choose", f"{BLIND}-untrained", "blind"),
    Team("untrained helper, seeing, free to choose", f"{SEEING}-untrained", "seeing"),
    BLIND_HELPER,
    SEEING_HELPER,
)
PAIRS = (
    (HINT, UNTRAINED_HINT),
    (HINT, FINE_TUNED),
    (HINT, TUNED_HINTER),
    (TUNED_HINTER, Team("itself alone", "finetuned-hinter", "alone")),
    (
        Team("Actor fine-tuned, 83 steps", "actor-finetune+tokens-6m"),
        Team("the same, 48 steps, seed 0", "actor-finetune", seed=0),
    ),
    (HINT, CONSISTENCY),
    (FINE_TUNED, CONSISTENCY),
    (HINT, ROLES),
    (HINT, Team("self-refine", "baselines-costly", "self refine")),
    (HINT, DEBATE),
    *((Team(f"{READ.label}, seed {seed}", READ.name, seed=seed), SOLO) for seed in range(3)),
    (READ, Team("untrained hint, read", "hint-reader-budget", "untrained")),
    (READ, FINE_TUNED),
    (CRITIC, UNTRAINED_CRITIC),
    (DIALOGUE, UNTRAINED_DIALOGUE),
    (DIALOGUE, DEBATE),
    (DIALOGUE, FINE_TUNED),
    (
        Team("dialogue, reference of the controls", "gspo-role-last"),
        Team("the same, no price", "gspo-no-cost"),
    ),
    (
        Team("dialogue, no price, sequence an episode", "gspo-no-cost"),
        Team("the same, sequence a message", "gspo-no-cost-messages"),
    ),
    (
        Team("GRPO, two updates a batch", "gspo-grpo-two-updates"),
        Team("GSPO, two updates a batch", "gspo-two-updates"),
    ),
    (
        Team("dialogue trained on MATH, MATH500", "gspo-math"),
        Team("Actor alone, MATH500", "baselines-dialogue", "solo, math500"),
    ),
    (FINE_TUNED, ADAPTIVE),
    (ADAPTIVE, CONSISTENCY),
    *((team, DEBATE) for team in (AGREED, SPARSE, SELECTIVE)),
    *((team, other) for team in (BLIND_HELPER, SEEING_HELPER) for other in (SPLIT_ALONE, TOLD)),
    (SEEING_HELPER, BLIND_HELPER),
    *(
        (Team(f"failing tests reported, {name}", name, "rule"), Team("Actor alone", name, "solo"))
        for name in ("code-baselines-humaneval_plus", "code-baselines-mbpp_plus")
    ),
)
"""Whom the comparisons put against whom."""


def main_table(records: Records) -> str:
    head = (
        "team", "seeds", "right % [95 %]", "against the Actor alone", "generated", "read",
        "silent %",
    )  # fmt: skip
    rows = []
    for tasks, teams in (("GSM8K, test", GSM8K), ("Split GSM8K, test", SPLIT)):
        size = len(teams[0].found(records).ids)
        rows.append((f"*{tasks}, {size:,} tasks*", *[""] * (len(head) - 1)))
        rows += [_main_row(records, team) for team in teams]
    return table(head, rows)


def _main_row(records: Records, team: Team) -> tuple[str, ...]:
    found = team.found(records)
    solo = tables.alone(records, team.name, found)
    test = difference(solo, found) if solo and not team.label.startswith("Actor alone") else None
    return (
        f"{_name(team)} {team.marks}".strip(),
        str(found.seeds),
        interval(found.accuracy),
        points(test),
        f"{found.mean('generated'):.0f}",
        f"{found.mean('read'):.0f}",
        tables.silence(found),
    )


def _trained(team: Team) -> bool:
    return team.label.startswith("trained") or team is FINE_TUNED


def _name(team: Team) -> str:
    return f"**{team.label}**" if _trained(team) else team.label


def frontier(records: Records) -> str:
    """Accuracy against generated tokens, the teams of the main table."""
    shown = []
    for team in (*GSM8K[:1], *GSM8K[2:]):
        found = team.found(records)
        mean, low, high = (100 * x for x in astuple(found.accuracy))
        label = re.sub(r", \d.*", "", team.label) + f" {team.marks}".rstrip()
        tokens = found.mean("generated")
        shown.append(Point(label, tokens, mean, low, high, strong=_trained(team)))
    return scatter("GSM8K, 1,319 test problems", shown, "generated tokens a problem", "right, %")


def comparisons(records: Records) -> str:
    rows = []
    for team, rival in PAIRS:
        mine, theirs = on_shared(team.found(records), rival.found(records))
        test = difference(theirs, mine)
        rows.append(
            (
                f"{team.label} {team.marks}".strip(),
                f"{rival.label} {rival.marks}".strip(),
                points(test),
                p_value(test),
                str(len(mine.ids)),
                f"{mine.seeds} : {theirs.seeds}",
                f"{mine.mean('generated'):.0f} : {theirs.mean('generated'):.0f}",
            )
        )
    head = ("team", "against", "points [95 %]", "p", "tasks", "seeds", "generated tokens")
    return (
        "# Comparisons\n\nEach row compares two teams on the tasks that both played. Intervals "
        "resample tasks and, where there are several, seeds. p is that of the exact McNemar test, "
        f"of several seeds the weakest. The {len(rows)} rows are not corrected for their number. † "
        "marks teams measured with the wrong end of silence, ¹ one trained seed, ² two.\n\n"
        f"{table(head, rows)}"
    )


def contents(records: Records) -> str:
    rows = []
    for name, variants in experiments(records).items():
        team = records.measured(variants[0], "trained")
        about = re.split(r"(?<=[^0-9])[.] ", _about(variants[0]))[0].rstrip(".")
        right = interval(team.accuracy) if team else ""
        rows.append((f"[{name}]({name}.md)", about, str(len(records.runs[variants[0]])), right))
    head = ("experiment", "what", "seeds", "trained team, right % [95 %]")
    return (
        "# Every experiment\n\nThese pages are written by `python -m experiments.pages` from the "
        "files in `experiments/results`, which hold each run's config, its course of training, and "
        f"outcomes and token counts by task.\n\n{table(head, rows)}"
    )


def experiments(records: Records) -> dict[str, list[str]]:
    """Each experiment with its record and those of its variants."""
    found: dict[str, list[str]] = {}
    for name in sorted(records.runs, key=lambda name: name.split("+")):
        found.setdefault(name.partition("+")[0], []).append(name)
    return found


def page(records: Records, name: str, names: list[str]) -> str:
    """Everything that is recorded of an experiment and its variants."""
    right = [n for n in names if records.begun(n) >= RIGHT_END_SINCE]
    silent = name.startswith(("gspo", "silence-")) or name == "baselines-dialogue"
    parts = [f"# {name}\n"]
    parts += [f"{'' if n == name else f'`{n}`: '}{_about(n)}\n" for n in names]
    but = f", all but {', '.join(f'`{n}`' for n in right)}" if right else ""
    parts += [f"{WRONG_END.format(but=but)}\n"] if silent and right != names else []
    sections = {
        "Measured": tables.measured_table,
        "Paired differences": tables.within_table,
        "What talk is worth": talk_table,
        "Who speaks": holders_table,
        "What a tool is worth": tools_table,
        "By level": tables.level_table,
        "By how often the Actor alone is right": tables.difficulty_table,
        "Training": tables.training_table,
        "Settings": tables.settings,
    }
    parts += [
        f"## {head}\n\n{text}" for head, make in sections.items() if (text := make(records, names))
    ]
    return "\n".join(parts)


@cache
def _abouts() -> dict[str, str]:
    return dict(yaml.safe_load((FOLDER / "about.yaml").read_text(encoding="utf-8")))


def _about(name: str) -> str:
    if name not in _abouts():
        raise ConfigError(f"experiments/results/about.yaml: say in a sentence what `{name}` is")
    return _abouts()[name]


def files(records: Records) -> dict[Path, str]:
    """Every file that is generated, and what it should hold."""
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    return {
        DOCS / "results.md": MAIN.sub(lambda _: main_table(records), results),
        DOCS / "plots" / "frontier-gsm8k.svg": frontier(records),
        DOCS / "results" / "comparisons.md": comparisons(records),
        DOCS / "results" / "experiments.md": contents(records),
        DOCS / "results" / "audits.md": audits.page(records),
        DOCS / "results" / "choices.md": choices.page(),
        **{
            DOCS / "results" / f"{name}.md": page(records, name, names)
            for name, names in experiments(records).items()
        },
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    args = parser.parse_args(arguments)
    try:
        made = files(Records.read())
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stale = [p for p, text in made.items() if not p.exists() or p.read_text() != text]
    for path in stale:
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        print(f"{path.relative_to(DOCS.parent)} {'differs' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
