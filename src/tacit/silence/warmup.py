"""The first steps of a run: nothing is charged, the choice is held in place, the content learns."""

from dataclasses import dataclass, replace

WINDOW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    limit: int
    """It lasts at most so many steps; 0 is none."""
    gain: float = -0.02
    """It ends early when, over five steps, speaking is so much better than silence."""
    steps: int = 0
    gaps: tuple[float, ...] = ()
    """mean R_spoken − mean R_silent of the last steps."""
    caught_up: bool = False

    @property
    def over(self) -> bool:
        return self.caught_up or self.steps >= self.limit


def step_warmup(state: Warmup, gap: float | None) -> Warmup:
    """The state after one more step; `gap` is None where nobody could be silent."""
    gaps = state.gaps if gap is None else (*state.gaps, gap)[-WINDOW:]
    caught_up = state.caught_up or (len(gaps) == WINDOW and sum(gaps) / WINDOW >= state.gain)
    return replace(state, steps=state.steps + 1, gaps=gaps, caught_up=caught_up)
