"""Many streaming clients at once, and what became of each of their requests."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

from tacit.tasks import load_tasks

QUESTIONS = [task.question for task in load_tasks("arithmetic", split="test", limit=200)]


@dataclass
class Told:
    """What the clients saw."""

    answers: dict[str, set[str]] = field(default_factory=dict)
    """Question → the different answers that were heard to the end."""
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    @property
    def whole(self) -> int:
        return self.outcomes["whole"]


async def load(
    url: str, clients: int, model: str, go_on: Callable[[], bool], told: Told | None = None
) -> Told:
    """Every client asks again as soon as it is answered, until told to stop or refused."""
    told = told or Told()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx2.AsyncClient(timeout=120, limits=limits) as http:

        async def client(number: int) -> None:
            asked = number
            while go_on():
                question = QUESTIONS[asked % len(QUESTIONS)]
                asked += clients
                outcome = await _ask(http, url, model, question, told)
                told.outcomes[outcome] += 1
                if outcome != "whole":
                    return

        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(client(number))
    return told


async def _ask(http: httpx2.AsyncClient, url: str, model: str, question: str, told: Told) -> str:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": question}]}
    began = time.perf_counter()
    try:
        async with http.stream("POST", f"{url}/chat/completions", json=body) as reply:
            if reply.status_code != 200:
                return str(reply.status_code)
            try:
                lines = [line async for line in reply.aiter_lines() if line]
            except httpx2.HTTPError as error:
                return f"broke off ({type(error).__name__})"
    except httpx2.ConnectError:
        return "refused"
    except httpx2.HTTPError as error:
        return f"no reply ({type(error).__name__})"
    if lines[-1] != "data: [DONE]":
        return "cut short"
    pieces = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    text = "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces)
    told.answers.setdefault(question, set()).add(text)
    told.seconds.append(time.perf_counter() - began)
    return "whole"
