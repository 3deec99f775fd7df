"""Random lives of policies and decisions: every store decides as the in-memory one, and its check finds nothing."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError
from agentworld.pool.memory import MemoryPool
from agentworld.records import CurationPolicy, Decision, Feedback, NewReview, NewTrajectory, Reward
from tests.examples import examples

from ..samples import step

numbers = itertools.count()
names = st.sampled_from(["a", "b", "c"])
RULES = [
    "when reward < 0.5 then exclude 'low'",
    "when reward >= 0.5 then ready",
    "when label.bad then exclude 'bad; labelled'",
    "when status == 'truncated' then review 'cut' 0.7",
    "when has reward then tag rewarded",
    "when step_count > 1 then weight 2",
    "when sampled_tokens < 2 then exclude 'empty'",
    "steps when step_index == 0 then exclude 'first'",
    "steps when reward > 0 then tag good",
    "steps when label.bad then review 'a bad step'",
    "steps when finish_reason == 'stop' then ready",
]
policies = st.builds(
    lambda rules, default: CurationPolicy(rules=tuple(rules), default=default),
    st.lists(st.sampled_from(RULES), max_size=4, unique=True),
    st.sampled_from(["ready", "ready", "review", "exclude"]),
)
verdicts = st.sampled_from([None, "ready", "exclude", "review"])
actions = st.one_of(
    st.tuples(st.just("policy"), names, policies),
    st.tuples(st.just("clear"), names, st.none()),
    st.tuples(st.just("decide"), names, st.tuples(verdicts, st.sampled_from(["x", "y"]))),
    st.tuples(st.just("decide step"), names, st.tuples(verdicts, st.sampled_from(["x", "y"]))),
    st.tuples(st.just("reward"), names, st.sampled_from([0.0, 0.5])),
    st.tuples(st.just("reward step"), names, st.sampled_from([0.0, 1.0])),
    st.tuples(st.just("label"), names, st.sampled_from([True, None])),
    st.tuples(st.just("label step"), names, st.sampled_from([True, None])),
    st.tuples(st.just("step"), names, st.sampled_from(["stop", "length"])),
    st.tuples(st.just("complete"), names, st.sampled_from(["finished", "failed", "truncated"])),
    st.tuples(st.just("ask"), names, st.sampled_from([0.1, 0.9])),
    st.tuples(st.just("claim"), st.sampled_from(["ann", "bob"]), st.none()),
    st.tuples(st.just("resolve"), st.sampled_from(["ann", "bob"]), st.sampled_from(["accept", "reject"])),
    st.tuples(st.just("undo"), st.sampled_from(["ann", "bob"]), st.none()),
    st.tuples(st.just("delete"), names, st.none()),
)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(actions, min_size=4, max_size=24))
def test_every_store_decides_alike(pool, clock, acts):
    number = next(numbers)  # Keeps the records of one example apart from those of the others.
    stores = (pool, MemoryPool(clock=clock))
    channel = f"c{number}"
    for store in stores:
        for name in "abc":
            created = NewTrajectory(trajectory_id=f"{name}{number}", channel=channel, group_id=f"g{number}")
            store.create_trajectory(created)
    for place, act in enumerate(acts):
        outcomes = [_act(store, *act, channel, number, place) for store in stores]
        assert outcomes[0] == outcomes[1], act
    read = [_read(store, channel, number) for store in stores]
    assert read[0] == read[1]
    assert pool.check() == []


def _act(store, kind, name, detail, channel, number, place):
    whose = f"{name}{number}"
    first = f"s-{whose}"
    try:
        match kind:
            case "policy":
                return store.set_curation(_in(detail, channel)).version
            case "clear":
                return store.clear_curation(channel)
            case "decide":
                return store.decide([Decision(verdict=detail[0], trajectory_id=whose, reason=detail[1])])
            case "decide step":
                return store.decide([Decision(verdict=detail[0], step_id=first, reason=detail[1])])
            case "reward":
                return store.add_rewards([Reward(value=detail, trajectory_id=whose)])
            case "reward step":
                return store.add_rewards([Reward(value=detail, step_id=first)])
            case "label" | "label step":
                target = {"trajectory_id": whose} if kind == "label" else {"step_id": first}
                sent = Feedback(kind="label", name="bad", value=detail, feedback_id=f"f{place}-{number}", **target)
                return store.add_feedback([sent])
            case "step":
                there = store.list_steps(trajectory_id=whose).items
                named = first if not there else f"{first}-{place}"
                sent = step(whose, step_id=named, channel=channel, finish_reason=detail, response_ids=[1, 2])
                return store.append_steps([sent])[0].outcome
            case "complete":
                return store.complete_trajectory(whose, detail).readiness
            case "ask":
                return store.add_reviews([NewReview(trajectory_id=whose, reason="asked", worth=detail)])
            case "claim":
                return _shown(store.claim_review(name, channel=channel))
            case "resolve":
                mine = store.claim_review(name, channel=channel)
                return mine and _shown(store.resolve_review(mine.review_id, name, detail))
            case "undo":
                done = store.list_reviews(state="done", channel=channel).items
                return [_shown(store.undo_review(one.review_id, name)) for one in done[:1]]
            case "delete":
                return store.delete_trajectories([whose]).trajectories
    except AgentWorldError as error:
        return error.code, error.path
    raise AssertionError(kind)


def _in(policy, channel):
    return CurationPolicy(rules=policy.rules, default=policy.default, channel=channel)


def _shown(review):
    """All but the number, which counts those of earlier examples too."""
    if review is None:
        return None
    return {name: getattr(review, name) for name in review.__struct_fields__ if name != "review_id"}


def _read(store, channel, number):
    trajectories = store.list_trajectories(channel=channel).items
    found = {"reviews": [_shown(one) for one in store.list_reviews(channel=channel).items]}
    for one in trajectories:
        steps = store.list_steps(trajectory_id=one.trajectory_id).items
        found[one.trajectory_id] = (
            one,
            [(each.step_id, each.readiness, each.excluded_reason, each.labels, each.is_last) for each in steps],
            sorted(store.decisions(trajectory_id=one.trajectory_id), key=lambda each: (each.step_id or "", each.by)),
            store.explain_standing(trajectory_id=one.trajectory_id).reasons,
        )
    if trajectories:
        group = store.get_group(f"g{number}")
        found["served"] = (group.served, group.members)
    return found
