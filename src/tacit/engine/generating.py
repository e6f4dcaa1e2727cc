"""One request at a time by transformers' `generate`, for models that cannot decode in rows.

Slow, since nothing is shared or batched.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from tacit.engine.request_state import RequestState
from tacit.engine.sampler import RowSettings, draw, log_distribution
from tacit.types import Ids


class Generating:
    """A `Scheduler` without rows."""

    def __init__(self, module: Any) -> None:
        self._waiting: deque[RequestState] = deque()
        self._module = module
        self._version = 0

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def add(self, state: RequestState) -> None:
        self._waiting.append(state)

    def step(self) -> None:
        if not self._waiting:
            return
        state = self._waiting.popleft()
        if state.cancelled:
            return
        try:
            self._serve(state)
        except Exception as error:
            state.answer(error)
        else:
            state.answer()

    def fail(self, error: Exception) -> None:
        for state in self._waiting:
            state.answer(error)
        self._waiting.clear()

    def shrink(self) -> None:
        """Nothing is kept between requests."""

    def refresh(self, version: int) -> None:
        self._version = version

    def _serve(self, state: RequestState) -> None:
        prompt_1T = torch.tensor([state.request.prompt_ids], device=self._module.device)
        state.begin(self._marker_logits(prompt_1T, state.marker), self._version)
        if state.done:
            return
        with _bare_generation_config(self._module, state.request.sampling.max_tokens):
            self._module.generate(
                prompt_1T,
                attention_mask=torch.ones_like(prompt_1T),
                logits_processor=[_Drawer(state, prompt_1T.device)],
                stopping_criteria=[
                    lambda ids, scores, **_: ids.new_tensor(
                        [state.done or state.cancelled], dtype=torch.bool
                    )
                ],
            )

    def _marker_logits(self, prompt_1T: Tensor, marker: Ids) -> Tensor:
        """Logits along the marker; empty if silence is not allowed."""
        if not marker:
            return prompt_1T.new_empty(0, 0)
        ids_1T = torch.cat([prompt_1T, prompt_1T.new_tensor([marker[:-1]])], dim=-1)
        logits: Tensor = self._module(input_ids=ids_1T, use_cache=False).logits[0, -len(marker) :]
        return logits.float()


class _Drawer:
    """A logits processor that draws by our own rules and leaves only that token to `generate`."""

    def __init__(self, state: RequestState, device: torch.device) -> None:
        self._state = state
        self._settings = RowSettings(1, device, state.request.sampling, state.request.seed)

    def __call__(self, input_ids: Tensor, scores_1V: Tensor) -> Tensor:
        state, known = self._state, self._state.marker_logits()
        logits_1V = scores_1V.float() if known is None else known[None]
        logp_1V = log_distribution(logits_1V, self._settings)
        state.condition(logp_1V[0])
        counter = torch.tensor([len(state.ids)], device=logp_1V.device)
        ids, logprobs = draw(logp_1V, self._settings, counter)
        state.take(int(ids.item()), logprobs.item())
        return torch.full_like(scores_1V, -torch.inf).scatter_(-1, ids[:, None], 0.0)


@contextmanager
def _bare_generation_config(module: Any, max_tokens: int) -> Iterator[None]:
    """Removes the model's own settings, such as penalties that would change its probabilities."""
    theirs = module.generation_config
    module.generation_config = GenerationConfig(max_new_tokens=max_tokens, pad_token_id=0)
    try:
        yield
    finally:
        module.generation_config = theirs
