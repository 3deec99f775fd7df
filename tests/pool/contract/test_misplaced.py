"""Calls whose trajectory another call made in another group or channel before their reply was stored."""

import pytest

from agentworld.records import Exchange, Message, NewTrajectory, Step

HELLO = [Message("user", "hello")]


def call(name, **changes):
    step = Step(step_id=f"step-{name}", trajectory_id="t", response_message=Message("assistant", name))
    values = {
        "exchange_id": f"call-{name}",
        "trajectory_id": "t",
        "dialect": "chat",
        "model": "m",
        "requested_model": "m",
        "messages": HELLO,
        "choices": [step],
    }
    return Exchange(**{**values, **changes})


def stored(pool):
    return [step.step_id for step in pool.list_steps(trajectory_id="t").items]


CASES = {
    "group": (
        {"group_id": "gB", "only_group": "gB"},
        {"group_id": "gA", "only_group": "gA"},
        "in group 'gB', not 'gA'",
    ),
    "channel": ({"channel": "train"}, {"channel": "val", "only_channel": "val"}, "in channel 'train'"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("together", [False, True])
def test_it_is_refused_with_the_reason_and_kept_as_a_dead_letter(pool, case, together):
    first, second, said = CASES[case]
    if together:  # In one transaction, most likely.
        (made,), (refused,) = [
            each.result()
            for each in [pool.submit_exchange(call("one", **first)), pool.submit_exchange(call("two", **second))]
        ]
    else:
        (made,) = pool.append_exchange(call("one", **first))
        (refused,) = pool.append_exchange(call("two", **second))
    assert (made.outcome, refused.outcome) == ("stored", "rejected")
    assert said in refused.reason
    assert stored(pool) == ["step-one"]
    (letter,) = pool.dead_letters()
    assert (letter.step_id, letter.trajectory_id) == ("step-two", "t")
    assert said in letter.reason
    assert '"two"' in letter.record
    assert [each.exchange_id for each in pool.list_exchanges("t")] == ["call-one"]
    # That the call failed is on record all the same.
    failed = call(
        "two", **{**second, "only_group": None, "only_channel": None, "choices": [], "error": {"code": "conflict"}}
    )
    assert pool.append_exchange(failed) == []
    assert [each.exchange_id for each in pool.list_exchanges("t")] == ["call-one", "call-two"]


def test_a_call_that_fits_goes_in_and_repeats_are_duplicates(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", group_id="gA", channel="val"))
    fits = call("one", group_id="gA", only_group="gA", channel="val", only_channel="val")
    assert [each.outcome for each in pool.append_exchange(fits)] == ["stored"]
    assert [each.outcome for each in pool.append_exchange(fits)] == ["duplicate"]
    # Where nothing is demanded, a judge may speak in a channel of its own.
    assert [each.outcome for each in pool.append_exchange(call("two", channel="judge"))] == ["stored"]
    (kept, _) = pool.list_exchanges("t")
    assert (kept.only_group, kept.only_channel) == (None, None)
    assert pool.dead_letters() == []


def test_a_trajectory_without_a_group_takes_calls_that_name_one(pool):
    pool.append_exchange(call("one"))
    assert [each.outcome for each in pool.append_exchange(call("two", group_id="gA", only_group="gA"))] == ["stored"]
