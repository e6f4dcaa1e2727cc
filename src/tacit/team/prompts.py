"""Builds prompts. What one agent wrote enters another's prompt as quoted data.

A prompt consists of a *part* (which system text), the question, the agent's private *view* if the
task has one for it, and named context: `hint=…`, `draft=…`, `messages=[…]`, or any other name.
There are three forms: `tagged` (ours), `role_last` (the same with the system text last, so that the
prompts of one conversation share a prefix that caches can reuse) and `published` (AgentPO's, for
comparison). Not covered: a tokenizer's special tokens inside texts, which the engine neutralises.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from tacit.engine.base import SILENCE_MARKER
from tacit.registry import check_name
from tacit.types import ChatMessage, Message, Prompt

Context = Mapping[str, Sequence[Message]]

PARTS: dict[str, str] = {
    "solver": "{instruction}",
    "reviser": "{instruction} Improve your solution where the comment shows an error.",
    "hinter": "Give your teammate one short hint for this question. Do not answer it for them.",
    "critic": "Check your teammate's solution to this question. "
    "Name any error in one short remark.",
    "debater": "{instruction} Weigh what the other agents said.",
    "guide": "Several agents will debate this question. Give them one short piece of advice.",
    "speaker": "You are {agent} of a team that solves this question together. "
    "Add one short useful point.",
    "answerer": "You are {agent} of a team that solved this question together. {instruction}",
    "refiner": "{instruction} Correct your earlier solution where the feedback shows an error.",
    "self_critic": "Check this solution to the question. "
    "List its errors, or say that there are none.",
    "abstracter": "Name the general principles and facts that this question rests on. "
    "Do not solve it.",
    "role_picker": "Name the one expert best suited to answer this question, in a few words.",
    "expert": "You are an expert as described in the message below. {instruction}",
    "diversifier": "{instruction} Solve it in a way that differs from the earlier solutions.",
    "selector": "{instruction} Several solutions are given. Decide which is right and answer.",
    "evolver": "Describe, in one sentence, a new kind of expert for this question, "
    "unlike those listed.",
    "integrator": "{instruction} Combine your solution with what the other expert found.",
    "holder": "Your teammate must answer this question and cannot see what you see. "
    "Tell them, in one short sentence, the fact they need from it.",
    "quoter": "Your teammate must answer this question and cannot see your text. Reply with the "
    "number of the one sentence that they should see, for instance [1], and nothing else.",
    "inquirer": "You will have to answer this question. Ask your teammates, in one short question, "
    "for the fact you still lack.",
    "tester": "Your teammate wrote this code and cannot run it. "
    "Tell them, in one short remark, what to mend.",
    "judge": "You grade answers. {instruction}",
}
"""Our role texts. `{instruction}` is the task's answer format, `{agent}` the speaker's name."""

HELPING_PARTS = {part for part, text in PARTS.items() if "{instruction}" not in text}
"""Parts that are not told how the answer must be given, because they do not answer."""

SILENCE_SENTENCE = (
    f"If you have nothing useful to add, reply with exactly {SILENCE_MARKER} and nothing else."
)

INTRODUCTIONS: dict[str, str] = {
    "view": "Only you can see this:",
    "hint": "A teammate's hint:",
    "draft": "Solution so far:",
    "comment": "A teammate's comment:",
    "feedback": "Feedback:",
    "advice": "Advice:",
    "principles": "Principles:",
    "expert": "The expert:",
    "messages": "The conversation so far:",
    "solutions": "Earlier solutions:",
    "answer": "The answer to grade:",
}
"""The line above each kind of context, in the order they appear in a prompt. Kinds that are not
listed come last, under their name."""

TAGS = {"messages": "message", "solutions": "solution"}
TOOL_TAGS = ("observation", "tool_call", "tool_response")
"""Tags around what tools are asked and say."""
_BREAKS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""Characters besides the newline that some readers take for the end of a line."""
_FORGED_LABEL = re.compile(
    rf"((?:^|[{_BREAKS}])[^\w\n{_BREAKS}]*"
    r"(?:Problem|Question|Current\s+solution|Comment|Hint)[^\w\n:：]*)[:：](?:[^\w\n:：]*[:：])*",
    re.IGNORECASE | re.MULTILINE,
)
_FIELD = re.compile(r"\{(instruction|agent)\}")


def quote(tag: str, message: Message, kinds: Collection[str] = ()) -> str:
    """A message as data, which cannot close its own quotation or open another.

    `kinds` names the kinds of context in this prompt that INTRODUCTIONS does not list.
    """
    named = tag in TAGS.values() or (tag in kinds and message.agent)
    source = f' from="{message.agent}"' if named else ""
    return f"<{tag}{source}>\n{escaped(message.text, kinds)}\n</{tag}>"


def escaped(text: str, kinds: Collection[str] = ()) -> str:
    """The text without the tags of our prompts and of tool calls, which it could only forge."""
    return _forged_tag(frozenset(kinds)).sub("&lt;", text)


@cache
def _forged_tag(kinds: frozenset[str]) -> re.Pattern[str]:
    tags = "|".join([*INTRODUCTIONS, *TAGS.values(), *TOOL_TAGS, *sorted(kinds)])
    return re.compile(rf"<(?=[^\w<>]*(?:{tags})\b)", re.IGNORECASE)


def fill(template: str, *, instruction: str, agent: str) -> str:
    """Fill the fields of a role text in one pass, so that fields in the values stay as they are."""
    values = {"instruction": instruction, "agent": agent}
    return _FIELD.sub(lambda match: values[match[1]], template).strip()


def tagged(part: str, question: str, context: Context) -> str:
    """The user message in our form: the question, then each context under its line, in tags."""
    blocks = [question]
    own = [name for name in context if name not in INTRODUCTIONS]
    for name in (*INTRODUCTIONS, *own):
        if spoken := _spoken(context.get(name, ())):
            introduction = INTRODUCTIONS.get(name, f"{name.replace('_', ' ').capitalize()}:")
            tag = TAGS.get(name, name)
            quoted = [quote(tag, message, own) for message in spoken]
            blocks.append("\n".join([introduction, *quoted]))
    return "\n\n".join(blocks)


_THINK = " Let's think step by step and output the final answer within \\boxed{}."
PUBLISHED_USER: dict[str, tuple[str, Mapping[str, tuple[str, str]], str]] = {
    "hinter": ("", {}, ""),
    "critic": ("Question: ", {"draft": ("\n\nCurrent solution: ", "")}, ""),
    "solver": ("Problem: ", {"hint": (" (Hint: ", ")")}, _THINK),
    "reviser": (
        "Problem: ",
        {"draft": ("\n\nCurrent Solution: ", ""), "comment": ("\n\nComment: ", "")},
        _THINK,
    ),
}
"""AgentPO's user messages: before the question, around each context, at the end."""


def published(part: str, question: str, context: Context) -> str:
    """The user message in AgentPO's published form (its released code, commit 8987a7e).

    Falls back to our form for parts and context that AgentPO does not have.
    """
    said = {name: spoken for name, messages in context.items() if (spoken := _spoken(messages))}
    before, places, after = PUBLISHED_USER.get(part, ("", {}, ""))
    fits = said.keys() <= places.keys() and all(len(spoken) == 1 for spoken in said.values())
    if part not in PUBLISHED_USER or not fits:
        return tagged(part, question, context)
    quoted = [
        f"{opening}{_plain(said[name][0].text)}{closing}"
        for name, (opening, closing) in places.items()
        if name in said
    ]
    return "".join([before, question, *quoted, after])


PUBLISHED_PARTS = PARTS | {
    "solver": r"Please reason step by step, and put your final answer within \boxed{}.",
    "hinter": "Rewrite the question below to make it easier to understand.",
    "critic": "Given a question and its current solution, analyze the solution and provide "
    "concise, specific feedback identifying any errors, logical gaps, or missing justifications. "
    "Do not rewrite the solution, only highlight issues.",
    "reviser": "You have an opportunity to improve your solution. Please review Current Solution "
    "and Comment carefully. Correct errors and fill justification gaps if any.",
}
"""AgentPO's role texts as published; ours for the parts it does not have."""

FORMS: dict[str, tuple[Mapping[str, str], Callable[[str, str, Context], str]]] = {
    "tagged": (PARTS, tagged),
    "role_last": (PARTS, tagged),
    "published": (PUBLISHED_PARTS, published),
}


def build(
    part: str,
    question: str,
    context: Context,
    *,
    agent: str,
    instruction: str,
    form: str = "tagged",
    system: str | None = None,
    may_be_silent: bool = False,
) -> Prompt:
    """The chat messages of one call. `system` replaces the part's own text."""
    parts, user = FORMS[form]
    check_name("part", part, parts)
    told = fill(parts[part] if system is None else system, instruction=instruction, agent=agent)
    asked = user(part, question, context)
    if form == "role_last":
        told = f"{told} {SILENCE_SENTENCE}".strip() if may_be_silent else told
        return (ChatMessage("user", f"{asked}\n\n{told}" if told else asked),)
    messages = (ChatMessage("system", told),) if told else ()
    messages = (*messages, ChatMessage("user", asked))
    return tell_of_silence(messages) if may_be_silent else messages


def tell_of_silence(messages: Prompt) -> Prompt:
    """Append to the system text how to be silent."""
    if messages and messages[0].role == "system":
        told = f"{messages[0].content} {SILENCE_SENTENCE}".strip()
        return (ChatMessage("system", told), *messages[1:])
    return (ChatMessage("system", SILENCE_SENTENCE), *messages)


def _spoken(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if not message.silent]


def _plain(text: str) -> str:
    """Escape a text for the published form, which quotes with brackets and labels."""
    text = escaped(_FORGED_LABEL.sub(r"\1 -", text))
    out, opened = list(text), []
    for place, char in enumerate(text):
        if char == "(":
            opened.append(place)
        elif char == ")" and opened:
            opened.pop()
        elif char == ")":
            out[place] = "&#41;"
    for place in opened:
        out[place] = "&#40;"
    return "".join(out)
