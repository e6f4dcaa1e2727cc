"""Benchmark files in the shape of the originals, with a few rows of our own making."""

import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


_HALL = (
    "The hall has 2 doors. The doors are 3 feet wide. It is lit by 4 lamps. It was built 50 years "
    "ago. It took 6 months."
)


def _gsm8k(*sums: tuple[int, int]) -> Rows:
    return [
        {
            "question": f"A shelf holds {a} books. {_HALL} How many books are on {b} such shelves?",
            "answer": f"{a} * {b} = <<{a}*{b}={a * b}>>{a * b} books.\n#### {a * b:,}",
        }
        for a, b in sums
    ]


def _math(number: int, solution: str, level: str, subject: str, split: str) -> dict[str, Any]:
    return {
        "problem": f"Find the value of thing number {number}.",
        "level": level,
        "type": subject,
        "solution": solution,
        "unique_id": f"{split}/{subject.lower()}/{number}.json",
    }


HALF = r"So it is $\boxed{\frac{1}{2}}$."
MATH_TEST = [
    _math(1, HALF, "Level 2", "Algebra", "test"),
    _math(2, r"First \boxed{3}, no: $\boxed{\{1, 2\}}$", "Level 5", "Geometry", "test"),
]
MATH500 = {
    "problem": MATH_TEST[0]["problem"],
    "answer": r"\frac{1}{2}",
    "level": 2,
    "subject": "Algebra",
    "unique_id": MATH_TEST[0]["unique_id"],
}
DOUBLE = {
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6",
}
TREE = {
    "text": "Write a function that adds up a chain.",
    "code": "class Node:\r\n    def __init__(self, v, n=None):\r\n        self.v, self.n = v, n\r\n"
    "def total(n):\r\n    return n.v + total(n.n) if n else 0",
    "test_setup_code": "chain = Node(4, Node(5))",
    "test_list": ["assert total(chain) == 9", "assert total(None) == 0"],
}
SQUARE = {
    "prompt": "Write a function that squares a number.",
    "code": "def square(x):\n    return x * x",
    "test_imports": ["import math"],
    "test_list": ["assert square(3) == 9", "assert square(4) == math.pow(4, 2)"],
}
MATES = [
    {"input": "1. f3 e5 2. g4", "target": "Qh4#", "target_scores": {"Qh4#": 1, "a6": 0}},
    {"input": "1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4.", "target": "Qxf7#", "target_scores": {}},
]
SENTENCES = [
    {"input": "A goalkeeper hit a triple", "target_scores": {"plausible": 0, "implausible": 1}},
    {"input": "A striker took a corner.", "target_scores": {"plausible": 1, "implausible": 0}},
]
ASKED = 'Is the following sentence plausible? "A striker took a corner."'
CAN_IT = {
    "question": "Can a brick float on a lake?",
    "answer": False,
    "facts": ["Bricks are denser than water.", "What is denser than water sinks."],
}
DOES_IT = {
    "question": "Does a week outlast six days?",
    "answer": True,
    "facts": ["A week has seven days."],
}
DOUBLE_PLUS = {
    **DOUBLE,
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x.\n    >>> double(2)\n    4\n    """\n',
    "base_input": [[2], [-3]],
    "plus_input": [[0.1], [[1, 2]]],
    "atol": 0,
}
ENDS_PLUS = {
    "task_id": "Mbpp/11",
    "prompt": '"""\nWrite a function to add the ends.\nassert ends([(1, 2), (3, 4)]) == 5\n"""\n',
    "entry_point": "ends",
    "canonical_solution": "\ndef ends(pairs):\n    return pairs[0][0] + pairs[-1][-1]\n",
    "base_input": [[[[1, 2], [3, 4]]], [[[0, 1]]]],
    "plus_input": [[[[5, 6, 7]]]],
    "atol": 0,
    "assertion": "\nassert ends([(1, 2), (3, 4)]) == 5\nassert ends([(0, 1)]) == 1\n",
}
HIDDEN = {
    "id": 7,
    "description": "You and two others choose a road.",
    "shared_information": ["The hill road is short.", "The river road is wide."],
    "hidden_information": [
        "A tree lies on the hill road.",
        "The river road is dry.",
        "It is noon.",
    ],
    "possible_answers": ["Hill road", "River road"],
    "correct_answer": "River road",
}


def multihop(number: int, paragraphs: int = 8, supporting: int = 2) -> dict[str, Any]:
    """A question about two towns, the first of which it names."""
    return {
        "id": f"row {number}",
        "question": f"Which river does the twin of Town {number} lie on?",
        "answer": "the Long River",
        "aliases": ["Long River"],
        "type": "bridge",
        "paragraphs": [
            {
                "title": f"Town {number} (Inland)" if not n else f"Twin {n}",
                "text": f"Text {n}.",
                "supporting": n < supporting,
            }
            for n in range(paragraphs)
        ],
    }


FILES: dict[str, Any] = {
    "gsm8k/train.jsonl": _gsm8k((6, 3), (25, 50)),
    "gsm8k/test.jsonl": _gsm8k((7, 4)),
    "math/train.jsonl": [
        _math(3, r"It is option (A): $\boxed{}$", "Level ?", "Algebra", "train"),
        _math(1, HALF, "Level 2", "Algebra", "train"),
    ],
    "math/test.jsonl": MATH_TEST,
    "math500/test.jsonl": [MATH500],
    "aime24/test.jsonl": [{"problem": "How many?", "answer": "025", "solution": r"\boxed{25}"}],
    "amc23/test.jsonl": [{"question": "How many?", "answer": 27.0}],
    "minerva_math/test.jsonl": [
        {"problem": "How heavy?", "solution": r"About \boxed{1.6} kg.", "type": "Physics"}
    ],
    "olympiadbench/test.jsonl": [
        {"context": "Let x be 1.", "question": "x?", "final_answer": ["1"], "subfield": "Algebra"},
        {"context": None, "question": "Roots?", "final_answer": ["1", "2"], "subfield": "Algebra"},
    ],
    "humaneval/test.jsonl": [DOUBLE],
    "mbpp/mbpp.jsonl": [{**TREE, "task_id": number} for number in (3, 11, 600, 974)],
    "mbpp/sanitized-mbpp.json": [{**SQUARE, "task_id": number} for number in (3, 11, 600, 974)],
    "strategyqa/train.json": [CAN_IT],
    "strategyqa/dev.json": [DOES_IT],
    "strategyqa/bigbench_task.json": {
        "examples": [
            {"input": CAN_IT["question"], "target_scores": {"Yes": 0, "No": 1}},
            {"input": DOES_IT["question"], "target_scores": {"Yes": 1, "No": 0}},
        ]
    },
    "sports_understanding/bbh.json": {"examples": [{"input": ASKED, "target": "yes"}]},
    "sports_understanding/bigbench_task.json": {"examples": SENTENCES},
    "checkmate_in_one/task.json": {"examples": MATES},
    "checkmate_in_one/meta_prompting_250.jsonl": MATES[:1],
    "hotpotqa/all.jsonl": [multihop(n) for n in range(1005)],
    "2wiki/all.jsonl": [multihop(n) for n in range(664)],
    "musique/all.jsonl": [multihop(n) for n in range(300)],
    "humaneval_plus/HumanEvalPlus.jsonl": [DOUBLE_PLUS],
    "mbpp_plus/MbppPlus.jsonl": [ENDS_PLUS, {**ENDS_PLUS, "task_id": "Mbpp/601"}],
    "hiddenbench/benchmark_all_clean.json": [HIDDEN],
}


def write_files(folder: Path) -> Path:
    """Every benchmark's files; returns the folder."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = content if name.endswith(".jsonl") else [content]
        path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return folder
