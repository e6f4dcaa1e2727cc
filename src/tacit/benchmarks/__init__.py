"""The benchmarks: how the rows of their files become tasks, and the chess grader.

The core finds each by its name in `tacit.tasks.BENCHMARKS`, and the grader in
`tacit.grading.GRADERS`. The files themselves are not part of Tacit. `arithmetic` and `clues` have
none: their tasks are generated, and they are found in `tacit.tasks.GENERATED`.
"""
