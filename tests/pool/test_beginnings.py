"""Trajectories that begin with one prompt: what is stored is what it were if each were hashed and looked up anew."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.forest import BLOCK_SIZE
from agentworld.pool.sql import traces
from agentworld.pool.sql.append_intake import prepare_all
from agentworld.pool.sql.tips import MessageTip, TokenTip
from agentworld.pool.sqlite.pool import SqlitePool
from agentworld.records import Message, NewTrajectory, Step
from agentworld.records.whole import WholeTrajectory

LENGTHS = (BLOCK_SIZE - 1, BLOCK_SIZE, 2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 40)
PROMPTS = [
    [Message(role="user", content="one")],
    [Message(role="system", content="be brief"), Message(role="user", content="one")],
    [Message(role="system", content="be long"), Message(role="user", content="one")],
    [Message(role="system", content="be brief"), Message(role="user", content='"two" \0 \U00100000')],
]
replies = st.sampled_from([Message(role="assistant", content=said) for said in ("yes", "no", 'said "so"')])
starts = st.tuples(
    st.sampled_from(LENGTHS), st.sampled_from(PROMPTS), st.sampled_from([0, 1, BLOCK_SIZE]), st.none() | replies
)
# Of each trajectory: how it begins, and whether a second turn follows.
trajectories = st.lists(st.tuples(starts, st.booleans()), min_size=1, max_size=5)
# What is written together: one by one, all as one call of append_steps, or as whole trajectories.
rounds = st.lists(st.tuples(st.sampled_from(["alone", "together", "whole"]), trajectories), min_size=1, max_size=4)


def _steps(name, start, goes_on):
    length, prompt, sampled, reply = start
    first = Step(
        step_id=f"{name}-0",
        trajectory_id=name,
        prompt_ids=list(range(length)),
        response_ids=[7] * sampled,
        prompt_messages=prompt,
        response_message=reply,
        token_source="submitted",
    )
    if not goes_on or reply is None:
        return [first]
    second = Step(
        step_id=f"{name}-1",
        trajectory_id=name,
        prompt_ids=[*range(length), *[7] * sampled, *range(BLOCK_SIZE)],
        response_ids=[8],
        prompt_messages=[*prompt, reply, Message(role="user", content="go on")],
        response_message=Message(role="assistant", content="done"),
        token_source="submitted",
    )
    return [first, second]


def _stored(path, written):
    """Everything that a pool holds which these were written to."""
    with contextlib.closing(SqlitePool(path, clock=lambda: 1000.0)) as pool:
        for number, (how, begun) in enumerate(written):
            made = [
                (name := f"t{number}-{place}", _steps(name, start, goes_on))
                for place, (start, goes_on) in enumerate(begun)
            ]
            if how == "whole":
                pool.add_whole(
                    [WholeTrajectory(new=NewTrajectory(trajectory_id=name), steps=steps) for name, steps in made]
                )
            elif how == "together":
                pool.append_steps([step for _, steps in made for step in steps])
            else:
                for _, steps in made:
                    pool.append_steps(steps)
        assert pool.check() == []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(written=rounds)
def test_it_is_stored_as_if_no_other_had_begun_so(written):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        known = _stored(Path(folder, "known.db"), written)
        patched.setattr(traces.Beginnings, "latest", lambda self, begins: "")
        assert known == _stored(Path(folder, "anew.db"), written)


def test_what_another_has_is_not_hashed_again(tmp_path, monkeypatch):
    shared = []
    for tip in (TokenTip, MessageTip):

        def noted(self, *said, inner=tip.shared):
            shared.append(inner(self, *said))
            return shared[-1]

        monkeypatch.setattr(tip, "shared", noted)
    begun = (2 * BLOCK_SIZE, PROMPTS[1], 1, Message(role="assistant", content="yes"))
    _stored(tmp_path / "pool.db", [("alone", [(begun, False), (begun, False)])])
    assert shared == [2 * BLOCK_SIZE + 1, 3]


def test_what_was_undone_is_not_built_upon(tmp_path):
    begun = (2 * BLOCK_SIZE, PROMPTS[1], 1, Message(role="assistant", content="yes"))
    [first] = _steps("first", begun, False)
    [second] = _steps("second", begun, False)
    with contextlib.closing(SqlitePool(tmp_path / "pool.db")) as pool:

        def undone(transaction):
            pool._appender.append_all(transaction, [prepared])
            raise ValueError("undone")

        prepared = prepare_all([first])
        with pytest.raises(ValueError, match="undone"):
            pool._writer.submit(undone).result()
        pool.append_steps([second])
        assert pool.check() == []
        assert pool.get_step("second-0").prompt_ids == second.prompt_ids
