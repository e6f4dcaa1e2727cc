"""`tacit plan` on the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.config.file import load_config
from tacit.errors import ConfigError
from tacit.plan.model_shapes import shape_of
from tacit.plan.plan_command import shapes_of

RUN = CliRunner()


def planned(*arguments: str) -> str:
    done = RUN.invoke(app, ["plan", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_table_is_narrow_and_names_what_matters() -> None:
    text = planned("agentpo-hint", "--actor", "70B", "--size", "collaborator=3B", "--nodes", "8",
                   "--gpus-per-node", "8", "--gpu", "h100", "--gpu-price", "2.5")  # fmt: skip
    assert max(map(len, text.splitlines())) <= 80
    for word in ("64 × H100 on 8 nodes", "70.4B", "bottleneck", "GPU-hours", "keys and values",
                 "at 2.5 an hour", "off by up to 22%", "not measured"):  # fmt: skip
        assert word in " ".join(text.split())


def test_json_has_the_same_numbers() -> None:
    tree = json.loads(planned("gsm8k-hint", "--actor", "1.5B", "--json", "train.steps=7"))
    assert tree["run_seconds"] == pytest.approx(
        7 * tree["step_seconds"] + tree["evaluation_seconds"]
    )
    assert tree["gpu"] == "H200" and tree["gpu_money"] is None
    assert set(tree["memory_gib"]) > {"weights", "activations", "logits"}


@pytest.mark.slow
def test_it_loads_no_torch() -> None:
    program = (
        "import sys; from tacit.cli import app; "
        "app(['plan', 'pocket-hint', '--json'], standalone_mode=False); "
        "print([m for m in ('torch', 'transformers', 'datasets') if m in sys.modules], "
        "file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["step_seconds"] > 0


def test_a_folder_that_is_there_needs_no_size(tmp_path: Path) -> None:
    whole = {
        "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3,
        "intermediate_size": 128, "vocab_size": 500,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(whole))
    config = load_config("gsm8k-hint", [f"models.base.path={tmp_path}"])
    assert config.team is not None
    assert shapes_of(config, config.team, None, ()) == {"base": shape_of(str(tmp_path))}


@pytest.mark.parametrize(
    ("source", "actor", "sizes", "said"),
    [
        ("gsm8k-hint", None, (), "--size base=7B"),
        ("gsm8k-hint", None, ("bass=7B",), "did you mean `base`"),
        ("gsm8k-hint", None, ("7B",), "write NAME=70B"),
        ("gsm8k-hint", "big", (), "neither a size"),
        ("agentpo-api-actor", "7B", (), "behind an API"),
    ],
)
def test_a_model_of_unknown_size_is_asked_for(
    source: str, actor: str | None, sizes: tuple[str, ...], said: str
) -> None:
    config = load_config(source)
    assert config.team is not None
    with pytest.raises(ConfigError, match=said):
        shapes_of(config, config.team, actor, sizes)


def test_what_trains_nothing_is_refused() -> None:
    done = RUN.invoke(app, ["plan", "pocket-compare"])
    assert isinstance(done.exception, ConfigError) and "needs a `team:`" in str(done.exception)


def test_the_page_shows_what_the_command_prints() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
    _, _, rest = page.partition("```console\n$ tacit plan ")
    command, _, shown = rest.partition("```")[0].partition("\n")
    printed = [line.rstrip() for line in planned(*command.split()).splitlines()]
    assert shown.splitlines() == printed
