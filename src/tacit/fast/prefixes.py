"""A forest of shared prompt prefixes, so that each prefix is computed once.

A group's messages share a whole prompt; an agent's later prompts extend its earlier ones. Outputs
are never shared, even if they are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tacit.engine.forward import Ids
from tacit.learn.batch import LEAST_SHARED, in_common


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that continues its parent."""

    parent: int | None
    """An earlier segment."""
    depth: int
    """How many tokens its ancestors have."""
    ids: Ids


@dataclass(slots=True)
class Forest:
    segments: list[Segment] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    """For each message the segment, possibly empty, that ends with its output."""

    def home(self, message: int, prompt: Ids) -> int:
        """The segment that holds the last token of a message's prompt."""
        leaf = self.leaves[message]
        parent = self.segments[leaf].parent
        return leaf if parent is None or self.segments[leaf].depth < len(prompt) else parent

    def paths(self) -> list[list[int]]:
        """For each segment its ancestors from the root on, and itself."""
        found: list[list[int]] = []
        for number, segment in enumerate(self.segments):
            above = [] if segment.parent is None else found[segment.parent]
            found.append([*above, number])
        return found


def forest(messages: Sequence[tuple[Ids, Ids]]) -> Forest:
    """The forest of (prompt ids, output ids) pairs; the last output token is never fed."""
    order = sorted(range(len(messages)), key=lambda number: tuple(messages[number][0]))
    prompts = [messages[number][0] for number in order]
    shared = [0] + [in_common(prompts[n - 1], prompts[n]) for n in range(1, len(prompts))]
    grown = Forest(leaves=[0] * len(messages))

    def add(parent: int | None, depth: int, ids: Ids) -> int:
        grown.segments.append(Segment(parent, depth, ids))
        return len(grown.segments) - 1

    def goes_on(at: int, depth: int) -> bool:
        more = shared[at] - depth
        equal = shared[at] == len(prompts[at]) == len(prompts[at - 1])
        return more >= LEAST_SHARED or (equal and more > 0)

    # ranges of sorted prompts that agree up to a depth, and the segment that ends there
    runs: list[tuple[int, int, int, int | None]] = [(0, len(messages), 0, None)]
    while runs:
        first, end, depth, parent = runs.pop()
        while first < end:
            last = first
            while last + 1 < end and goes_on(last + 1, depth):
                last += 1
            if last == first:
                prompt, output = messages[order[first]]
                ids = [*prompt[depth:], *output[:-1]]
                grown.leaves[order[first]] = add(parent, depth, ids)
            else:
                alike = min(shared[first + 1 : last + 1])
                own = add(parent, depth, prompts[first][depth:alike])
                runs.append((first, last + 1, alike, own))
            first = last + 1
    return grown
