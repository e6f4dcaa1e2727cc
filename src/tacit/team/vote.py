"""Majority vote over messages, by the answer that the task's grader would read."""

from collections import Counter
from collections.abc import Sequence

from tacit.grading import read_answer
from tacit.types import Message, Task


def majority(task: Task, messages: Sequence[Message]) -> Message:
    """The first message with the most common answer."""
    return messages[most_common(task, [message.text for message in messages])]


def most_common(task: Task, texts: Sequence[str]) -> int:
    """Index of the first text with the most common answer. Texts without an answer have no vote."""
    answers = [read_answer(task, text) for text in texts]
    votes = Counter(filter(None, answers))
    return max(range(len(answers)), key=lambda i: (votes[answers[i]], -i))
