"""Between chat messages and token ids: the chat template, the silence marker, the end of a turn.

Texts are data: a special token's string inside one is broken up, so that nobody forges a role. Role
marks that a template spells in ordinary text (`[INST]`) are not special tokens and are left alone.
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
        """`more_eos`: the id, or list of ids, at which the model's generation config stops too."""
        self._tokenizer = tokenizer
        self.name = name
        self._forged = _special_strings(tokenizer)
        more = [] if more_eos is None else more_eos if isinstance(more_eos, list) else [more_eos]
        self.own_end = int(tokenizer.eos_token_id)
        self.eos_ids: frozenset[int] = frozenset({self.own_end, *map(int, more)})
        """Where the engine stops: what the tokenizer and the generation config call the end."""
        self.end_of_turn = self._end_of_turn()
        """What the chat template writes after an assistant's message; None if nothing special."""

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """The prompt's ids, up to where the answer begins."""
        return self.render(messages, add_generation_prompt=True)

    def render(self, messages: tuple[ChatMessage, ...], **options: Any) -> tuple[int, ...]:
        """The ids that the chat template makes of the messages; `options` are the template's."""
        plain = [{"role": m.role, "content": self.neutralise(m.content)} for m in messages]
        try:
            ids = self._tokenizer.apply_chat_template(
                plain,
                tokenize=True,
                return_dict=False,
                tokenizer_kwargs={"verbose": False},  # engines refuse long prompts in their words
                **options,
            )
        except Exception as error:  # templates are programs of their own and raise what they like
            raise EngineError(f"the chat template of {self.name} failed: {error}") from error
        return tuple(ids)

    @property
    def template(self) -> str:
        return str(self._tokenizer.chat_template)

    def token(self, one: int) -> str:
        """An id as the vocabulary writes it."""
        return str(self._tokenizer.convert_ids_to_tokens(one))

    def special_ids(self) -> dict[str, int]:
        """Special tokens by their text."""
        texts = self._tokenizer.all_special_tokens
        return {text: int(self._tokenizer.convert_tokens_to_ids(text)) for text in texts}

    def neutralise(self, text: str) -> str:
        """The text with a space in every special token's string: `<|eos|>` becomes `< |eos|>`."""
        text = self._forged.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        while self._forged.search(text):  # the pieces made a special string in turn
            text = self._forged.sub("", text)
        return text

    def silence_ids(self) -> tuple[int, ...]:
        """The marker and the end of a turn, which is the template's where the engine stops there.

        A tokenizer's own `eos_token` may be one that the model never writes in a chat.
        """
        marker = self._tokenizer.encode(SILENCE_MARKER, add_special_tokens=False)
        end = self.end_of_turn
        return (*marker, end if end in self.eos_ids else self.own_end)

    def _end_of_turn(self) -> int | None:
        said = "46"
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": said}]
        try:
            text = str(self._tokenizer.apply_chat_template(messages, tokenize=False))
        except Exception:  # `render` says what is wrong with a template
            return None
        end = self._forged.match(text.rpartition(said)[2].lstrip())
        return int(self._tokenizer.convert_tokens_to_ids(end[0])) if end else None

    def decode(self, ids: list[int]) -> str:
        """The ids as text, a final end-of-sequence left out; other special tokens stay visible."""
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
    """What matches any added token. Tokens of blanks, or of one character, mark no role."""
    added = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens} - {SILENCE_MARKER}
    strings = sorted((s for s in added if len(s.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, strings)) or r"(?!)")
