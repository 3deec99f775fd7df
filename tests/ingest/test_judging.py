"""Scores that several servers are told of in one instant."""

import pytest

from agentworld.factory import open_pool
from agentworld.ingest.spans.judging import put
from agentworld.ingest.spans.node import Score
from agentworld.records import NewTrajectory, Reward, Step


@pytest.fixture(params=["memory://", "sqlite:///{}/pool.db"])
def pool(request, tmp_path):
    with open_pool(request.param.format(tmp_path)) as opened:
        yield opened


class Between:
    """A pool in which somebody else writes between what one reads and what one then writes."""

    def __init__(self, pool, meanwhile):
        self._pool, self._meanwhile = pool, meanwhile

    def __getattr__(self, name):
        found = getattr(self._pool, name)
        if name in ("get_step", "get_trajectory") and self._meanwhile is not None:
            read, meanwhile, self._meanwhile = found, self._meanwhile, None

            def reading(*arguments, **options):
                seen = read(*arguments, **options)
                meanwhile()
                return seen

            return reading
        return found


@pytest.mark.parametrize("step_id", ["s", None])
@pytest.mark.parametrize(("first", "second"), [(0.5, 0.75), (0.5, 0.5), ("good", "bad"), ("good", "good")])
def test_the_first_of_two_scores_stays_and_the_other_one_is_told(pool, step_id, first, second):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps([Step(step_id="s", trajectory_id="t", prompt_ids=[1], response_ids=[2])])
    told = []
    one, other = (Score(name="help", value=value, node=f"span{value}", comment="why") for value in (first, second))
    servers = Between(pool, lambda: told.append(put(pool, "t", step_id, "trace", one)))
    why = put(servers, "t", step_id, "trace", other)
    assert told == [None]
    assert (why is None) == (first == second)
    if why is not None:
        assert repr(first) in why
        assert repr(second) in why
    about = pool.get_trajectory("t") if step_id is None else pool.get_step("s")
    assert {**about.rewards, **about.labels} == {"help": first}
    assert put(pool, "t", step_id, "trace", one) is None  # An exporter sends it again.
    noted = pool.list_feedback(trajectory_id="t") if step_id is None else pool.list_feedback(step_id="s")
    assert len(noted.items) == 1
    # What others say under the name is beside it, as rewards of several sources are.
    pool.add_rewards([Reward(name="help", value=1.0, source="judge", trajectory_id="t", step_id=step_id)])
    said = pool.rewards_on(step_ids=["s"]) if step_id else pool.rewards_on(trajectory_ids=["t"])
    assert [reward.source for reward in said] == (["otlp", "judge"] if isinstance(first, float) else ["judge"])
