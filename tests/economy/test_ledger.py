"""Money and tokens by hand: who spent what, on which model, at which price."""

from dataclasses import replace
from pathlib import Path

import pytest

from tacit.economy.ledger import Price, PriceTable, ledger, load_prices
from tacit.errors import ConfigError
from tacit.types import Call, Episode, Stop, Usage

TABLE = PriceTable(
    date="2026-01-01",
    models={
        "big": Price(input=2.0, output=8.0, cached=0.5),
        "small": Price(input=0.1, output=0.4),
    },
)


def call(agent: str, model: str, usage: Usage, silent: bool = False) -> Call:
    return Call(
        agent=agent,
        model=model,
        messages=(),
        text="",
        stop=Stop.EOS,
        usage=usage,
        silent=silent,
        may_be_silent=agent == "hinter",
    )


EPISODES = [
    Episode(
        task_id="a",
        sample=0,
        calls=(
            call("hinter", "small", Usage(prompt=100, generated=20)),
            call("actor", "big", Usage(prompt=1000, generated=250, cached=400, reasoning=200)),
        ),
    ),
    Episode(
        task_id="b",
        sample=0,
        calls=(
            call("hinter", "small", Usage(prompt=80, generated=2), silent=True),
            call("actor", "big", Usage(prompt=500, generated=100)),
        ),
    ),
]


def test_a_price_is_per_million_and_cached_tokens_have_their_own() -> None:
    usage = Usage(prompt=1000, generated=250, cached=400)
    assert TABLE.models["big"].of(usage) == pytest.approx((600 * 2 + 400 * 0.5 + 250 * 8) / 1e6)
    assert TABLE.models["big"].of(usage) == pytest.approx(0.0034)


def test_without_a_cached_price_cached_tokens_cost_as_much_as_others() -> None:
    with_cache, without = Usage(prompt=100, cached=60), Usage(prompt=100)
    assert TABLE.models["small"].of(with_cache) == TABLE.models["small"].of(without)
    free = Price(input=1.0, output=1.0, cached=0.0)
    assert free.of(with_cache) == pytest.approx(40e-6)


def test_reasoning_is_paid_once_as_part_of_what_is_generated() -> None:
    price = TABLE.models["big"]
    assert price.of(Usage(generated=50, reasoning=40)) == price.of(Usage(generated=50))


def test_reasoning_may_have_a_price_of_its_own() -> None:
    price = Price(input=1.0, output=10.0, reasoning=3.0)
    assert price.of(Usage(generated=50, reasoning=40)) == pytest.approx((10 * 10 + 40 * 3) / 1e6)


def test_the_ledger_sums_by_agent_and_model() -> None:
    hinter, actor = ledger(EPISODES, TABLE)
    assert (hinter.agent, hinter.model, hinter.calls, hinter.turns) == ("hinter", "small", 2, 1)
    assert hinter.usage == Usage(prompt=180, generated=22)
    assert hinter.silence == 0.5
    assert hinter.money == pytest.approx((180 * 0.1 + 22 * 0.4) / 1e6)
    assert actor.usage == Usage(prompt=1500, generated=350, cached=400, reasoning=200)
    assert actor.money == pytest.approx((1100 * 2 + 400 * 0.5 + 350 * 8) / 1e6)
    assert actor.silence == 0.0


def test_silence_is_a_share_of_the_calls_that_could_have_been_silent() -> None:
    def said(silent: bool, may_be_silent: bool) -> Call:
        one = call("agent 1", "small", Usage(generated=1), silent=silent)
        return replace(one, may_be_silent=may_be_silent)

    calls = (said(True, True), said(False, True), said(False, False), said(False, False))
    (row,) = ledger([Episode(task_id="a", sample=0, calls=calls)])
    assert (row.calls, row.choices, row.silence) == (4, 2, 0.5)
    (answerer,) = ledger([Episode(task_id="a", sample=0, calls=calls[2:])])
    assert (answerer.choices, answerer.silence) == (0, 0.0)


def test_one_agent_on_two_models_has_two_rows() -> None:
    calls = (call("actor", "big", Usage(generated=1)), call("actor", "small", Usage(generated=2)))
    rows = ledger([Episode(task_id="a", sample=0, calls=calls)])
    assert [(row.model, row.usage.generated, row.money) for row in rows] == [
        ("big", 1, None),
        ("small", 2, None),
    ]


def test_a_model_without_a_price_is_an_error_and_not_free() -> None:
    calls = (call("actor", "smal", Usage(generated=1)),)
    says = r"no price for model `smal`; did you mean `small`\? \(only local models may be left out"
    with pytest.raises(ConfigError, match=says):
        ledger([Episode(task_id="a", sample=0, calls=calls)], TABLE)


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_price_table_is_read(tmp_path: Path) -> None:
    text = "date: 2026-01-01\ncurrency: EUR\nmodels:\n  big: {input: 2, output: 8, cached: 0.5}\n"
    table = load_prices(written(tmp_path, text))
    assert (table.date, table.currency) == ("2026-01-01", "EUR")
    assert table.models == {"big": Price(input=2, output=8, cached=0.5)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date: 2026-01-01\nmodels: {a: {input: -1, output: 1}}", "price of `a` .* got -1"),
        ("date: 2026-01-01\nmodels: {a: {input: 1, output: 1, cached: -3}}", "got -3"),
        ("date: 2026-01-01\nmodels: {a: {input: .nan, output: 1}}", "got nan"),
        ("date: 2026-01-01\nmodels: {a: {input: cheap, output: 1}}", "got 'cheap'"),
        ("date: 2026-01-01\nmodels: {a: {input: 1}}", "needs `date:` and `models:`.*output"),
        ("date: 2026-01-01\nmodels: {a: {input: 1, output: 1, outptu: 2}}", "outptu"),
        ("models: {a: {input: 1, output: 1}}", "'date'"),
        ("date: last week\nmodels: {a: {input: 1, output: 1}}", "last week"),
        ("date: 2026-01-01\nmodels: {a: {input: 1, output: 1, reasoning: -2}}", "got -2"),
        ("date: 2026-01-01\nmodels: [a]", "needs `date:` and `models:`"),
        ("", "needs `date:` and `models:`"),
        ("models: {", "needs `date:` and `models:`"),
    ],
)
def test_a_bad_price_table_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"prices: .*prices.yaml.*{message}"):
        load_prices(written(tmp_path, text))


def test_a_missing_price_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml` cannot be read: No such file"):
        load_prices(tmp_path / "nowhere.yaml")
