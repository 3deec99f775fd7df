"""Three gateways and four consumers on one PostgreSQL: any gateway serves any turn, each trajectory is had once."""

import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agentworld as aw
from agentworld.pool import open_store
from tests.faults.test_kill import Process

ROOT = Path(__file__).parent.parent.parent
GATEWAYS, CONSUMERS, AGENTS = 3, 4, 6
TRAJECTORIES, TURNS = 60, 5
SECONDS = 120

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]


@pytest.fixture
def gateways(postgres):
    """The pool's URL, and the addresses of gateways on it."""
    url = postgres.fresh_pool_url()
    with contextlib.ExitStack() as running:
        engine = Process("agentworld.testing.scripted_engine", "--script", "tests.scale.script:echo", "--model", "m")
        running.callback(engine.end)
        found = []
        for _ in range(GATEWAYS):
            served = Process(
                "agentworld", "serve", "--pool", url, "--upstream", engine.url, "--driver", "vllm", "--model", "m",
                "--tokens", "token-in", "--tokenizer", "byte", "--port", "0",
            )  # fmt: skip
            running.callback(served.end)
            found.append(served.url)
        yield url, found


@pytest.fixture
def pool(gateways):
    store = open_store(gateways[0])
    yield store
    store.close()


def rollout(factories, number):
    """One conversation, each turn of which another gateway answers; one of them ends it."""
    with contextlib.ExitStack() as several:
        settings = {"trajectory_id": f"trj-{number}", "group": f"grp-{number // 4}", "agent": "a"}
        runs = [several.enter_context(factory.trajectory(**settings)) for factory in factories]
        messages = []
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"question {number}.{turn}"})
            reply = runs[(number + turn) % GATEWAYS].chat(messages).message
            assert reply.text == f"heard question {number}.{turn}"
            messages.append({"role": "assistant", "content": reply.text})
        runs[(number + TURNS) % GATEWAYS].complete(reward=number / TRAJECTORIES)


def test_everything_is_served_once_whoever_serves_it(gateways, pool):
    url, addresses = gateways
    factories = [aw.connect(address) for address in addresses]
    consumers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.scale.consumer", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )
        for _ in range(CONSUMERS)
    ]  # fmt: skip
    seen = []
    follower = threading.Thread(target=lambda: seen.extend(pool.follow(timeout=20)))
    follower.start()
    try:
        # Whoever is there before the others would have everything.
        assert [consumer.stdout.readline() for consumer in consumers] == ["ready\n"] * CONSUMERS
        begun = time.perf_counter()
        with ThreadPoolExecutor(AGENTS) as agents:
            list(agents.map(lambda number: rollout(factories, number), range(TRAJECTORIES)))
        took = time.perf_counter() - begun
        outputs = [consumer.communicate(timeout=SECONDS)[0].split() for consumer in consumers]
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.wait(SECONDS)
        follower.join(SECONDS)
    _check_steps(pool)
    _check_served(outputs)
    _check_events(pool, seen)
    assert pool.check() == []
    print(
        f"{GATEWAYS} gateways: {TRAJECTORIES * TURNS / took:.0f} turns/s; units by consumer: {list(map(len, outputs))}"
    )


def _check_steps(pool):
    """Each conversation is one chain, and each prompt extends the turn before bit for bit."""
    for number in range(TRAJECTORIES):
        steps = pool.list_steps(trajectory_id=f"trj-{number}", include=("tokens", "messages")).items
        assert [step.step_index for step in steps] == list(range(TURNS))
        assert [step.fork_reason for step in steps] == [None] * TURNS
        assert [step.excluded_reason for step in steps] == [None] * TURNS
        for turn, (before, step) in enumerate(itertools.pairwise(steps), start=1):
            whole = [*before.prompt_ids, *before.response_ids]
            assert step.parent_step_id == before.step_id
            assert step.prompt_ids[: len(whole)] == whole
            assert step.response_message.text == f"heard question {number}.{turn}"


def _check_served(outputs):
    counted = Counter(key for keys in outputs for key in keys)
    assert counted == Counter(f"trj-{number}" for number in range(TRAJECTORIES))
    assert sum(bool(keys) for keys in outputs) > 1, "one consumer had everything"


def _check_events(pool, seen):
    """Whoever followed from the start has every event once and in order, without a gap."""
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert len(seen) == pool.stats().last_event
    assert sum(event.kind == "step.appended" for event in seen) == TRAJECTORIES * TURNS
