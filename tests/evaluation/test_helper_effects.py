"""Episodes judged by hand: what the helper's words did to the answer."""

from dataclasses import replace

from tacit.evaluation.helper_effects import Change, Changed, Effect, changes, count
from tacit.team.team import Setting
from tacit.types import Call, Episode, Grade, Stop, Usage
from tests.helpers.scripted_teams import SILENT, TASK, play, scripted


def episode(task: str, right: bool | None, hint: str | None = "look", sample: int = 0) -> Episode:
    call = Call(
        agent="hinter",
        model="m",
        messages=(),
        text=hint or "",
        stop=Stop.EOS,
        usage=Usage(),
        part="hinter",
        silent=hint is None,
        may_be_silent=True,
    )
    grade = None if right is None else Grade(reward=float(right), right=right)
    return Episode(
        task_id=task,
        sample=sample,
        calls=(call,),
        grade=grade,
        error="lost" if grade is None else None,
    )


WITHOUT = [
    episode("easy", True, None),
    episode("hard", False, None),
    episode("failed alone", None, None),
]


def effects(*episodes: Episode) -> list[Effect]:
    return [change.effect for change in changes(episodes, WITHOUT, {"hinter"})]


def test_each_episode_is_set_beside_its_task_without_help() -> None:
    assert effects(episode("hard", True)) == [Effect.HELPED]
    assert effects(episode("easy", False)) == [Effect.HARMED]
    assert effects(episode("easy", True), episode("hard", False)) == [Effect.SAME] * 2
    assert effects(episode("easy", True, None), episode("hard", False, None)) == [Effect.SILENT] * 2


def test_what_failed_or_has_no_counterpart_is_left_out() -> None:
    assert effects(episode("hard", None), episode("failed alone", True), episode("new", True)) == []


def test_the_counts_add_up_over_samples() -> None:
    played = [episode("hard", right, sample=n) for n, right in enumerate([True, True, False])]
    found = changes([*played, episode("easy", True, None)], WITHOUT, {"hinter"})
    assert found[1] == Change(task_id="hard", sample=1, effect=Effect.HELPED, right=True)
    assert count(found) == Changed(helped=2, same=1, silent=1)
    assert count(found).episodes == 4
    assert count([]) == Changed()


def test_a_helper_is_told_by_its_role_and_not_by_the_text_it_was_given() -> None:
    def played(agent: str) -> Effect:
        (one,) = episode("easy", True).calls
        spoken = replace(episode("easy", True), calls=(replace(one, agent=agent, part="solver"),))
        (change,) = changes([spoken], WITHOUT, {"adviser"})
        return change.effect

    assert played("adviser") == played("adviser 2") == Effect.SAME
    assert played("actor") == played("adviser x") == Effect.SILENT


def test_a_marker_that_reached_nobody_is_counted_as_nothing_said() -> None:
    (one,) = episode("easy", True).calls
    unheard = replace(one, agent="adviser", silent=False, unheard=True)
    (change,) = changes([replace(episode("easy", True), calls=(unheard,))], WITHOUT, {"adviser"})
    assert change.effect is Effect.SILENT


async def test_a_muted_helper_is_not_asked_and_costs_nothing() -> None:
    roster = scripted("hint_actor", {"hinter": ["Use 42."], "actor": [r"\boxed{42}"]})
    alone = await play(roster, TASK, Setting(muted=frozenset({"hinter"})))
    assert [call.agent for call in alone.calls] == ["actor"]
    quiet = await play(scripted("hint_actor", {"hinter": [SILENT], "actor": [r"\boxed{42}"]}))
    assert alone.calls[0].messages == quiet.calls[1].messages, "as if it had been silent"
    assert alone.grade and alone.grade.right


async def test_a_muted_critic_leaves_the_draft() -> None:
    scripts = {"actor": [r"\boxed{41}", r"\boxed{42}"], "critic": ["wrong"]}
    alone = await play(
        scripted("critic_actor", scripts), TASK, Setting(muted=frozenset({"critic"}))
    )
    assert alone.answer == r"\boxed{41}"
    assert len(alone.calls) == 1
