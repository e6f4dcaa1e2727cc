"""Transformers' forward pass over many rows at once, for any model with full attention.

The CPU's and the GPU's own forward passes build on it and fall back to it. A model that does not
decode in rows as it does alone is left to the reference, one request at a time.
"""

import logging

import torch
from transformers import DynamicCache

from tacit.engine.forward import Forward, Ids, Scheduler
from tacit.fast.kv_cache import Decoder, Prefill, RowCache
from tacit.fast.kv_check import why_not_rows
from tacit.fast.scheduler_rows import RowScheduler

log = logging.getLogger(__name__)


class RowForward(Forward):
    """Prompts one by one, then rows that decode together over a fixed KV cache."""

    def scheduler(self, name: str, ends: frozenset[int], rows: int, context: int) -> Scheduler:
        if reason := why_not_rows(self, rows, context):
            log.warning("%s serves one request at a time: %s", name, reason)
            return super().scheduler(name, ends, rows, context)
        return RowScheduler(self, rows)

    def prefill(self, prompt: Ids, marker: Ids = (), *, version: int = 0) -> Prefill:
        """A prompt's keys and values, and the logits along the marker (its last id is not fed)."""
        cache = DynamicCache()
        ids = torch.tensor([[*prompt, *marker[:-1]]], device=self.module.device)
        logits = self.module(
            input_ids=ids,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=max(1, len(marker)),
        ).logits[0]
        return Prefill(
            tuple(layer.keys[0, :, : len(prompt)] for layer in cache.layers),
            tuple(layer.values[0, :, : len(prompt)] for layer in cache.layers),
            logits.float(),
            version,
        )

    def decoder(self, like: Prefill, rows: int, length: int) -> Decoder:
        """A block of rows that decode together over caches of one length."""
        return RowCache(self.module, like, rows, length)
