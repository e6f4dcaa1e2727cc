"""The estimator of the choice to speak: exact on small policies that can be enumerated."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from tacit.config import SilenceConfig
from tacit.silence import choice_ratio, floored
from tacit.silence.conditioning import (
    conditioned_logprobs,
    log_not_silent,
    shared_prefix,
    silence_logit,
)
from tacit.silence.floor import Floor
from tacit.silence.step import (
    REACH,
    STD_FLOOR,
    choice_loss,
    choice_step,
    choice_weight,
    wanted_change,
)
from tacit.types import Call, Choice, Stop, Usage

PLAIN = SilenceConfig(coefficient=1.0)


def float64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("p", [1e-12, 1e-3, 0.3, 0.5, 0.9, 1 - 1e-5])
def test_log_not_silent_is_accurate_at_both_ends(p: float) -> None:
    log_p = float64(math.log(p))
    assert log_not_silent(log_p).item() == pytest.approx(math.log1p(-p), rel=1e-9)
    assert silence_logit(log_p).item() == pytest.approx(math.log(p) - math.log1p(-p), rel=1e-9)


@pytest.mark.parametrize("logit", [-60.0, -3.0, 0.0, 3.0, 10.0, 14.0, 30.0])
def test_a_settled_choice_keeps_a_finite_gradient(logit: float) -> None:
    """Up to where floats can tell p from 1, logit p follows its parameter one to one."""
    parameter = torch.tensor(logit, requires_grad=True)
    silence_logit(torch.nn.functional.logsigmoid(parameter)).backward()
    assert parameter.grad is not None and torch.isfinite(parameter.grad)
    if logit <= 10:
        assert parameter.grad.item() == pytest.approx(1.0, rel=1e-2)
    if logit == 14:
        assert 0.1 < parameter.grad.item() <= 1.0


def test_shared_prefix() -> None:
    assert shared_prefix([7, 8, 9], [1, 2, 3]) == 0
    assert shared_prefix([1, 2, 9, 9], [1, 2, 3]) == 2
    assert shared_prefix([1], [1, 2, 3]) == 1
    with pytest.raises(ValueError, match="silence marker itself"):
        shared_prefix([1, 2, 3], [1, 2, 3])


END, MARKER = 2, (0, 1, 2)


def tiny_model(seed: int = 0) -> dict[tuple[int, ...], Tensor]:
    """Log-probabilities of the next of four tokens after every prefix of up to two tokens."""
    random = torch.Generator().manual_seed(seed)
    prefixes = [p for n in range(3) for p in itertools.product(range(4), repeat=n)]
    return {
        p: torch.log_softmax(torch.randn(4, generator=random, dtype=torch.float64), -1)
        for p in prefixes
    }


def spoken_messages() -> list[tuple[int, ...]]:
    """Everything but the marker: messages end with END or are cut at three tokens."""
    whole = [
        m
        for n in (1, 2, 3)
        for m in itertools.product(range(4), repeat=n)
        if END not in m[:-1] and (m[-1] == END or n == 3)
    ]
    return [m for m in whole if m != MARKER]


def token_logprobs(model: dict[tuple[int, ...], Tensor], message: tuple[int, ...]) -> Tensor:
    return torch.stack([model[message[:t]][token] for t, token in enumerate(message)])


def test_conditioned_tokens_are_the_policy_given_that_it_speaks() -> None:
    model = tiny_model()
    marker = token_logprobs(model, MARKER)
    p = marker.sum().exp().item()
    total = 0.0
    for message in spoken_messages():
        plain = token_logprobs(model, message)
        shared = torch.tensor([shared_prefix(message, MARKER)])
        given = conditioned_logprobs(plain[None], marker[None], shared)[0]
        assert given.sum().item() == pytest.approx(plain.sum().item() - math.log1p(-p), rel=1e-9)
        total += given.sum().exp().item()
    assert total == pytest.approx(1.0, rel=1e-12)


def test_conditioned_first_token_by_hand() -> None:
    """q(m₁) = (π(m₁) − p)/(1 − p), every other first token π/(1 − p), later ones unchanged."""
    model = tiny_model(1)
    marker = token_logprobs(model, MARKER)
    p = marker.sum().exp().item()
    for message in ((3, 0, 1), (0, 3, 1), (0, 1, 3)):
        plain = token_logprobs(model, message)
        shared = torch.tensor([shared_prefix(message, MARKER)])
        first, *rest = conditioned_logprobs(plain[None], marker[None], shared)[0].exp().tolist()
        pi = plain[0].exp().item()
        expected = (pi - p) / (1 - p) if message[0] == 0 else pi / (1 - p)
        assert first == pytest.approx(expected, rel=1e-9)
        if message[0] == 3:
            assert rest == pytest.approx(plain[1:].exp().tolist(), rel=1e-12)


def test_conditioned_rows_of_any_width() -> None:
    """A row shorter than the marker and one padded beyond it, in one call each."""
    marker = float64(-0.5, -0.1, -0.2)[None]
    speech = -math.log1p(-math.exp(-0.8))
    short = conditioned_logprobs(float64(-1.0)[None], marker, torch.tensor([0]))
    assert short.tolist() == [[pytest.approx(-1.0 + speech)]]
    long = conditioned_logprobs(float64(*[-1.0] * 5)[None], marker, torch.tensor([0]))
    assert long.tolist() == [[pytest.approx(-1.0 + speech), -1.0, -1.0, -1.0, -1.0]]


@pytest.mark.parametrize(
    ("p", "gain", "step"),
    [
        (0.5, 0.1, 0.25),  # ¼·0.1/0.1
        (0.2, 0.3, 0.48),  # against the leaning, but p(1−p) = 0.16 is above the floor
        (0.98, -0.3, -0.15),  # against: 0.0196 raised to 0.05
        (0.02, 0.3, 0.15),  # against, on the other side
        (0.98, 0.3, 0.0588),  # with the leaning: 0.0196 as it is
        (0.02, -0.3, -0.0588),
        (0.5, 0.9, 1.0),  # 2.25, clipped
        (0.5, -0.9, -1.0),
        (0.98, 0.0, 0.0),
    ],
)
def test_choice_step_by_hand(p: float, gain: float, step: float) -> None:
    result = choice_step(float64(p), float64(gain), PLAIN).item()
    assert result == pytest.approx(step, rel=1e-9)


def test_the_coefficient_scales_before_the_clip() -> None:
    settings = SilenceConfig(coefficient=0.5, clip=0.1)
    steps = choice_step(float64(0.5, 0.5), float64(0.04, 0.4), settings)
    assert steps.tolist() == pytest.approx([0.05, 0.1])


FREE = SilenceConfig(coefficient=1.0, least_weight=0.0, clip=1e9)
GAINS = float64(0.3, -0.2, -0.5)
"""Silence pays in the first context, speaking in the others."""


def shared_policy() -> tuple[Tensor, Tensor]:
    """Three contexts with five outcomes each (the first is silence), all from eight parameters."""
    random = torch.Generator().manual_seed(0)
    features = torch.randn(3, 5, 8, generator=random, dtype=torch.float64)
    parameters = torch.randn(8, generator=random, dtype=torch.float64)
    features[2, 0] += 6 * parameters / parameters.square().sum()
    return features, parameters


def log_silence(parameters: Tensor) -> Tensor:
    features, _ = shared_policy()
    return torch.log_softmax(features @ parameters, dim=-1)[:, 0]


def choice_gradient(settings: SilenceConfig) -> Tensor:
    """Of the objective, in units of reward."""
    parameters = shared_policy()[1].requires_grad_()
    log_p = log_silence(parameters)
    step = choice_step(log_p.exp().detach(), GAINS, settings)
    loss = choice_loss(log_p, log_p.detach(), step, choices=3)
    return -torch.autograd.grad(loss, parameters)[0] * STD_FLOOR * 3


def expectation_gradient(h: float = 1e-6) -> Tensor:
    """Central differences of Σ p·R_silent + (1−p)·mean R_spoken, rewards held fixed."""
    silent, spoken = float64(0.9, 0.4, 0.2), float64(0.6, 0.6, 0.7)
    torch.testing.assert_close(silent - spoken, GAINS)
    _, parameters = shared_policy()

    def expectation(at: Tensor) -> float:
        p = log_silence(at).exp()
        return float((p * silent + (1 - p) * spoken).sum())

    steps = h * torch.eye(8, dtype=torch.float64)
    return float64(
        *((expectation(parameters + s) - expectation(parameters - s)) / (2 * h) for s in steps)
    )


def test_the_choice_gradient_is_that_of_the_exact_expectation() -> None:
    torch.testing.assert_close(choice_gradient(FREE), expectation_gradient(), rtol=1e-6, atol=1e-9)


def test_the_floor_is_a_deliberate_departure_from_it() -> None:
    """The first context hardly ever is silent though it pays, the third nearly always though
    speaking pays: w is raised in these two."""
    p = log_silence(shared_policy()[1]).exp()
    assert p[0] < 0.05 and p[2] > 0.95
    weights = choice_weight(p, GAINS, least=0.05)
    assert weights.tolist() == pytest.approx([0.05, float(p[1] * (1 - p[1])), 0.05])
    floored = choice_gradient(SilenceConfig(coefficient=1.0, clip=1e9))
    assert not torch.allclose(floored, expectation_gradient(), rtol=1e-2)


ADVANTAGES = float64(1.5, -0.5, -0.7, -0.3) / float64(1, 4, 8, 2)
"""Of four messages, over their lengths as GSPO weighs them: no longer centred."""


def content_gradient(logits: Tensor, parameters: Tensor, *, conditioned: bool) -> Tensor:
    """Expected gradient of what is said: E over q of A(y)·∇ log q(y), or of ∇ log π(y)."""
    logprobs = torch.log_softmax(logits, dim=-1)
    q = torch.softmax(logits[1:].detach(), dim=-1)
    chosen = logprobs[1:] - log_not_silent(logprobs[0]) if conditioned else logprobs[1:]
    return torch.autograd.grad((q * ADVANTAGES * chosen).sum(), parameters, retain_graph=True)[0]


def natural(gradient: Tensor, logits: Tensor, parameters: Tensor) -> Tensor:
    """F⁻¹·g with the policy's exact Fisher matrix: a step in distributions, not in logits."""
    logprobs = torch.log_softmax(logits, dim=-1)
    scores = torch.stack(
        [torch.autograd.grad(lp, parameters, retain_graph=True)[0] for lp in logprobs]
    )
    fisher = torch.einsum("y,yi,yj->ij", logprobs.exp().detach(), scores, scores)
    return torch.linalg.pinv(fisher, hermitian=True, rtol=1e-12) @ gradient


@pytest.mark.parametrize("conditioned", [True, False])
def test_a_content_update_leaves_p_unchanged_to_first_order(conditioned: bool) -> None:
    """One softmax whose outcomes all share all parameters. With log π instead of log q p moves."""
    random = torch.Generator().manual_seed(1)
    features = torch.randn(5, 8, generator=random, dtype=torch.float64)
    parameters = torch.randn(8, generator=random, dtype=torch.float64).requires_grad_()
    logits = features @ parameters
    log_p = torch.log_softmax(logits, dim=-1)[0]
    gradient = content_gradient(logits, parameters, conditioned=conditioned)
    direction = natural(gradient, logits, parameters)
    slope = torch.autograd.grad(log_p, parameters)[0] @ direction
    assert direction.norm() > 0.1
    if conditioned:
        assert abs(slope.item()) < 1e-9
    else:
        assert abs(slope.item()) > 0.01


def test_content_has_no_gradient_on_the_choice_itself() -> None:
    """p = σ(gate), messages a softmax of their own: exactly 0 on the gate, message by message."""
    gate = float64(0.7).requires_grad_()
    contents = float64(0.3, -1.0, 0.5, 0.0).requires_grad_()
    log_p = torch.nn.functional.logsigmoid(gate)
    log_speech = torch.nn.functional.logsigmoid(-gate)
    for message in range(4):
        log_pi = log_speech + torch.log_softmax(contents, -1)[message]
        (moved,) = torch.autograd.grad(log_pi, gate, retain_graph=True)
        (left,) = torch.autograd.grad(log_pi - log_not_silent(log_p), gate, retain_graph=True)
        assert moved.item() == pytest.approx(-torch.sigmoid(gate).item())
        assert left.item() == pytest.approx(0.0, abs=1e-15)


def test_plain_gradients_on_a_softmax_leave_its_coupling() -> None:
    """With a logit for each outcome the content leaves silence's own logit alone; p still moves as
    the other logits share its normaliser, by −Σ q²·(A − mean A) on logit p. That part is no bias of
    the estimator and is not removed."""
    logits = float64(0.4, 0.3, -1.0, 0.5, 0.0).requires_grad_()
    gradient = content_gradient(logits, logits, conditioned=True)
    assert gradient[0].item() == pytest.approx(0.0, abs=1e-15)
    q = torch.softmax(logits[1:].detach(), dim=-1)
    logit_p = silence_logit(torch.log_softmax(logits, dim=-1)[0])
    slope = torch.autograd.grad(logit_p, logits)[0] @ gradient
    coupling = -(q.square() * (ADVANTAGES - (q * ADVANTAGES).sum())).sum()
    assert slope.item() == pytest.approx(coupling.item(), rel=1e-9)


def test_repeated_updates_stop_at_the_step_asked_for() -> None:
    logits = float64(1.0, -2.0).requires_grad_()
    old = torch.nn.functional.logsigmoid(logits.detach())
    step = float64(-0.3, 0.0)
    for _ in range(200):
        loss = choice_loss(torch.nn.functional.logsigmoid(logits), old, step, choices=2)
        (gradient,) = torch.autograd.grad(loss, logits)
        logits.data -= 0.5 * gradient
    assert logits.tolist() == pytest.approx([0.7, -2.0], abs=1e-9)


def test_choice_losses_of_micro_batches_add_up() -> None:
    log_p, old = float64(-0.5, -1.0, -2.0), float64(-0.6, -1.1, -1.7)
    step = float64(0.1, -0.2, 0.3)
    whole = choice_loss(log_p, old, step, choices=3)
    parts = [choice_loss(log_p[s], old[s], step[s], choices=3) for s in ([0, 2], [1])]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize(
    ("p", "silent", "ratio"),
    [
        (0.3, True, 1.0),  # above the floor nothing is changed
        (0.3, False, 1.0),
        (0.02, True, 0.2),  # played with 0.1 instead of 0.02
        (0.02, False, 0.98 / 0.9),
        (0.98, True, 0.98 / 0.9),
        (0.98, False, 0.2),
        (1.0, False, 0.0),
    ],
)
def test_floor_weights_by_hand(p: float, silent: bool, ratio: float) -> None:
    assert choice_ratio(p, floored(p, 0.1), silent) == pytest.approx(ratio)
    assert Floor(SilenceConfig(floor=0.1)).weight(drawn(p, silent)) == pytest.approx(ratio)


def drawn(p: float, silent: bool) -> Call:
    return Call(
        agent="a",
        model="m",
        messages=(),
        text="",
        stop=Stop.EOS,
        usage=Usage(),
        policy="team",
        silent=silent,
        choice=Choice.FLOOR,
        silence_logprob=math.log(p),
    )


def test_floor_weights_are_at_most_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A p of 0.5 against an engine that sampled with 0.1: a ratio of 5."""
    assert choice_ratio(0.5, 0.1, silent=True) == pytest.approx(5.0)
    monkeypatch.setattr("tacit.silence.floored", lambda p, floor: 0.1)
    assert Floor(SilenceConfig()).weight(drawn(0.5, silent=True)) == 2.0


def test_floor_weights_make_the_behaviour_average_to_the_policy() -> None:
    """Σ b(choice)·π/b = Σ π = 1."""
    p, floor = 0.03, Floor(SilenceConfig(floor=0.1))
    b = floored(p, 0.1)
    weights = [floor.weight(drawn(p, silent)) for silent in (True, False)]
    assert b * weights[0] + (1 - b) * weights[1] == pytest.approx(1.0)


@pytest.mark.parametrize("logit", [-40.0, -3.5, -1.0, 0.0, 2.9, 3.2, 9.0])
@pytest.mark.parametrize(("gain", "owed"), [(-0.4, None), (0.0, None), (0.4, None), (0.4, -0.3)])
def test_what_is_asked_for_is_within_reach(logit: float, gain: float, owed: float | None) -> None:
    log_p = torch.nn.functional.logsigmoid(float64(logit))
    settings = PLAIN
    step = choice_step(log_p.exp(), float64(gain), settings).item() if owed is None else owed
    change = wanted_change(log_p, float64(gain), settings, owed=owed).item()
    wanted = min(max(logit + step, -REACH), REACH) - logit
    assert change == pytest.approx(min(max(wanted, -1.0), 1.0), abs=1e-5)
