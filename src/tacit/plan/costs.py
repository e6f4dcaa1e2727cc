"""What decoding and learning take on a GPU: seconds and bytes, from shapes and five constants.

Bytes and FLOPs are counted from what the code in `fast/` and `learn/` computes, and take as long as
a large copy or product of that size would. What comes on top is one fitted time for each kernel of
a captured graph, and one for each operation that the host launches. `benchmarks/plan.py` fits both
on the kept measurements of one H200, and says how far off configurations are that were left out of
the fit. A card that was not measured is expected to reach the same shares of its published figures,
with the same times on top.
"""

import math
from dataclasses import dataclass, replace

from tacit.plan.cards import Card
from tacit.plan.model_shapes import HALF, PAGE, Shape

KERNELS, ADAPTER_KERNELS, STEP_KERNELS = 9, 8, 10
"""Kernels of a decoding step: for each layer, more for each layer with an adapter, and outside the
layers. A pass over prompts launches the first kind one by one."""
LEARNING_KERNELS = 13
"""Operations that learning launches for each layer in the forward pass, and again backward."""
PROMPT_TOKENS = 16_384
"""Prompt tokens that go through the model at once."""
LOOK = 8
"""Steps after which the host looks at what was drawn, and lets waiting requests begin."""
SPARE = 1.25
"""Pages that are reserved for keys and values, over those that all rows may need."""
CACHE_SHARE = 0.6
"""The cache's largest share of the memory that the weights leave free; then rows must wait."""
LOGITS = 2**28
"""Elements of the largest block of logits that learning holds; freed before the next."""
MOVES = 3
"""Times that learning moves through memory what it keeps for the backward pass."""
CHECKPOINTING = 2
"""Factor on the time of launching when layers, and their random state, are computed again."""

LEFT_OUT = {"tokens/s": 0.22, "memory": 0.12}
"""The largest error of a configuration that was left out of the fit; `benchmarks/plan.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The numbers that were measured; `benchmarks/results/plan.json` says from what."""

    copy_share: float = 0.8915
    """Bytes a second of a large copy, over the card's published bandwidth."""
    product_share: float = 0.7909
    """FLOP/s of an 8192³ bfloat16 product, over the card's published figure."""
    kernel_s: float = 6.538e-6
    """Seconds that each kernel of a decoding step takes beyond its bytes and FLOPs."""
    launch_s: float = 1.062e-4
    """Seconds that the host takes to launch one operation of a pass that is no captured graph:
    over prompts, and in learning."""
    activations: float = 1.039
    """Bytes kept for the backward pass, over those of the tensors that are counted."""

    def speed(self, card: Card, ways: int = 1) -> "Speed":
        """Of several cards if they share a model evenly at no cost, which is an upper bound."""
        return Speed(
            bytes_per_s=ways * self.copy_share * card.bytes_per_s,
            flops_per_s=ways * self.product_share * card.flops_per_s,
            kernel_s=self.kernel_s,
            launch_s=self.launch_s,
        )


MEASURED = Constants()


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a card is: its highest rates, and the time that each kernel and launch adds."""

    bytes_per_s: float
    flops_per_s: float
    kernel_s: float
    launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Requests to one engine, which decodes `rows` of them together."""

    shape: Shape
    rows: int
    requests: float
    prompt: float
    """Mean tokens of a prompt."""
    new: float
    """Mean tokens of an answer."""
    cap: float
    """Most tokens of an answer. The last request to end is taken to be this long."""
    computed: float
    """Prompt tokens that are computed, of all requests: what they begin with in common, once."""
    arriving: float = 0.0
    """Steps over which the requests arrive, since each waits for an earlier one to end."""
    rank: int = 0
    """Of the adapter; 0 is none."""

    @property
    def steps(self) -> float:
        """Tokens drawn one after the other: full rows, then the last ones on their own."""
        return self.requests * self.new / min(self.rows, self.requests) + self.cap - self.new

    @property
    def waiting(self) -> float:
        """Steps in which requests wait for a row, if answers end at different times."""
        full = max(0.0, self.requests / self.rows - 1) * self.new
        return full if self.cap > self.new else 0.0

    def prompts(self) -> "Learning":
        """The forward passes over prompts: one for each look at which some can begin."""
        looks = min(self.requests, (self.waiting + self.arriving) / LOOK)
        passes = max(looks, self.requests / self.rows, self.computed / PROMPT_TOKENS)
        return Learning(
            shape=self.shape,
            tokens=self.computed,
            passes=math.ceil(passes),
            backward=False,
            prompts=True,
        )

    def causes(self, speed: Speed) -> dict[str, float]:
        """Seconds by what they are spent on."""
        shape, drawn = self.shape, self.requests * self.new
        weights = HALF * (shape.multiplied + (shape.adapter(self.rank) if self.rank else 0))
        attended = drawn * shape.kv_bytes * (self.prompt + self.new / 2)
        kernels = shape.layers * (KERNELS + (ADAPTER_KERNELS if self.rank else 0)) + STEP_KERNELS
        return {
            # a product reads its weights while it multiplies; attention comes after it
            "weights": max(
                self.steps * weights / speed.bytes_per_s,
                2 * shape.multiplied * drawn / speed.flops_per_s,
            ),
            "keys and values": attended / speed.bytes_per_s,
            "kernels' own time": self.steps * kernels * speed.kernel_s,
            "prompts": self.prompts().seconds(speed),
        }

    def seconds(self, speed: Speed) -> float:
        return sum(self.causes(speed).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Passes over tokens without padding: prompts, scores, or gradients and optimiser steps."""

    shape: Shape
    tokens: float
    """In all passes together; what prompts begin with in common, once."""
    passes: int
    """Microbatches."""
    backward: bool = True
    prompts: bool = False
    """True if an engine does it, for requests."""
    rank: int = 0
    """Of the adapter; 0 trains all weights."""
    checkpointing: bool = False
    steps: int = 0
    """Optimiser steps."""

    @property
    def trained(self) -> int:
        return self.shape.adapter(self.rank) if self.rank else self.shape.weights

    @property
    def flops(self) -> float:
        """2 a weight forward, 2 for the gradient of the input, 2 for that of the weights."""
        shape, times = self.shape, 2.0
        if self.backward:
            times += 2.0 + (0.0 if self.rank else 2.0) + (2.0 if self.checkpointing else 0.0)
        logits_again = 2.0 * shape.vocabulary * shape.hidden * self.backward
        return self.tokens * (times * shape.multiplied + logits_again)

    def causes(self, speed: Speed) -> dict[str, float]:
        """Seconds by what they are spent on; `moving` is through memory, beside the products."""
        shape, share = self.shape, 1.0 if self.backward else 1 / 3
        moved = share * MOVES * self.tokens * shape.layers * shape.saved_bytes
        # weights, gradients and two moments in float32 are read and written, the live copy written
        stepped = self.steps * self.trained * (7 * 4 + HALF)
        launched = LEARNING_KERNELS * (CHECKPOINTING if self.checkpointing else 1)
        launched = 2 * launched if self.backward else KERNELS if self.prompts else launched
        return {
            "products": self.flops / speed.flops_per_s,
            "moving": (moved + stepped) / speed.bytes_per_s,
            "launching": self.passes * shape.layers * launched * speed.launch_s,
        }

    def seconds(self, speed: Speed) -> float:
        return sum(self.causes(speed).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one GPU, part by part. `kept` is what the constant `activations` multiplies."""

    weights: float = 0.0
    """Of the model, and of the copy that learns."""
    optimizer: float = 0.0
    """The trained weights, their gradient and two moments, in float32."""
    cache: float = 0.0
    """Keys and values, reserved for the longest requests of all rows."""
    kept: float = 0.0
    """For the backward pass of one microbatch."""
    logits: float = 0.0
    """The largest block of them, with the gradient of the output head."""

    def __add__(self, other: "Memory") -> "Memory":
        names = self.__slots__
        return Memory(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def within(self, size: float) -> "Memory":
        """With the cache that an engine makes on a GPU of this size."""
        free = max(0.0, size - self.weights - self.optimizer)
        return replace(self, cache=min(self.cache, CACHE_SHARE * free))

    def parts(self, constants: Constants = MEASURED) -> dict[str, float]:
        return {
            "weights": self.weights,
            "optimiser": self.optimizer,
            "keys and values": self.cache,
            "activations": constants.activations * self.kept,
            "logits": self.logits,
        }

    def total(self, constants: Constants = MEASURED) -> float:
        return sum(self.parts(constants).values())


def model_memory(shape: Shape) -> Memory:
    return Memory(weights=HALF * shape.weights)


def cache_memory(shape: Shape, rows: int, longest: float) -> Memory:
    """Of one engine; `longest` is the longest prompt with the longest answer to it."""
    tokens = PAGE * math.ceil(longest / PAGE)
    return Memory(cache=SPARE * rows * tokens * shape.kv_bytes)


def learner_memory(shape: Shape, tokens: float, *, rank: int, checkpointing: bool) -> Memory:
    """Beside the frozen model; `tokens` are those of one microbatch."""
    trained = shape.adapter(rank) if rank else shape.weights
    layers = tokens * shape.saved_bytes * (1 if checkpointing else shape.layers)
    # with checkpointing, each layer's two residual streams are kept, and one layer is whole
    between = tokens * shape.layers * 2 * HALF * shape.hidden if checkpointing else 0.0
    block = HALF * min(LOGITS, tokens * shape.vocabulary)
    head = 0 if rank else 4 * shape.vocabulary * shape.hidden
    return Memory(
        weights=0 if rank else HALF * shape.weights,
        optimizer=4 * 4 * trained,
        kept=layers + between,
        logits=block + head,
    )
