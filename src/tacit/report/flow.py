"""Who speaks to whom: messages and tokens by agent and round, and who read them."""

from dataclasses import dataclass, field
from typing import Any

from tacit.report.tolerant import number, tree_at, trees_at
from tacit.types import told_of_silence

Node = tuple[int, str]
"""Round and agent."""


@dataclass(slots=True)
class Flow:
    """Sums over the episodes of one source."""

    episodes: int = 0
    nodes: dict[Node, dict[str, float]] = field(default_factory=dict)
    links: dict[tuple[Node, Node], dict[str, float]] = field(default_factory=dict)

    def add(self, calls: list[dict[str, Any]]) -> None:
        """Count one episode. A message was read by every agent whose prompt holds its text.

        Two agents may say the same. So the reader's longest chain of tokens must also have room for
        the sender's.
        """
        self.episodes += 1
        spoken: list[tuple[Node, int, str, int, int]] = []
        for call in calls:
            node = (_whole(call.get("round")), str(call.get("agent", "?")))
            tokens = _whole(tree_at(call, "usage").get("generated"))
            text = call.get("text")
            text = text.strip() if isinstance(text, str) else ""
            prompt = "\n".join(str(m.get("content", "")) for m in trees_at(call, "messages"))
            depth, path = node[0], _whole(call.get("path_tokens"))
            for other, before, said, size, earlier in spoken:
                if said and said in prompt and (not path or earlier + tokens <= path):
                    depth = max(depth, before + 1)
                    _count(self.links.setdefault((other, node), {}), size)
            silent = bool(call.get("silent"))
            sums = self.nodes.setdefault(node, {"silent": 0, "choices": 0, "hushed": 0, "depth": 0})
            _count(sums, tokens)
            sums["silent"] += silent
            sums["choices"] += _may_be_silent(call)
            sums["hushed"] += tokens * silent
            sums["depth"] = max(sums["depth"], depth)
            if not (silent or call.get("tool_calls")):  # nobody hears what a tool is asked
                spoken.append((node, depth, text, tokens, path))

    @property
    def silence(self) -> float | None:
        """Of the calls that could have been silent, the share that was."""
        choices = sum(sums["choices"] for sums in self.nodes.values())
        silent = sum(sums["silent"] for sums in self.nodes.values())
        return silent / choices if choices else None

    def to_json(self) -> dict[str, Any]:
        places = {node: place for place, node in enumerate(self.nodes)}
        return {
            "episodes": self.episodes,
            "nodes": [
                {"round": node[0], "agent": node[1], **sums} for node, sums in self.nodes.items()
            ],
            "links": [
                {"from": places[a], "to": places[b], **sums} for (a, b), sums in self.links.items()
            ],
        }


def _may_be_silent(call: dict[str, Any]) -> bool:
    """As `Call.may_be_silent`, which older run folders do not hold."""
    known = call.get("may_be_silent")
    if known is not None:
        return bool(known)
    told = told_of_silence(str(message.get("content")) for message in trees_at(call, "messages"))
    return bool(call.get("silent")) or call.get("silence_logprob") is not None or told


def _whole(value: Any) -> int:
    return int(number(value) or 0)


def _count(sums: dict[str, float], tokens: int) -> None:
    sums["messages"] = sums.get("messages", 0) + 1
    sums["tokens"] = sums.get("tokens", 0) + tokens
