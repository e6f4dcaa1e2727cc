"""A run: its folder on disk, what it opens, and what it spends."""
