"""Tool calls by the chat templates of real models, as TRL keeps them."""

import json
from pathlib import Path

import pytest

from tacit.engine.chat import Chat
from tacit.engine.load import load_tokenizer
from tacit.types import ChatMessage, Stop, ToolCall, ToolSpec

trl = pytest.importorskip("trl", reason="extra `integration` is not installed")

ADD = ToolSpec(
    name="add",
    description="Adds one.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
TAGGED = '<tool_call>\n{"name": "add", "arguments": {"a": 5}}\n</tool_call>'
FUNCTION = "<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>"
SAID = {
    "qwen2_5": TAGGED,
    "qwen3": f"<think>\nWell.\n</think>\n\n{TAGGED}",
    "qwen3_instruct_2507": TAGGED,
    "qwen3_5_think": f"Well.\n</think>\n\n{FUNCTION}",
    "nemotron_3_nano": f"Well.\n</think>\n{FUNCTION}",
    "llama3_1": '{"name": "add", "parameters": {"a": 5}}',
}


@pytest.mark.parametrize("name", SAID)
def test_calls_are_read_and_results_appended(name: str) -> None:
    tokenizer = load_tokenizer("pocket")
    template = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    chat = Chat(tokenizer, name)
    assert not chat.tool_syntax.plain
    (call,) = chat.tool_calls(SAID[name], Stop.EOS)
    assert call.name == "add" and int(json.loads(call.arguments)["a"]) == 5
    seen = ChatMessage("tool", "it is 6", (ToolCall("add", "{}", call.id),))
    more = tokenizer.decode(list(chat.encode_more((seen,), (ADD,))))
    assert more.count("it is 6") == 1 and "asked" not in more and "Adds one" not in more
    question = chat.encode((ChatMessage("user", "?"),), (ADD,))
    opening = tokenizer.decode(list(question)).rpartition("assistant")[2]
    assert more.endswith(f"assistant{opening}")
