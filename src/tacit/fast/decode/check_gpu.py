"""Checks a model's fused forward pass against the model's own."""

from typing import Any

import torch

from tacit.engine.memory import ran_out

_PROBE_IDS = tuple(range(5, 25))


def why_not_graphs(module: Any, context: int) -> str | None:
    """None if the model can decode by captured graphs, else the reason."""
    try:
        from tacit.fast.decode.layers_gpu import FusedModel, why_not_fused
        from tacit.fast.decode.rows_gpu import fused_logits

        if reason := why_not_fused(module, context):
            return reason
        fused_V = fused_logits(FusedModel(module, 64), _PROBE_IDS)
        ids_1T = torch.tensor([_PROBE_IDS], device=module.device)
        whole_V = module(input_ids=ids_1T, use_cache=False).logits[0, -1].float()
    except Exception as error:  # a family's code may have changed
        if ran_out(error):
            raise
        return f"{type(error).__name__}: {error}"
    # half precision keeps 8 to 11 bits, and errors add up over the layers
    tolerance = 1e-3 if module.dtype == torch.float32 else 0.1
    if not (fused_V - whole_V).abs().max() <= tolerance * whole_V.abs().max():
        return "the fused forward pass changes its logits"
    return None
