"""Two writers of one pool by turns, as two processes are: neither goes by what it knew before the other wrote."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError, ConflictError
from agentworld.pool import open_store
from agentworld.pool.sql.append_intake import prepare_all
from agentworld.records import Exchange, NewTrajectory
from tests.examples import examples

from .samples import step


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The URL of an empty pool."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_kept")
    return f"sqlite:///{tmp_path / 'pool.db'}"


def nothing(pool):
    assert pool.append_steps([]) == []


def what_is_rejected(pool):
    assert [one.outcome for one in pool.append_steps([step("t", prompt_ids=[-1])])] == ["rejected"]


@pytest.mark.parametrize("between", [nothing, what_is_rejected])
def test_an_append_that_names_no_trajectory_makes_nothing_known_again(url, between):
    with contextlib.closing(open_store(url)) as first, contextlib.closing(open_store(url)) as second:
        first.append_steps([step("t")])
        second.append_steps([step("t"), step("t")])
        between(first)
        sent = step("t")
        [result] = first.append_steps([sent])
        assert (result.outcome, result.step_index) == ("stored", 3)
        assert second.get_trajectory("t").step_count == 4
        assert first.check() == []


def test_what_was_undone_is_not_known_after_an_append_that_names_no_trajectory(url):
    with contextlib.closing(open_store(url)) as pool:
        begun = prepare_all([step("t"), step("t")])

        def undone(txn):
            pool._appender.append_all(txn, [begun])
            raise ConflictError("undone")

        futures = []

        def together(txn):
            futures.append(pool._writer.submit(undone))
            futures.extend(pool.submit_steps(steps) for steps in ([step("t", prompt_ids=[-1])], [step("t")]))

        pool._writer.submit(together).result()
        with pytest.raises(ConflictError, match="undone"):
            futures[0].result()
        assert [[one.outcome for one in future.result()] for future in futures[1:]] == [["rejected"], ["stored"]]
        pool._writer.submit(undone).exception()
        what_is_rejected(pool)
        [result] = pool.append_steps([step("t")])
        assert (result.outcome, result.step_index) == ("stored", 1)
        assert pool.check() == []


# By which of the two, what, and of which trajectory.
acts = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["step", "step", "step", "bad", "bad", "call", "declare", "end", "delete", "undone"]),
    st.integers(0, 1),
    st.integers(0, 5),
)


def act(pool, kind, trajectory, number):
    """One write; what became of it is checked by what is there at the end."""
    if kind == "step":
        pool.append_steps([step(trajectory, channel=("train", "val")[number % 2])])
    elif kind == "bad":
        pool.append_steps([step(trajectory, prompt_ids=[-1])])
    elif kind == "call":
        said = {"exchange_id": f"e{number}", "trajectory_id": trajectory}
        pool.append_exchange(
            Exchange(
                **said,
                dialect="chat",
                model="m",
                requested_model="m",
                messages=[],
                choices=[step(trajectory)][number % 2 :],
            )
        )
    elif kind == "declare":
        pool.create_trajectory(NewTrajectory(trajectory_id=trajectory, channel=("train", "val")[number % 2]))
    elif kind == "end":
        pool.complete_trajectory(trajectory, "finished", 1.0)
    elif kind == "delete":
        pool.delete_trajectories([trajectory])
    else:

        def undone(txn):
            pool._appender.append_all(txn, [prepare_all([step(trajectory), step(trajectory)])])
            raise ConflictError("undone")

        pool._writer.submit(undone).result()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_writers_that_take_turns_count_right(engine, request, tmp_path_factory):
    wiped = request.getfixturevalue("postgres_wipe") if engine == "postgres" else None

    @settings(max_examples=examples(40) if engine == "sqlite" else 10, deadline=None)
    @given(st.lists(acts, min_size=8, max_size=20))
    def take_turns(written):
        url = f"sqlite:///{tmp_path_factory.mktemp('turns') / 'pool.db'}"
        if wiped is not None:
            url = wiped[0]
            wiped[1]()
        with contextlib.closing(open_store(url)) as first, contextlib.closing(open_store(url)) as second:
            for who, kind, trajectory, number in written:
                with contextlib.suppress(AgentWorldError):
                    act((first, second)[who], kind, f"t{trajectory}", number)
            assert first.check() == []

    take_turns()
