"""Another tool of the same name as one elsewhere."""


def add(a: int) -> int:
    """Adds one."""
    return a + 1
