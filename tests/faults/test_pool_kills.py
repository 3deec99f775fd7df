"""kill -9 of who works with a pool: nothing is lost, nothing twice, each lease acknowledged or handed out again."""

import os

import pytest

from agentworld.pool import open_store
from agentworld.records import BatchSpec, NewTrajectory
from tests.faults.crew import Crew, kill_rounds, problems
from tests.faults.workers import made_step
from tests.postgres_server import FAST, PostgresServer

ROUNDS = int(os.environ.get("AGENTWORLD_POOL_KILL_ROUNDS", "200")) // 2


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def test_a_few_kills_on_sqlite_lose_and_double_nothing(tmp_path, notes):
    killed, problems = kill_rounds(f"sqlite:///{tmp_path}/pool.db", notes, 5, seed=3)
    assert problems == []
    assert set(killed) == {"writer", "consumer", "trainer", "keeper", "everyone"}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_many_kills_on_sqlite_lose_and_double_nothing(tmp_path, notes):
    killed, problems = kill_rounds(f"sqlite:///{tmp_path}/pool.db", notes, ROUNDS, seed=1)
    assert problems == []
    assert sum(killed.values()) == ROUNDS + 1


def kill_rounds_on_postgres(settings, notes, rounds, seed):
    """Rounds in which the database server is killed too, and started again while the workers insist."""
    with PostgresServer(settings) as server:

        def crash():
            server.kill()
            server.start()

        return kill_rounds(server.fresh_pool_url(), notes, rounds, seed, extra={"server": crash})


def test_a_few_kills_on_postgres_lose_and_double_nothing(notes):
    killed, problems = kill_rounds_on_postgres(FAST, notes, 6, seed=3)
    assert problems == []
    assert set(killed) == {"writer", "consumer", "trainer", "keeper", "everyone", "server"}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_many_kills_on_postgres_lose_and_double_nothing(notes):
    killed, problems = kill_rounds_on_postgres({}, notes, ROUNDS, seed=1)
    assert problems == []
    assert sum(killed.values()) == ROUNDS + 1


def test_what_a_pool_would_lose_or_double_is_seen(tmp_path, notes):
    """The check that finds nothing above finds each kind where the notes tell of more than the pool holds."""
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_store(url)
    for trajectory_id in ("t-0", "t-1"):
        pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id))
        pool.append_steps([made_step(trajectory_id, 0)])
        pool.complete_trajectory(trajectory_id, "finished", 1.0)
    pool.append_steps([made_step("t-1", 2), made_step("gone.t", 0)])
    spec = BatchSpec(method="reinforce", size=1, lease_seconds=0.01)
    lost, applied = pool.lease(spec, "shared"), pool.lease(spec, "trainer")
    pool.close()
    (notes / "writer").write_text("step t-0:0\nstep t-0:1\nready t-2\n")
    (notes / "consumer").write_text(f"leased {lost.batch_id} {lost.epoch} t-0\nacked {lost.batch_id}\n")
    (notes / "keeper").write_text("deleted gone.t\n")
    (notes / "trainer").write_text(f"applied {applied.batch_id} t-0\napplied {applied.batch_id} t-0\napplied gone\n")
    found = problems(Crew(url, notes))
    for wrong in (
        "t-0:1 is lost", f"the acknowledgement of {lost.batch_id} is lost", "t-2 was never acknowledged",
        "the lease gone is lost", "t-0 was applied 2 times", "t-1:2 has another step_id",
        "gone.t:0 was deleted and is there",
    ):  # fmt: skip
        assert wrong in found, found
