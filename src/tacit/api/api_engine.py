"""The API engine: chat completions of any OpenAI-compatible URL, with retries and a cache.

Text only: it cannot condition on silence and has no log-probabilities of tokens. The key is read
from the environment and never written. See also `limits.py`, `cache.py` and `answer.py`.
"""

import asyncio
import json
import os
import random
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit.api.answer import (
    UNSEEN,
    Broken,
    check_counts,
    is_refusal,
    is_temporary,
    is_too_long,
    read_answer,
    was_reached,
    words_of,
)
from tacit.api.cache import AnswerCache, cache_key
from tacit.api.limits import Patience, RateLimiter, backoff, now, retry_after
from tacit.config import ModelConfig
from tacit.engine.base import Account, Completion, Request, TextOnly
from tacit.engine.tool_syntax import loaded, template_tools
from tacit.errors import ConfigError, EngineError, PromptTooLong, Refused
from tacit.types import ChatMessage, Choice, Receipt

LETTERS_A_TOKEN = 4


def open_api(name: str, config: ModelConfig, account: Account | None = None) -> "ApiEngine":
    """The ledger knows the model by its id, not by its name in the config."""
    return ApiEngine(config, account)


class ApiEngine(TextOnly):
    """Example: ApiEngine(ModelConfig(engine="api", model="my-model", base_url="http://host/v1"))"""

    policy = ""

    def __init__(self, config: ModelConfig, account: Account | None = None) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(
                "API models need the openai client: pip install 'tacit[api]'"
            ) from error
        assert config.model is not None, "checked by ModelConfig"
        key = os.environ.get(config.api_key_env)
        if not key:
            raise ConfigError(
                f"no API key for `{config.model}`: set the environment variable "
                f"{config.api_key_env} (to any word, if the server needs none)"
            )
        self.model = config.model
        self._config = config
        self._account = account or Account()
        self._errors = openai.OpenAIError
        self._key = key
        self._client = openai.AsyncOpenAI(
            api_key=key, base_url=config.base_url, timeout=config.timeout, max_retries=0
        )
        self._limiter = RateLimiter(
            config.concurrency, config.requests_per_minute, config.tokens_per_minute
        )
        self._patience = Patience(config.deadline)
        self._cache = _open_cache(config, self._account.cache)
        self._served = self._account.served.get(self.model)
        self._seen = {self._served}
        self._refusal: str | None = None
        self._generated: float | None = None
        """Running mean of a call's generated tokens."""

    async def generate(self, request: Request) -> Completion:
        if request.silence and request.silence.choice is not Choice.FREE:
            raise EngineError(f"{self.model}: an API model cannot be told to speak or be silent")
        body = self._body(request)
        key = self._cache_key(request, body)
        if self._cache is None or key is None:
            return await self._ask(request.messages, body)
        async with self._cache.turns.alone(key):
            kept = self._cache.get(key)
            if kept is not None:
                self._notice(kept)
                return kept
            answer = await self._ask(request.messages, body)
            self._cache.put(key, answer)
            return answer

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: Request) -> dict[str, Any]:
        """The request's other fields; `parameters` of the config take precedence."""
        sampling = request.sampling
        body = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p if sampling.top_p < 1 else None,
            "top_k": sampling.top_k or None,
            "seed": request.seed if sampling.temperature else None,
            self._config.max_tokens_name: sampling.max_tokens,
            "tools": template_tools(request.tools) or None,
            "tool_choice": None if request.may_call or not request.tools else "none",
            **self._config.parameters,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _cache_key(self, request: Request, body: Mapping[str, Any]) -> str | None:
        """None if the answer may not be cached. Sampled answers are told apart by their seed."""
        greedy = body.get("temperature") == 0
        if self._cache is None or not (greedy or self._config.cache == "all"):
            return None
        return cache_key(
            url=str(self._client.base_url),
            model=self.model,
            parameters=body,
            messages=[
                (message.role, message.content, *map(astuple, message.tool_calls))
                for message in request.messages
            ],
            sample=None if greedy else request.seed,
        )

    async def _ask(self, messages: tuple[ChatMessage, ...], body: Mapping[str, Any]) -> Completion:
        """One answer, after as many attempts as it takes and patience allows."""
        asked_at, began, failure, attempt = now(), None, None, 0
        while True:
            async with self._limiter.attempt(
                self._expected(messages, body), lambda: self._check(asked_at)
            ) as settle:
                started = now()
                began = began or started
                left = self._patience.left(began)
                if failure and left <= 0:
                    raise failure
                try:
                    answer = await self._attempt(messages, body, left)
                    settle(answer.usage.total)
                    self._charge(answer)
                    return answer
                except (self._errors, Broken) as error:
                    failure, wait = self._failed(error, attempt, began, started)
            await asyncio.sleep(wait)
            attempt += 1

    async def _attempt(
        self, messages: tuple[ChatMessage, ...], body: Mapping[str, Any], left: float
    ) -> Completion:
        limit = min(self._config.timeout, left)
        try:
            async with asyncio.timeout(limit):
                raw: Any = await self._client.chat.completions.with_raw_response.create(
                    model=self.model,
                    messages=[_sent(message) for message in messages],  # type: ignore[misc]
                    extra_body=body,
                )
        except TimeoutError:
            raise Broken(f"no whole answer in {limit:.3g} s", reached=False) from None
        answer = read_answer(raw.headers.get("content-type", ""), raw.content, self.model)
        check_counts(
            answer.usage,
            sent=sum(len(m.content.encode()) + len(str(m.tool_calls)) for m in messages)
            + len(str(body.get("tools", ""))),
            limit=int(body.get(self._config.max_tokens_name, UNSEEN)),
            received=len(raw.content),
        )
        return answer

    def _failed(
        self, error: Exception, attempt: int, began: float, started: float
    ) -> tuple[EngineError, float]:
        """The error to report and the seconds until the next attempt; raises if none is left."""
        said = f"{self.model}: {words_of(error)}".replace(self._key, "***")
        if is_refusal(error, answered_before=self._patience.answered):
            self._refusal = said
            raise Refused(said) from error
        if not is_temporary(error):
            raise (PromptTooLong if is_too_long(error) else EngineError)(said) from error
        said = self._patience.failed(started, said, reached=was_reached(error))
        tries = "once" if attempt == 0 else f"{attempt + 1} times"
        failure, wait = EngineError(f"{said} (tried {tries})"), backoff(attempt)
        headers = getattr(getattr(error, "response", None), "headers", {})
        asked = retry_after(headers.get("retry-after"), headers.get("retry-after-ms"))
        if asked is not None:
            wait = asked * random.uniform(1.0, 1.1)
            self._limiter.hold(min(asked, self._config.deadline))
        if attempt >= self._config.retries or wait > self._patience.left(began):
            raise failure from error
        return failure, wait

    def _check(self, asked_at: float) -> None:
        if self._refusal:
            raise Refused(self._refusal)
        self._patience.check(asked_at)

    def _expected(self, messages: tuple[ChatMessage, ...], body: Mapping[str, Any]) -> float:
        """A guess at the tokens of a call, before it is made."""
        letters = sum(len(message.content) for message in messages)
        longest = float(body.get(self._config.max_tokens_name, 0))
        return letters / LETTERS_A_TOKEN + (longest if self._generated is None else self._generated)

    def _charge(self, answer: Completion) -> None:
        self._patience.succeeded()
        mean = self._generated
        new = float(answer.usage.generated)
        self._generated = new if mean is None else 0.9 * mean + 0.1 * new
        self._account.on_receipt(
            Receipt(
                model=self.model,
                served=answer.model,
                fingerprint=answer.fingerprint,
                usage=answer.usage,
                time=datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )
        self._notice(answer)

    def _notice(self, answer: Completion) -> None:
        """Warn if the model behind the URL has changed."""
        served = answer.model, answer.fingerprint
        if self._served and served not in self._seen:
            was, is_now = (" ".join(filter(None, pair)) for pair in (self._served, served))
            self._account.warn(
                f"{self.model}: the server now answers as `{is_now}`, before as `{was}`; "
                "results from before and after may not be comparable"
            )
        self._served = served
        self._seen.add(served)


def _sent(message: ChatMessage) -> dict[str, Any]:
    """A message as the API takes it. Servers refuse a whole request for one malformed call."""
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        (call,) = message.tool_calls
        return sent | {"tool_call_id": call.id}
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": re.sub(r"[^\w-]", "_", call.name, flags=re.ASCII) or "_",
                    "arguments": _as_object(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    return sent


def _as_object(arguments: str) -> str:
    """The arguments as a JSON object, which servers insist on; other text is put inside one."""
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(arguments), dict):
            return arguments  # unchanged, so that the server finds the prompt in its cache
    tree = loaded(arguments or "{}")
    return json.dumps(tree if isinstance(tree, dict) else {"malformed": arguments})


def _open_cache(config: ModelConfig, folder: Path | None) -> AnswerCache | None:
    """The cache, unless the run has no folder or its config wants none."""
    if folder is None or config.cache == "none":
        return None
    place = Path(config.cache_folder) if config.cache_folder else folder
    return AnswerCache(place / (re.sub(r"[^\w.-]+", "_", str(config.model)) + ".jsonl"))
