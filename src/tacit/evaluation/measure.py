"""Plays a team on held-out tasks and sums up its accuracy and cost."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import Any

from tacit.config import Cut, EvaluationConfig
from tacit.economy.ledger import LedgerRow, PriceTable, ledger
from tacit.errors import ConfigError
from tacit.evaluation.helper_effects import HelperEffects, helper_effects
from tacit.evaluation.statistics import Estimate, Paired, bootstrap, paired, pass_at_k, wilson
from tacit.evaluation.talk import Talk, talk_of
from tacit.grading import REWARDS, Grader, grade
from tacit.rollout.play import NO_CAP, Cap, Job, play_all
from tacit.run.folder import RunFolder
from tacit.team.prompts import HELPING_PARTS
from tacit.team.roster import Roster
from tacit.team.setting import Setting
from tacit.team.vote import most_common
from tacit.types import Choice, Episode, Task, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """One agent of a team: means per episode."""

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
    """Calls in which silence was allowed."""
    silence: float
    """Share of those calls that were silent."""
    silence_by_level: dict[str, float]
    money: float | None
    observed: float = 0.0
    """Part of `prompt`: what tools said."""
    tool_calls: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One team's results on a set of tasks. Token counts are means per episode."""

    team: str
    tasks: int
    samples: int
    failed: int
    overflowed: int
    """Episodes in which the team's own messages made a prompt too long; they count as wrong."""
    accuracy: Estimate
    """pass@1: the mean over tasks of the share of right samples."""
    accuracy_by_level: dict[str, Estimate]
    majority: float | None
    """maj@k over all samples of a task; None if there is only one."""
    any_right: float | None
    """pass@k likewise."""
    generated: Estimate
    read: float
    """Prompt tokens, which every receiver of a message pays for."""
    generated_per_solved: float | None
    path_tokens: float
    """Generated tokens on the critical path, the longest chain of calls."""
    path_seconds: float
    silence: float | None
    """Share of silent calls among those in which silence was allowed; None if there are none."""
    silent_accuracy: float | None
    """Accuracy of episodes in which some agent was silent, and of the others."""
    spoken_accuracy: float | None
    leaks: float | None
    """Share of helpers' messages that already contain the reference answer."""
    changed: HelperEffects | None
    """Effects of the helpers, if the tasks were also played without them."""
    money: float | None
    money_per_solved: float | None
    agents: list[AgentSummary]
    talk: Talk | None = None
    """The value of its talk, if that was measured or the tasks say who should speak."""
    observed: float = 0.0
    """Part of `read`: what tools said."""
    reward: Estimate | None = None
    """The grader's mean reward, if it is not just right or wrong."""
    reward_name: str = ""

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
    without: frozenset[Cut] = frozenset(),
    recorded: Mapping[tuple[str, int], Episode] | None = None,
    speaking: frozenset[str] = frozenset(),
    cap: Cap = NO_CAP,
) -> list[Episode]:
    """Play the episodes that the run folder does not have yet; return all, in task order.

    Failed episodes are played again next time. `without` is left out and costs nothing; `speaking`
    roles may not be silent. `recorded` are plays of the same tasks and samples: what they hold is
    not asked again.
    """
    plain = Setting(seed=seed, without=without, choices=dict.fromkeys(speaking, Choice.SPEAK))
    known = recorded or {}
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
        Job(task, replace(plain, sample=key[1], recorded=known[key].calls if key in known else ()))
        for key, task in wanted.items()
        if key not in have
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
    """Record a digest of each task, so that episodes of a changed task are not reused."""
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
    others: Mapping[str, Sequence[Episode]] | None = None,
    missing: Mapping[str, str] | None = None,
) -> Summary:
    """The numbers of one team. Failed episodes are counted and left out of everything else.

    `without` are plays of the same tasks without the roles in `helpers`; `others` and `missing` are
    for `talk_of`.
    """
    everything = list(episodes)
    done = [episode for episode in everything if episode.grade]
    by_task = scores(done)
    usage = sum((episode.usage for episode in done), Usage())
    solved = sum(episode.right for episode in done)
    rows = ledger(done, prices)
    money = sum(row.money or 0.0 for row in rows) if prices else None
    choices = sum(row.choices for row in rows)
    references = {task.id: task for task in tasks}
    several = settings.samples > 1
    reward_name, rewards = _reward_name(done, tasks), scores(done, "grade.reward")
    chose = [(episode, any(call.withheld for call in episode.calls)) for episode in done]
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
        majority=_majority(done, references) if several and done else None,
        any_right=_any_right(done, settings.samples) if several and done else None,
        generated=_mean([*scores(done, "usage.generated").values()], settings),
        read=usage.prompt / max(1, len(done)),
        generated_per_solved=usage.generated / solved if solved else None,
        path_tokens=fmean(episode.path_tokens for episode in done) if done else 0.0,
        path_seconds=fmean(episode.seconds for episode in done) if done else 0.0,
        silence=sum(row.withheld for row in rows) / choices if choices else None,
        silent_accuracy=_share_right(episode for episode, silent in chose if silent),
        spoken_accuracy=_share_right(episode for episode, silent in chose if not silent),
        leaks=_leaks(done, references),
        changed=helper_effects(done, without, helpers) if without else None,
        money=money / max(1, len(done)) if money is not None else None,
        money_per_solved=money / solved if money is not None and solved else None,
        agents=_agents(done, rows),
        talk=talk_of(done, others or {}, settings, missing, rewards=bool(reward_name)),
        observed=usage.observed / max(1, len(done)),
        reward=_mean([*rewards.values()], settings) if reward_name else None,
        reward_name=reward_name,
    )


def _reward_name(episodes: Iterable[Episode], tasks: Iterable[Task]) -> str:
    """Empty if every reward is just right or wrong."""
    names = {REWARDS.get(task.grader, "") for task in tasks}
    partly = any(one.grade and one.grade.reward != one.right for one in episodes)
    return (names.pop() if len(names) == 1 else "") or ("reward" if partly else "")


def scores(episodes: Iterable[Episode], of: str = "right") -> dict[str, float]:
    """Task id → share of its graded samples that are right, or their mean of something else."""
    graded = _by_task(episode for episode in episodes if episode.grade)
    return {task: fmean(map(attrgetter(of), mine)) for task, mine in graded.items()}


def compare(
    first: Sequence[Episode], second: Sequence[Episode], settings: EvaluationConfig
) -> Paired | None:
    """`second − first` on the tasks that both have a grade for; None if there are none."""
    a, b = scores(first), scores(second)
    both = sorted(a.keys() & b.keys())
    if not both:
        return None
    test = paired(
        [a[task] for task in both],
        [b[task] for task in both],
        confidence=settings.confidence,
        resamples=settings.resamples,
    )
    c, d = (scores(play, "grade.reward") for play in (first, second))
    if (c, d) == (a, b):
        return test
    return replace(test, reward=_mean([d[task] - c[task] for task in both], settings))


def frontier(summaries: Sequence[Summary], *, read: bool = False) -> list[str]:
    """Teams that no other beats in accuracy and in tokens generated (and read), cheapest first."""
    best, names = -1.0, []
    costs = {s.team: s.generated.mean + read * s.read for s in summaries}
    for one in sorted(summaries, key=lambda s: (costs[s.team], -s.accuracy.mean)):
        if one.accuracy.mean > best:
            best = one.accuracy.mean
            names.append(one.team)
    return names


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


def _majority(episodes: Iterable[Episode], tasks: Mapping[str, Task]) -> float:
    """Share of tasks whose most common answer, the first one of several, is right."""
    return fmean(
        mine[most_common(tasks[task_id], [episode.answer for episode in mine])].right
        for task_id, mine in _by_task(episodes).items()
    )


def _any_right(episodes: Iterable[Episode], k: int) -> float:
    rights = [[episode.right for episode in mine] for mine in _by_task(episodes).values()]
    return fmean(pass_at_k(len(r), sum(r), min(k, len(r))) for r in rights)


def _share_right(episodes: Iterable[Episode]) -> float | None:
    rights = [episode.right for episode in episodes if episode.grade]
    return fmean(rights) if rights else None


def _by_task(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    tasks: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        tasks[episode.task_id].append(episode)
    return tasks


def _leaks(episodes: Iterable[Episode], tasks: Mapping[str, Task]) -> float | None:
    """A helper message is one that could have been silent or was not asked for an answer."""
    found = [
        holds_answer(call.delivered, tasks[episode.task_id].answer)
        for episode in episodes
        for call in episode.calls
        if call.is_turn and (call.may_be_silent or call.part in HELPING_PARTS)
    ]
    return fmean(found) if found else None


def holds_answer(text: str, answer: str) -> bool:
    """True if the text contains the answer, and not only inside a longer number or word."""
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
            observed=row.usage.observed / n,
            tool_calls=row.tool_calls / n,
        )
        for row in rows
    ]
