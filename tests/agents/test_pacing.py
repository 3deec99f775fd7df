"""How far rollouts run ahead of training: the rule, its counts, and runs against a gateway that wait for versions."""

import asyncio

import pytest

from agentworld.agents.definition import LoopAgent
from agentworld.agents.pacing import Pace, capacity, check_pace
from agentworld.agents.runner import run_rollouts
from agentworld.client.aio import AsyncFactory
from agentworld.errors import ConfigError
from agentworld.pool.results import GatewayState
from agentworld.records import Policy

from .test_run_config import GOOD, read
from .test_runner import Sums, solve


class Gateway:
    """Says which policy speaks, and hears who sleeps."""

    def __init__(self, version=0, run="r"):
        self.policy = Policy("m", run, version)
        self.slept = asyncio.Event()
        self.wake = asyncio.Event()

    async def gateway_state(self):
        return GatewayState(policies={"m": self.policy})

    async def sleep(self, seconds):
        self.slept.set()
        await self.wake.wait()
        self.wake.clear()

    async def publish(self, version, run="r"):
        self.policy = Policy("m", run, version)
        self.slept.clear()
        self.wake.set()
        await asyncio.sleep(0)


def test_the_rule_and_its_settings():
    # At version 0 one batch more than the lag may be on its way, each version adds one, what is under way is taken off.
    assert [capacity(lag, 0, 8, 0, 0) for lag in (0, 1, 4)] == [8, 16, 40]
    assert capacity(1, 3, 8, 20, 10) == 10
    assert capacity(0, 0, 8, 6, 4) == -2
    assert check_pace(None, None, False, 4) is None
    assert (check_pace(None, 8, True, 4), check_pace(2, 8, False, 4), check_pace(0, 8, True, 4)) == (0, 2, 0)
    for given, says in [
        ((1, 8, True, 4), "barrier"), ((-1, 8, False, 4), "0 or more"), ((None, 8, False, 4), "goes with"),
        ((1, None, False, 4), "not said"), ((1, 6, False, 4), "no number of groups"), ((0, 0, False, 1), "groups of 1"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            check_pace(*given)


async def test_groups_begin_whole_and_in_turn():
    gateway, said = Gateway(version=5), []
    pace = Pace(gateway, "m", 0, 4, notify=said.append, sleep=gateway.sleep)
    for group in ("a", "a", "b", "b"):
        await pace.begin(group, 2)
    waiting = asyncio.create_task(pace.begin("c", 2))
    await gateway.slept.wait()
    # The rest of a group that has begun does not wait behind the one that waits for it.
    await asyncio.wait_for(pace.begin("a", 2), 60)
    for group, reward in (("a", 1.0), ("a", 0.0), ("b", 1.0)):
        pace.end(group, reward)
    assert (pace.capacity, waiting.done()) == (0, False)
    pace.end("b", None)  # It cannot be trained on, so another may take its place; a group of two may not.
    assert pace.capacity == 1
    await gateway.publish(6)
    await asyncio.wait_for(waiting, 60)
    assert pace.capacity == 3
    assert said[0].startswith("waits for version 6 of m: ")
    # An older policy under a new run starts the count anew.
    pace.end("c", 1.0)
    pace.end("c", 1.0)
    last = asyncio.create_task(pace.begin("d", 4))
    await gateway.slept.wait()
    await gateway.publish(0, "back")
    await asyncio.wait_for(last, 60)
    assert pace.capacity == 0


async def test_what_was_accepted_earlier_and_what_the_trainer_skips_count_as_they_should():
    gateway = Gateway(version=7)
    policies = [Policy("m", "r", version) for version in (5, 5, 6, 6, 7)] + [Policy("m", "old", 1), None]
    pace = Pace(gateway, "m", 1, 2, policies=policies, skip_equal=True, sleep=gateway.sleep)
    await pace.begin("a", 2)
    assert pace.capacity == (1 + 2 + 1) * 2 - (5 + 2)
    pace.end("a", 1.0)
    pace.end("a", 1.0)
    assert pace.capacity == 3
    await pace.begin("b", 2)
    pace.end("b", 1.0)
    pace.end("b", 0.0)
    assert pace.capacity == 1


async def test_a_run_waits_at_each_version(url, factory, engine):
    engine.script = solve
    done = []

    def publish(version):
        engine.set_policy(version, "paced")
        factory.set_policy(Policy(engine.model, "paced", version))

    publish(3)

    class Trainer:
        """Publishes the next version once two rollouts have come."""

        def start(self, *given): ...
        def stop(self): ...

        def done(self, result):
            done.append(result)
            if len(done) % 2 == 0:
                publish(3 + len(done) // 2)

    task_set = Sums("paced")
    async with AsyncFactory(url) as client:
        report = await run_rollouts(
            client, [(task_set, task_set.tasks(3))], [LoopAgent()], name="paced", model=engine.model, rollouts=2,
            batch=2, barrier=True, progress=Trainer(),
        )  # fmt: skip
        again = await run_rollouts(
            client, [(task_set, task_set.tasks(3))], [LoopAgent()], name="paced", model=engine.model, rollouts=2,
            batch=2, max_staleness=0,
        )  # fmt: skip
    assert (len(report.rollouts), report.failed) == (6, 0)
    versions = {r.group_id: set() for r in report.rollouts}
    for trajectory in factory.all_trajectories(where="policy.run == 'paced'"):
        versions[trajectory.group_id].add(trajectory.policy.version)
    assert sorted(versions.values(), key=min) == [{3}, {4}, {5}]
    assert all(result.skipped for result in again.rollouts)


def test_a_configuration_says_it(tmp_path):
    paced = GOOD.replace("rollouts = 2", "rollouts = 2\nmax_staleness = 1\nbatch = 4\nskip_equal = true")
    config = read(tmp_path, paced)
    assert (config.max_staleness, config.batch, config.barrier, config.skip_equal) == (1, 4, False, True)
    for bad, says in [
        (paced.replace("batch = 4", "batch = 3"), "run.toml: batch is 3"),
        (paced.replace("max_staleness = 1\nbatch = 4\n", ""), "skip_equal goes with"),
    ]:
        with pytest.raises(ConfigError, match=says):
            read(tmp_path, bad)
