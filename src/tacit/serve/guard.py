"""Ends the talk of a team, and never its answer, once a budget is reached or talk is of no use.

Whoever may be silent, or only helps, is then no longer asked. An agent that answers keeps its last
answer, and is asked only if it has none, or for the final answer if something was said since.

Agents may be asked at once, so a budget of tokens can be exceeded by what is under way. A turn is
counted when its message begins, and the money for its prompt and its longest text is set aside.
What was `agreed` or is `repeating` is judged by what all agents have heard, so it does not depend
on which of several calls ends first.
"""

import math
from collections import defaultdict
from collections.abc import Callable

from tacit.economy.reward import repeated_grams
from tacit.graders.final_answer import last_boxed
from tacit.grading import read_answer
from tacit.serve.budgets import Allowance
from tacit.team.prompts import HELPING_PARTS
from tacit.team.seat import Seat
from tacit.team.setting import Guard
from tacit.team.team import Team
from tacit.team.turn import LONG
from tacit.types import Call, Message, Prompt, Stop, Task

REPEATED = 0.5
"""Talk repeats if this share of the newest messages' four-word sequences was said before."""


class BudgetGuard(Guard):
    """The guard of one answer. `heard` must be told of every call."""

    def __init__(
        self,
        allowance: Allowance,
        reader: str = "",
        free: frozenset[str] = frozenset(),
        listen: Callable[[Call], None] = lambda call: None,
    ) -> None:
        """`reader`: the grader that reads answers. `free`: agents that are never held back.

        `listen` is told of every call, also of those that are free.
        """
        self.allowance = allowance
        self._reader = Task(id="serve", question="", answer="", grader=reader)
        self._free = free
        self._listen = listen
        self._begun: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        """By agent, and whether it may be the answer: the money kept for each message under way."""
        self._shorter: dict[tuple[str, int], str] = {}
        """Agent and the longest message it was left, where that is less than its own → why."""
        self._answered = False
        """True once somebody was asked for an answer."""
        self._last: Message | None = None
        self._looked = 0
        self._stopped: str | None = None

    def most_tokens(
        self, seat: Seat, prompt: Prompt, *, answers: bool, final: bool, foreign: bool = False
    ) -> int:
        most, allowance = seat.agent.config.max_tokens, self.allowance
        if seat.name in self._free:
            return most
        self._look(seat.team)
        covered = answers and not self._answering
        read, token = self._prices(seat, prompt)
        reason = self._stopped or allowance.short_of(answers=covered, money=read)
        if reason and not (answers and self._needed(seat, final, foreign)):
            allowance.unasked[seat.name, reason] += 1
            return 0
        tokens = allowance.left("tokens")
        paid = (allowance.left("money") - read) / token if token else math.inf
        kept = allowance.reserve if covered or reason else {}
        if answers:
            tokens = max(0, tokens) + allowance.reserve.get("tokens", 0)
            paid = max(0, paid) + kept.get("tokens", 0)
        scarce = "tokens" if tokens <= paid else "money"
        most = int(min(most, max(1, tokens), max(1, paid)))
        if most < seat.agent.config.max_tokens:
            self._shorter[seat.name, most] = scarce
        self._begun[seat.name, answers].append(max(0, read + most * token - kept.get("money", 0)))
        allowance.keep("money", self._begun[seat.name, answers][-1])
        allowance.keep("turns", not covered)
        self._answered |= answers
        return most

    def _prices(self, seat: Seat, prompt: Prompt) -> tuple[float, float]:
        """The money for reading a prompt, and for each token that is said.

        What only a server can count is taken to have a token for every four characters.
        """
        if self.allowance.left("money") == math.inf or not self.allowance.prices:
            return 0.0, 0.0
        price = self.allowance.prices.of(seat.agent.engine.model)
        length = sum(len(message.content) for message in prompt)
        ids = seat.agent.engine.encode(prompt) if length < LONG else ()
        most = max(price.output, price.reasoning or 0)
        return (len(ids) or length / 4) * price.input / 1e6, most / 1e6

    def withholds_tools(self, agent: str) -> bool:
        """True once only the answer's tokens or money are left. A tool call is no turn."""
        own = sum(self._begun[agent, True] + self._begun[agent, False])
        if reason := self.allowance.short_of(("tokens", "money"), answers=False, money=-own):
            self.allowance.without_tools.add((agent, reason))
        return reason is not None

    def heard(self, call: Call) -> None:
        """Count a call that is over."""
        self._listen(call)
        if call.agent in self._free:
            return
        self.allowance.spend(call)
        why = self._shorter.get((call.agent, call.usage.generated))
        if why and call.stop is Stop.LENGTH:
            self.allowance.shortened[call.agent, why] += 1
        if _is_answer(call):
            self._last = Message(call.agent, call.text)
        answers = call.part not in HELPING_PARTS
        keys = [(call.agent, answers), (call.agent, not answers)]
        key = next((key for key in keys if self._begun[key]), None)
        if key and not call.tool_calls:
            self.allowance.keep("money", -self._begun[key].pop())
            self.allowance.keep("turns", -(not key[1] or self._answering > 0))

    @property
    def _answering(self) -> int:
        """Answers under way. The turn of one of them is that which is kept for the answer."""
        return sum(len(kept) for (_, answers), kept in self._begun.items() if answers)

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
        calls, stops = team.whole.calls, self.allowance.stops
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
