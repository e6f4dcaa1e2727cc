"""The page on configuration lists every setting with its default, and no other."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from tacit import config
from tacit.config import Config, Section

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
HEADINGS: dict[str, type[Section]] = {
    "Top level": Config,
    "`tasks` and `train_tasks`": config.TaskConfig,
    "`models.NAME`": config.ModelConfig,
    "`team` and `teams.NAME`": config.TeamConfig,
    "`team.without`": config.Cut,
    "`audit`": config.AuditConfig,
    "`team.agents.ROLE`": config.AgentConfig,
    "`mcp.NAME`": config.McpConfig,
    "`evaluation`": config.EvaluationConfig,
    "`judge`": config.JudgeConfig,
    "`reward`": config.RewardConfig,
    "`budget`": config.BudgetConfig,
    "`silence`": config.SilenceConfig,
    "`policy`": config.PolicyConfig,
    "`optimizer`": config.OptimizerConfig,
    "`loss`": config.LossConfig,
    "`train`": config.TrainConfig,
    "`search`": config.SearchConfig,
    "`cluster`": config.ClusterConfig,
}


def shown(field: FieldInfo) -> str:
    default: Any = field.default
    if field.is_required():
        return "required"
    if default is None:
        return "not set"
    if isinstance(default, Section):
        return "see below"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_section_is_described_with_its_defaults(heading: str) -> None:
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert found, f"docs/configuration.md has no section {heading}"
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", rest.partition("\n## ")[0], re.M)
    described = {key: default for key, default, _ in rows}
    assert described == {key: shown(f) for key, f in HEADINGS[heading].model_fields.items()}


def test_no_section_is_left_out() -> None:
    assert {*HEADINGS.values()} == {*Section.__subclasses__()}
