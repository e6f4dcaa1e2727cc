"""What an OpenAI-compatible server says: a whole completion, a broken one, or why there is none."""

import json
import math
from collections.abc import Mapping
from typing import Any

from tacit.engine.base import Completion
from tacit.errors import EngineError
from tacit.types import MOST_TOKENS, Stop, Usage

_TRY_AGAIN = {408, 409, 425, 429}
_REFUSALS = {401, 402}
_REFUSALS_AT_FIRST = {403, 404}
"""Once something was answered, these are about one question and no longer about us."""
UNSEEN = 2**18
"""Tokens of one call that nobody here sees: what a server adds to a prompt, or thinks."""


_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class Broken(Exception):
    """No whole completion came back; `reached` says that something did."""

    def __init__(self, message: str, *, reached: bool = True) -> None:
        super().__init__(message)
        self.reached = reached


def read_answer(content_type: str, body: bytes, model: str) -> Completion:
    """A chat completion. What is damaged is `Broken`; what another try would not mend, an error."""
    if "json" not in content_type:
        start = " ".join(body[:80].decode(errors="replace").split())
        raise Broken(
            f"the server answered {content_type or 'no content type'}, not JSON: {start!r}"
        )
    try:
        tree = json.loads(body)
        if error := tree.get("error"):
            raise Broken(_said(error) or "the server reports an error and says nothing of it")
        if not tree.get("choices"):
            raise Broken("the server's answer holds no choices")
        choice = tree["choices"][0]
        text, finish = choice["message"].get("content"), choice.get("finish_reason")
        usage = _usage(tree["usage"]) if tree.get("usage") else None
        served, fingerprint = tree.get("model") or model, tree.get("system_fingerprint") or ""
        if finish == "error" or not isinstance(text, str | None):
            raise Broken("the server broke off while it answered")
        f"{text}{served}{fingerprint}".encode()  # half a surrogate pair could not be written
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
    )


def _logprob(choice: Mapping[str, Any]) -> float | None:
    """Of the whole text, where it was asked for (`parameters: {logprobs: true}`) and given."""
    try:
        values = [token["logprob"] for token in choice["logprobs"]["content"]]
        total = math.fsum(values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return total if values and math.isfinite(total) else None


def _usage(reported: Mapping[str, Any]) -> Usage:
    """Cached tokens are part of the prompt, reasoning tokens of what was generated."""
    prompt, generated = int(reported["prompt_tokens"]), int(reported["completion_tokens"])
    cached = int((reported.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    thought = reported.get("completion_tokens_details") or {}
    reasoning = int(thought.get("reasoning_tokens") or 0)
    apart = reported.get("total_tokens") == prompt + generated + reasoning
    if reasoning and (apart or reasoning > generated):  # some servers count them beside the rest
        generated += reasoning
    if min(prompt, generated, cached, reasoning) < 0 or prompt + generated > MOST_TOKENS:
        raise ValueError("impossible token counts")
    return Usage(
        prompt=prompt, generated=generated, cached=min(cached, prompt), reasoning=reasoning
    )


def check_counts(usage: Usage, *, sent: int, limit: int, received: int) -> None:
    """Raise `Broken` for counts that cannot be true of a call: they would be paid and learned from.

    A token is at least a byte of what was `sent` or `received`, and what a server generates unseen
    is within the `limit` or is reported as reasoning. Twice that is let pass, for what templates
    add and limits that are kept loosely, and `UNSEEN` for what a server adds or thinks by itself.
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
    """Whether the server refuses us, and not this one question: asking on would be of no use."""
    status = getattr(error, "status_code", None)
    return (
        status in _REFUSALS
        or getattr(error, "code", None) == "insufficient_quota"
        or (status in _REFUSALS_AT_FIRST and not answered_before)
    )


def is_too_long(error: Exception) -> bool:
    """Whether the prompt is over the context, by OpenAI's code or vLLM's and llama.cpp's words."""
    said = words_of(error)
    known = getattr(error, "code", None) == "context_length_exceeded"
    return known or "maximum context length" in said or "available context size" in said


def is_passing(error: Exception) -> bool:
    """Lost connections, broken answers, and what the server says is only for now."""
    status = getattr(error, "status_code", None)
    return status is None or status == 200 or status in _TRY_AGAIN or status >= 500


def was_reached(error: Exception) -> bool:
    """Whether there is a server at all that answered something."""
    return error.reached if isinstance(error, Broken) else hasattr(error, "status_code")


def headers_of(error: Exception) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return {} if response is None else response.headers


def words_of(error: Exception) -> str:
    """The server's own words, where it said any."""
    said = _said(getattr(error, "body", None))
    status = getattr(error, "status_code", None)
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return f"{said or error}{cause}" + (f" [HTTP {status}]" if status else "")


def _said(body: Any) -> str | None:
    if isinstance(body, Mapping):
        found = body.get("message") or body.get("detail") or body.get("error")
        return found if isinstance(found, str) else None
    return body if isinstance(body, str) else None
