"""What a vLLM worker does for us beside its own work. It is imported in the worker's process."""

from typing import Any


class Taker:
    """Mixed into vLLM's worker by its `worker_extension_cls`."""

    def take_weights(self: Any, folder: str) -> None:
        """Put all weights of a folder in the place of the present ones."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        self.reload_weights(weights_path=folder)
        # An output head that is tied to the embedding has nothing of its own to load, and on a CPU
        # would go on with the packed copy it made of the old weights.
        for layer in self.get_model().modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)
