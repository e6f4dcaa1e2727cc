import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.config import AgentConfig, Config, McpConfig, ModelConfig, TeamConfig
from tacit.doctor.checkup import run_doctor
from tacit.doctor.model_checks import MODEL_CHECKS, OpenModel
from tacit.engine.chat import Chat
from tacit.engine.load import POCKET_FOLDER, load_tokenizer
from tacit.engine.local import LocalEngine
from tacit.errors import Unfit
from tests.helpers.tiny_models import tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(POCKET_FOLDER, tmp_path / "model"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def config_of(**model: Any) -> Config:
    team = TeamConfig(agents={"actor": AgentConfig(model="mine")})
    return Config(models={"mine": ModelConfig(**model)}, team=team)


async def report(config: Config, capsys: pytest.CaptureFixture[str]) -> tuple[bool, list[str]]:
    well = await run_doctor(config)
    return well, capsys.readouterr().out.splitlines()


async def test_the_pocket_model_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    well, lines = await report(Config(), capsys)
    assert well and "0 failed" in lines[-1]
    assert not {*"ĠĊ"} & {*"".join(lines)}, "tokens are shown as text"
    for check in MODEL_CHECKS:
        assert any(line.startswith(f"ok   pocket: {check}: ") for line in lines), check
    assert any(line.startswith("ok   mathematics: ") for line in lines)


async def test_a_folder_without_a_chat_template_is_named_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "chat_template.jinja").unlink()
    well, lines = await report(config_of(path=str(folder)), capsys)
    (line,) = [line for line in lines if line.startswith("fail")]
    assert not well and "no chat template" in line and "fix: " in line


async def test_a_tokenizer_without_end_of_sequence_is_named_with_its_fix(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder / "tokenizer_config.json", eos_token=None)
    well, lines = await report(config_of(path=str(folder)), capsys)
    (line,) = [line for line in lines if line.startswith("fail")]
    assert not well and "no end-of-sequence token" in line and "fix: " in line


async def test_an_end_that_no_answer_has_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(folder / "tokenizer_config.json", eos_token="<|pad|>")
    change(folder / "generation_config.json", eos_token_id=0)
    well, lines = await report(config_of(path=str(folder)), capsys)
    (line,) = [line for line in lines if line.startswith("fail")]
    assert not well and "end of an answer" in line and "set `eos_token`" in line


async def test_a_generation_prompt_that_rewrites_the_prompt_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = folder / "chat_template.jinja"
    template.write_text("{% if add_generation_prompt %}answer{% endif %}" + template.read_text())
    well, lines = await report(config_of(path=str(folder)), capsys)
    assert not well
    assert any("chat template: the generation prompt changes" in line for line in lines)


async def test_a_tokenizer_that_changes_texts_cannot_keep_silence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strip = {"type": "Replace", "pattern": {"String": "<silent>"}, "content": "silent"}
    lower = {"type": "Sequence", "normalizers": [strip, {"type": "Lowercase"}]}
    change(folder / "tokenizer.json", normalizer=lower)
    well, lines = await report(config_of(path=str(folder)), capsys)
    assert not well
    assert any(line.startswith("warn mine: tokenizer: 'What is") for line in lines)
    assert any("fail mine: silence: the silence marker <silent>" in line for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (
            "{% for message in messages %}",
            "{% for message in messages if message['role'] != 'system' %}",
            "fail mine: system message: the chat template drops system messages",
        ),
        (
            "{{ '<|im_start|>assistant\\n' }}",
            "",
            "fail mine: chat template: no generation prompt opens the answer",
        ),
        (
            "{% for message in messages %}",
            "{{ strftime_now('%H:%M') }}{% for message in messages %}",
            "fail mine: clock: the chat template writes the time of day",
        ),
        (
            "{% for message in messages %}",
            "{{ strftime_now('%d %b %Y') }}{% for message in messages %}",
            "warn mine: clock: the chat template writes the date",
        ),
    ],
)
async def test_a_template_that_would_make_numbers_wrong_is_named(
    old: str, new: str, found: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = folder / "chat_template.jinja"
    assert old in template.read_text()
    template.write_text(template.read_text().replace(old, new))
    well, lines = await report(config_of(path=str(folder)), capsys)
    assert well is found.startswith("warn")
    assert next(line for line in lines if not line.startswith("ok ")).startswith(found)


async def test_an_end_of_its_own_does_not_hide_what_silence_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a conversion wrote it: the tokenizer names an end that the template never writes."""
    change(folder / "tokenizer_config.json", eos_token="<|pad|>")
    well, lines = await report(config_of(path=str(folder)), capsys)
    assert well
    (line,) = [line for line in lines if "end of an answer" in line]
    assert "<|im_end|>, as the template has it; the tokenizer's own is <|pad|>" in line
    (line,) = [line for line in lines if "the choice to be silent" in line]
    assert "π(silence) is " in line and "greedily it says " in line


async def test_an_end_that_is_no_word_is_shown_quoted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of models that also stop at a line break, which their vocabulary spells Ċ."""
    tokenizer = load_tokenizer(str(folder))
    (newline,) = tokenizer.encode("\n", add_special_tokens=False)
    change(folder / "generation_config.json", eos_token_id=[tokenizer.eos_token_id, newline])
    _, lines = await report(config_of(path=str(folder)), capsys)
    (line,) = [line for line in lines if "end of an answer" in line]
    assert "the engine stops at" in line and r"'\n'" in line


def with_tools(*tools: str, **servers: McpConfig) -> Config:
    api = ModelConfig(engine="api", model="m", base_url="http://localhost:1", api_key_env="HOME")
    team = TeamConfig(agents={"actor": AgentConfig(model="mine", tools=list(tools))})
    return Config(models={"mine": api}, mcp=servers, team=team)


async def test_a_tool_that_cannot_be_imported_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    own = "tests.helpers.outside_tools:add"
    config = with_tools("python", own, "tests.helpers.outside_tools:nothing", "lookups")
    well, lines = await report(config, capsys)
    assert not well and f"ok   tool {own}: models see add" in lines
    failed = [line for line in lines if line.startswith("fail")]
    assert len(failed) == 2
    assert "tool tests.helpers.outside_tools:nothing: agents.tools: cannot import tool" in failed[0]
    assert "unknown tool `lookups`: did you mean `lookup`?" in failed[1]


async def test_tools_of_one_name_clash_only_in_one_agents_hands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = "tests.helpers.outside_tools:add", "tests.doctor.other_tools:add"
    well, lines = await report(with_tools(*both), capsys)
    (failed,) = [line for line in lines if line.startswith("fail")]
    assert not well and failed.endswith(f"two of {', '.join(both)} have the same name")
    team = TeamConfig(
        agents={name: AgentConfig(tools=[tool]) for name, tool in zip("ab", both, strict=True)}
    )
    well, lines = await report(Config(team=team), capsys)
    assert well, lines


async def test_servers_of_tools_are_started_and_asked_for_what_the_config_allows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mcp", reason="extra `integration` is not installed")
    program = [sys.executable, str(Path(__file__).parents[1] / "integration" / "mcp_server.py")]
    config = with_tools(
        "mcp/whole/add",
        "mcp/nowhere",
        whole=McpConfig(command=program, allow=["add", "echo"], timeout=60),
        lacking=McpConfig(command=program, allow=["ad", "add", "subtract"], timeout=60),
        stuck=McpConfig(command=["sleep", "60"], allow=["add"], timeout=1),
    )
    well, lines = await report(config, capsys)
    assert not well and "ok   tool mcp/whole: models see add, echo" in lines
    assert "ok   tool mcp/whole/add: models see add" in lines
    lacking, stuck, nowhere = (line for line in lines if line.startswith("fail"))
    assert "`lacking` has no tool `ad` (did you mean `add`?), `subtract` (known: " in lacking
    assert stuck == "fail tool mcp/stuck: the MCP server `stuck`: no answer in time"
    assert "unknown MCP server `nowhere`" in nowhere


async def test_an_engine_that_serves_other_weights_is_found() -> None:
    served, trained = tiny_model(seed=0), tiny_model(seed=1)
    engine = LocalEngine(served, rows=8)
    model = OpenModel(trained, engine, Chat(trained.tokenizer, "tiny"))
    try:
        with pytest.raises(Unfit, match="differ by up to"):
            await MODEL_CHECKS["log-probabilities"](model)
    finally:
        await engine.close()


@pytest.mark.parametrize("there", [True, False])
async def test_an_api_model_is_not_called_but_needs_its_key(
    there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if there:
        monkeypatch.setenv("SOME_KEY", "a-secret")
    api = config_of(engine="api", model="m", base_url="http://localhost:1", api_key_env="SOME_KEY")
    well, lines = await report(api, capsys)
    assert well is there
    (line,) = [line for line in lines if "API key" in line]
    assert line.startswith("ok" if there else "fail") and "a-secret" not in line
    assert ("export SOME_KEY" in line) is not there


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
async def test_a_model_for_vllm_is_checked_and_vllm_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    well, lines = await report(config_of(engine="vllm", path=str(folder)), capsys)
    assert not well
    failed = [line for line in lines if line.startswith("fail")]
    assert failed == ["fail mine: vLLM: vLLM is missing; fix: pip install 'tacit[vllm]'"]
    assert any("log-probabilities" in line for line in lines), "the model itself is checked too"
