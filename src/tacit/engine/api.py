"""Any OpenAI-compatible URL, text only: bounded concurrency, retries with backoff, usage counted.

It cannot condition on silence, has no log-probabilities and caches nothing.
"""

import asyncio
import json
import os
import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tacit.engine.base import Completion, Request
from tacit.errors import ConfigError, EngineError
from tacit.types import ChatMessage, Choice, Stop, Usage

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_TRY_AGAIN = {408, 409, 425, 429}


class _Incomplete(Exception):
    """The server answered, but not with a whole completion."""


class ApiEngine:
    """Example: ApiEngine("gpt-4o-mini"), or ApiEngine("my-model", base_url="http://localhost:8000/v1")"""

    policy = ""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 16,
        timeout: float = 120.0,
        retries: int = 6,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(
                "API models need the openai client: pip install 'tacit[api]'"
            ) from error
        key = os.environ.get(api_key_env)
        if not key:
            raise ConfigError(
                f"no API key for `{model}`: set the environment variable {api_key_env} "
                "(to any word, if the server needs none)"
            )
        self.model = model
        self._openai = openai
        self._client = openai.AsyncOpenAI(
            api_key=key, base_url=base_url, timeout=timeout, max_retries=0
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._retries = retries

    def encode(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        return ()

    def silence_ids(self) -> tuple[int, ...]:
        return ()

    async def generate(self, request: Request) -> Completion:
        if request.silence and request.silence.choice is not Choice.FREE:
            raise EngineError(f"{self.model}: an API model cannot be told to speak or be silent")
        attempt = 0
        while True:
            try:
                async with self._slots:
                    return await self._call(request)
            except (self._openai.OpenAIError, _Incomplete, json.JSONDecodeError) as error:
                if attempt >= self._retries or not _worth_another_try(error):
                    raise EngineError(f"{self.model}: {_message(error)}") from error
                await asyncio.sleep(_wait(error, attempt))
                attempt += 1

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, request: Request) -> Completion:
        sampling = request.sampling
        response: Any = await self._client.chat.completions.create(
            model=self.model,
            messages=[{"role": m.role, "content": m.content} for m in request.messages],  # type: ignore[misc]
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=request.seed,
            extra_body={"top_k": sampling.top_k} if sampling.top_k else None,
        )
        if not getattr(response, "choices", None):
            raise _Incomplete("the server's answer holds no choices")
        if response.usage is None:
            raise EngineError(
                f"{self.model}: the server reports no usage, so nothing can be counted"
            )
        choice = response.choices[0]
        return Completion(
            text=choice.message.content or "",
            stop=Stop.LENGTH if choice.finish_reason == "length" else Stop.EOS,
            usage=_usage(response.usage),
            model=response.model or self.model,
        )


def _usage(reported: Any) -> Usage:
    prompt = getattr(reported, "prompt_tokens_details", None)
    generated = getattr(reported, "completion_tokens_details", None)
    return Usage(
        prompt=reported.prompt_tokens,
        generated=reported.completion_tokens,
        cached=getattr(prompt, "cached_tokens", None) or 0,
        reasoning=getattr(generated, "reasoning_tokens", None) or 0,
    )


def _worth_another_try(error: Exception) -> bool:
    """Lost connections, broken answers, and what the server says is only for now."""
    status = getattr(error, "status_code", None)
    if status is None or status == 200:
        return True
    spent = getattr(error, "code", None) == "insufficient_quota"
    return (status in _TRY_AGAIN or status >= 500) and not spent


def _wait(error: Exception, attempt: int) -> float:
    """What the server asks for, or else exponential backoff with jitter."""
    response = getattr(error, "response", None)
    asked = _retry_after(response.headers.get("retry-after")) if response is not None else None
    if asked is not None:
        return min(asked, _LONGEST_WAIT)
    longest: float = min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT)
    return longest * random.uniform(0.5, 1.0)


def _retry_after(header: str | None) -> float | None:
    """Seconds from a Retry-After header, which holds a number or a date."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _message(error: Exception) -> str:
    """The server's own words, where it said any."""
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    status = getattr(error, "status_code", None)
    cause = f" ({error.__cause__})" if error.__cause__ else ""
    return f"{said or error}{cause}" + (f" [HTTP {status}]" if status else "")
