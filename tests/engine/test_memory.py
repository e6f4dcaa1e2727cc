"""What counts as memory that ran out, and what the command line makes of it."""

import pytest
import torch

from tacit import cli
from tacit.engine.memory import ran_out

CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (torch.OutOfMemoryError("tried to allocate 7 TiB"), True),
        (RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"), True),
        (RuntimeError(CUBLAS), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_errors(error: Exception, full: bool) -> None:
    assert ran_out(error) is full


def test_a_full_device_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise RuntimeError(CUBLAS)

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert "memory is full" in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("a bad kernel")

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(RuntimeError, match="a bad kernel"):
        cli.main()
