"""Episodes as a recorder of somebody's program would give them: texts, usage and seconds."""

from tacit.traffic.prompt_pieces import flat, written
from tacit.types import Call, ChatMessage, Episode, Stop, ToolCall, Usage

Asked = str | tuple[str, str] | ChatMessage


def recorded(
    agent: str,
    text: str,
    *prompt: Asked,
    model: str = "m",
    seconds: float = 0.0,
    tools: tuple[ToolCall, ...] = (),
    path_tokens: int = 0,
) -> Call:
    """A call of a model with one token for each character that counts, to compute by hand.

    A plain string of the prompt is a user's message.
    """
    messages = tuple(
        one if isinstance(one, ChatMessage) else ChatMessage(*_pair(one)) for one in prompt
    )
    read = sum(len(line) for one in messages for line in _lines(one))
    return Call(
        agent=agent,
        model=model,
        messages=messages,
        text=text,
        stop=Stop.EOS,
        usage=Usage(prompt=read, generated=len(flat(text))),
        seconds=seconds,
        tool_calls=tools,
        path_tokens=path_tokens,
    )


def _pair(one: str | tuple[str, str]) -> tuple[str, str]:
    return ("user", one) if isinstance(one, str) else one


def _lines(message: ChatMessage) -> list[str]:
    calls = message.tool_calls if message.role == "assistant" else ()
    return [" ".join(line.split()) for line in written(message.content, calls).splitlines()]


def episode(*calls: Call, task: str = "t", answer: str = "", seconds: float = 0.0) -> Episode:
    return Episode(task_id=task, sample=0, calls=calls, answer=answer, seconds=seconds)
