import math

import pytest
import torch

from tacit.engine.base import Sampling
from tacit.engine.sampler import RowSettings, draw, log_distribution, uniforms

CPU = torch.device("cpu")
MASK = 2**64 - 1


def splitmix_uniform(seed: int, counter: int) -> float:
    """The same numbers in Python's own integers."""

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    bits = mix((mix((seed + gamma) & MASK) + counter * gamma) & MASK)
    return (bits >> 12) / 2**52


def test_uniforms_are_splitmix64_whatever_the_sign_bit() -> None:
    pairs = [(0, 0), (1, 0), (0, 1), (2**63 - 1, 7), (123456789123456789, 4000), (5, -1)]
    seeds, counters = (torch.tensor(column) for column in zip(*pairs, strict=True))
    assert uniforms(seeds, counters).tolist() == [splitmix_uniform(*pair) for pair in pairs]


def test_uniforms_are_uniform_over_seeds_and_over_counters() -> None:
    n = 20_000
    for numbers in (
        uniforms(torch.arange(n), torch.zeros(n, dtype=torch.int64)),
        uniforms(torch.full((n,), 17), torch.arange(n)),
    ):
        counts = torch.histc(numbers.float(), bins=20, min=0.0, max=1.0)
        chi2 = ((counts - n / 20) ** 2 / (n / 20)).sum()
        assert chi2 < 44  # 19 degrees of freedom: p = 0.001
        assert numbers.min() >= 0.0 and numbers.max() < 1.0


def test_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    got = log_distribution(logits, RowSettings(1, CPU, Sampling(temperature=0.5)))
    torch.testing.assert_close(got, (logits.double() * 2).log_softmax(-1))


def test_greedy_takes_the_largest_and_reports_its_probability_at_temperature_one() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    settings = RowSettings(1, CPU, Sampling(temperature=0.0, top_k=1, top_p=0.1), 5)
    ids, logprobs = draw(log_distribution(logits, settings), settings, torch.tensor([0]))
    assert ids.tolist() == [1]
    assert logprobs.item() == pytest.approx(3 - math.log(math.e + math.e**3 + math.e**2))


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=1.0, top_k=2), {1: 0.4 / 0.7, 3: 0.3 / 0.7}),
        (Sampling(temperature=1.0, top_p=0.65), {1: 0.4 / 0.7, 3: 0.3 / 0.7}),
        (Sampling(temperature=1.0, top_p=0.75), {1: 0.4 / 0.9, 3: 0.3 / 0.9, 0: 0.2 / 0.9}),
        (Sampling(temperature=1.0, top_p=0.3), {1: 1.0}),
        # after top-k two tokens of 4/7 and 3/7 are left, and 0.5 is reached by the first
        (Sampling(temperature=1.0, top_k=2, top_p=0.5), {1: 1.0}),
    ],
)
def test_top_k_and_top_p_keep_and_renormalise(sampling: Sampling, kept: dict[int, float]) -> None:
    logits = torch.tensor([[0.2, 0.4, 0.1, 0.3]]).log()
    got = log_distribution(logits, RowSettings(1, CPU, sampling)).exp()[0]
    expected = torch.tensor([kept.get(token, 0.0) for token in range(4)], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=0.0)


def test_draws_follow_the_distribution() -> None:
    rows, probabilities = 20_000, torch.tensor([0.5, 0.0, 0.3, 0.2])
    settings = RowSettings(rows, CPU)
    for row in range(rows):
        settings.put(row, Sampling(temperature=1.0), seed=row)
    logq = log_distribution(probabilities.log().expand(rows, 4), settings)
    ids, logprobs = draw(logq, settings, torch.zeros(rows, dtype=torch.int64))
    counts = torch.bincount(ids, minlength=4)
    assert counts[1] == 0
    for token in (0, 2, 3):
        p = probabilities[token].item()
        assert abs(counts[token].item() - rows * p) < 4 * math.sqrt(rows * p * (1 - p))
    torch.testing.assert_close(logprobs, probabilities.double().log()[ids])


def test_a_row_draws_the_same_among_any_neighbours() -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, 500) * 3
    kinds = [
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, top_p=0.8),
        Sampling(temperature=0.0),
        Sampling(temperature=1.3, top_k=20),
    ]

    def drawn(order: list[int]) -> dict[int, tuple[int, float]]:
        settings = RowSettings(8, CPU)
        for row, request in enumerate(order):
            settings.put(row, kinds[request % 4], seed=request)
        counters = torch.tensor([request + 3 for request in order])
        ids, logprobs = draw(log_distribution(logits[order], settings), settings, counters)
        return dict(zip(order, zip(ids.tolist(), logprobs.tolist(), strict=True), strict=True))

    together = drawn(list(range(8)))
    assert drawn([7, 2, 5, 0, 1, 6, 3, 4]) == together
    for request in range(8):
        assert drawn([request] * 8)[request] == together[request]
