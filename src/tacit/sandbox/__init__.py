"""Code that models write, run in isolation and graded by its tests. Linux only."""
