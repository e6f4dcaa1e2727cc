"""Audits of other people's apps, from what `tacit record` or OpenTelemetry kept of them.

A recording alone tells where tokens go. What an agent is worth needs the app itself: it is run
again on the tasks it was recorded with, and whatever that agent is asked is answered with silence,
or with a neutral sentence. Calls before that point are answered from the recording.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tacit.audit.auditing import FILE, PROBE, Again, Audit, estimate, once
from tacit.audit.worth import Pair
from tacit.config import Config, Cut
from tacit.economy.ledger import PriceTable, load_prices
from tacit.errors import ConfigError, EngineError, GradingError, RunError, SpendCap
from tacit.external.calls import KeylessFolder
from tacit.external.program import find_program
from tacit.external.reading import Recording, read_recording
from tacit.external.replay import Change, Mute, Replayed, Replays, replaying
from tacit.grading import grade
from tacit.rollout.play import Cap, play_each
from tacit.run.folder import RunFolder
from tacit.run.spending import Spending
from tacit.tasks import load_tasks
from tacit.traffic.audit_traffic import audit_traffic
from tacit.traffic.spans import load_spans
from tacit.types import Call, Episode, Grade, Receipt, Task

MISSED = (
    "the app did not ask it again, or with a system prompt that is not the recorded one: keep what "
    "changes, such as the date, out of system prompts, or name agents by the header "
    "`x-tacit-role`, and record the app again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """How an app is run again."""

    program: str | None = None
    """`module:function`, called with a base URL and a task; returns the answer as text."""
    tasks: str | None = None
    """The task set or `.jsonl` file it was recorded with."""
    split: str = "test"
    instead: str = ""
    """What is said in the place of an agent that is left out."""
    to: str | None = None
    """The server to ask; default the one that was recorded."""
    key: str | None = None
    at_once: int = 8
    """Runs of the app side by side."""


@dataclass(slots=True, kw_only=True)
class AppPlayer:
    """Recorded episodes, and runs of the app without one of its agents."""

    replays: Replays
    run: RunFolder
    options: AppOptions
    recorded: Mapping[str, Episode]
    """Task id → its recorded episode; `task_id` there is the episode's own name."""
    listen: Callable[[str, int], Callable[[Episode], None]]
    cap: Cap

    async def play(
        self,
        name: str,
        tasks: Sequence[Task],
        without: frozenset[Cut] = frozenset(),
        recorded: Mapping[tuple[str, int], Episode] | None = None,
    ) -> list[Episode]:
        if not without:
            return [_free(self.recorded[task.id], task) for task in tasks]
        (cut,) = without
        name = f"{name.replace('/', '-')[:80]} {self._how(name)}"  # agents may have any name
        self.run.mend(f"episodes/{name}.jsonl")
        have = {one.task_id: one for one in self.run.episodes(name) if one.grade}
        heard = self.listen(name, len(tasks))
        for one in have.values():
            heard(one)

        def keep(episode: Episode) -> None:
            self.run.append_episode(name, episode)
            have[episode.task_id] = episode
            heard(episode)

        left = [task for task in tasks if task.id not in have]
        play = partial(self._run, Mute(str(cut.agent), self.options.instead))
        try:
            await play_each(left, play, self.options.at_once, keep, len(have), self.cap)
        except RunError as error:
            if isinstance(error, SpendCap) or MISSED in str(error):
                raise
            kept = "what was played is kept, and the same command goes on"
            raise EngineError(f"{error}; {kept}") from None  # it would hit the other agents too
        return [have[task.id] for task in tasks]

    async def again(
        self, task: Task, episode: Episode, call: int, without: Cut, times: int
    ) -> Again:
        """Without the message only: with it, the recording is all there is."""

        async def play() -> list[Pair]:
            run = partial(self._run, Change(call, self.options.instead))
            at_once = self.options.at_once
            plays = await play_each([task] * times, run, at_once, succeeded=1, cap=self.cap)
            return [(episode, one) for one in plays]

        recorded = self.recorded[task.id].task_id
        return await once(self.run, f"{recorded} {call} {times} {self._how()}", play)

    def _how(self, what: str = "") -> str:
        """A digest of how the app is run, so that other runs of it are not taken for these."""
        how = json.dumps([what, self.options.program, self.options.instead, self.options.to])
        return hashlib.blake2b(how.encode(), digest_size=4).hexdigest()

    async def _run(self, change: Change | Mute, task: Task) -> Episode:
        """An app that breaks without what it was asked to do without has failed the task."""
        whole = self.recorded[task.id]
        played = await self.replays.run(str(self.options.program), task, whole.task_id, change)
        graded, error = None, played.error
        if played.server_failure:
            error = f"the server failed: {played.server_failure}"
        elif error:
            graded = Grade(reward=0.0, right=False) if played.changed else None
        elif self._missed(whole, played, change):
            error = MISSED
        else:
            try:
                graded = await grade(task, played.answer)
            except GradingError as failure:
                error = str(failure)
        return Episode(
            task_id=task.id,
            sample=0,
            level=task.level,
            calls=played.calls,
            answer=played.answer,
            grade=graded,
            error=error,
        )

    def _missed(self, whole: Episode, played: Replayed, change: Change | Mute) -> bool:
        """Not where the agent was not asked when the app was recorded either."""
        if played.changed or isinstance(change, Change):
            return not played.changed
        recorded = (call for one in self.replays.recording.episodes for call in one.calls)
        strangers = {call.agent for call in played.calls} - {call.agent for call in recorded}
        return bool(strangers) or any(call.agent == change.agent for call in whole.calls)


def _free(episode: Episode, task: Task) -> Episode:
    """A recorded episode, for which nothing is paid any more."""
    calls = tuple(replace(call, reused=True) for call in episode.calls)
    return replace(episode, task_id=task.id, calls=calls)


def audit_spans(path: Path, prices: PriceTable | None) -> dict[str, Any]:
    """The audit of a file of OpenTelemetry spans: for reading only."""
    return _traffic(path.stem, load_spans(path), prices, ())


async def audit_recording(
    folder: Path,
    config: Config,
    options: AppOptions,
    listen: Callable[[str, int], Callable[[Episode], None]],
    say: Callable[[str], None],
    dry: bool = False,
) -> dict[str, Any]:
    """Audit a recording; with a program, also what each agent is worth."""
    recording = read_recording(folder)
    prices = load_prices(config.prices) if config.prices else None
    result = _traffic(folder.name, recording.episodes, prices, recording.notes)
    run = KeylessFolder(folder)
    if options.program is None:
        say("a recording tells what talk costs; what it is worth needs --program and --tasks")
        before = run.read_json(FILE) if (folder / FILE).exists() else {}
        kept = before.get("notes", []) if "parts" in before else []
        result = before | result | {"notes": list(dict.fromkeys([*kept, *result["notes"]]))}
    else:
        find_program(options.program)
        if config.audit.samples > 1:
            raise ConfigError(
                "audit.samples: a recording holds one play of each task, so an app is played once "
                "without an agent too; leave it at 1, and record more tasks"
            )
        tasks, episodes = _graded(recording, options)
        spending = Spending(run, prices, config.spend_cap)

        def pay(call: Call) -> None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            known = {n: getattr(call, n) for n in ("model", "served", "fingerprint", "usage")}
            spending.pay(Receipt(**known, time=now))

        async with replaying(run, to=options.to, key=options.key, pay=pay) as replays:
            player = AppPlayer(
                replays=replays,
                run=run,
                options=options,
                recorded=episodes,
                listen=listen,
                cap=spending.cap(),
            )
            settings = config.audit.model_copy(update={"edges": False, "rounds": False})
            audit = Audit(
                player=player,
                tasks=tasks[:PROBE] if dry else tasks,
                settings=settings,
                confidence=config.evaluation.confidence,
                prices=prices,
                samples=True,
                say=say,
            )
            await audit.run()
            if dry:
                return estimate(audit, len(tasks), config.spend_cap)
            found = audit.to_json(await audit.telling())
            result |= found | {"notes": [*result["notes"], *found["notes"]]}
            result["spend"] = spending.to_json()
    run.write_json(FILE, result)
    return result | {"folder": str(folder)}


def _traffic(
    name: str, episodes: Sequence[Episode], prices: PriceTable | None, notes: Sequence[str]
) -> dict[str, Any]:
    return {
        "name": name,
        "currency": prices.currency if prices else None,
        "notes": list(notes),
        "traffic": asdict(audit_traffic(episodes, prices)),
    }


def _graded(recording: Recording, options: AppOptions) -> tuple[list[Task], dict[str, Episode]]:
    """The tasks that were recorded to their end, and their episodes."""
    if options.tasks is None:
        raise ConfigError("--program needs --tasks: those that the app was recorded with")
    tasks = load_tasks(options.tasks, split=options.split)
    names, found = {task.id for task in tasks}, dict[str, Episode]()
    for one in recording.episodes:
        name = one.task_id if one.task_id in names else one.task_id.rpartition(" (")[0]
        found |= {name: one} if name in names and one.grade else {}
    if all(one.error for one in found.values()):
        why = next((one.error for one in recording.episodes if one.error), None)
        told = f"no task was recorded to its end: {why}" if why else "no task was graded"
        raise ConfigError(
            f"{told}; record the app with `tacit record --to URL --program module:function "
            "--tasks …`, into another folder if you changed it"
        )
    return [task for task in tasks if task.id in found], found
