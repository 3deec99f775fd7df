"""Runs through the real gateway: what becomes of every rollout, good or bad."""

import asyncio
import itertools
import os
import sys
import threading
from urllib.request import urlopen

import pytest

from agentworld.agents.definition import CommandAgent, LoopAgent
from agentworld.agents.runner import run_rollouts
from agentworld.client.aio import AsyncFactory
from agentworld.errors import AgentWorldError, ConfigError
from agentworld.records import Message, NewTrajectory, Sampling
from agentworld.tasks.base import Score, Task
from agentworld.tasks.environments import Calculator
from agentworld.testing import ScriptedReply
from tests.held_time_outs import HeldTimeOuts

OPENAI = ("{python}", "-m", "agentworld.agents.openai_agent")
NUMBERS = itertools.count()


class Sums:
    """`a + b`, with a calculator; the reference is the sum."""

    def __init__(self, name="sums"):
        self.name = name
        self.closed = 0

    def tasks(self, count=None, *, split="train", seed=0):
        return [
            Task(
                task_id=f"sum-{n}",
                task_set=self.name,
                messages=(Message(role="user", content=f"{n} + {n + 1}"),),
                reference=f"secret {2 * n + 1}",
            )
            for n in range(count)
        ]

    def environment(self, task):
        counted = self

        class Counted(Calculator):
            def close(self):
                counted.closed += 1

        return Counted()

    def check(self, task, answer):
        return Score(float(f"secret {answer}" == task.reference), {"answer": answer})


def solve(request):
    """Asks the calculator, then says what it said."""
    results = [message for message in request.messages if message["role"] == "tool"]
    if results:
        return str(results[-1]["content"])
    expression = request.messages[0]["content"]
    return f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'


async def until(true):
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


@pytest.fixture
def run(url, engine):
    """Runs sums; each run has a name of its own unless it is given one."""

    async def run(agents, count=2, task_set=None, **options):
        task_set = task_set or Sums()
        options = {"name": f"run-{next(NUMBERS)}", "model": "m", "retries": 0, **options}
        agents = agents if isinstance(agents, list) else [agents]
        async with AsyncFactory(url) as client:
            return await run_rollouts(client, [(task_set, task_set.tasks(count))], agents, **options)

    engine.script = solve
    return run


@pytest.mark.parametrize(
    "agent",
    [
        LoopAgent(),
        CommandAgent(command=(*OPENAI, "--lines"), lines=True, name="lines"),
        CommandAgent(command=OPENAI, name="process"),
        CommandAgent(command=OPENAI, name="stdout", answer="stdout", stdin="none"),
    ],
    ids=lambda agent: agent.name,
)
async def test_every_kind_of_agent_solves_it_with_the_tool(run, factory, agent):
    task_set = Sums()
    report = await run(agent, 1, task_set, rollouts=2, name=f"kinds-{agent.name}", channel="val")
    assert report.summary().mean_reward == 1.0, report.common_error()
    assert task_set.closed == 2
    assert [result.steps for result in report.rollouts] == [2, 2]
    for result in report.rollouts:
        stored = factory.get_trajectory(result.trajectory_id)
        assert (stored.status, stored.reward, stored.channel) == ("finished", 1.0, "val")
        assert (stored.group_size, stored.group_id, stored.agent) == (2, result.group_id, agent.name)
        assert stored.task["reference"].startswith("secret")
        assert stored.metadata["run"] == report.name
        assert result.prompt_tokens == stored.prompt_tokens > 0
        # What the agent and its model saw has nothing of the reference in it.
        steps = factory.list_steps(trajectory_id=result.trajectory_id, include=("messages",)).items
        assert "secret" not in "".join(message.text for message in steps[-1].prompt_messages)
    assert sorted(result.rollout_index for result in report.rollouts) == [0, 1]


async def test_a_failed_attempt_is_tried_again_as_a_new_trajectory(run, factory, engine):
    calls = itertools.count()

    def flaky(request):
        return (
            ScriptedReply(status=400, error_body={"error": {"message": "bad"}}) if next(calls) == 0 else solve(request)
        )

    engine.script = flaky
    report = await run(LoopAgent(), 1, retries=2)
    (result,) = report.rollouts
    assert (result.status, result.attempt, result.attempts, result.reward) == ("finished", 1, 2, 1.0)
    first, second = factory.list_trajectories(group_id=result.group_id).items
    assert (first.status, first.readiness, first.attempt) == ("failed", "excluded", 0)
    assert (second.status, second.readiness, second.attempt) == ("finished", "ready", 1)
    there = factory.get_group(result.group_id)
    assert (there.closed_by, there.members, there.ended, there.served) == ("size", 2, 1, 1)


async def test_the_last_attempt_ends_its_group_without_it(run, factory, engine):
    engine.script = ScriptedReply(status=400, error_body={"error": {"message": "bad"}})
    report = await run(LoopAgent(), 1, retries=1)
    (result,) = report.rollouts
    assert (result.status, result.attempts) == ("failed", 2)
    stored = factory.list_trajectories(group_id=result.group_id).items
    assert [(one.status, one.attempt, one.excluded_reason) for one in stored] == [
        ("failed", 0, "failed"),
        ("failed", 1, "failed"),
    ]
    there = factory.get_group(result.group_id)
    assert (there.closed_by, there.ended, there.served) == ("size", 1, 0)


async def test_cancelling_between_two_attempts_leaves_nothing_open(run, factory, engine, monkeypatch):
    monkeypatch.setattr("agentworld.agents.runner.FIRST_RETRY_PAUSE", 600.0)
    engine.script = ScriptedReply(status=400, error_body={"error": {"message": "bad"}})
    running = asyncio.create_task(run(LoopAgent(), 1, name="pausing", retries=1))
    await until(lambda: factory.list_trajectories(where="metadata.run == 'pausing' and status == 'failed'").items)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stored = factory.list_trajectories(where="metadata.run == 'pausing'").items
    assert [(one.attempt, one.status) for one in stored] == [(0, "failed"), (1, "abandoned")]


async def test_attempts_run_out_and_the_others_go_on(run, engine):
    engine.script = lambda request: (
        ScriptedReply(status=400, error_body={"error": {"message": "no such tool"}})
        if request.messages[0]["content"].startswith("0")
        else solve(request)
    )
    report = await run(LoopAgent(), 3, retries=1)
    assert (report.failed, report.summary().mean_reward) == (1, 1.0)
    failed = next(result for result in report.rollouts if result.status == "failed")
    assert (failed.task_id, failed.attempts) == ("sum-0", 2)
    assert failed.error == report.common_error()


async def test_a_checkers_fault_is_the_rollouts(run, factory):
    class Faulty(Sums):
        def check(self, task, answer):
            raise ZeroDivisionError("by the checker")

    report = await run(LoopAgent(), 1, Faulty())
    assert report.rollouts[0].error == "ZeroDivisionError: by the checker"
    assert factory.get_trajectory(report.rollouts[0].trajectory_id).status == "failed"


async def test_used_up_turns_are_truncated_and_judged(run, factory, engine):
    engine.script = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1 + 1"}}\n</tool_call>'
    report = await run(LoopAgent(max_turns=2), 1)
    (result,) = report.rollouts
    assert (result.status, result.stopped, result.reward, result.steps) == ("truncated", "max_turns", 0.0, 2)
    stored = factory.get_trajectory(result.trajectory_id)
    assert (stored.status, stored.readiness) == ("truncated", "ready")


@pytest.mark.parametrize(
    "agent",
    [
        LoopAgent(),
        CommandAgent(command=OPENAI, name="last"),
        CommandAgent(command=OPENAI, name="stdout", answer="stdout"),
        CommandAgent(command=(*OPENAI, "--lines"), lines=True, name="lines"),
    ],
    ids=lambda agent: agent.name,
)
async def test_a_reply_that_was_cut_off_is_truncated_with_every_agent(run, factory, engine, agent):
    engine.script = "one two three four five six"
    report = await run(agent, 1, sampling=Sampling(max_tokens=3))
    (result,) = report.rollouts
    assert (result.status, result.stopped, result.steps) == ("truncated", "length", 1), result.error
    assert result.reward == 0.0
    assert factory.get_trajectory(result.trajectory_id).status == "truncated"


async def test_time_runs_out_after_a_reply(run, engine, factory, monkeypatch):
    limits = HeldTimeOuts(70.25, monkeypatch)

    def slow_at_the_end(request):
        answered = any(message["role"] == "tool" for message in request.messages)
        return ScriptedReply(text="late", first_token_delay=60.0) if answered else solve(request)

    engine.script = slow_at_the_end
    asks_and_forgets = (
        "import json, sys, urllib.request as u\n"
        "for line in sys.stdin:\n"
        "    task = json.loads(line)\n"
        "    if 'cancel' not in task:\n"
        "        body = json.dumps({'model': 'm', 'messages': task['messages']}).encode()\n"
        "        headers = {'Content-Type': 'application/json'}\n"
        "        u.urlopen(u.Request(task['base_url'] + '/chat/completions', body, headers)).read()\n"
    )
    agents = [
        LoopAgent(timeout=70.25),
        CommandAgent(command=("{python}", "-c", asks_and_forgets), lines=True, name="lines", timeout=70.25),
    ]

    def answered_once():
        steps = [each.step_count for each in factory.list_trajectories(where="metadata.run == 'late'").items]
        return steps == [1, 1] and len(engine.requests) - asked == 3

    asked = len(engine.requests)
    running = asyncio.create_task(run(agents, 1, name="late"))
    await until(answered_once)
    limits.run_out()
    report = await running
    assert [(result.status, result.stopped, result.reward) for result in report.rollouts] == [
        ("truncated", "timeout", 0.0)
    ] * 2


async def test_time_runs_out_before_any_reply(run, engine):
    engine.script = ScriptedReply(text="late", first_token_delay=60.0)
    report = await run(LoopAgent(timeout=0.5), 1)
    assert (report.rollouts[0].status, report.rollouts[0].error) == ("failed", "no reply within 0.5 s")


REFUSED = (
    "import os, json, urllib.error, urllib.request as u\n"
    "body = json.dumps({'temperature': 'hot', 'messages': [{'role': 'user', 'content': 'hello'}]}).encode()\n"
    "headers = {'Content-Type': 'application/json', 'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
    "try: u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body, headers))\n"
    "except urllib.error.HTTPError as error: error.close()\n"
)


async def test_what_goes_wrong_with_a_command_is_said(run):
    def command(name, script):
        return CommandAgent(name=name, command=(sys.executable, "-c", script))

    report = await run(
        [
            command("idle", "print('5')"),
            command("broken", "import sys; print('no license', file=sys.stderr); sys.exit(3)"),
            CommandAgent(name="missing", command=("/no/such/agent",)),
            command("refused", REFUSED),
        ],
        1,
    )
    errors = {result.agent: result.error for result in report.rollouts}
    assert errors["idle"].startswith("no call came through the gateway: the agent does not use OPENAI_BASE_URL")
    assert "ended with code 3: no license" in errors["broken"]
    assert "cannot start '/no/such/agent'" in errors["missing"]
    assert errors["refused"].startswith("1 call failed, and none got a reply. The last: 400 ")
    assert "temperature" in errors["refused"]


async def test_the_same_name_goes_on_where_it_stopped(run, factory, engine):
    group = "again:loop:sums:sum-0"
    first, left = (
        factory.start_trajectory(NewTrajectory(group_id=group, group_size=2, rollout_index=index, agent="loop"))
        for index in range(2)
    )
    factory.complete_trajectory(first.trajectory_id, "finished", 1.0)
    asked = len(engine.requests)
    report = await run(LoopAgent(), 2, rollouts=2, name="again")
    assert factory.get_trajectory(left.trajectory_id).status == "abandoned"
    assert len(engine.requests) - asked == 3 * 2
    by_cell = {(result.task_id, result.rollout_index): result for result in report.rollouts}
    assert by_cell["sum-0", 0].skipped
    assert by_cell["sum-0", 0].trajectory_id == first.trajectory_id
    assert by_cell["sum-0", 1].attempt == 1
    assert factory.get_trajectory(by_cell["sum-0", 1].trajectory_id).readiness == "ready"
    assert factory.get_group(group).served == 2
    assert report.summary().mean_reward == 1.0


async def test_a_paused_gateway_is_waited_for(run, factory, engine, url):
    factory.set_paused(True)
    try:
        await until(lambda: b'"paused":true' in urlopen(f"{url}/readyz").read())
        asked = len(engine.requests)
        running = asyncio.create_task(run(LoopAgent(), 2, name="paused"))
        await until(lambda: len(factory.list_trajectories(where="metadata.run == 'paused' and open").items) == 2)
        assert len(engine.requests) == asked
    finally:
        factory.set_paused(False)
    report = await running
    assert (report.failed, report.summary().mean_reward) == (0, 1.0)


async def test_cancelling_abandons_what_is_open(run, factory, engine, tmp_path):
    engine.script = ScriptedReply(text="late", first_token_delay=60.0)
    note = tmp_path / "pid"
    script = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    agents = [LoopAgent(), CommandAgent(name="sleeper", command=(sys.executable, "-c", script))]
    asked = len(engine.requests)
    running = asyncio.create_task(run(agents, 1, name="cancelled"))
    await until(lambda: len(engine.requests) > asked and note.exists() and note.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for agent in agents:
        (stored,) = factory.list_trajectories(group_id=f"cancelled:{agent.name}:sums:sum-0").items
        assert (stored.status, stored.readiness) == ("abandoned", "excluded")
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


class SlowToAnswer(AsyncFactory):
    """Trajectories are open for a while before their opener hears of it; ending `refused` ones fails."""

    def __init__(self, url, refused=()):
        super().__init__(url)
        self.opened = asyncio.Event()
        self.refused = refused

    async def start_trajectory(self, new):
        started = await super().start_trajectory(new)
        self.opened.set()
        await asyncio.sleep(0.05)
        return started

    async def complete_trajectory(self, trajectory_id, *more, **named):
        if trajectory_id in self.refused:
            raise AgentWorldError("the disk is full")
        return await super().complete_trajectory(trajectory_id, *more, **named)


async def test_cancelling_abandons_what_is_being_opened(factory, url, engine):
    engine.script = solve
    async with SlowToAnswer(url) as client:
        work = [(Sums(), Sums().tasks(1))]
        running = asyncio.create_task(run_rollouts(client, work, [LoopAgent()], name="opening", model="m"))
        await client.opened.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    (stored,) = factory.list_trajectories(group_id="opening:loop:sums:sum-0").items
    assert (stored.status, stored.step_count) == ("abandoned", 0)


async def test_an_attempt_that_cannot_end_what_was_left_is_not_left_open_itself(factory, url):
    group = "unended:loop:sums:sum-0"
    left = factory.start_trajectory(NewTrajectory(group_id=group, rollout_index=0, agent="loop")).trajectory_id
    async with SlowToAnswer(url, refused=[left]) as client:
        work = [(Sums(), Sums().tasks(1))]
        report = await run_rollouts(client, work, [LoopAgent()], name="unended", model="m", retries=0)
    assert report.common_error() == "the disk is full"
    found = {stored.trajectory_id: stored.status for stored in factory.list_trajectories(group_id=group).items}
    assert found.pop(left) == "open"
    assert list(found.values()) == ["abandoned"]


async def test_names_tell_agents_and_task_sets_apart(run):
    with pytest.raises(ConfigError, match="two of the agents are called 'loop'"):
        await run([LoopAgent(), LoopAgent(max_turns=2)])


async def test_a_server_that_is_not_there_is_one_error():
    work = [(Sums(), Sums().tasks(5))]
    async with AsyncFactory("http://127.0.0.1:1") as client:
        with pytest.raises(AgentWorldError, match="Nothing answers"):
            await run_rollouts(client, work, [LoopAgent()], name="nowhere", model="m", resume=False)


async def test_slow_checkers_hold_up_nobody_else(run):
    class Together(Sums):
        meeting = threading.Barrier(2, timeout=150)

        def check(self, task, answer):
            self.meeting.wait()
            return super().check(task, answer)

    report = await run(LoopAgent(), 2, Together())
    assert report.summary().mean_reward == 1.0, report.common_error()


async def test_each_agent_keeps_its_limit(run, engine):
    together, most = 0, 0

    async def count(request):
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.02)
        together -= 1
        return "1"

    engine.script = count
    await run(LoopAgent(concurrency=3), 12, concurrency=8)
    assert most <= 3
    most = 0
    await run([LoopAgent(name="a"), LoopAgent(name="b")], 12, concurrency=5)
    assert most <= 5


async def test_a_seed_differs_between_rollouts_and_repeats_between_runs(run, engine):
    async def seeds(name):
        before = len(engine.requests)
        await run(LoopAgent(), 2, rollouts=2, name=name, resume=False, sampling=Sampling(seed=7), concurrency=1)
        return [call.body["seed"] for call in engine.requests[before:]]

    first = await seeds("seeded")
    assert len(set(first)) == 4
    assert await seeds("seeded") == first
    assert await seeds("other") != first
