import itertools
import math

import pytest
import torch

from tacit.engine.base import Request, Sampling, SilenceRule
from tacit.engine.request_state import END_COUNTER, decide
from tacit.engine.sampler import uniform
from tacit.silence.conditioning import (
    SilenceOdds,
    along_marker,
    condition_on_speech,
    marker_odds,
    silence_odds,
)
from tacit.types import Choice

EOS, OTHER_END = 0, 3
MARKER = (2, 1)
SILENCE = (*MARKER, EOS)
ENDS = [(EOS,), (EOS, OTHER_END)]


def markov(seed: int, vocab: int = 4) -> torch.Tensor:
    """log π(next | last); the row after the last token's own is for the start."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(vocab + 1, vocab, generator=generator, dtype=torch.float64)).log_softmax(-1)


def request(seed: int = 1, temperature: float = 1.0) -> Request:
    return Request(messages=(), sampling=Sampling(temperature=temperature), seed=seed)


def odds_of(logp: torch.Tensor, ends: tuple[int, ...] = (EOS,)) -> SilenceOdds:
    stacked = torch.stack([logp[-1], logp[SILENCE[0]], logp[SILENCE[1]]])
    return silence_odds(stacked[None], MARKER, ends)[0]


def sequence_logprob(
    logp: torch.Tensor, tokens: tuple[int, ...], odds: SilenceOdds | None
) -> float:
    """log π of a sequence, or log q when odds are given, one token at a time."""
    total, last = 0.0, -1
    for j, token in enumerate(tokens):
        row = logp[last].clone()
        if odds is not None and tokens[:j] == SILENCE[:j]:
            condition_on_speech(row, odds, j)
        total += row[token].item()
        last = token
    return total


def ended(length: int, ends: tuple[int, ...] = (EOS,), vocab: int = 4) -> list[tuple[int, ...]]:
    """All sequences that end with one of the ends within the length, or are cut there."""
    whole: list[tuple[int, ...]] = []
    for n in range(1, length + 1):
        for tokens in itertools.product(range(vocab), repeat=n):
            inside = not {*ends} & {*tokens[:-1]}
            if inside and (tokens[-1] in ends or n == length):
                whole.append(tokens)
    return whole


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("seed", range(5))
def test_speech_is_the_policy_given_that_it_is_not_silence(
    seed: int, ends: tuple[int, ...]
) -> None:
    logp = markov(seed)
    odds = odds_of(logp, ends)
    p = sum(math.exp(sequence_logprob(logp, (*MARKER, end), None)) for end in ends)
    assert math.exp(odds.logprob) == pytest.approx(p, rel=1e-12)
    total = 0.0
    for tokens in ended(4, ends):
        q = math.exp(sequence_logprob(logp, tokens, odds))
        pi = math.exp(sequence_logprob(logp, tokens, None))
        silent = tokens[:-1] == MARKER and tokens[-1] in ends
        assert q == pytest.approx(0.0 if silent else pi / (1 - p), rel=1e-9)
        total += q
    assert total == pytest.approx(1.0, rel=1e-9)


def test_silence_is_written_with_each_end_as_often_as_the_model_would() -> None:
    logp = markov(1)
    odds = odds_of(logp, (EOS, OTHER_END))
    n = 4000
    drawn = [odds.silent(uniform(seed, END_COUNTER)) for seed in range(n)]
    for end, logprob in zip(odds.ends, odds.end_logprobs, strict=True):
        expected = math.exp(logprob - odds.logprobs[-1])
        share = sum(ids == (*MARKER, end) for ids, _ in drawn) / n
        assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
    for ids, logprobs in drawn[:50]:
        assert math.fsum(logprobs) == pytest.approx(sequence_logprob(logp, ids, None))


@pytest.mark.parametrize("margin", [0.0, 10.0, 40.0, 300.0])
def test_the_conditioned_distribution_sums_to_one_even_where_silence_is_certain(
    margin: float,
) -> None:
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits[torch.arange(3), torch.tensor(SILENCE)] += margin
    logp = logits.log_softmax(-1)
    odds = silence_odds(logp[None], MARKER, (EOS,))[0]
    for j in range(3):
        row = logp[j].clone()
        condition_on_speech(row, odds, j)
        assert row.logsumexp(-1).item() == pytest.approx(0.0, abs=1e-12)
    assert row[EOS] == -math.inf  # after the whole marker, ending would be silence
    assert math.isfinite(odds.log_rest[0])


def test_the_rest_is_hand_computed() -> None:
    logp = torch.tensor([[0.5, 0.5], [0.2, 0.8]], dtype=torch.float64).log()
    odds = silence_odds(logp[None], (1,), (0,))[0]
    assert [math.exp(x) for x in odds.log_rest] == pytest.approx([0.9, 0.8, 0.0])
    assert math.exp(odds.log_q_marker(0)) == pytest.approx((0.5 - 0.1) / 0.9)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_markers_own_logprobs_tell_the_same_odds(seed: int, ends: tuple[int, ...]) -> None:
    odds = odds_of(markov(seed), ends)
    again = marker_odds(odds.logprobs[:-1], odds.end_logprobs, MARKER, ends)
    assert again.log_rest[:-1] == pytest.approx(odds.log_rest[:-1], rel=1e-9)
    assert again.log_rest[-1] == -math.inf


def test_a_marker_certain_to_single_precision_leaves_something_to_say() -> None:
    odds = marker_odds((0.0,), (0.0,), (1,), (2,))
    assert odds.logprob == 0.0
    assert math.exp(odds.log_rest[0]) == pytest.approx(2.0**-23)
    assert math.exp(odds.log_q_marker(0)) == pytest.approx(0.5)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_message_drawn_elsewhere_is_told_as_one_drawn_here(
    seed: int, ends: tuple[int, ...]
) -> None:
    logp = markov(seed)
    odds = odds_of(logp, ends)
    for tokens in ended(4, ends):
        if tokens[:-1] == MARKER and tokens[-1] in ends:
            continue
        logprobs = [logp[last][t].item() for last, t in zip((-1, *tokens), tokens, strict=False)]
        free = along_marker(tokens, logprobs, odds, spoken=False)
        assert free == pytest.approx(tuple(logprobs))
        spoken = math.fsum(along_marker(tokens, logprobs, odds, spoken=True))
        assert spoken == pytest.approx(sequence_logprob(logp, tokens, odds))


def test_a_floor_keeps_either_choice_alive() -> None:
    n = 4000
    for logprob, expected in ((-30.0, 0.1), (-1e-9, 0.9), (math.log(0.4), 0.4)):
        odds = SilenceOdds((), (5,), (logprob,), (logprob,), (0.0, -math.inf))
        rule = SilenceRule(ids=(5,), choice=Choice.FLOOR, floor=0.1)
        silent = sum(decide(rule, odds, request(seed)) is Choice.SILENT for seed in range(n))
        assert abs(silent - n * expected) < 4 * math.sqrt(n * expected * (1 - expected))


@pytest.mark.parametrize("choice", [Choice.FREE, Choice.SPEAK, Choice.SILENT])
def test_other_choices_are_not_drawn(choice: Choice) -> None:
    odds = SilenceOdds((), (5,), (-1.0,), (-1.0,), (-0.4, -math.inf))
    assert decide(SilenceRule(ids=(5,), choice=choice), odds, request()) is choice


@pytest.mark.parametrize(("above", "choice"), [(0.5, Choice.SPEAK), (0.3, Choice.SILENT)])
def test_a_greedy_choice_is_the_likelier_one_or_as_the_threshold_says(
    above: float, choice: Choice
) -> None:
    logprob = math.log(0.4)
    odds = SilenceOdds((), (5,), (logprob,), (logprob,), (math.log(0.6), -math.inf))
    rule = SilenceRule(ids=(5,), silent_above=above)
    assert decide(rule, odds, request(temperature=0.0)) is choice
    assert decide(rule, odds, request()) is Choice.FREE, "who samples may say either"


def test_greedy_silence_ends_in_the_likeliest_way() -> None:
    odds = SilenceOdds((7,), (5, 6), (-0.1, -0.2), (math.log(0.3), math.log(0.6)), (0.0,) * 3)
    assert odds.silent(None) == ((7, 6), (-0.1, math.log(0.6)))
