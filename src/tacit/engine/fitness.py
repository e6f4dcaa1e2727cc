"""Checks a tokenizer and its chat template for faults that would make a run's numbers wrong.

No forward passes: training checks every local model before its first step. `tacit doctor` checks
what needs the weights.
"""

import logging
import re
from collections.abc import Callable

from tacit.engine.base import SILENCE_MARKER
from tacit.engine.chat import Chat
from tacit.errors import EngineError, Unfit
from tacit.types import ChatMessage, Ids, Prompt

log = logging.getLogger(__name__)

QUESTION = (ChatMessage("user", "What is 12 + 34?"),)
ANSWERED = (*QUESTION, ChatMessage("assistant", "46"))
TOLD, TOLD_OTHERWISE = (
    (ChatMessage("system", told), *QUESTION) for told in ("Answer briefly.", "Give a hint.")
)
_CLOCK = re.compile(r"""strftime_now\(\s*['"]([^'"]*)""")
"""How a template reads the time, and in which format."""
_TIME_OF_DAY = re.compile(r"%[-#]?[HIMSfpXcsTRr]")
THEIR_TEMPLATE = "use the chat_template.jinja that came with the model"


def check_chat(chat: Chat, *, system: bool = True) -> None:
    """Raise for faults that make numbers wrong. `system`: whether system messages set roles."""
    for name, check in CHAT_CHECKS.items():
        try:
            if system or check is not _system:
                check(chat)
        except Unfit as error:
            if error.state == "fail":
                raise Unfit(f"model `{chat.name}`: {name}: {error.wrong}", error.fix) from error


def point_out_faults(chat: Chat) -> None:
    """Warn of faults for which training would refuse the model."""
    try:
        check_chat(chat)
    except Unfit as error:
        log.warning("%s", error)


def _forgery(chat: Chat) -> str:
    """A special token's text inside a message must not become the token."""
    plain = chat.encode((ChatMessage("user", "x"),))
    for text, special in chat.special_ids().items():
        ids = chat.encode((ChatMessage("user", f"x{text}"),))
        if len(text.strip()) > 1 and ids.count(special) != plain.count(special):
            raise Unfit(f"{text!r} in a message becomes that token", "mark it as special")
    return "none can be forged inside a message"


def _template(chat: Chat) -> str:
    whole = _encoded(chat, QUESTION)
    bare = chat.render(QUESTION)
    if not bare or whole[: len(bare)] != bare:
        raise Unfit("the generation prompt changes what stands before it", THEIR_TEMPLATE)
    if len(whole) == len(bare):
        wrong = "no generation prompt opens the answer, so a model may go on with the question"
        raise Unfit(wrong, THEIR_TEMPLATE)
    return f"a prompt of {len(whole)} tokens, {len(whole) - len(bare)} of them open the answer"


def _clock(chat: Chat) -> str:
    formats = "".join(_CLOCK.findall(chat.template))
    if _TIME_OF_DAY.search(formats) or chat.render(QUESTION) != chat.render(QUESTION):
        wrong = "the chat template writes the time of day, so equal questions get unequal prompts"
        raise Unfit(wrong, "use a template without a clock")
    if formats:
        wrong = "the chat template writes the date, so a run is repeated exactly on one day only"
        raise Unfit(wrong, "use a template without a date", "warn")
    return "equal messages give equal prompts"


def _system(chat: Chat) -> str:
    fix = "use a model whose template takes a system message, or `prompts: role_last`"
    try:
        told, otherwise = chat.encode(TOLD), chat.encode(TOLD_OTHERWISE)
    except EngineError as error:
        raise Unfit(str(error), fix) from error
    if told == otherwise:
        raise Unfit("the chat template drops system messages, so all roles are told the same", fix)
    return "another system message gives another prompt"


def _ends(chat: Chat) -> str:
    """The token that closes an answer in the template must be one at which the engine stops."""
    written = chat.end_of_turn
    tail = {written}
    if written is None:
        tail = {*chat.render(ANSWERED)[len(_encoded(chat, QUESTION)) :]}
    if not chat.eos_ids & tail:
        theirs = f"with {chat.token(written)}" if written is not None else "with nothing special"
        wrong = f"the chat template ends an answer {theirs}, the model's files with {_names(chat)}"
        raise Unfit(wrong, "set `eos_token` in tokenizer_config.json to what ends an answer")
    own = chat.token(chat.own_end)
    if written not in (None, chat.own_end):
        return f"{chat.token(written)}, as the template has it; the tokenizer's own is {own}"
    return f"{own}; the engine stops at {_names(chat)}"


def _silence(chat: Chat) -> str:
    ids = chat.silence_ids()
    back = chat.decode(list(ids))
    if back != SILENCE_MARKER:
        wrong = f"the silence marker {SILENCE_MARKER} comes back as {back!r}"
        raise Unfit(wrong, "use a tokenizer that keeps text as it is")
    return f"{SILENCE_MARKER} and its end are {len(ids)} tokens and decode to exactly that"


def _encoded(chat: Chat, messages: Prompt) -> Ids:
    try:
        return chat.encode(messages)
    except EngineError as error:
        raise Unfit(str(error), THEIR_TEMPLATE) from error


def _names(chat: Chat) -> str:
    return ", ".join(map(chat.token, sorted(chat.eos_ids)))


CHAT_CHECKS: dict[str, Callable[[Chat], str]] = {
    "special tokens": _forgery,
    "chat template": _template,
    "clock": _clock,
    "system message": _system,
    "end of an answer": _ends,
    "silence": _silence,
}
