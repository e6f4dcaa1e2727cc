"""Problems with other numbers: what is replaced, what follows, and what is refused."""

from pathlib import Path
from random import Random

import pytest

from experiments.variations import gsm8k, understand, varied

QUESTION = (
    "Natalia sold clips to 48 friends in April, and then she sold half as many in May. Total?"
)
SOLUTION = "48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72 altogether.\n#### 72"


def test_the_answer_follows_the_number() -> None:
    problem = understand(QUESTION, SOLUTION)
    assert problem is not None and problem.numbers == ("48",) and problem.answer == 72
    for seed in range(20):
        made = varied(problem, Random(seed))
        assert made is not None
        question, answer = made
        number = int(question.split("clips to ")[1].split()[0])
        assert number != 48 and 24 <= number <= 96 and number % 2 == 0, "half of it is whole"
        assert question == QUESTION.replace("48", str(number))
        assert int(answer) == number + number // 2


def test_round_numbers_stay_round_and_results_stay_positive() -> None:
    problem = understand(
        "A phone for $200 is $45 cheaper today. What does it cost?", "<<200-45=155>>155\n#### 155"
    )
    assert problem is not None
    for seed in range(20):
        made = varied(problem, Random(seed))
        assert made is not None
        price, less = (int(part.split()[0]) for part in made[0].split("$")[1:])
        assert price % 10 == 0 and less % 5 == 0
        assert int(made[1]) == price - less > 0


@pytest.mark.parametrize(
    ("question", "solution"),
    [
        ("Of 49 m in 7 equal parts, how long is one?", "<<49/7=7>>\n<<7*2=14>>\n#### 14"),
        ("Three 5-pound bags, less 5 pounds?", "<<3*5=15>>\n<<15-5=10>>\n#### 10"),
        ("She has 12 eggs and buys a dozen more?", "<<12+12=24>>\n#### 24"),
        ("He eats 6 of 12 cakes and then 6 more?", "<<12-6=6>>\n<<6-6=0>>\n#### 0"),
        ("In 2019 she was 30; how old in 2024?", "<<2024-2019=5>>\n<<30+5=35>>\n#### 36"),
        ("A third of 10 is rounded to 3, and 7 more?", "<<10/3=3>>\n<<3+7=10>>\n#### 10"),
        ("What is 7 to the power of 3?", "<<7**3=343>>\n#### 343"),
        ("How many are left of half a million?", "none\n#### 500000"),
        ("Two at $85 and $70, less 20?", "85 + 70 = $155\n155-20=<<155-20=135>>\n#### 135"),
        ("He has 2400 left, less 300?", "<<2400=2400>>\n<<2400-300=2100>>\n#### 2100"),
        ("It opens on February 8 for 14 days?", "<<8+14=22>>\n#### 22"),
    ],
)
def test_what_is_not_certain_is_left_out(question: str, solution: str) -> None:
    assert understand(question, solution) is None


def test_most_of_gsm8k_can_be_varied(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_DATA", str(data_dir))
    tasks = gsm8k(seed=1)
    assert 3300 < len(tasks) < 4000 and len({task.id for task in tasks}) == len(tasks)
    assert tasks == gsm8k(seed=1) != gsm8k(seed=2)
    assert all(task.answer.isdigit() for task in tasks)
