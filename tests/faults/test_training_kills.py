"""kill -9 of trainer, engine, gateway and runner while a policy learns: it goes on, and each sample counts once."""

import os
import random
import time
from statistics import mean

import pytest

from agentworld.trainers.metrics import read_lines
from tests.faults.training_crew import ROLES, TrainingCrew, problems

pytestmark = pytest.mark.faults
ROUNDS = int(os.environ.get("AGENTWORLD_TRAINING_KILLS", "2"))  # of each role


def kill_in_turn(crew, chance, rounds):
    """Kill every role so many times, in an order that chance makes, and then let them finish."""
    for role in (role for _ in range(rounds) for role in chance.sample(ROLES, len(ROLES))):
        # Sometimes at once, while it starts; sometimes after an update of the policy. Never all of its updates.
        wanted = min(crew.version() + chance.choice((0, 1, 1)), crew.batches - 1)

        def there(role=role, wanted=wanted):
            return crew.version() >= wanted and crew.runs(role)

        crew.until(there, f"{role} and version {wanted}")
        time.sleep(chance.uniform(0.0, 0.3))  # The moment of the kill is what is being varied.
        if crew.runs(role):
            crew.kill(role)
    crew.until(crew.finished, "the end")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [int(os.environ.get("AGENTWORLD_TRAINING_SEED", "11"))])
def test_a_policy_learns_on_while_everybody_is_killed(tmp_path, seed):
    with TrainingCrew(tmp_path, 9 * ROUNDS, seed) as crew:
        kill_in_turn(crew, random.Random(seed), ROUNDS)
    print(f"killed {dict(crew.killed)}, ended by themselves {dict(crew.ended)}")
    assert set(crew.killed) == set(ROLES)
    assert list(problems(crew)) == []
    rewards = [line.values["reward"] for line in read_lines(crew.out / "metrics.jsonl") if line.kind == "train"]
    third = len(rewards) // 3
    print(f"rewards {rewards}")
    assert mean(rewards[-third:]) > mean(rewards[:third]) + 0.05
