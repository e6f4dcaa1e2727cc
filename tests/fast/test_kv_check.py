import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tacit.engine.forward import forward_of
from tacit.fast import kv_check
from tacit.fast.kv_cache import RowBlock
from tests.helpers.tiny_models import tiny_model


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


def in_a_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []

    def run() -> None:
        with torch.no_grad():
            results.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def why_not(module: Any, context: int = 512) -> str | None:
    return kv_check.why_not_rows(forward_of(module), 8, context)


def silu_rows_agree(rows: int, width: int) -> bool:
    row = torch.randn(1, width, generator=torch.Generator().manual_seed(1))
    out = torch.nn.functional.silu(row.repeat(rows, 1))
    return bool((out == out[0]).all())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2"])
def test_plain_attention_fits_rows(kind: str) -> None:
    assert in_a_thread(lambda: why_not(tiny_model(kind).module)) is None


def test_windows_fit_only_where_they_are_not_reached() -> None:
    module = tiny_model("mistral").module
    assert "window of 8" in in_a_thread(lambda: why_not(module))
    assert in_a_thread(lambda: why_not(module, context=8)) is None
    sliding = tiny_model("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert "other than full" in in_a_thread(lambda: why_not(sliding.module))


def test_a_model_that_raises_or_answers_otherwise_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = tiny_model().module
    advance = RowBlock.advance

    def one_position_late(self: RowBlock, tokens: list[int], positions: list[int]) -> None:
        advance(self, tokens, [position + 1 for position in positions])

    monkeypatch.setattr(RowBlock, "advance", one_position_late)
    assert in_a_thread(lambda: why_not(module)) == ("decoding in rows changes its logits")
    module.forward = None
    assert "TypeError" in in_a_thread(lambda: why_not(module))


def test_threads_that_cut_through_rows_are_given_up(
    three_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three threads cut [8 rows × 11008] inside rows, where torch's silu rounds differently."""
    monkeypatch.setattr(kv_check, "_SMALL", 0)
    module = tiny_model(intermediate_size=11008).module
    if silu_rows_agree(8, 11008):
        pytest.skip("this build of torch rounds silu alike everywhere")

    def settled() -> tuple[str | None, bool]:
        return why_not(module), silu_rows_agree(8, 11008)

    assert in_a_thread(settled) == (None, True)


def test_a_large_model_keeps_its_threads(
    three_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_check, "_SMALL", 0)
    module = tiny_model().module

    def settled() -> tuple[str | None, int]:
        return why_not(module), torch.get_num_threads()

    assert in_a_thread(settled) == (None, 3)


def test_a_small_model_takes_one_thread_and_leaves_others_theirs(three_threads: None) -> None:
    module = tiny_model().module

    def settled() -> int:
        why_not(module)
        return torch.get_num_threads()

    assert in_a_thread(settled) == 1
    assert torch.get_num_threads() == in_a_thread(torch.get_num_threads) == 3
