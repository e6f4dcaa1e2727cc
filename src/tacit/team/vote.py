"""Majority vote over messages, by the answer that the task's grader would read."""

from collections import Counter
from collections.abc import Sequence

from tacit.grading import read_answer
from tacit.types import Message, Task


def majority(task: Task, messages: Sequence[Message]) -> Message:
    """The first message with the most common answer. Messages without an answer have no vote."""
    answers = [read_answer(task, message.text) for message in messages]
    votes = Counter(answer for answer in answers if answer)
    if not votes:
        return messages[0]
    most = max(votes.values())
    return next(m for m, a in zip(messages, answers, strict=True) if votes.get(a) == most)
