"""Ends the talk of a team, and never its answer, once a budget is reached or talk is of no use.

Whoever may be silent, or only helps, is then no longer asked. An agent that answers keeps its last
answer, and is asked only if it has none, or for the final answer if something was said since.

Agents may be asked at once, so a budget of tokens or money can be exceeded by what is under way; a
turn is counted when its message begins. What was `agreed` or is `repeating` is judged by what all
agents have heard, so it does not depend on which of several calls ends first.
"""

from collections import Counter

from tacit.economy.reward import repeated_grams
from tacit.graders.final_answer import last_boxed
from tacit.grading import read_answer
from tacit.serve.budgets import Allowance
from tacit.team.prompts import HELPING_PARTS
from tacit.team.seat import Seat
from tacit.team.setting import Guard
from tacit.team.team import Team
from tacit.types import Call, Message, Task

REPEATED = 0.5
"""Talk repeats if this share of the newest messages' four-word sequences was said before."""


class BudgetGuard(Guard):
    """The guard of one answer. `heard` must be told of every call."""

    def __init__(
        self, allowance: Allowance, reader: str = "", free: frozenset[str] = frozenset()
    ) -> None:
        """`reader`: the grader that reads answers. `free`: agents that are never held back."""
        self._allowance = allowance
        self._reader = Task(id="serve", question="", answer="", grader=reader)
        self._free = free
        self._begun: Counter[tuple[str, bool]] = Counter()
        """Messages under way by agent, and whether they may be the answer."""
        self._answered = False
        """True once somebody was asked for an answer."""
        self._last: Message | None = None
        self._looked = 0
        self._stopped: str | None = None

    def most_tokens(self, seat: Seat, *, answers: bool, final: bool, foreign: bool = False) -> int:
        most = seat.agent.config.max_tokens
        if seat.name in self._free:
            return most
        self._look(seat.team)
        covered = answers and not self._answering
        reason = self._stopped or self._allowance.short_of(answers=covered)
        if reason and not (answers and self._needed(seat, final, foreign)):
            self._allowance.unasked[seat.name, reason] += 1
            return 0
        left = self._allowance.left("tokens")
        self._begun[seat.name, answers] += 1
        self._answered |= answers
        self._allowance.keep("turns", not covered)
        if answers:
            left = max(0, left) + self._allowance.reserve.get("tokens", 0)
        return int(min(most, max(1, left)))

    def withholds_tools(self, agent: str) -> bool:
        """True once only the answer's tokens or money are left. A tool call is no turn."""
        if reason := self._allowance.short_of(("tokens", "money"), answers=False):
            self._allowance.without_tools.add((agent, reason))
        return reason is not None

    def heard(self, call: Call) -> None:
        """Count a call that is over."""
        if call.agent in self._free:
            return
        self._allowance.spend(call)
        if _is_answer(call):
            self._last = Message(call.agent, call.text)
        answers = call.part not in HELPING_PARTS
        keys = [(call.agent, answers), (call.agent, not answers)]
        key = next((key for key in keys if self._begun[key]), None)
        if key and not call.tool_calls:
            self._begun[key] -= 1
            self._allowance.keep("turns", -(not key[1] or self._answering > 0))

    @property
    def _answering(self) -> int:
        """Answers under way. The turn of one of them is that which is kept for the answer."""
        return sum(n for (_, answers), n in self._begun.items() if answers)

    def answer(self, given: Message) -> Message:
        """The topology's answer, or the last one said if the topology was left with silence."""
        return self._last if given.silent and self._last else given

    def _needed(self, seat: Seat, final: bool, foreign: bool) -> bool:
        """True if there would be no answer without this one, or a final one that missed something.

        An answer stands until something is said after it.
        """
        heard = seat.team.heard
        own = [n for n, call in enumerate(heard) if call.agent == seat.name and _is_answer(call)]
        if own and not foreign:
            return final and any(call.is_turn for call in heard[own[-1] + 1 :])
        return final or not self._answered

    def _look(self, team: Team) -> None:
        """Notice whether the newest messages end the talk."""
        calls, stops = team.whole.calls, self._allowance.stops
        new, self._looked = calls[self._looked :], len(calls)
        if self._stopped or not stops or not any(call.is_turn for call in new):
            return
        said = [call.text for call in calls if call.is_turn]
        newest = repeated_grams(said)[-sum(call.is_turn for call in new) :]
        repeated, grams = map(sum, zip(*newest, strict=True))
        if "agreed" in stops and self._agreed(calls):
            self._stopped = "agreed"
        elif "repeating" in stops and grams and repeated / grams >= REPEATED:
            self._stopped = "repeated"

    def _agreed(self, calls: list[Call]) -> bool:
        """True if several agents have answered and their last answers are the same."""
        last = {call.agent: call.text for call in calls if _is_answer(call)}
        return len(last) > 1 and len({self._read(text) for text in last.values()}) == 1

    def _read(self, text: str) -> str:
        """The answer as the team's tasks have it; a box or the plain words if there are none."""
        read = read_answer(self._reader, text) if self._reader.grader else last_boxed(text)
        return read or " ".join(text.lower().split())


def _is_answer(call: Call) -> bool:
    return call.is_turn and call.part not in HELPING_PARTS
