"""Between chat messages and token ids: the chat template, the silence marker, end-of-sequence.

Texts are data: a special token's string inside one is broken up, so that nobody forges a role. Role
marks that a template spells in ordinary text (`[INST]`) are not special tokens and are left alone.
"""

import re
from typing import Any

from tacit.engine.base import SILENCE_MARKER
from tacit.errors import EngineError
from tacit.types import ChatMessage


class Chat:
    """A tokenizer with a chat template, as the engines use it."""

    def __init__(self, tokenizer: Any, name: str, more_eos: Any = None) -> None:
        """`more_eos`: the id, or list of ids, at which the model's generation config stops too."""
        self._tokenizer = tokenizer
        self._name = name
        self._forged = _special_strings(tokenizer)
        more = [] if more_eos is None else more_eos if isinstance(more_eos, list) else [more_eos]
        self.eos_ids: frozenset[int] = frozenset({int(tokenizer.eos_token_id), *map(int, more)})

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """The prompt's ids, up to where the answer begins."""
        plain = [{"role": m.role, "content": self.neutralise(m.content)} for m in messages]
        try:
            ids = self._tokenizer.apply_chat_template(
                plain,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                tokenizer_kwargs={"verbose": False},  # engines refuse long prompts in their words
            )
        except Exception as error:  # templates are programs of their own and raise what they like
            raise EngineError(f"the chat template of {self._name} failed: {error}") from error
        return tuple(ids)

    def neutralise(self, text: str) -> str:
        """The text with a space in every special token's string: `<|eos|>` becomes `< |eos|>`."""
        text = self._forged.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        while self._forged.search(text):  # the pieces made a special string in turn
            text = self._forged.sub("", text)
        return text

    def silence_ids(self) -> tuple[int, ...]:
        marker = self._tokenizer.encode(SILENCE_MARKER, add_special_tokens=False)
        return (*marker, int(self._tokenizer.eos_token_id))

    def decode(self, ids: list[int]) -> str:
        """The ids as text, a final end-of-sequence left out; other special tokens stay visible."""
        kept = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        return str(
            self._tokenizer.decode(
                kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )


def _special_strings(tokenizer: Any) -> re.Pattern[str]:
    """What matches any added token. Tokens of blanks, or of one character, mark no role."""
    added = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens} - {SILENCE_MARKER}
    strings = sorted((s for s in added if len(s.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, strings)) or r"(?!)")
