"""Playing episodes, and the groups of episodes that a training step compares."""
