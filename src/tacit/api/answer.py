"""Reads the answers of OpenAI-compatible servers: completions, broken ones, and errors."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.engine.base import Completion
from tacit.errors import EngineError
from tacit.types import MOST_TOKENS, Stop, ToolCall, Usage

_TRY_AGAIN = {408, 409, 425, 429}
_REFUSALS = {401, 402}
_REFUSALS_AT_FIRST = {403, 404}
"""After a first answer, these concern one question and not the key or the model."""
UNSEEN = 2**18
"""Allowed beside what is seen: tokens that a server adds to a prompt, or reasons with."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class Broken(Exception):
    """No complete answer came back; `reached` is True if anything did."""

    def __init__(self, message: str, *, reached: bool = True) -> None:
        super().__init__(message)
        self.reached = reached


def read_answer(content_type: str, body: bytes, model: str) -> Completion:
    """Parse a chat completion. Raises `Broken` if a retry may help, EngineError if it cannot."""
    if "json" not in content_type:
        start = " ".join(body[:80].decode(errors="replace").split())
        raise Broken(
            f"the server answered {content_type or 'no content type'}, not JSON: {start!r}"
        )
    try:
        tree = json.loads(body)
        if error := tree.get("error"):
            raise Broken(_message(error) or "the server reports an error and says nothing of it")
        if not tree.get("choices"):
            raise Broken("the server's answer holds no choices")
        choice = tree["choices"][0]
        text, finish = choice["message"].get("content"), choice.get("finish_reason")
        calls = tool_calls_of(choice["message"].get("tool_calls") or ())
        usage = usage_of(tree["usage"]) if tree.get("usage") else None
        served, fingerprint = tree.get("model") or model, tree.get("system_fingerprint") or ""
        if finish == "error" or not isinstance(text, str | None):
            raise Broken("the server broke off while it answered")
        # half a surrogate pair cannot be written to disk
        f"{text}{served}{fingerprint}{calls}".encode()
    except _DAMAGE as error:
        raise Broken(f"the server's JSON is damaged or cut off ({error})") from None
    if usage is None:
        raise EngineError(f"{model}: the server reports no usage, so nothing can be counted")
    if finish == "content_filter":
        raise EngineError(f"{model}: the server withheld the answer (content_filter)")
    return Completion(
        text=text or "",
        stop=Stop.LENGTH if finish == "length" else Stop.EOS,
        usage=usage,
        model=str(served),
        fingerprint=str(fingerprint),
        logprob=_logprob(choice),
        tool_calls=() if finish == "length" else calls,
    )


def tool_calls_of(reported: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Arguments stay the text that the model wrote; some servers send them parsed."""
    functions = [(call.get("id"), call["function"]) for call in reported]
    return tuple(
        ToolCall(
            str(one["name"]),
            said if isinstance(said := one.get("arguments") or "{}", str) else json.dumps(said),
            str(id or f"call{number:05d}"),
        )
        for number, (id, one) in enumerate(functions, 1)
    )


def _logprob(choice: Mapping[str, Any]) -> float | None:
    """Of the whole text, if requested (`parameters: {logprobs: true}`) and reported."""
    try:
        values = [token["logprob"] for token in choice["logprobs"]["content"]]
        total = math.fsum(values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return total if values and math.isfinite(total) else None


def usage_of(reported: Mapping[str, Any]) -> Usage:
    """Counts cached tokens as part of the prompt, and reasoning tokens as generated."""
    prompt, generated = int(reported["prompt_tokens"]), int(reported["completion_tokens"])
    cached = int((reported.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    thought = reported.get("completion_tokens_details") or {}
    reasoning = int(thought.get("reasoning_tokens") or 0)
    apart = reported.get("total_tokens") == prompt + generated + reasoning
    if reasoning and (apart or reasoning > generated):  # some servers count reasoning separately
        generated += reasoning
    if min(prompt, generated, cached, reasoning) < 0 or prompt + generated > MOST_TOKENS:
        raise ValueError("impossible token counts")
    return Usage(
        prompt=prompt, generated=generated, cached=min(cached, prompt), reasoning=reasoning
    )


def check_counts(usage: Usage, *, sent: int, limit: int, received: int) -> None:
    """Raise `Broken` for impossible token counts, which would be paid for and learned from.

    A token is at least one byte of what was `sent` or `received`; tokens generated unseen are
    within the `limit` or reported as reasoning. Twice as many are allowed, for chat templates and
    loosely kept limits, and `UNSEEN` more for what a server adds or thinks by itself.
    """
    shown = usage.generated - usage.reasoning
    if (
        usage.prompt > 2 * sent + UNSEEN
        or shown > 2 * max(limit, received)
        or usage.reasoning > 2 * limit + UNSEEN
    ):
        raise Broken(
            f"the server reports {usage.prompt} prompt and {usage.generated} generated tokens, "
            f"more than {sent} bytes of messages and a limit of {limit} tokens can come to"
        )


def is_refusal(error: Exception, *, answered_before: bool) -> bool:
    """True if the server refuses the key, model or account, so that no question will succeed."""
    status = getattr(error, "status_code", None)
    return (
        status in _REFUSALS
        or getattr(error, "code", None) == "insufficient_quota"
        or (status in _REFUSALS_AT_FIRST and not answered_before)
    )


def is_too_long(error: Exception) -> bool:
    """True if the prompt exceeds the context, by OpenAI's code or vLLM's or llama.cpp's words."""
    words = words_of(error)
    known = getattr(error, "code", None) == "context_length_exceeded"
    return known or "maximum context length" in words or "available context size" in words


def is_temporary(error: Exception) -> bool:
    """True for lost connections, broken answers, and statuses that a retry may mend."""
    status = getattr(error, "status_code", None)
    return status is None or status == 200 or status in _TRY_AGAIN or status >= 500


def was_reached(error: Exception) -> bool:
    """True if a server answered at all."""
    return error.reached if isinstance(error, Broken) else hasattr(error, "status_code")


def words_of(error: Exception) -> str:
    """The server's own message if there is one, with the cause and the HTTP status."""
    message = _message(getattr(error, "body", None))
    status = getattr(error, "status_code", None)
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return f"{message or error}{cause}" + (f" [HTTP {status}]" if status else "")


def _message(body: Any) -> str | None:

    if isinstance(body, Mapping):
        found = body.get("message") or body.get("detail") or body.get("error")
        return found if isinstance(found, str) else None
    return body if isinstance(body, str) else None
