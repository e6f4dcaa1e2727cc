"""How well a team does and what it costs: accuracy with intervals, paired tests, the frontier."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from tacit.config import EvaluationConfig
from tacit.economy.ledger import LedgerRow, PriceTable, ledger
from tacit.errors import ConfigError
from tacit.evaluation.helper_effects import HelperEffects, helper_effects
from tacit.evaluation.statistics import Estimate, Paired, bootstrap, paired, pass_at_k, wilson
from tacit.grading import grade, read_answer
from tacit.rollout.play import NO_CAP, Cap, Grader, Job, play_all
from tacit.run.folder import RunFolder
from tacit.team.prompts import HELPING_PARTS
from tacit.team.roster import Roster
from tacit.team.team import Setting
from tacit.types import Episode, Task, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """What one agent of a team did, per episode."""

    agent: str
    model: str
    calls: float
    generated: float
    prompt: float
    cached: float
    """Part of `prompt`."""
    reasoning: float
    """Part of `generated`."""
    choices: float
    """Calls in which it could have been silent."""
    silence: float
    """Share of those calls in which it said nothing."""
    silence_by_level: dict[str, float]
    money: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one team did on a set of tasks. Token counts are means per episode."""

    team: str
    tasks: int
    samples: int
    failed: int
    overflowed: int
    """Episodes in which what the team said made a prompt too long; they count as wrong."""
    accuracy: Estimate
    """pass@1: the mean over tasks of the share of right samples."""
    accuracy_by_level: dict[str, Estimate]
    majority: float | None
    """maj@k over all samples of a task, where there are several."""
    any_right: float | None
    """pass@k likewise."""
    generated: Estimate
    read: float
    """Prompt tokens, which every receiver of a message pays for."""
    generated_per_solved: float | None
    path_tokens: float
    """Generated tokens on the critical path: what cannot be waited for in parallel."""
    path_seconds: float
    silence: float | None
    """Share of the calls that could have been silent in which nothing was said; None: no such."""
    silent_accuracy: float | None
    """Accuracy of episodes in which some agent chose silence, and of the others."""
    spoken_accuracy: float | None
    leaks: float | None
    """Share of helper messages that already hold the final answer."""
    changed: HelperEffects | None
    """What the helpers changed, where the tasks were also played without them."""
    money: float | None
    money_per_solved: float | None
    agents: list[AgentSummary]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def evaluate_team(
    name: str,
    roster: Roster,
    tasks: Sequence[Task],
    settings: EvaluationConfig,
    run: RunFolder,
    *,
    seed: int = 0,
    grader: Grader = grade,
    on_episode: Callable[[Episode], None] | None = None,
    muted: frozenset[str] = frozenset(),
    cap: Cap = NO_CAP,
) -> list[Episode]:
    """Play what is missing in the run folder and return all episodes, in task order.

    Failed episodes are tried again the next time. `muted` roles say nothing and cost nothing.
    """
    pin(run, tasks)
    run.mend(f"episodes/{name}.jsonl")
    wanted = {(task.id, sample): task for task in tasks for sample in range(settings.samples)}
    have = {
        (episode.task_id, episode.sample): episode
        for episode in run.episodes(name)
        if episode.grade is not None and (episode.task_id, episode.sample) in wanted
    }

    def keep(episode: Episode) -> None:
        run.append_episode(name, episode)
        have[episode.task_id, episode.sample] = episode
        if on_episode:
            on_episode(episode)

    if on_episode:
        for episode in list(have.values()):
            on_episode(episode)
    missing = [
        Job(task, Setting(seed=seed, sample=sample, muted=muted))
        for (task_id, sample), task in wanted.items()
        if (task_id, sample) not in have
    ]
    await play_all(
        roster,
        missing,
        concurrency=settings.concurrency,
        grader=grader,
        on_episode=keep,
        succeeded=len(have),
        cap=cap,
    )
    return [have[key] for key in wanted]


def pin(run: RunFolder, tasks: Sequence[Task]) -> None:
    """Remember what each task was: episodes of another task of the same id must not be reused."""
    known = run.read_json("tasks.json") if (run.path / "tasks.json").exists() else {}
    now = {task.id: task.digest() for task in tasks}
    if changed := [task_id for task_id in now if known.get(task_id, now[task_id]) != now[task_id]]:
        raise ConfigError(
            f"{changed[0]} is not the task it was when `{run.path}` was made: "
            "name another folder with --out"
        )
    if now.keys() - known.keys():
        run.write_json("tasks.json", known | now)


def summarise(
    name: str,
    episodes: Iterable[Episode],
    tasks: Sequence[Task],
    settings: EvaluationConfig,
    prices: PriceTable | None = None,
    without: Sequence[Episode] = (),
    helpers: Collection[str] = (),
) -> Summary:
    """The numbers of one team. Failed episodes are counted and left out of everything else.

    `without` are plays of the same tasks with the roles in `helpers` left out.
    """
    everything = list(episodes)
    done = [episode for episode in everything if episode.grade]
    by_task = scores(done)
    usage = sum((episode.usage for episode in done), Usage())
    solved = sum(episode.grade.right for episode in done if episode.grade)
    rows = ledger(done, prices)
    money = sum(row.money or 0.0 for row in rows) if prices else None
    choices = sum(row.choices for row in rows)
    references = {task.id: task for task in tasks}
    several = settings.samples > 1
    chose = [(episode, not all(call.is_turn for call in episode.calls)) for episode in done]
    return Summary(
        team=name,
        tasks=len(by_task),
        samples=settings.samples,
        failed=len(everything) - len(done),
        overflowed=sum(episode.overflowed for episode in done),
        accuracy=_accuracy(list(by_task.values()), settings),
        accuracy_by_level={
            level: _accuracy(list(scores(some).values()), settings)
            for level, some in _by_level(done).items()
        },
        majority=fmean(_majority(done, references).values()) if several and done else None,
        any_right=_any_right(done, settings.samples) if several and done else None,
        generated=_mean(_tokens_by_task(done), settings),
        read=usage.prompt / max(1, len(done)),
        generated_per_solved=usage.generated / solved if solved else None,
        path_tokens=fmean(episode.path_tokens for episode in done) if done else 0.0,
        path_seconds=fmean(episode.seconds for episode in done) if done else 0.0,
        silence=sum(row.calls - row.turns for row in rows) / choices if choices else None,
        silent_accuracy=_share_right(episode for episode, silent in chose if silent),
        spoken_accuracy=_share_right(episode for episode, silent in chose if not silent),
        leaks=_leaks(done, references),
        changed=helper_effects(done, without, helpers) if without else None,
        money=money / max(1, len(done)) if money is not None else None,
        money_per_solved=money / solved if money is not None and solved else None,
        agents=_agents(done, rows),
    )


def scores(episodes: Iterable[Episode]) -> dict[str, float]:
    """Task id → share of its graded samples that are right."""
    rights: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.grade:
            rights[episode.task_id].append(episode.grade.right)
    return {task: fmean(right) for task, right in rights.items()}


def compare(
    first: Iterable[Episode], second: Iterable[Episode], settings: EvaluationConfig
) -> Paired | None:
    """`second − first` on the tasks that both have a grade for; None when there are none."""
    a, b = scores(first), scores(second)
    both = sorted(a.keys() & b.keys())
    if not both:
        return None
    return paired(
        [a[task] for task in both],
        [b[task] for task in both],
        confidence=settings.confidence,
        resamples=settings.resamples,
    )


def frontier(summaries: Sequence[Summary]) -> list[str]:
    """Teams that no other beats in both accuracy and generated tokens, cheapest first."""
    best, names = -1.0, []
    for one in sorted(summaries, key=lambda s: (s.generated.mean, -s.accuracy.mean)):
        if one.accuracy.mean > best:
            best = one.accuracy.mean
            names.append(one.team)
    return names


def _tokens_by_task(episodes: Iterable[Episode]) -> list[float]:
    """Means over samples, since the samples of one task are no independent draws."""
    tokens: dict[str, list[int]] = defaultdict(list)
    for episode in episodes:
        tokens[episode.task_id].append(episode.usage.generated)
    return [fmean(some) for some in tokens.values()]


def _accuracy(values: list[float], settings: EvaluationConfig) -> Estimate:
    if not values:
        return Estimate(0.0, 0.0, 1.0)
    if all(value in (0.0, 1.0) for value in values):
        return wilson(sum(values), len(values), settings.confidence)
    return _mean(values, settings)


def _mean(values: list[float], settings: EvaluationConfig) -> Estimate:
    if not values:
        return Estimate(0.0, 0.0, 0.0)
    return bootstrap(values, confidence=settings.confidence, resamples=settings.resamples)


def _by_level(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    levels: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        if episode.level:
            levels[episode.level].append(episode)
    return dict(sorted(levels.items()))


def _majority(episodes: Iterable[Episode], tasks: Mapping[str, Task]) -> dict[str, float]:
    """Task id → whether the most common answer of its samples is right (ties: the earliest)."""
    samples: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        samples[episode.task_id].append(episode)
    result = {}
    for task_id, mine in samples.items():
        answers = [read_answer(tasks[task_id], episode.answer) for episode in mine]
        chosen = max(
            range(len(mine)), key=lambda i: (bool(answers[i]), answers.count(answers[i]), -i)
        )
        grade = mine[chosen].grade
        result[task_id] = float(bool(grade and grade.right))
    return result


def _any_right(episodes: Iterable[Episode], k: int) -> float:
    rights: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        rights[episode.task_id].append(bool(episode.grade and episode.grade.right))
    return fmean(pass_at_k(len(r), sum(r), min(k, len(r))) for r in rights.values())


def _share_right(episodes: Iterable[Episode]) -> float | None:
    rights = [episode.grade.right for episode in episodes if episode.grade]
    return fmean(rights) if rights else None


def _leaks(episodes: Iterable[Episode], tasks: Mapping[str, Task]) -> float | None:
    """Helper messages are spoken by those who could be silent or were not asked for an answer."""
    found = [
        holds_answer(call.text, tasks[episode.task_id].answer)
        for episode in episodes
        for call in episode.calls
        if call.is_turn and (call.may_be_silent or call.part in HELPING_PARTS)
    ]
    return fmean(found) if found else None


def holds_answer(text: str, answer: str) -> bool:
    """Whether the answer stands in the text by itself, not as a part of a longer number or word."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    alone = rf"(?<![\w.\-/]){re.escape(answer)}(?![\w/]|\.\d)"
    return bool(answer) and bool(re.search(alone, plain, re.IGNORECASE))


def _agents(episodes: Sequence[Episode], rows: Sequence[LedgerRow]) -> list[AgentSummary]:
    n = max(1, len(episodes))
    levels = _by_level(episodes)
    quiet = {
        level: {row.agent: row.silence for row in ledger(some) if row.choices}
        for level, some in levels.items()
    }
    return [
        AgentSummary(
            agent=row.agent,
            model=row.model,
            calls=row.calls / n,
            generated=row.usage.generated / n,
            prompt=row.usage.prompt / n,
            cached=row.usage.cached / n,
            reasoning=row.usage.reasoning / n,
            choices=row.choices / n,
            silence=row.silence,
            silence_by_level={lv: s[row.agent] for lv, s in quiet.items() if row.agent in s},
            money=None if row.money is None else row.money / n,
        )
        for row in rows
    ]
