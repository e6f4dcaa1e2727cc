"""One episode that an external program is playing: which agent is asked, and what is kept of it."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from tacit.errors import ConfigError, TacitError
from tacit.team.team import Seat, Team
from tacit.types import Call, ChatMessage, Choice, Message

Rank = tuple[int, str, str]


@dataclass(slots=True, eq=False)
class Session:
    """Calls may come several at once and in any order; what each of them draws depends on neither.

    A call is numbered by its prompt and by how often the agent was asked exactly that. Its rank is
    its place in the chain of calls, by which `settle` puts them in order.
    """

    team: Team
    failure: TacitError | None = None
    """Why the episode cannot go on. The program sees an HTTP error, and may hide it."""
    _asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    _turns: Counter[str] = field(default_factory=Counter)
    _done: list[tuple[Rank, list[Call]]] = field(default_factory=list)
    _finished: int = 0
    """The highest rank of a call that is over."""

    def seat(self, name: str) -> Seat | None:
        """The agent of that name, or the only one of that role."""
        seats = {seat.name: seat for seat in self.team.seats}
        several = self.team.all(name)
        return seats.get(name) or (several[0] if len(several) == 1 else None)

    async def answer(
        self, seat: Seat, messages: tuple[ChatMessage, ...], max_tokens: int | None
    ) -> tuple[Message, list[Call]]:
        """What the agent says, and the call it took; no call if the agent is muted."""
        if self.failure:
            raise self.failure
        try:
            self._check_choice(seat)
            key = seat.name, hashlib.blake2b(repr(messages).encode(), digest_size=8).hexdigest()
            self._asked[key] += 1
            number = f"{key[1]}.{self._asked[key]}"
            rank = self._finished + 1
            with self.team.strand() as strand:
                message = await seat.reply(messages, number=number, max_tokens=max_tokens)
        except TacitError as error:
            self.failure = self.failure or error
            raise
        self._done.append(((rank, seat.name, number), strand.calls))
        self._finished = max(self._finished, rank)
        return message, strand.calls

    def settle(self) -> None:
        """Put the episode's calls into the order of the chain, whichever of them came first."""
        ordered = sorted(self._done, key=lambda done: done[0])
        self.team.whole.calls = [call for _, calls in ordered for call in calls]

    def _check_choice(self, seat: Seat) -> None:
        role = seat.agent.role
        self._turns[role] += 1
        arms = self.team.setting.choices.get(role) in (Choice.SPEAK, Choice.SILENT)
        if arms and seat.agent.may_be_silent and self._turns[role] > 1:
            raise ConfigError(
                f"the program asked `{role}` more than once in an episode, but "
                "`silence.exploration: arms` judges one choice to speak; use `floor`"
            )
