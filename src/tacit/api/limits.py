"""How hard a server may be asked: at once, in a minute, how long it is waited for, when to give up.

Times are of the event loop's clock. Not covered: what is asked and what the answer means (`api`).
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tacit.errors import EngineError

MINUTE = 60.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
UNREACHABLE_AFTER = 30.0
"""Seconds after which a server is given up that never answered anything."""
COOL_DOWN = 10.0
"""Seconds for which a server that was given up is not asked again."""


@dataclass(slots=True)
class Taken:
    """What one attempt takes of a window's limit; corrected once the real amount is known."""

    time: float
    amount: float
    counts: bool = True


class Window:
    """At most `limit` in any minute."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._taken: deque[Taken] = deque()
        self._sum = 0.0

    def wait(self, amount: float, now: float) -> float:
        """Seconds until there is room. What is larger than the limit waits for an empty window."""
        while self._taken and self._taken[0].time <= now - MINUTE:
            old = self._taken.popleft()
            old.counts = False
            self._sum -= old.amount
        over, free_at = self._sum + amount - self._limit, now
        for taken in self._taken:
            if over <= 0:
                break
            over -= taken.amount
            free_at = taken.time + MINUTE
        return free_at - now

    def take(self, amount: float, now: float) -> Taken:
        self._taken.append(Taken(now, amount))
        self._sum += amount
        return self._taken[-1]

    def correct(self, taken: Taken, amount: float) -> None:
        if taken.counts:
            self._sum += amount - taken.amount
            taken.amount = amount


class RateLimiter:
    """Lets attempts through, first come first served, as fast as all the limits allow."""

    def __init__(
        self, concurrency: int, requests_a_minute: float | None, tokens_a_minute: float | None
    ) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._turn = asyncio.Lock()
        self._requests = Window(requests_a_minute) if requests_a_minute else None
        self._tokens = Window(tokens_a_minute) if tokens_a_minute else None
        self._held_until = 0.0

    def hold(self, seconds: float) -> None:
        """Let nobody through for so long, as a server asks that wants everyone to wait."""
        self._held_until = max(self._held_until, now() + seconds)

    @asynccontextmanager
    async def attempt(
        self, expected_tokens: float, check: Callable[[], None]
    ) -> AsyncIterator[Callable[[int], None]]:
        """Inside, one attempt is under way; tell what is yielded how many tokens it came to.

        `check` is called once a second while waiting and raises where waiting has become useless.
        """
        async with self._slots:
            async with self._turn:
                while (wait := self._wait(expected_tokens)) > 0:
                    check()
                    await asyncio.sleep(min(wait, 1.0))
                check()
                if self._requests:
                    self._requests.take(1, now())
                taken = self._tokens.take(expected_tokens, now()) if self._tokens else None
            yield lambda tokens: self._settle(taken, tokens)

    def _settle(self, taken: Taken | None, tokens: int) -> None:
        if self._tokens and taken:
            self._tokens.correct(taken, tokens)

    def _wait(self, tokens: float) -> float:
        waits = [self._held_until - now()]
        if self._requests:
            waits.append(self._requests.wait(1, now()))
        if self._tokens:
            waits.append(self._tokens.wait(tokens, now()))
        return max(waits)


class Patience:
    """How long one call, and a whole server, is tried.

    A call ends `deadline` seconds after its first attempt, waits included. A server that was asked
    and gave nobody a whole answer for as long is given up: all who wait for it fail then, and for a
    while whoever comes next, so that a thousand episodes do not each wait for a dead server.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.answered = False
        """Whether there ever was a whole answer."""
        self._reached = False
        self._answered_at = self._given_up_at = -math.inf
        self._trouble_since: float | None = None
        self._reason = ""

    def succeeded(self) -> None:
        self.answered = self._reached = True
        self._answered_at, self._trouble_since = now(), None

    def failed(self, began: float, words: str, *, reached: bool) -> str:
        """An attempt that began then failed; `reached` says that the server answered something.

        Returns the words to give as the reason: what the server last said, rather than that in the
        end there was no time left for it to say anything.
        """
        if now() < self._given_up_at + COOL_DOWN:
            return self._reason
        self._reached = self._reached or reached
        if reached or self._trouble_since is None:
            self._reason = words
        if self._trouble_since is None:
            self._trouble_since = max(began, self._answered_at)
        if now() >= self._trouble_since + self._server_deadline():
            self._given_up_at, self._trouble_since = now(), None
        return self._reason

    def left(self, began: float) -> float:
        """Seconds that a call whose first attempt began then may still take."""
        ends = began + self.deadline
        if self._trouble_since is not None:
            ends = min(ends, self._trouble_since + self._server_deadline())
        return ends - now()

    def check(self, asked_at: float) -> None:
        """Raise where the server was given up after a call was asked for, or shortly before."""
        if asked_at < self._given_up_at + COOL_DOWN:
            raise EngineError(f"{self._reason} (given up after {self._server_deadline():g} s)")

    def _server_deadline(self) -> float:
        return self.deadline if self._reached else min(self.deadline, UNREACHABLE_AFTER)


def backoff(attempt: int) -> float:
    """Seconds before another try: twice as long each time, and never the same for two callers."""
    longest: float = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT)
    return longest * random.uniform(0.5, 1.0)


def retry_after(seconds: str | None, milliseconds: str | None = None) -> float | None:
    """Seconds from the Retry-After header (a number or a date) or its variant in milliseconds."""
    for header, unit in ((milliseconds, 1e-3), (seconds, 1.0)):
        if (number := _number(header)) is not None:
            return number * unit
    try:
        return max(0.0, (parsedate_to_datetime(seconds or "") - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(header: str | None) -> float | None:
    try:
        number = float(header or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def now() -> float:
    return asyncio.get_running_loop().time()
