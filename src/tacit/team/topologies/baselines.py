"""The baselines AgentPO compares with: one agent, `actor`, asked several times.

Self-consistency (Wang et al., 2022), self-refine (Madaan et al., 2023), step-back abstraction
(Zheng et al., 2023). Quality-diversity (after the ADAS seed archive, Hu et al., 2024) and EvoAgent
(Yuan et al., 2024) follow their published descriptions with prompts of our own.
"""

from tacit.team.feedback import finds_no_error
from tacit.team.team import Team
from tacit.team.vote import majority
from tacit.types import Message, Task


async def self_consistency(task: Task, team: Team, samples: int = 8) -> Message:
    answers = await team.together(*(team.actor.ask(task.question) for _ in range(samples)))
    return majority(task, answers)


async def self_refine(task: Task, team: Team, rounds: int = 2) -> Message:
    """Ends after `rounds`, or when the feedback finds no error."""
    draft = await team.actor.ask(task.question)
    for number in range(1, rounds + 1):
        feedback = await team.actor.ask(
            task.question, part="self_critic", draft=draft, round=number
        )
        if finds_no_error(feedback.text):
            break
        draft = await team.actor.ask(
            task.question,
            part="refiner",
            draft=draft,
            feedback=feedback,
            round=number,
            final=number == rounds,
        )
    return draft


async def step_back(task: Task, team: Team) -> Message:
    principles = await team.actor.ask(task.question, part="abstracter")
    return await team.actor.ask(task.question, principles=principles, round=1, final=True)


async def quality_diversity(task: Task, team: Team, samples: int = 3) -> Message:
    solutions = [await team.actor.ask(task.question)]
    for number in range(1, samples):
        solutions.append(
            await team.actor.ask(
                task.question, part="diversifier", solutions=solutions, round=number
            )
        )
    return await team.actor.ask(
        task.question, part="selector", solutions=solutions, round=samples, final=True
    )


async def evo_agent(task: Task, team: Team, generations: int = 3, population: int = 3) -> Message:
    """Experts are bred from those before them; each generation's findings improve the answer."""
    answer = await team.actor.ask(task.question)
    experts: list[Message] = []
    for number in range(1, generations + 1):
        born = await team.together(
            *(
                team.actor.ask(task.question, part="evolver", messages=experts, round=number)
                for _ in range(population)
            )
        )
        experts = [*experts, *born]
        found = await team.together(
            *(team.actor.ask(task.question, part="expert", expert=e, round=number) for e in born)
        )
        improved = await team.together(
            *(
                team.actor.ask(
                    task.question, part="integrator", draft=answer, solutions=[one], round=number
                )
                for one in found
            )
        )
        answer = await team.actor.ask(
            task.question,
            part="selector",
            solutions=[answer, *improved],
            round=number,
            final=number == generations,
        )
    return answer
