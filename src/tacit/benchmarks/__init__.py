"""The benchmarks: how the rows of their files become tasks, and the chess grader.

The core finds each by its name in `tacit.tasks.BENCHMARKS`, and the grader in
`tacit.grading.GRADERS`. The files themselves are not part of Tacit. `clues` has none: its tasks are
generated, and it is found in `tacit.tasks.GENERATED`.
"""
