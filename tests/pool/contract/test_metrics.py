"""Numbers of runs: told as events of a channel of their own, all or none."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.records import Metrics, NewTrajectory, Policy


def test_metrics_are_events_of_their_channel_in_order(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    assert pool.add_metrics(
        [Metrics(run="a", step=1, values={"loss": 0.5}), Metrics(run="b", step=1, values={"x": None})]
    )
    pool.set_policy(Policy("m", "r", 1))
    assert pool.add_metrics([Metrics(run="a", step=2, values={"reward": 1.0}, kind="evaluation", channel="own")]) == 1
    assert pool.add_metrics([]) == 0
    found = [event for event in pool.events(channel="metrics") if event.kind == "metrics.added"]
    assert [event.data for event in found] == [
        {"run": "a", "kind": "train", "step": 1, "values": {"loss": 0.5}},
        {"run": "b", "kind": "train", "step": 1, "values": {"x": None}},
    ]
    assert [event.data["step"] for event in pool.events(channel="own") if event.kind == "metrics.added"] == [2]
    assert not [event for event in pool.events(channel="train") if event.kind == "metrics.added"]
    assert [event.data["run"] for event in pool.follow(timeout=0, kinds=["metrics.added"])] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (Metrics(run="", step=1, values={"x": 1.0}), "metrics[1].run"),
        (Metrics(run="a", step=-1, values={"x": 1.0}), "metrics[1].step"),
        (Metrics(run="a", step=1, values={}), "metrics[1].values"),
        (Metrics(run="a", step=1, values={"x": float("nan")}), "metrics[1].values"),
        (Metrics(run="a", step=1, values={"x": "1"}), "metrics[1].values"),
        (Metrics(run="a", step=1, values={"x": 1.0}, kind="other"), "metrics[1].kind"),
        (Metrics(run="a", step=1, values={"x": 1.0}, channel=""), "metrics[1].channel"),
        ({"run": "a"}, "metrics[1]"),
    ],
)
def test_a_bad_one_is_named_and_none_is_kept(pool, bad, path):
    with pytest.raises(InvalidRequestError) as caught:
        pool.add_metrics([Metrics(run="a", step=1, values={"x": 1.0}), bad])
    assert (caught.value.path or "").startswith(path)
    assert pool.events() == []
