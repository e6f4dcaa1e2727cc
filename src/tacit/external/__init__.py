"""Teams whose control flow lives in an external program, such as a LangGraph graph (extra `serve`).

Trained: the program asks its models at a URL of ours, and each of its calls is a turn of an episode
like any other: token ids, log-probabilities, silence. Reading order: endpoint (what is recorded, and
HTTP), program (the topology `tacit.external:app`).

Recorded: its calls pass through to its own server unchanged, and what was said is kept. Reading
order: passing (HTTP), wire (what was said), calls (on disk), reading (as episodes), recording
(`tacit record`), answers and replay (with one message changed). Both share loopback.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.external.program import app

if TYPE_CHECKING:
    from tacit.external.reading import Recording, read_recording, recorded_episodes
    from tacit.external.replay import Change, Replayed, Replays, Source, replaying

_LAZY = {
    "Change": "replay",
    "Recording": "reading",
    "Replayed": "replay",
    "Replays": "replay",
    "Source": "replay",
    "read_recording": "reading",
    "recorded_episodes": "reading",
    "replaying": "replay",
}
"""What needs the extra `serve`, imported when it is asked for."""

__all__ = [
    "Change",
    "Recording",
    "Replayed",
    "Replays",
    "Source",
    "app",
    "read_recording",
    "recorded_episodes",
    "replaying",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
