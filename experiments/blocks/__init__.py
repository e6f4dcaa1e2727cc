"""What the page is filled with: every table, plot and number, as text made from the results.

A block is a function of the results and of the words after its name. Where nothing was measured yet
it says so.
"""

from collections.abc import Callable

from experiments.blocks.agentpo import (
    costly_table,
    elsewhere_table,
    main_table,
    maths_table,
    prompts_table,
    samples_table,
)
from experiments.blocks.bars import bars_table
from experiments.blocks.costs import (
    frontier_table,
    pending,
    price_of_points,
    time_table,
    tried_table,
)
from experiments.blocks.dialogue import controls_table, dialogue_table, sizes_table
from experiments.blocks.honesty import codes_table, leaks_table
from experiments.blocks.numbers import (
    accuracy,
    best,
    change,
    curve,
    cut,
    gap,
    minutes,
    part,
    right,
    setting,
    silent,
    spoke,
    steps,
    tokens,
    tokens_by,
    validated,
)
from experiments.blocks.pictures import PLOTS
from experiments.blocks.silence import difficulty_table, silence_table

__all__ = ["BLOCKS", "PLOTS"]

BLOCKS: dict[str, Callable[..., str]] = {
    "accuracy": accuracy,
    "bars": bars_table,
    "best": best,
    "change": change,
    "codes": codes_table,
    "controls": controls_table,
    "costly": costly_table,
    "curve": curve,
    "cut": cut,
    "dialogue": dialogue_table,
    "difficulty": difficulty_table,
    "elsewhere": elsewhere_table,
    "frontier": frontier_table,
    "gap": gap,
    "leaks": leaks_table,
    "main": main_table,
    "maths": maths_table,
    "minutes": minutes,
    "part": part,
    "pending": pending,
    "price": price_of_points,
    "prompts": prompts_table,
    "right": right,
    "samples": samples_table,
    "setting": setting,
    "silence": silence_table,
    "silent": silent,
    "sizes": sizes_table,
    "spoke": spoke,
    "steps": steps,
    "time": time_table,
    "tokens": tokens,
    "tokens_by": tokens_by,
    "tried": tried_table,
    "validated": validated,
}
