"""Checks that a model decodes in rows as it does over a whole sequence, and alike in every row.

The model itself is tried once, so no list of architectures and machines is needed.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.engine.memory import ran_out
from tacit.fast.kv_cache import RowBlock

if TYPE_CHECKING:
    from tacit.fast.forward_rows import RowForward

_PROBE_IDS = (0, 1, 2, 3, 2, 1, 0)
_SMALL = 16_000_000
"""Models with fewer parameters use one thread: a second gains little on an idle machine and costs
much on a busy one, and with one the numbers do not depend on the number of cores."""


def why_not_rows(forward: "RowForward", rows: int, context: int) -> str | None:
    """None if the model can decode in rows, else the reason.

    Call it in the worker's thread, for which it also sets the number of threads.
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
        # half precision keeps 8 to 11 bits, and errors add up over the layers
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


def _decode(forward: "RowForward", rows: int) -> Tensor:
    """The logits after the same sequence in every row, its last token decoded."""
    prompt = forward.prefill(_PROBE_IDS[:-1])
    block = RowBlock(forward.decoder(prompt, rows, 64), prompt, rows, 64)
    for row in range(rows):
        block.fill(row, prompt)
    block.advance([_PROBE_IDS[-1]] * rows, [len(_PROBE_IDS) - 1] * rows)
    return block.logits_RV


def _rows_agree(forward: "RowForward", rows: int) -> bool:
    """True if all rows have the same bits, in the logits and after each activation function.

    torch cuts large tensors into about as many pieces as it has threads and computes the remainder
    of each piece by other instructions, so `silu` rounds differently there. The logits alone are
    sums that would hide most of these differences.
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
    """Records which activation functions the model applies, and to layers of which width."""
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
    """Sets the number of threads that suits the model, then fewer; restores it if none will do."""
    given = torch.get_num_threads()
    if module.device.type != "cpu":
        yield
        return
    count = 1 if module.num_parameters() < _SMALL else given
    while count:
        use_threads(count, others=given)
        yield
        # the next lower power of two
        count = 1 << ((count - 1).bit_length() - 1) if count > 1 else 0
    use_threads(given, others=given)


def use_threads(count: int, others: int) -> None:
    """Set torch's threads for this thread, and back to `others` for threads that start later."""
    torch.set_num_threads(count)
    restore = threading.Thread(target=torch.set_num_threads, args=(others,))
    restore.start()
    restore.join()
