"""Runs one of `examples/apps` in a process of its own, and prints what came of it as JSON.

python -m tests.integration.run_app APP BASE_URL QUESTION
python -m tests.integration.run_app APP --replay FOLDER QUESTION EPISODE [INDEX TEXT]
"""

import asyncio
import json
import sys
from pathlib import Path

from tacit.external.program import answer_of
from tacit.external.replay import Change, Replayed, replaying
from tacit.types import Task

APPS = Path(__file__).parents[2] / "examples" / "apps"


def task(question: str) -> Task:
    return Task(id="app", question=question, answer="", grader="")


async def replayed(app: str, folder: str, question: str, episode: str, *how: str) -> Replayed:
    change = Change(int(how[0]), how[1]) if how else None
    async with replaying(folder) as replays:
        return await replays.run(f"{app}:solve", task(question), episode, change)


def main(app: str, where: str, *rest: str) -> None:
    sys.path.insert(0, str(APPS))
    if where != "--replay":
        answer = asyncio.run(answer_of(f"{app}:solve", where, task(rest[0])))
        print(json.dumps({"answer": answer}))
        return
    played = asyncio.run(replayed(app, *rest))
    told = {"answer": played.answer, "error": played.error, "sources": played.sources}
    print(json.dumps(told | {"heard": [call.messages[-1].content for call in played.calls]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
