"""Teams whose control flow lives in an external program, such as a LangGraph graph (extra `serve`).

Trained: the program asks its models at a URL of ours, and each of its calls is a turn of an episode
like any other: token ids, log-probabilities, silence. Reading order: endpoint (the session, and
HTTP), program (the topology `tacit.external:app`).

Recorded: its calls pass through to its own server unchanged, and what was said is kept. Reading
order: passing (HTTP), wire (what was said), calls (on disk), reading (as episodes), recording
(`tacit record`), answers and replay (with one message changed). Both share loopback.
"""

from tacit.external.program import app

__all__ = ["app"]
