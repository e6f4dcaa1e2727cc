"""A judge for tasks with no reference answer: a model, a rubric, a mark out of ten.

The answer is quoted in the judge's prompt, like any agent's text. If the judge gives no mark, that
is an error, never a 0. An answer too long for the prompt is a 0.
"""

from collections.abc import Callable

from tacit.config import JudgeConfig
from tacit.engine.base import Engine, Request, Sampling, derive_seed
from tacit.errors import GradingError, Overflow, PromptTooLong
from tacit.graders.math import number_in
from tacit.grading import grade
from tacit.team.prompts import build
from tacit.types import Call, Grade, Message, Prompt, Task

TOP_MARK = 10
ASK = f"Give a whole mark from 0 (useless) to {TOP_MARK} (perfect) within \\boxed{{}}."


class Judge:
    """Grades tasks whose grader is `judge`; all others go to their own grader."""

    def __init__(self, engine: Engine, config: JudgeConfig) -> None:
        self._engine = engine
        self._config = config
        self.on_call: Callable[[Call], None] = lambda call: None
        """Called with each of the judge's own model calls, which are in no episode."""

    async def __call__(self, task: Task, text: str) -> Grade:
        if task.grader != "judge":
            return await grade(task, text)
        try:
            said = await self._ask(task, text)
        except PromptTooLong as error:
            if error.limit is None:
                await self._ask(task, "")  # raises too if the rubric alone is too long
            elif len(self._engine.encode(self._prompt(task, ""))) > error.limit:
                raise
            raise Overflow(f"judge: {error}, because of the answer") from None
        reward = _mark(said) / TOP_MARK
        return Grade(
            reward=reward,
            right=reward >= self._config.pass_mark,
            answer=text[:200],
            note=said,
        )

    async def _ask(self, task: Task, answer: str) -> str:
        messages = self._prompt(task, answer)
        request = Request(
            messages=messages,
            prompt_ids=self._engine.encode(messages),
            sampling=Sampling(max_tokens=self._config.max_tokens),
            seed=derive_seed("judge", task.id),
        )
        done = await self._engine.generate(request)
        self.on_call(
            Call(
                agent="judge",
                model=self._engine.model,
                messages=messages,
                text=done.text,
                stop=done.stop,
                usage=done.usage,
                reused=done.reused,
            )
        )
        return done.text

    def _prompt(self, task: Task, answer: str) -> Prompt:
        return build(
            "judge",
            task.question,
            {"answer": [Message("", answer)]},
            agent="judge",
            instruction=f"{self._config.rubric.strip()} {ASK}",
        )


def _mark(text: str) -> float:
    mark = number_in(text)
    if mark is None or not 0 <= mark <= TOP_MARK:
        raise GradingError(f"the judge gave no mark from 0 to {TOP_MARK}: {text[:100]!r}")
    return mark
