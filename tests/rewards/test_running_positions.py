"""How far a run has come, while its parts end in any order."""

import random

from agentworld.rewards.running.positions import Positions


def test_what_is_settled_is_what_all_has_ended_before():
    places = Positions(0)
    first, second = places.passed(1), places.passed(2)
    places.skipped(3)
    places.skipped(4)
    assert (places.settled, places.last) == (0, 4)
    second.end()
    assert places.settled == 0
    first.more()
    first.end()
    assert places.settled == 0
    first.end()
    assert places.settled == 4
    places.skipped(5)
    assert places.settled == 5


def test_in_any_order_nothing_open_is_passed_and_all_is_settled_at_the_end():
    for seed in range(200):
        chance = random.Random(seed)
        places, still, at = Positions(0), {}, 0
        for _ in range(60):
            at += 1
            if chance.random() < 0.5:
                places.skipped(at)
            else:
                still[at] = places.passed(at)
            while still and chance.random() < 0.4:
                still.pop(chance.choice(list(still))).end()
            assert places.settled <= min(still, default=at + 1) - 1
        for ticket in still.values():
            ticket.end()
        assert places.settled == at
