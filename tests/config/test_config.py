"""Every mistake in a config is answered at once, with its dotted place and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.config import AgentConfig, Config, TeamConfig
from tacit.config.file import RECIPE_FOLDERS, find_config, load_config, parse_config
from tacit.errors import ConfigError
from tacit.registry import check_name, did_you_mean, lookup
from tacit.run.opening import measured_teams_of, prices_of, tasks_of, teams_of
from tacit.team.roster import check_team

SOLO = {"topology": "solo", "agents": {"actor": {}}}


def complaint(tree: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(tree, "tacit.yaml")
    message = str(caught.value)
    assert message.startswith("tacit.yaml: ") and "\n" not in message
    return message.removeprefix("tacit.yaml: ")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"taem": SOLO}, "`taem` is not a setting: did you mean `team`?"),
        (
            {"team": {**SOLO, "agents": {"actor": {"temprature": 1}}}},
            "`team.agents.actor.temprature` is not a setting: did you mean `temperature`?",
        ),
        (
            {"teams": {"mine": {**SOLO, "agents": {"actor": {"max_token": 1}}}}},
            "`teams.mine.agents.actor.max_token` is not a setting: did you mean `max_tokens`?",
        ),
        (
            {"models": {"qwen": {"pth": "x"}}},
            "`models.qwen.pth` is not a setting: did you mean `path`?",
        ),
        ({"train": {"step": 3}}, "`train.step` is not a setting: did you mean `steps`?"),
        ({"seed": "zero"}, "seed: input should be a valid integer"),
        ({"team": "solo"}, "team: write `key: value` settings, not 'solo'"),
        ({"models": ["a"]}, "models: write `key: value` settings, not ['a']"),
        ({"team": {"topology": "solo"}}, "team.agents is missing"),
        ({"team": {"topology": "solo", "agents": {}}}, "team.agents: dictionary should have at"),
        ({"tasks": {"split": "test"}}, "tasks.name is missing"),
        (
            {"team": {**SOLO, "prompts": "xml"}},
            "team.prompts: input should be 'tagged', 'role_last' or 'published', got 'xml'",
        ),
        ({"models": {"gpt": {"engine": "api"}}}, "models.gpt: an api model needs `model: …`"),
        (
            {"models": {"qwen": {}}, "team": {**SOLO, "agents": {"actor": {"model": "qwn"}}}},
            "team.agents.actor.model: no model `qwn` under `models`; did you mean `qwen`?",
        ),
        (
            {"teams": {"a": {**SOLO, "agents": {"actor": {"model": "gpt"}}}}},
            "teams.a.agents.actor.model: no model `gpt` under `models`; known: pocket",
        ),
        (
            {
                "models": {"gpt": {"engine": "api", "model": "x"}},
                "team": {**SOLO, "agents": {"actor": {"model": "gpt", "max_input_tokens": 9}}},
            },
            "team.agents.actor.max_input_tokens: the tokens of an api model's prompt cannot be",
        ),
        ({"teams": {"../up": SOLO}}, "teams: `../up` cannot name a file"),
        ({"teams": {"a/b": SOLO}}, "teams: `a/b` cannot name a file"),
        ({"teams": {" ": SOLO}}, "teams: ` ` cannot name a file"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_cure(tree: dict[str, Any], message: str) -> None:
    assert complaint(tree).startswith(message)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("agent", "max_tokens", -1),
        ("agent", "max_tokens", 0),
        ("agent", "max_input_tokens", -5),
        ("agent", "count", 0),
        ("agent", "temperature", -0.1),
        ("agent", "top_p", 0.0),
        ("agent", "top_p", 1.5),
        ("agent", "top_k", -1),
        ("tasks", "limit", -3),
        ("tasks", "limit", 0),
        ("tasks", "offset", -1),
        ("evaluation", "samples", 0),
        ("evaluation", "concurrency", -64),
        ("evaluation", "confidence", 1.0),
        ("budget", "tokens", 0),
        ("budget", "tokens", float("inf")),
        ("budget", "turns", -1),
        ("reward", "cap", float("nan")),
        ("train", "group", 1),
        ("silence", "floor", 0.5),
    ],
)
def test_values_outside_their_range_are_refused(section: str, key: str, value: float) -> None:
    if section == "agent":
        tree = {"team": {"topology": "solo", "agents": {"actor": {key: value}}}}
        place = f"team.agents.actor.{key}"
    else:
        tree = {section: {"name": "arithmetic", key: value} if section == "tasks" else {key: value}}
        place = f"{section}.{key}"
    message = complaint(tree)
    assert message.startswith(f"{place}: input should be ")
    assert message.endswith(f"got {value!r}")


PRICED = {"reward": {"shape": "priced"}, "prices": "prices.yaml"}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"reward": {"shape": "priced"}, "budget": {"money": 0.1}},
            "reward.shape: `priced` needs `prices:`, budget.money, no budget.tokens",
        ),
        (
            PRICED,
            "reward.shape: `priced` needs `prices:`, budget.money, no budget.tokens",
        ),
        (
            PRICED | {"budget": {"money": 0.1, "tokens": 14}},
            "reward.shape: `priced` needs `prices:`, budget.money, no budget.tokens",
        ),
        ({"budget": {"money": 0.1}}, "budget.money: only `reward.shape: priced` holds it"),
        (
            {"reward": {"shape": "multiplicative"}, "budget": {"tokens": 14}},
            "budget: `reward.shape: multiplicative` has no λ for tokens",
        ),
        (
            {"budget": {"weight_tokens": 0.3, "turns": 2}},
            "budget.weight_tokens: a price needs its unit; set budget.tokens",
        ),
        (
            {"budget": {"control": "fixed", "weight_turns": 0.3, "tokens": 14}},
            "budget.weight_turns: a price needs its unit; set budget.turns",
        ),
    ],
)
def test_a_price_that_nothing_could_hold_is_refused(tree: dict[str, Any], message: str) -> None:
    assert complaint(tree) == message


def test_all_complaints_come_at_once() -> None:
    message = complaint({"sed": 1, "evaluation": {"samples": 0}})
    assert "`sed` is not a setting: did you mean `seed`?" in message
    assert "evaluation.samples: " in message


def team(
    topology: str = "solo", options: dict[str, Any] | None = None, **agents: Any
) -> TeamConfig:
    return TeamConfig(
        topology=topology,
        agents={role: AgentConfig(**settings) for role, settings in agents.items()},
        options=options or {},
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (team("hint_actr", actor={}), "unknown topology `hint_actr`: did you mean `hint_actor`?"),
        (team("x:", actor={}), "unknown topology `x:`: known: "),
        (
            team("no_such_module:play", actor={}),
            "cannot import topology `no_such_module:play`: No module named 'no_such_module'",
        ),
        (
            team("tacit.team.vote:minority", actor={}),
            "cannot import topology `tacit.team.vote:minority`: module 'tacit.team.vote' has no",
        ),
        (
            team("tacit.team.vote:majority", actor={}),
            "topology `tacit.team.vote:majority` must be an async function",
        ),
        (
            team("hint_actor", hintr={}, actor={}),
            "team.agents.hintr: hint_actor has no such role; did you mean `hinter`?",
        ),
        (team("hint_actor", actor={}), "team.agents: hint_actor needs an agent `hinter`"),
        (team("solo", actor={"count": 2}), "team.agents.actor.count: solo takes one actor"),
        (team("debate", debater={}), "team.agents.debater.count: debate needs at least 2"),
        (
            team("critic_actor", {"round": 2}, actor={}, critic={}),
            "team.options.round: critic_actor has no such option; did you mean `rounds`?",
        ),
        (team("solo", {"rounds": 2}, actor={}), "team.options.rounds: solo has no such option; it"),
        (
            team("dialogue", {"rounds": -1}, agent={"count": 2}),
            "team.options.rounds: must be at least 1, got -1",
        ),
        (
            team("dialogue", {"rounds": "two"}, agent={"count": 2}),
            "team.options.rounds: input should be a valid integer, got 'two'",
        ),
        (
            team("dialogue", {"rounds": 1.5}, agent={"count": 2}),
            "team.options.rounds: input should be a valid integer, got 1.5",
        ),
        (
            team("debate", {"shape": "star"}, debater={"count": 2}),
            "team.options.shape: input should be 'full', 'sparse' or 'centralised', got 'star'",
        ),
    ],
)
def test_a_team_that_cannot_play_is_refused_before_a_model_loads(
    config: TeamConfig, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_team(config)
    assert str(caught.value).startswith(message)


def test_teams_are_named_and_checked_under_their_place() -> None:
    config = parse_config({"teams": {"mine": {"topology": "hint_actor", "agents": {"actor": {}}}}})
    with pytest.raises(ConfigError, match=r"teams\.mine\.agents: hint_actor needs an agent"):
        teams_of(config)
    with pytest.raises(ConfigError, match=r"names no team: add `team:` or `teams:`"):
        teams_of(Config())
    both = parse_config({"team": SOLO, "teams": {"first": SOLO}})
    assert list(teams_of(both)) == ["first", "solo"]


def test_several_episodes_of_those_who_never_sample_are_refused() -> None:
    def config(temperature: float | None, topology: str = "solo") -> Config:
        team = {"topology": topology, "agents": {"actor": {"temperature": temperature}}}
        return Config.model_validate({"team": team, "evaluation": {"samples": 4}})

    for temperature in (None, 0.0):
        with pytest.raises(ConfigError, match="samples is 4, but nobody samples"):
            measured_teams_of(config(temperature))
    assert measured_teams_of(config(0.7)) and measured_teams_of(config(None, "self_consistency"))
    beside = {"greedy": TeamConfig.model_validate(SOLO)}
    assert measured_teams_of(config(0.7).model_copy(update={"teams": beside}))
    assert teams_of(config(None)), "one conversation needs no samples"


def test_tasks_with_a_grader_nobody_knows_are_refused(tmp_path: Path) -> None:
    line = '{"question": "q", "answer": "a", "grader": "mahts"}\n'
    (tmp_path / "mine.jsonl").write_text(line, encoding="utf-8")
    config = parse_config({"tasks": {"name": "mine.jsonl", "folder": str(tmp_path)}})
    with pytest.raises(ConfigError, match=r"unknown grader `mahts`"):
        tasks_of(config.tasks)


def test_a_model_without_a_price_is_refused_before_it_loads(tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("date: 2026-01-01\nmodels: {gpt-x: {input: 1, output: 2}}", encoding="utf-8")
    api = {name: {"engine": "api", "model": f"{name}-x"} for name in ("gpt", "other")}
    own = {**SOLO, "agents": {"actor": {"model": "other"}}}
    tree = {"prices": str(table), "models": api, "team": own}
    with pytest.raises(ConfigError, match="no price for model `other-x`"):
        prices_of(parse_config(tree))
    tree["team"] = {**SOLO, "agents": {"actor": {"model": "gpt"}}}
    prices = prices_of(parse_config(tree))
    assert prices is not None and prices.models["gpt-x"].output == 2
    assert prices_of(Config()) is None


# Files


def write(folder: Path, name: str, tree: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = tree if isinstance(tree, str) else yaml.safe_dump(tree)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_lies_over_the_one_it_extends(tmp_path: Path) -> None:
    base = {"seed": 1, "team": SOLO, "evaluation": {"samples": 2, "concurrency": 8}}
    write(tmp_path, "base.yaml", base)
    write(tmp_path, "deep/middle.yaml", {"extends": "../base.yaml", "evaluation": {"samples": 3}})
    top = write(tmp_path, "top.yaml", {"extends": "deep/middle.yaml", "name": "top"})
    config = load_config(top)
    assert (config.name, config.seed) == ("top", 1)
    assert (config.evaluation.samples, config.evaluation.concurrency) == (3, 8)
    assert config.team is not None and config.team.topology == "solo"


def test_null_takes_a_section_of_the_base_away(tmp_path: Path) -> None:
    pair = {"topology": "hint_actor", "agents": {"hinter": {"max_tokens": 9}, "actor": {}}}
    write(tmp_path, "base.yaml", {"team": pair, "budget": {"tokens": 9}})
    over = {"topology": "solo", "agents": {"hinter": None}}
    config = load_config(write(tmp_path, "a.yaml", {"extends": "base.yaml", "team": over}))
    assert config.team is not None and list(config.team.agents) == ["actor"]
    path = write(tmp_path, "b.yaml", {"extends": "base.yaml", "budget": {"tokens": None}})
    assert load_config(path).budget.tokens is None, "a value is set to null, not taken away"


def test_a_file_may_extend_a_recipe(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.yaml", {"extends": "pocket-compare", "seed": 9})
    config = load_config(path)
    assert config.seed == 9 and "solo" in config.teams


@pytest.mark.parametrize("back", ["a.yaml", "../{folder}/a.yaml", "./a.yaml"])
def test_extending_in_a_circle_is_refused(tmp_path: Path, back: str) -> None:
    path = write(tmp_path, "a.yaml", {"extends": "b.yaml"})
    write(tmp_path, "b.yaml", {"extends": back.format(folder=tmp_path.name)})
    with pytest.raises(ConfigError, match=r"a\.yaml: `extends` goes round in a circle"):
        load_config(path)


def test_a_base_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", {"extends": "pocket-compar"})
    with pytest.raises(ConfigError, match=r"no config file or recipe `pocket-compar`: did you"):
        load_config(path)


def test_overrides_reach_any_depth_and_read_yaml(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", {"team": SOLO})
    overrides = [
        "seed=7",
        "team.agents.actor.max_tokens=12",
        "tasks={name: gsm8k, limit: 3}",
        "tasks.level=['1', '2']",
        "name=a=b",
        "budget.tokens=null",
        "team.agents.actor.system=",
    ]
    config = load_config(path, overrides)
    assert config.seed == 7 and config.name == "a=b" and config.budget.tokens is None
    assert config.team is not None and config.team.agents["actor"].max_tokens == 12
    assert config.team.agents["actor"].system is None
    assert (config.tasks.name, config.tasks.limit, config.tasks.level) == ("gsm8k", 3, ["1", "2"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "override `seed`: write it as section.key=value"),
        ("=3", "override `=3`: write it as section.key=value"),
        ("name.first=x", "override `name.first=x`: `name` is not a section"),
        ("evaluation.sample=3", "did you mean `samples`?"),
        ("team.agents.actor.max_tokens=-4", "team.agents.actor.max_tokens: "),
        ("seed={", "seed: "),
    ],
)
def test_a_bad_override_is_refused(tmp_path: Path, override: str, message: str) -> None:
    path = write(tmp_path, "a.yaml", {"name": "x", "team": SOLO})
    with pytest.raises(ConfigError) as caught:
        load_config(path, [override])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "team: {", r"a\.yaml is not valid yaml: "),
        ("a.yaml", "seed: 1\nname: x\nseed: 2\n", r"`seed` stands here twice .*line 3"),
        ("a.yaml", "", r"a\.yaml: expected `key: value` lines at the top level"),
        ("a.yaml", "- 1\n", r"a\.yaml: expected `key: value` lines"),
        ("a.json", '{"seed": ', r"a\.json is not valid json: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(write(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("name: Übung".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"a\.yaml is not valid yaml: .*utf-8"):
        load_config(path)


def test_a_run_folder_is_a_config(tmp_path: Path) -> None:
    config = parse_config({"seed": 3, "team": SOLO})
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    assert load_config(tmp_path) == config


def test_a_config_that_is_nowhere_is_answered_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"no config file or recipe `templat`: did you mean"):
        find_config("templat")


def test_resolved_configs_come_back_the_same() -> None:
    config = parse_config({"team": SOLO, "teams": {"a": SOLO}, "budget": {"tokens": 3}})
    assert parse_config(config.model_dump(mode="json")) == config


RECIPES = sorted(path.stem for folder in RECIPE_FOLDERS for path in folder.glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_shipped_recipe_is_a_config_whose_teams_can_play(recipe: str) -> None:
    assert teams_of(load_config(recipe))


def test_every_set_whose_agents_know_different_things_has_a_recipe_and_so_have_tools() -> None:
    configs = [load_config(recipe) for recipe in RECIPES]
    agents = [
        agent for one in configs for t in one.all_teams.values() for agent in t.agents.values()
    ]
    assert {tool for agent in agents for tool in agent.tools} >= {"python", "lookup"}
    assert {config.tasks.name for config in configs} >= {
        "split_gsm8k", "split_gsm8k_blind", "split_hotpotqa", "split_2wiki", "split_musique",
        "strategyqa_facts", "hiddenbench", "clues", "humaneval_plus", "mbpp_tested",
    }  # fmt: skip


# Names


def test_names_are_answered_with_the_nearest_or_with_all() -> None:
    assert did_you_mean("slo", ["solo", "debate"]) == "did you mean `solo`?"
    assert did_you_mean("xyz", ["solo", "debate"]) == "known: debate, solo"


@pytest.mark.parametrize("name", ["a", ":b", "a:", ".a:b", "a b:c", "a:b:c", "a:b.c", "1a:b"])
def test_what_is_no_import_string_is_an_unknown_name(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown thing"):
        check_name("thing", name, ["known"], outside=True)


def test_outside_code_is_looked_up_by_its_import_string() -> None:
    assert lookup("thing", "tacit.errors:ConfigError", {}) is ConfigError
    assert lookup("thing", "mine", {"mine": 3}) == 3
    with pytest.raises(ConfigError, match=r"unknown thing `tacit\.errors:ConfigError`"):
        check_name("thing", "tacit.errors:ConfigError", ["mine"])


def test_code_from_outside_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("shlex:quote", "shlex:quote", "tacit.errors:RunError"):
        lookup("grader", name, {})
    said = capsys.readouterr().err
    assert said == "tacit: the grader `shlex:quote` is code from outside this package\n"


@pytest.mark.parametrize("recipe", sorted(RECIPE_FOLDERS[1].glob("*.yaml")), ids=lambda p: p.stem)
def test_a_recipes_own_team_is_never_hidden_by_a_baseline(recipe: Path) -> None:
    config = load_config(recipe)
    if config.team is not None:
        assert any(team is config.team for team in teams_of(config).values())


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "team: " + "[" * 2000, "a.yaml is not valid yaml: it is nested too deeply"),
        ("a.json", '{"team": ' + "[" * 10**5, "a.json is not valid json: it is nested too deeply"),
        ("a.yaml", "seed: " + "9" * 5000, "a.yaml is not valid yaml: .*5000 digits"),
        ("a.json", '{"seed": ' + "9" * 5000 + "}", "a.json is not valid json: .*5000 digits"),
        ("a.yaml", "name: 2001-99-99", "a.yaml is not valid yaml: month must be in"),
        ("a.yaml", "? [a]\n: b", "a.yaml is not valid yaml: .*unhashable key"),
        ("a.yaml", "extends: [b]", r"a.yaml: `extends` names one file or recipe, not \['b'\]"),
        ("a.yaml", 'name: "\\ud800"', "a.yaml: .*surrogates not allowed"),
        ("a.json", '{"models": {"\\ud800": {}}}', "a.json: .*surrogates not allowed"),
        (
            "a.yaml",
            "models: {a: {engine: api, model: m, parameters: {x: .inf}}}",
            "a.yaml: a setting cannot be written down .*not JSON compliant",
        ),
    ],
    ids=range(10),
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path / name)


@pytest.mark.parametrize("value", ["2001-99-99", "[" * 2000], ids=["no-date", "deep"])
def test_an_override_that_is_no_yaml_is_text(value: str) -> None:
    assert load_config("pocket-hint", [f"name={value}"]).name == value
