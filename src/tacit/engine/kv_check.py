"""Whether a model decodes in rows as it does over a whole sequence, and alike in every row.

Asked of the model itself, once, rather than of a list of architectures and machines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tacit.engine.forward import Forward
from tacit.engine.kv_cache import RowBlock
from tacit.engine.memory import ran_out
from tacit.engine.threads import use_threads

_PROBE_IDS = (0, 1, 2, 3, 2, 1, 0)
_SMALL = 16_000_000
"""Parameters below which one thread does: a second gains little where the machine is idle and costs
much where it is not, and with one the numbers do not depend on how many cores there are."""


def why_not_rows(forward: Forward, rows: int, context: int) -> str | None:
    """None if the model can decode in rows, else the reason.

    To be asked in the worker's thread, whose share of the cores it settles.
    """
    module = forward.module
    config = module.config.get_text_config()
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention"}:
        return "it has layers other than full attention"
    window = getattr(config, "sliding_window", None)
    if window is not None and window < context:
        return f"its attention window of {window} is shorter than the context of {context}"
    try:
        decoded_RV = _decode(forward, rows=2)
        whole_V = forward.prefill(_PROBE_IDS).logits_NV[0]
        # half precision keeps 8 to 11 bits a number, and errors add up over the layers
        tolerance = 1e-3 if module.dtype == torch.float32 else 0.1
        if (decoded_RV[0] - whole_V).abs().max() > tolerance * whole_V.abs().max():
            return "decoding in rows changes its logits"
        if not any(_rows_agree(forward, rows) for _ in _thread_counts(module)):
            return f"its {rows} rows do not agree to the bit"
    except Exception as error:  # an unknown architecture may raise anything
        if ran_out(error):
            raise
        return f"{type(error).__name__}: {error}"
    return None


def _decode(forward: Forward, rows: int) -> Tensor:
    """The same sequence in every row, its last token decoded."""
    prompt = forward.prefill(_PROBE_IDS[:-1])
    block = RowBlock(forward.decoder(prompt, rows, 64), prompt, rows, 64)
    for row in range(rows):
        block.fill(row, prompt)
    block.advance([_PROBE_IDS[-1]] * rows, [len(_PROBE_IDS) - 1] * rows)
    return block.logits_RV


def _rows_agree(forward: Forward, rows: int) -> bool:
    """To the bit: after a pass, and in every activation, where a sum would hide most differences.

    torch cuts large tensors into about as many pieces as it has threads and computes what is left
    over at a piece's end by other instructions: `silu` rounds differently where a cut falls.
    """
    module, generator = forward.module, torch.Generator().manual_seed(0)
    with _watched_activations(module) as seen:
        if not _alike(_decode(forward, rows)):
            return False
    for activation, width in seen.values():
        tries = torch.randn(4, 1, 1, width, generator=generator).to(module.device, module.dtype)
        if not all(_alike(activation(row.repeat(rows, 1, 1))) for row in tries):
            return False
    return True


def _alike(rows: Tensor) -> bool:
    return bool((rows == rows[0]).all())


@contextmanager
def _watched_activations(module: Any) -> Iterator[dict[tuple[type, int], tuple[Any, int]]]:
    """Which kinds of activation the model applies meanwhile, and to how wide a layer."""
    seen: dict[tuple[type, int], tuple[Any, int]] = {}

    def note(part: torch.nn.Module, inputs: tuple[Tensor, ...], _: Any) -> None:
        width = inputs[0].shape[-1]
        seen[type(part), width] = (part.forward, width)

    homes = ("transformers.activations", "torch.nn.modules.activation")
    parts = [part for part in module.modules() if type(part).__module__ in homes]
    handles = [part.register_forward_hook(note) for part in parts]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _thread_counts(module: Any) -> Iterator[None]:
    """As many threads as suit the model, then ever fewer; put back if none will do."""
    given = torch.get_num_threads()
    if module.device.type != "cpu":
        yield
        return
    count = 1 if module.num_parameters() < _SMALL else given
    while count:
        use_threads(count, others=given)
        yield
        count = (
            1 << ((count - 1).bit_length() - 1) if count > 1 else 0
        )  # the next power of two below
    use_threads(given, others=given)
