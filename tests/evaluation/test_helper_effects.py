"""Episodes judged by hand: what the helper's words did to the answer."""

from dataclasses import replace

from tacit.config import Cut
from tacit.evaluation.helper_effects import HelperEffects, helper_effects
from tacit.team.setting import Setting
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


def effects(*episodes: Episode, helpers: tuple[str, ...] = ("hinter",)) -> HelperEffects:
    return helper_effects(episodes, WITHOUT, helpers)


def test_each_episode_is_set_beside_its_task_without_help() -> None:
    assert effects(episode("hard", True)) == HelperEffects(helped=1)
    assert effects(episode("easy", False)) == HelperEffects(harmed=1)
    assert effects(episode("easy", True), episode("hard", False)) == HelperEffects(same=2)
    quiet = episode("easy", True, None), episode("hard", False, None)
    assert effects(*quiet) == HelperEffects(silent=2)


def test_what_failed_or_has_no_counterpart_is_left_out() -> None:
    left_out = episode("hard", None), episode("failed alone", True), episode("new", True)
    assert effects(*left_out) == effects() == HelperEffects()


def test_the_counts_add_up_over_samples() -> None:
    played = [episode("hard", right, sample=n) for n, right in enumerate([True, True, False])]
    found = effects(*played, episode("easy", True, None))
    assert found == HelperEffects(helped=2, same=1, silent=1) and found.episodes == 4


def test_a_helper_is_told_by_its_role_and_not_by_the_text_it_was_given() -> None:
    def played(agent: str) -> HelperEffects:
        (one,) = episode("easy", True).calls
        spoken = replace(episode("easy", True), calls=(replace(one, agent=agent, part="solver"),))
        return effects(spoken, helpers=("adviser",))

    assert played("adviser") == played("adviser 2") == HelperEffects(same=1)
    assert played("actor") == played("adviser x") == HelperEffects(silent=1)


def test_a_marker_that_reached_nobody_is_counted_as_nothing_said() -> None:
    (one,) = episode("easy", True).calls
    unheard = replace(one, agent="adviser", silent=False, unheard=True)
    told = replace(episode("easy", True), calls=(unheard,))
    assert effects(told, helpers=("adviser",)) == HelperEffects(silent=1)


async def test_a_muted_helper_is_not_asked_and_costs_nothing() -> None:
    roster = scripted("hint_actor", {"hinter": ["Use 42."], "actor": [r"\boxed{42}"]})
    alone = await play(roster, TASK, Setting(without=Cut.of(["hinter"])))
    assert [call.agent for call in alone.calls] == ["actor"]
    quiet = await play(scripted("hint_actor", {"hinter": [SILENT], "actor": [r"\boxed{42}"]}))
    assert alone.calls[0].messages == quiet.calls[1].messages, "as if it had been silent"
    assert alone.grade and alone.grade.right


async def test_a_muted_critic_leaves_the_draft() -> None:
    scripts = {"actor": [r"\boxed{41}", r"\boxed{42}"], "critic": ["wrong"]}
    alone = await play(scripted("critic_actor", scripts), TASK, Setting(without=Cut.of(["critic"])))
    assert alone.answer == r"\boxed{41}"
    assert len(alone.calls) == 1
