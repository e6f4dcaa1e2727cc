"""Adapters: nothing changed at the start, one role at a time. peft is in `tests/integration`."""

import pytest
import torch

from tacit.engine.lora import (
    LoraLinear,
    adapted,
    adapter_parameters,
    add_adapter,
    base_parameters,
    switched_on,
)
from tacit.errors import ConfigError
from tacit.learn.policy import Policy, fingerprint, policy_names
from tests.helpers.adapters import TARGETS, filled, logits
from tests.helpers.learn_parts import make_policies, moved, weights_of
from tests.helpers.tiny_models import tiny_model


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("learns", [False, True], ids=["x given", "x learned"])
def test_adding_in_place_gives_the_same_value_and_gradients(biased: bool, learns: bool) -> None:
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, weight, bias = drawn(2, 5, 6), drawn(7, 6), drawn(7) if biased else None
    a, b, toward = drawn(3, 6).requires_grad_(), drawn(7, 3).requires_grad_(), drawn(2, 5, 7)
    given = [x.requires_grad_(), a, b] if learns else [a, b]
    plain = torch.nn.functional.linear(x, weight, bias) + (x @ a.T @ b.T) * 1.5
    wanted = torch.autograd.grad((plain * toward).sum(), given)
    mine = adapted(x, weight, bias, a, b, 1.5)
    torch.testing.assert_close(mine, plain)
    got = torch.autograd.grad((mine * toward).sum(), given)
    torch.testing.assert_close(got, wanted)


def test_a_new_adapter_changes_nothing_bit_for_bit() -> None:
    module = tiny_model().module
    plain = logits(module)
    layers = add_adapter(module, "mine", rank=4, alpha=12.0, targets=TARGETS, seed=0)
    assert layers == 2 * len(TARGETS)
    with switched_on(module, "mine"):
        assert torch.equal(logits(module), plain)
    assert any(bool(w.any()) for n, w in adapter_parameters(module, "mine").items() if "_A" in n)


def test_adapters_are_switched_one_at_a_time_and_back() -> None:
    module = tiny_model().module
    plain = logits(module)
    filled(module, "hinter", seed=1)
    filled(module, "critic", seed=2)
    with switched_on(module, "hinter"):
        hinter = logits(module)
        with switched_on(module, "critic"):
            critic = logits(module)
            with switched_on(module, None):
                assert torch.equal(logits(module), plain)
        assert torch.equal(logits(module), hinter)
    assert torch.equal(logits(module), plain)
    assert not torch.allclose(hinter, critic, atol=1e-3)
    assert not torch.allclose(hinter, plain, atol=1e-3)


def test_an_error_inside_switches_back() -> None:
    module = tiny_model().module
    plain = logits(module)
    filled(module)
    with pytest.raises(RuntimeError, match="broken"), switched_on(module, "mine"):
        raise RuntimeError("broken")
    assert torch.equal(logits(module), plain)


def test_frozen_weights_keep_the_names_and_values_they_had() -> None:
    module = tiny_model().module
    names = [name for name, _ in module.named_parameters()]
    before = fingerprint(module)
    filled(module)
    assert [name for name, _ in base_parameters(module)] == names
    assert fingerprint(module) == before
    with torch.no_grad():
        dict(base_parameters(module))["model.layers.1.mlp.down_proj.weight"][3, 4] += 1e-3
    assert fingerprint(module) != before


def test_roles_of_one_base_learn_apart_and_the_base_not_at_all() -> None:
    policies = make_policies("hinter", "critic")
    module = policies["hinter"].base.module
    assert policies["critic"].base.module is module
    for policy in policies.values():
        assert all(weight.requires_grad for weight in policy.parameters.values())
    assert not any(weight.requires_grad for _, weight in base_parameters(module))
    a, b = (weights_of(policy) for policy in policies.values())
    assert a.keys() == b.keys()
    assert any(not torch.equal(a[name], b[name]) for name in a)


def test_the_same_seed_starts_the_same_adapter() -> None:
    before = weights_of(make_policies(seed=3)["team"])
    assert moved(before, make_policies(seed=3)["team"]) == 0.0
    assert moved(before, make_policies(seed=4)["team"]) > 0.0


def test_a_full_policy_is_a_copy_beside_its_frozen_base() -> None:
    policy = make_policies(kind="full")["team"]
    plain = logits(policy.base.module)
    with torch.no_grad():
        for weight in policy.parameters.values():
            weight.add_(0.01)
    assert torch.equal(logits(policy.base.module), plain)
    module, on = policy.reference()
    with on:
        assert torch.equal(logits(module), plain)
    assert not torch.allclose(logits(policy.loaded.module), plain, atol=1e-3)


def test_the_reference_of_an_adapter_is_the_base() -> None:
    policy = make_policies()["team"]
    plain = logits(policy.base.module)
    with torch.no_grad():
        for weight in policy.parameters.values():
            weight.add_(0.1)
    module, on = policy.reference()
    with policy.on():
        assert not torch.allclose(logits(module), plain, atol=1e-3)
        with on:
            assert torch.equal(logits(module), plain)


def test_targets_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.targets: `tiny-llama` has no linear layer"):
        make_policies(targets=["c_attn"])


def test_weights_of_another_base_or_rank_are_refused_whole() -> None:
    policy = make_policies(rank=4)["team"]
    before = weights_of(policy)
    others: list[Policy] = [
        make_policies(rank=2)["team"],
        make_policies(base=tiny_model(num_hidden_layers=1))["team"],
        make_policies(base=tiny_model(hidden_size=24, head_dim=6))["team"],
    ]
    for other in others:
        with pytest.raises(
            ConfigError, match=r"the\.file does not fit policy `team`.*another base"
        ):
            policy.load({n: w + 1 for n, w in weights_of(other).items()}, "the.file")
    assert moved(before, policy) == 0.0


def test_only_linear_layers_carry_an_adapter() -> None:
    module = tiny_model().module
    add_adapter(module, "mine", rank=2, alpha=2.0, targets=["q_proj", "norm"], seed=0)
    wrapped = [path for path, layer in module.named_modules() if isinstance(layer, LoraLinear)]
    assert wrapped == ["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"]


def test_names_of_what_learns() -> None:
    from tacit.config.file import parse_config

    def names(share: str, **models: str) -> dict[str, str]:
        agents = {
            role: {"model": model, "trained": role != "actor"} for role, model in models.items()
        }
        tree = {
            "models": {"small": {"path": "pocket"}},
            "team": {"topology": "hint_actor", "agents": agents},
            "policy": {"share": share},
        }
        config = parse_config(tree)
        assert config.team is not None
        return policy_names(config, config.team)

    both = {"hinter": "pocket", "critic": "pocket", "actor": "pocket"}
    assert names("team", **both) == {"hinter": "team", "critic": "team"}
    assert names("role", **both) == {"hinter": "hinter", "critic": "critic"}
    assert names("team", **both | {"critic": "small"}) == {
        "hinter": "team-pocket",
        "critic": "team-small",
    }
    with pytest.raises(ConfigError, match="nothing to train"):
        names("team", actor="pocket")
