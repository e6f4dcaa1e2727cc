"""What the page on serving says of its options is so, and its example of a budget runs."""

import inspect
import json
import re
import shlex
from pathlib import Path

import httpx2

from tacit.cli import serve
from tests.helpers.serving import log_of, served

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
BUDGETS = PAGE.split("\n## Budgets\n")[1].split("\n## ")[0]
NONE = ("none", "never", "off")
"""How the tables write a default that asks for nothing."""


def test_every_option_is_there_and_every_default_is_so() -> None:
    options = dict(list(inspect.signature(serve).parameters.items())[2:])
    rows = re.findall(r"^\| (`--.+?`) \| (.+?) \|", PAGE, re.M)
    told = {
        option.replace("-", "_"): value.strip("` ")
        for names, defaults in rows
        for option, value in zip(re.findall(r"--([\w-]+)", names), defaults.split(","), strict=True)
    }
    for name, option in options.items():
        assert f"--{name.replace('_', '-')}" in PAGE, name
        if name in told and option.default:
            exact = type(option.default)(told[name])
            assert exact == option.default, name
        elif name in told:
            assert told[name] in NONE, name
    assert told.keys() <= options.keys()


def test_the_example_of_a_budget_runs(tmp_path: Path) -> None:
    ((command,), (body, cut)) = (
        re.findall(rf"^```{kind}\n(.*?)\n```$", BUDGETS, re.M | re.S) for kind in ("bash", "json")
    )
    tacit, verb, *arguments = shlex.split(command)
    assert (tacit, verb) == ("tacit", "serve")
    with served(tmp_path, *arguments) as (url, process):
        headers = {"x-tacit-conversation": "docs"}
        asked = json.loads(body)
        reply = httpx2.post(f"{url}/chat/completions", json=asked, headers=headers, timeout=60)
        page = httpx2.get(url.removesuffix("/v1") + "/metrics").text
        log_of(process)
    account = reply.json()["tacit"]
    assert [line["agent"] for line in account["conversation"]] == ["actor"]
    assert account["unasked"] == [{"agent": "hinter", "reason": "turns", "messages": 1}]
    spent = reply.json()["usage"]["completion_tokens"]
    assert reply.json()["usage"]["tacit_cut"] == json.loads(cut)
    assert account["budget"] == {
        "request": {"tokens": {"limit": 600, "spent": spent}, "turns": {"limit": 1, "spent": 1}},
        "conversation": {"tokens": {"limit": 5000, "spent": spent}},
    }
    assert 'tacit_unasked_total{agent="hinter",reason="turns"} 1.0' in page
    assert 'tacit_conversation_left_count{kind="tokens"} 1.0' in page
