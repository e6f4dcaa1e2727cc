"""What a check found."""


class Ailment(Exception):
    """What is wrong, and how to mend it."""

    def __init__(self, wrong: str, fix: str, state: str = "fail") -> None:
        super().__init__(f"{wrong}; fix: {fix}")
        self.state = state
