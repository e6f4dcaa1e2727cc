"""When feedback on a solution finds nothing wrong, and when it only sounds so."""

import pytest

from tacit.team.feedback import finds_no_error

CLEARS = (
    "None.",
    "none",
    "No errors found",
    "**No errors were found.**",
    "Errors: None.",
    "There are none.",
    "There are no errors.",
    "There are no errors in it.",
    "There are no errors in the provided solution!",
    "I found no mistakes in your solution.",
    "The solution is correct.",
    "The final answer of $18 is correct.",
    "The solution is correct and has no errors.",
    "The solution is correct, there are no errors.",
    "The solution provided is correct. There are no errors in the calculations or the steps.",
    "17 + 25 is 42, as the solution says. Therefore, the solution is correct.",
    "- There are no errors.\n- The solution adds the tens and the ones.",
    "Step 1 adds 7.\nStep 2 adds 5.\n\nOverall, there are no errors in the solution.\n",
)
OBJECTS = (
    "",
    "The last digit may be wrong.",
    "There is no error in step 1, but step 2 adds twice.",
    "There is no error in step 1. Step 2 adds twice.",
    "There are no errors in the calculations. The units were left out.",
    "The answer is not correct.",
    "The answer isn’t correct.",
    "The solution is incorrect.",
    "The solution is correct up to the second step.",
    "The solution is correct, except for the sign.",
    "The solution is correct. However, 7 + 5 is 13.",
    "The answer should be 43. The solution is correct.",
    "There are no errors. The correct answer is 43.",
    "The first step is correct.",
    "None of the steps are right.",
    "None of the steps are right. The answer is correct.",
    "No, the answer is 43.",
    "There are no errors?",
    "It would be rash to say that there are no errors.",
    "There are 2 errors.",
    "Step 1 adds 7 and 5. It is correct. Step 2 adds 10 and",
)


@pytest.mark.parametrize("feedback", CLEARS)
def test_it_clears_the_whole_solution(feedback: str) -> None:
    assert finds_no_error(feedback)


@pytest.mark.parametrize("feedback", OBJECTS)
def test_it_may_object(feedback: str) -> None:
    assert not finds_no_error(feedback)
