"""What Tacit adds to a vLLM worker; imported in the worker's process."""

from typing import Any


class Taker:
    """Mixed into vLLM's worker by its `worker_extension_cls`."""

    def take_weights(self: Any, folder: str) -> None:
        """Replace all weights by those in a folder."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        self.reload_weights(weights_path=folder)
        # An output head tied to the embedding loads nothing itself, and on a CPU would keep the
        # packed copy of the old weights.
        for layer in self.get_model().modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)
