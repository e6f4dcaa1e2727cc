"""Prompts that begin alike, as a forest: what several messages have in common is computed once.

A group's messages share a whole prompt; an agent's later prompts go on from its earlier ones.
What is said is never shared, even where two say the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tacit.engine.forward import Ids
from tacit.learn.batch import LEAST_SHARED, in_common


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens that goes on where its parent ends."""

    parent: int | None
    """Always an earlier one."""
    depth: int
    """Tokens before it, its ancestors'."""
    ids: Ids


@dataclass(slots=True)
class Forest:
    segments: list[Segment] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    """By message: the segment, empty perhaps, that ends with what it says."""

    def home(self, message: int, prompt: Ids) -> int:
        """The segment with the last token of its prompt."""
        leaf = self.leaves[message]
        parent = self.segments[leaf].parent
        return leaf if parent is None or self.segments[leaf].depth < len(prompt) else parent

    def paths(self) -> list[list[int]]:
        """By segment: its ancestors, the first of them first, and itself."""
        found: list[list[int]] = []
        for number, segment in enumerate(self.segments):
            above = [] if segment.parent is None else found[segment.parent]
            found.append([*above, number])
        return found


def forest(messages: Sequence[tuple[Ids, Ids]]) -> Forest:
    """Of each (prompt ids, output ids); the last output token is predicted, never fed."""
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

    # runs of prompts that are the same up to a depth, and the segment that ends there
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
