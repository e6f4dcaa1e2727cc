"""From chat messages to token ids: the chat template, the silence marker, the end of a turn.

Messages are data: a special token's string inside one is broken up, so that no message can forge a
role. Role marks that a template spells in ordinary text (`[INST]`) are not special tokens and stay.
"""

import re
from typing import Any

from tacit.engine.base import SILENCE_MARKER
from tacit.engine.load import LoadedModel
from tacit.errors import EngineError
from tacit.types import ChatMessage


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

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """The prompt's ids, up to where the answer begins."""
        return self.render(messages, add_generation_prompt=True)

    def render(self, messages: tuple[ChatMessage, ...], **options: Any) -> tuple[int, ...]:
        """The messages' ids by the chat template, to which the `options` go."""
        plain = [{"role": m.role, "content": self.neutralise(m.content)} for m in messages]
        try:
            ids = self._tokenizer.apply_chat_template(
                plain,
                tokenize=True,
                return_dict=False,
                tokenizer_kwargs={"verbose": False},  # engines have their own error for long ones
                **options,
            )
        except Exception as error:  # templates are programs and may raise anything
            raise EngineError(f"the chat template of {self.name} failed: {error}") from error
        return tuple(ids)

    @property
    def template(self) -> str:
        return str(self._tokenizer.chat_template)

    def token(self, token_id: int) -> str:
        """An id as the vocabulary spells it."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

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

    def silence_ids(self) -> tuple[int, ...]:
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
