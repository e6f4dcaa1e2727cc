"""How each kind of answer is read and compared: mathematics, choices, short spans of words.

The core finds these by name (`tacit.grading.GRADERS`). Code is graded by `sandbox`, chess moves by
`benchmarks`.
"""
