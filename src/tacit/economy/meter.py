"""What is played while somebody looks: tokens by model, and the episodes that failed."""

from tacit.types import Episode, Usage


class Meter:
    """Listens to episodes. Silent arms and failed episodes used tokens too."""

    def __init__(self) -> None:
        self.failed: list[Episode] = []
        self._used: dict[str, Usage] = {}

    def add(self, episode: Episode) -> None:
        for call in episode.calls:
            self._used[call.model] = self._used.get(call.model, Usage()) + call.usage
        if episode.grade is None:
            self.failed.append(episode)

    def take(self) -> dict[str, Usage]:
        """Tokens by model since they were last taken."""
        used, self._used = self._used, {}
        return used
