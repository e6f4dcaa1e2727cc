"""From chat messages to token ids: the chat template, the silence marker, the end of a turn.

Messages are data: a special token's string inside one is broken up, so that no message can forge a
role. Role marks that a template spells in ordinary text (`[INST]`) are not special tokens and stay.
"""

import json
import re
import secrets
from functools import cached_property
from typing import Any

from tacit.engine.base import SILENCE_MARKER
from tacit.engine.load import LoadedModel
from tacit.engine.tool_syntax import (
    PLAIN,
    PROBE,
    PROBED,
    ToolSyntax,
    describe_tools,
    find_syntax,
    loaded,
    numbered,
    plain_results,
    read_untagged,
    template_tools,
)
from tacit.errors import EngineError
from tacit.types import ChatMessage, Ids, Prompt, Stop, ToolCall, ToolSpec


class Chat:
    """A tokenizer with a chat template, as the engines use it."""

    def __init__(self, tokenizer: Any, name: str, more_eos: Any = None) -> None:
        """`more_eos`: the id or ids at which the model's generation config stops as well."""
        self._tokenizer = tokenizer
        self.name = name
        self._forged = _special_strings(tokenizer)
        more = [] if more_eos is None else more_eos if isinstance(more_eos, list) else [more_eos]
        self.own_end = int(tokenizer.eos_token_id)
        self.eos_ids: frozenset[int] = frozenset({self.own_end, *map(int, more)})
        """Where the engine stops: the ends of the tokenizer and of the generation config."""
        self.end_of_turn = self._end_of_turn()
        """The special token that the chat template writes after an assistant's message, if any."""

    def encode(self, messages: Prompt, tools: tuple[ToolSpec, ...] = ()) -> Ids:
        """The prompt's ids, up to where the answer begins."""
        if tools and self.tool_syntax.plain:
            messages, tools = describe_tools(messages, tools), ()
        return self.render(messages, tools, add_generation_prompt=True)

    def encode_more(self, observations: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
        """The ids of tool results, up to where the next answer begins.

        They follow the ids of a prompt and of an answer with its end of turn. That end is not
        included; what the template writes after it is.
        """
        return self._more(observations, tools, plain=self.tool_syntax.plain)

    def _more(self, observations: Prompt, tools: tuple[ToolSpec, ...], *, plain: bool) -> Ids:
        """The ids that the template writes after an assistant's turn, found by a mark inside it."""
        mark = f"m{secrets.token_hex(8)}"  # no tool can know it
        said = ChatMessage("assistant", mark)
        if plain:
            observations, tools = (plain_results(observations),), ()
        else:
            ids = [call.id for one in observations for call in one.tool_calls]
            said = ChatMessage("assistant", "", tuple(ToolCall(mark, "{}", id) for id in ids))
        before = (ChatMessage("user", "?"), said)
        whole = self._text((*before, *observations), tools, add_generation_prompt=True)
        rest, end = whole.partition(mark)[2], self._text(before, tools)
        if self.end_of_turn is None:
            rest, end = (whole, end) if whole.startswith(end) else ("", end)
        else:
            end = str(self._tokenizer.convert_ids_to_tokens(self.end_of_turn))
        _, ended, more = rest.partition(end)
        if not ended:
            raise EngineError(f"the chat template of {self.name} rewrites what was said before")
        return tuple(self._tokenizer.encode(more, add_special_tokens=False, verbose=False))

    def tool_calls(
        self, text: str, stop: Stop, tools: tuple[ToolSpec, ...] = ()
    ) -> tuple[ToolCall, ...]:
        """Which of these tools an answer calls, outside of its reasoning."""
        if stop is not Stop.EOS:
            return ()
        answer = text.rpartition("</think>")[2]
        names = {tool.name for tool in tools}
        return self.tool_syntax.read(answer) or read_untagged(answer, names)

    @cached_property
    def tool_syntax(self) -> ToolSyntax:
        own = getattr(self._tokenizer, "response_template", None)
        syntax = find_syntax(self._text, self._read_by_response_template if own else None)
        try:
            self._more((ChatMessage("tool", "?", (PROBED,)),), (PROBE,), plain=syntax.plain)
        except EngineError:
            return PLAIN
        return syntax

    def _read_by_response_template(self, text: str) -> tuple[ToolCall, ...]:
        prompt = self._text((ChatMessage("user", "?"),), add_generation_prompt=True)
        try:
            found = self._tokenizer.parse_response(text, prefix=prompt).get("tool_calls") or []
            functions = [call["function"] for call in found]
            return numbered(
                ToolCall(str(f["name"]), json.dumps(f.get("arguments", {}))) for f in functions
            )
        except Exception as error:  # a response template is a program too
            return (ToolCall("", f"{text} ({error})"),)

    def render(self, messages: Prompt, tools: tuple[ToolSpec, ...] = (), **options: Any) -> Ids:
        """The messages' ids by the chat template, to which the `options` go."""
        # engines have their own error for prompts that are too long
        ids = self._apply(messages, tools, tokenizer_kwargs={"verbose": False}, **options)
        return tuple(ids)

    def _text(self, messages: Prompt, tools: tuple[ToolSpec, ...] = (), **options: Any) -> str:
        return str(self._apply(messages, tools, tokenize=False, **options))

    def _apply(self, messages: Prompt, tools: tuple[ToolSpec, ...], **options: Any) -> Any:
        if tools:
            options["tools"] = self._neutral(template_tools(tools))
        try:
            return self._tokenizer.apply_chat_template(
                [self._message(message) for message in messages],
                **{"tokenize": True, "return_dict": False, **options},
            )
        except Exception as error:  # templates are programs and may raise anything
            raise EngineError(f"the chat template of {self.name} failed: {error}") from error

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        plain: dict[str, Any] = {"role": message.role, "content": self.neutralise(message.content)}
        if message.role == "tool":
            (call,) = message.tool_calls
            plain |= {"name": self.neutralise(call.name), "tool_call_id": call.id}
        elif message.tool_calls:
            plain["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": loaded(call.arguments or "{}")},
                }
                for call in message.tool_calls
            ]
        return plain

    def _neutral(self, tree: Any) -> Any:
        if isinstance(tree, str):
            return self.neutralise(tree)
        if isinstance(tree, dict):
            return {self.neutralise(str(key)): self._neutral(one) for key, one in tree.items()}
        return [self._neutral(one) for one in tree] if isinstance(tree, list) else tree

    @property
    def template(self) -> str:
        return str(self._tokenizer.chat_template)

    def token(self, token_id: int) -> str:
        """An id as text that can be read, so quoted if it is blank or no printable text."""
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=False))
        return text if text.isprintable() and text.strip() else repr(text)

    def special_ids(self) -> dict[str, int]:
        """Special tokens by their text."""
        texts = self._tokenizer.all_special_tokens
        return {text: int(self._tokenizer.convert_tokens_to_ids(text)) for text in texts}

    def neutralise(self, text: str) -> str:
        """The text with a space in every special token's string: `<|eos|>` becomes `< |eos|>`."""
        text = self._forged.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        while self._forged.search(text):  # a broken-up string can spell another special token
            text = self._forged.sub("", text)
        return text

    def silence_ids(self) -> Ids:
        """The marker, then the template's end of a turn if the engine stops there.

        A tokenizer's own `eos_token`, used otherwise, may be one that the model never writes.
        """
        marker = self._tokenizer.encode(SILENCE_MARKER, add_special_tokens=False)
        end = self.end_of_turn
        return (*marker, end if end in self.eos_ids else self.own_end)

    def _end_of_turn(self) -> int | None:
        answer = "46"
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
        try:
            text = str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        except Exception:  # `render` reports what is wrong with a template
            return None
        end = self._forged.match(text.rpartition(answer)[2].lstrip())
        return int(self._tokenizer.convert_tokens_to_ids(end[0])) if end else None

    def decode(self, ids: list[int]) -> str:
        """The ids as text, without a final end-of-sequence; other special tokens stay visible."""
        kept = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        return str(
            self._tokenizer.decode(
                kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )


def chat_of(loaded: LoadedModel) -> Chat:
    ends = getattr(loaded.module.generation_config, "eos_token_id", None)
    return Chat(loaded.tokenizer, loaded.name, ends)


def _special_strings(tokenizer: Any) -> re.Pattern[str]:
    """A pattern for the added tokens. Those of blanks or one character cannot mark a role."""
    added = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens} - {SILENCE_MARKER}
    strings = sorted((s for s in added if len(s.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, strings)) or r"(?!)")


class ByTemplate:
    """Mixin for token engines: ids by their model's chat template."""

    _chat: Chat

    def encode(self, messages: Prompt, tools: tuple[ToolSpec, ...] = ()) -> Ids:
        return self._chat.encode(messages, tools)

    def encode_more(self, observations: Prompt, tools: tuple[ToolSpec, ...]) -> Ids:
        return self._chat.encode_more(observations, tools)

    def silence_ids(self) -> Ids:
        return self._chat.silence_ids()
