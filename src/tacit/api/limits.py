"""Rate limits, retries and deadlines for calls to a server.

Times are of the event loop's clock. Not covered: requests and answers themselves (`api_engine.py`).
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
"""Seconds after which a server that never answered is given up."""
COOL_DOWN = 10.0
"""Seconds for which a server that was given up gets no more calls."""


@dataclass(slots=True)
class Taken:
    """One attempt's share of a window's limit; corrected once the real amount is known."""

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
        """Seconds until there is room; an amount over the limit waits for an empty window."""
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
        self._requests = Window(requests_a_minute or math.inf)
        self._tokens = Window(tokens_a_minute or math.inf)
        self._held_until = 0.0

    def hold(self, seconds: float) -> None:
        """Hold all attempts back for this long, as a server may ask."""
        self._held_until = max(self._held_until, now() + seconds)

    @asynccontextmanager
    async def attempt(
        self, expected_tokens: float, check: Callable[[], None]
    ) -> AsyncIterator[Callable[[int], None]]:
        """Waits for its turn, then holds a place for one attempt inside this block.

        Call what is yielded with the attempt's real number of tokens. `check` is called once a
        second while waiting, and raises when waiting has become useless.
        """
        async with self._slots:
            async with self._turn:
                while (wait := self._wait(expected_tokens)) > 0:
                    check()
                    await asyncio.sleep(min(wait, 1.0))
                check()
                self._requests.take(1, now())
                taken = self._tokens.take(expected_tokens, now())
            yield lambda tokens: self._tokens.correct(taken, tokens)

    def _wait(self, tokens: float) -> float:
        windows = self._requests.wait(1, now()), self._tokens.wait(tokens, now())
        return max(self._held_until - now(), *windows)


class Patience:
    """How long one call is retried, and when a whole server is given up.

    A call ends `deadline` seconds after its first attempt, waits included. A server that gives no
    complete answer to any call for as long is given up: all waiting calls fail, and for a while new
    ones too, so that a thousand episodes do not each wait for a dead server.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.answered = False
        """True once there was a complete answer."""
        self._reached = False
        self._answered_at = self._given_up_at = -math.inf
        self._trouble_since: float | None = None
        self._reason = ""

    def succeeded(self) -> None:
        self.answered = self._reached = True
        self._answered_at, self._trouble_since = now(), None

    def failed(self, began: float, words: str, *, reached: bool) -> str:
        """Record a failed attempt; `reached` is True if the server answered at all.

        Returns the words to report: what the server last said, even if a later attempt merely ran
        out of time.
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
        """Seconds left for a call whose first attempt began at this time."""
        ends = began + self.deadline
        if self._trouble_since is not None:
            ends = min(ends, self._trouble_since + self._server_deadline())
        return ends - now()

    def check(self, asked_at: float) -> None:
        """Raise if the server was given up since the call came in, or shortly before."""
        if asked_at < self._given_up_at + COOL_DOWN:
            raise EngineError(f"{self._reason} (given up after {self._server_deadline():g} s)")

    def _server_deadline(self) -> float:
        return self.deadline if self._reached else min(self.deadline, UNREACHABLE_AFTER)


def backoff(attempt: int) -> float:
    """Seconds before the next attempt: doubling, with jitter."""
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
