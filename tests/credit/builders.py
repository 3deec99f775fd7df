"""Rollouts for tests: drawn ones, and plain ones."""

import numpy as np
from hypothesis import strategies as st

from agentworld.credit import Rollout, StepTree, chain

values = st.floats(-4, 4, allow_nan=False).map(lambda value: round(value, 2))


def rollout(reward=1.0, steps=1, **more):
    """A chain of steps of one token each."""
    parents = more.pop("parents", chain(steps))
    tree = StepTree(parents)
    rewards = more.pop("step_rewards", None)
    return Rollout(
        tree=tree,
        lengths=np.asarray(more.pop("lengths", [1] * len(tree)), dtype=np.int64),
        reward=reward,
        step_rewards=None if rewards is None else np.asarray(rewards, dtype=np.float64),
        **more,
    )


@st.composite
def trees(draw, most=7, least=0):
    """Parents of steps in order; about half of the steps continue the one before."""
    count = draw(st.integers(least, most))
    return [draw(st.one_of(st.just(step - 1), st.integers(-1, step - 1))) if step else -1 for step in range(count)]


@st.composite
def rollout_lists(draw, most=5, least_steps=0, forks=True):
    """A few rollouts in two groups, with everything that a method may want."""
    found = []
    for number in range(draw(st.integers(1, most))):
        parents = draw(trees(least=least_steps)) if forks else list(chain(draw(st.integers(least_steps, 6))))
        count = len(parents)
        lengths = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        tree = StepTree(parents)
        cut_off = draw(st.booleans())
        bootstrap = np.zeros(count)
        bootstrap[tree.leaves] = [draw(values) for _ in tree.leaves]
        found.append(
            rollout(
                reward=draw(values),
                parents=parents,
                lengths=lengths,
                name=f"t{number}",
                group=draw(st.sampled_from("gh")),
                last=draw(st.integers(0, count - 1)) if count else -1,
                step_rewards=draw(st.lists(values, min_size=count, max_size=count)),
                states=draw(st.lists(st.sampled_from("xy"), min_size=count, max_size=count)),
                roles=draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count)),
                values=[np.asarray(draw(st.lists(values, min_size=n, max_size=n))) for n in lengths],
                bootstrap=bootstrap if cut_off else None,
                greedy=draw(values),
            )
        )
    return found
