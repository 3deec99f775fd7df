"""Compressed message bodies: every node comes back, whoever continued which, and what is damaged is named."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import PoolError
from agentworld.pool.sql import bodies
from agentworld.pool.sql.bodies import (
    CONTINUES,
    PLAIN,
    STARTS,
    Body,
    BodyReader,
    BodyWriter,
    pack_alone,
    read_paths,
    unpack_alone,
)
from agentworld.records import Message, NewTrajectory, Step, WholeTrajectory
from tests.examples import examples


def text(seed, length=400):
    chosen = random.Random(seed)
    return " ".join(
        chosen.choice(["read", "the", "file", "and", "run", "its", "tests"]) for _ in range(length // 5)
    ).encode()


def written(writer, tree, contents):
    """The nodes of a tree: item n is the parent of node n + 1, 0 for none."""
    nodes = {}
    for number, parent in enumerate(tree, start=1):
        above = parent or None
        nodes[number] = Body(above, *writer.pack(number, above, contents[number - 1]))
    return nodes


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.binary(max_size=300) | st.integers(0, 5)), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(0, 30),
)
def test_every_node_comes_back(shape, limit, cleared):
    tree = [parent % (number + 1) for number, (parent, _) in enumerate(shape)]
    contents = [text(content) if isinstance(content, int) else content for _, content in shape]
    writer = BodyWriter(limit)
    nodes = {}
    for number, parent in enumerate(tree, start=1):
        if number == cleared:
            writer.clear()
        nodes[number] = Body(parent or None, *writer.pack(number, parent or None, contents[number - 1]))
    paths = read_paths(nodes, nodes, bytes)
    for end, path in paths.items():
        assert path[-1] == contents[end - 1]
        assert len(path) == 1 or path[:-1] == paths[tree[end - 1]]
    walk = BodyReader(forgetful=True)
    for row, node in nodes.items():
        if not walk.holds(node):
            walk.path(node.parent, nodes)
        assert walk.body(row, node) == contents[row - 1]


def test_a_conversation_is_one_frame_and_takes_less():
    contents = [text(number) for number in range(20)]
    nodes = written(BodyWriter(), range(20), contents)
    assert [node.coding for node in nodes.values()] == [STARTS] + [CONTINUES] * 19
    alone = sum(len(pack_alone(content)[1]) for content in contents)
    assert sum(len(node.data) for node in nodes.values()) < 0.8 * alone


def test_a_second_child_and_a_forgotten_parent_begin_frames():
    contents = [text(number) for number in range(4)]
    nodes = written(BodyWriter(), [0, 1, 1, 2], contents)
    assert [node.coding for node in nodes.values()] == [STARTS, CONTINUES, STARTS, CONTINUES]
    nodes = written(BodyWriter(limit=1), [0, 0, 1, 2], contents)
    assert [node.coding for node in nodes.values()] == [STARTS] * 4


def test_who_is_left_begins_frames_but_for_one_that_is_gone_on_with():
    contents = [text(number) for number in range(5)]
    writer = BodyWriter()
    nodes = written(writer, [0, 0], contents)
    writer.leave(2)
    nodes |= {row: Body(row - 2, *writer.pack(row, row - 2, contents[row - 1])) for row in (3, 4)}
    assert [nodes[row].coding for row in (3, 4)] == [STARTS, CONTINUES]
    writer.leave(None)
    nodes[5] = Body(4, *writer.pack(5, 4, contents[4]))
    assert nodes[5].coding == STARTS
    assert read_paths([3, 5], nodes, bytes) == {
        3: [contents[0], contents[2]],
        5: [contents[place] for place in (1, 3, 4)],
    }


def test_conversations_that_end_one_after_another_use_the_same_memory(sqlite_pool, monkeypatch):
    made, begin = [], bodies.zstandard.ZstdCompressor

    def counted(**settings):
        made.append(settings)
        return begin(**settings)

    monkeypatch.setattr(bodies.zstandard, "ZstdCompressor", counted)

    def conversation(number):
        spoken = [Message(role="user", content=text(10 * number + turn).decode()) for turn in range(4)]
        step = Step(
            step_id=f"{number}.0", trajectory_id=str(number), prompt_messages=spoken[:3], response_message=spoken[3]
        )
        return WholeTrajectory(new=NewTrajectory(trajectory_id=str(number)), steps=[step])

    whole = [conversation(number) for number in range(6)]
    assert {one.outcome for one in sqlite_pool.add_whole(whole)} == {"added"}
    kept = [sqlite_pool.get_step(one.steps[0].step_id, include=("messages",)) for one in whole]
    assert [step.prompt_messages for step in kept] == [one.steps[0].prompt_messages for one in whole]
    assert len(made) == 1


def test_what_gets_no_shorter_is_kept_as_it_is():
    nodes = written(BodyWriter(), [0, 1], [b"{}", text(1)])
    assert (nodes[1].coding, nodes[1].data, nodes[2].coding) == (PLAIN, b"{}", STARTS)
    assert pack_alone(b"[]") == (PLAIN, b"[]")
    assert unpack_alone(*pack_alone(text(1))) == text(1)


def test_a_long_walk_opens_frames_again(monkeypatch):
    monkeypatch.setattr(bodies, "_OPEN_FRAMES", 2)
    rollouts, turns = 9, 4
    tree = [0] * rollouts + list(range(1, rollouts * (turns - 1) + 1))
    contents = [text(number) for number in range(len(tree))]
    nodes = written(BodyWriter(limit=50), tree, contents)
    walk, again = BodyReader(forgetful=True), 0
    for row, node in nodes.items():
        if not walk.holds(node):
            again += 1
            walk.path(node.parent, nodes)
        assert walk.body(row, node) == contents[row - 1]
    assert again > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({2: Body(1, CONTINUES, b"broken")}, "message node 2 cannot be read"),
        ({2: Body(1, 9, b"x")}, "message node 2 cannot be read: coding 9"),
        ({1: Body(None, PLAIN, b"{}")}, "message node 2 cannot be read: coding 2 under node 1"),
        ({1: None}, "row 1, which others build on, is missing"),
    ],
)
def test_what_is_damaged_is_named(change, said):
    nodes = {**written(BodyWriter(), [0, 1, 2], [text(number) for number in range(3)]), **change}
    nodes = {row: node for row, node in nodes.items() if node is not None}
    with pytest.raises(PoolError, match=said):
        read_paths([3], nodes, bytes)
    with pytest.raises(PoolError, match="tool set"):
        unpack_alone(STARTS, b"broken")


def test_sets_are_packed_by_many_threads_at_once():
    """Each pool of a process has a thread that writes."""
    sets = [bytes(random.Random(number).choices(b"abcdef", k=60_000)) for number in range(64)]
    with ThreadPoolExecutor(8) as threads:
        packed = list(threads.map(pack_alone, sets))
    assert [unpack_alone(*each) for each in packed] == sets
