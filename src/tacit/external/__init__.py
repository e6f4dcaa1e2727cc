"""Teams whose control flow lives in an external program, such as a LangGraph graph (extra `serve`).

The program asks its models at a URL of ours, and each of its calls is a turn of an episode like any
other: token ids, log-probabilities, silence. So it can be evaluated and trained. Reading order:
endpoint (what is recorded, and HTTP), program (the topology `tacit.external:app`).
"""

from tacit.external.program import app

__all__ = ["app"]
