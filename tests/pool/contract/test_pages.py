"""Pages of listings, whichever way their rows are found."""

import itertools
import random

import pytest

from agentworld.errors import InvalidRequestError, QueryError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sorting import SORTS
from agentworld.pool.sql import reads, search, sorted_pages
from agentworld.pool.sql.connections import SearchTimeoutError
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import NewTrajectory, Policy, Reward
from tests.pool.conftest import Clock
from tests.pool.samples import finished, ids, step

TRAJECTORIES = 60


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def filled(request, tmp_path_factory):
    """Trajectories of two steps each that differ in all that has an index; what they are, by id. Tests only read."""
    clock = Clock()
    if request.param == "memory":
        pool = MemoryPool(clock=clock)
    elif request.param == "sqlite":
        pool = SqlitePool(tmp_path_factory.mktemp("pages") / "pool.db", clock=clock)
    else:
        pool = PostgresPool(request.getfixturevalue("postgres").fresh_pool_url(), clock=clock)
    dice = random.Random(11)
    made = {}
    for number in range(TRAJECTORIES):
        name = f"t{number:02}"
        facts = {
            "channel": dice.choice(["train", "train", "val"]),
            "group_id": f"g{number // 8}",
            "user": dice.choice(["ann", "bob", None]),
            "priority": dice.choice([0.0, 1.0, 2.0]),
            "reward": dice.choice([None, 0.0, 0.25, 0.75, 1.0]),
            "status": dice.choice(["finished", "finished", "failed", "open"]),
            "version": number // 10,
            "k": number % 3,
        }
        clock.now += 10
        pool.create_trajectory(
            NewTrajectory(
                trajectory_id=name,
                metadata={"k": facts["k"]},
                **{key: facts[key] for key in ("channel", "group_id", "user", "priority")},
            )
        )
        facts["created_at"] = clock.now
        changes = {
            "channel": facts["channel"],
            "policy": Policy("m", "r", facts["version"]),
            "metadata": {"k": number % 3},
        }
        steps = [step(name, step_id=f"{name}-{turn}", **changes) for turn in range(2)]
        pool.append_steps(steps)
        if facts["reward"] is not None:
            pool.add_rewards([Reward(value=facts["reward"], trajectory_id=name)])
            pool.add_rewards([Reward(value=facts["reward"], step_id=f"{name}-0")])
        if facts["status"] != "open":
            pool.complete_trajectory(name, facts["status"])
        facts["readiness"] = {
            "open": "open",
            "failed": "excluded",
            "finished": "complete" if facts["reward"] is None else "ready",
        }[facts["status"]]
        made[name] = facts
    yield pool, made
    pool.close()


def of_both(start):
    return [
        ("channel == 'val'", lambda f: f["channel"] == "val"),
        ("group_id in ('g1', 'g3')", lambda f: f["group_id"] in ("g1", "g3")),
        ("user == 'ann' and priority >= 1", lambda f: f["user"] == "ann" and f["priority"] >= 1),
        ("status == 'failed' or status == 'open'", lambda f: f["status"] in ("failed", "open")),
        ("status == 'finished' and meta.k == 1", lambda f: f["status"] == "finished" and f["k"] == 1),
        (
            f"created_at >= {start + 105} and created_at < {start + 300}",
            lambda f: start + 105 <= f["created_at"] < start + 300,
        ),
        ("meta.k == 2", lambda f: f["k"] == 2),
        ("user is null or group_id == 'g0'", lambda f: f["user"] is None or f["group_id"] == "g0"),
        ("channel == 'none'", lambda f: False),
        ("trajectory_id in ('t03', 't04', 'x')", lambda f: f["created_at"] in (start + 40, start + 50)),
        ("user like 'b%'", lambda f: f["user"] == "bob"),
    ]


def of_trajectories():
    return [
        ("complete and reward > 0.5", lambda f: f["readiness"] == "ready" and f["reward"] > 0.5),
        ("ready", lambda f: f["readiness"] == "ready"),
        ("readiness in ('open', 'excluded')", lambda f: f["readiness"] in ("open", "excluded")),
        ("reward in (0, 1) and not (channel == 'val')", lambda f: f["reward"] in (0, 1) and f["channel"] != "val"),
        (
            "policy.model == 'm' and policy.run == 'r' and version >= 4 and complete",
            lambda f: f["version"] >= 4 and f["readiness"] in ("complete", "ready"),
        ),
    ]


# How many matches of an index are few, and the rows of a first look: every way to a page is gone by one of these.
WAYS = {"few": (1_000, 50_000, 1_000), "in order": (0, 0, 5), "both": (0, 50_000, 3), "rarely": (5, 12, 2)}


def ways(monkeypatch):
    for name, (few, many, chunk) in WAYS.items():
        monkeypatch.setattr(search, "FEW", few)
        monkeypatch.setattr(search, "MANY", many)
        monkeypatch.setattr(search, "_FIRST_CHUNK", chunk)
        yield name


def walk(call, **filters):
    """Every item of a listing, page by page, and the pages."""
    found, cursor, walked = [], None, []
    while True:
        page = call(cursor=cursor, **filters)
        found += ids(page)
        walked.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return found, walked


def test_pages_hold_every_match_once_and_in_order(filled, monkeypatch):
    pool, made = filled
    cases = [
        ("trajectories", where, [name for name, facts in made.items() if holds(facts)])
        for where, holds in of_both(1_000_000.0) + of_trajectories()
    ]
    cases += [
        ("steps", where, [f"{name}-{turn}" for name, facts in made.items() if holds(facts) for turn in range(2)])
        for where, holds in of_both(1_000_000.0)
    ]
    for _, (subject, where, wanted) in itertools.product(ways(monkeypatch), cases):
        call = pool.list_trajectories if subject == "trajectories" else pool.list_steps
        for order, limit in (("oldest", 1000), ("oldest", 9), ("newest", 11)):
            found, walked = walk(call, where=where, order=order, limit=limit)
            assert found == (wanted if order == "oldest" else wanted[::-1]), (where, order, limit)
            assert all(len(page.items) == limit or page.partial for page in walked[:-1])


def test_conditions_go_with_filters(filled, monkeypatch):
    pool, made = filled
    cases = (("val", None, "meta.k == 1"), (None, "g2", "ready"), ("train", "g1", None))
    for _, (channel, group, where) in itertools.product(ways(monkeypatch), cases):
        wanted = [
            name
            for name, facts in made.items()
            if channel in (None, facts["channel"])
            and group in (None, facts["group_id"])
            and (where != "meta.k == 1" or facts["k"] == 1)
            and (where != "ready" or facts["readiness"] == "ready")
        ]
        found, _ = walk(pool.list_trajectories, where=where, channel=channel, group_id=group, limit=3)
        assert found == wanted
        steps, _ = walk(pool.list_steps, where=where, channel=channel, group_id=group, limit=3)
        assert steps == [f"{name}-{turn}" for name in wanted for turn in range(2)]
    assert ids(pool.list_steps(trajectory_id="t07", where="meta.k == 1")) == ["t07-0", "t07-1"]
    assert ids(pool.list_steps(trajectory_id="t07", where="meta.k == 2")) == []
    assert ids(pool.list_trajectories(trajectory_id="t07")) == ["t07"]


def test_steps_by_their_own_reward(filled, monkeypatch):
    pool, made = filled
    wanted = [f"{name}-0" for name, facts in made.items() if facts["reward"] is not None and facts["reward"] >= 0.75]
    for _ in ways(monkeypatch):
        assert walk(pool.list_steps, where="reward >= 0.75", limit=4)[0] == wanted


def test_a_page_ends_at_its_budget_of_rows_and_says_so(filled, monkeypatch):
    pool, made = filled
    monkeypatch.setattr(reads, "SCAN_ROWS", 10)
    wanted = [name for name, facts in made.items() if facts["k"] == 2]
    for order in ("oldest", "newest"):
        found, walked = walk(pool.list_trajectories, where="meta.k == 2", order=order)
        assert found == (wanted if order == "oldest" else wanted[::-1])
        if not pool.url.startswith("memory"):
            assert len(walked) == TRAJECTORIES / 10
            assert [page.partial for page in walked] == [True] * 5 + [False]
            assert [page.scanned for page in walked] == [10] * 6


def test_a_page_ends_at_its_budget_of_time_with_what_it_has(filled, monkeypatch):
    pool, made = filled
    monkeypatch.setattr(search, "PAGE_SECONDS", -1.0)
    monkeypatch.setattr(search, "_FIRST_CHUNK", 1)
    wanted = [name for name, facts in made.items() if facts["k"] == 2]
    found, walked = walk(pool.list_trajectories, where="meta.k == 2", limit=5)
    assert found == wanted
    if not pool.url.startswith("memory"):
        assert any(page.partial for page in walked)
        assert all(page.scanned for page in walked)


def test_a_search_that_is_cut_short_keeps_what_it_found(filled, monkeypatch):
    pool, made = filled
    look = search.Search._look
    looks = []

    def cut(searching, *arguments):
        looks.append(1)
        if len(looks) % 2 == 0:
            raise SearchTimeoutError
        return look(searching, *arguments)

    monkeypatch.setattr(search.Search, "_look", cut)
    monkeypatch.setattr(search, "_FIRST_CHUNK", 4)
    wanted = [name for name, facts in made.items() if facts["k"] == 2]
    found, walked = walk(pool.list_trajectories, where="meta.k == 2", limit=5)
    assert found == wanted
    assert pool.url.startswith("memory") or any(page.partial for page in walked)


def test_a_search_that_finds_no_time_at_all_is_an_error(filled, monkeypatch):
    pool, _ = filled
    if pool.url.startswith("memory"):
        return  # It searches without a limit.

    def never(*_):
        raise SearchTimeoutError

    monkeypatch.setattr(search.Search, "_look", never)
    with pytest.raises(QueryError, match="took longer"):
        pool.list_trajectories(where="meta.k == 2")
    assert len(pool.list_trajectories(limit=1000).items) == TRAJECTORIES


def test_a_cursor_goes_on_where_the_page_ended_whatever_came_or_went(pool):
    for name in "abcdef":
        finished(pool, name, reward=1.0)
    first = pool.list_trajectories(where="ready", limit=2)
    pool.delete_trajectories(["b", "c"])
    finished(pool, "g", reward=1.0)
    rest = pool.list_trajectories(where="ready", cursor=first.next_cursor)
    assert (ids(first), ids(rest)) == (["a", "b"], ["d", "e", "f", "g"])
    assert ids(pool.list_trajectories(where="meta.x is null", order="newest")) == ["g", "f", "e", "d", "a"]


def test_a_listing_without_a_search_is_never_partial(filled, monkeypatch):
    pool, made = filled
    monkeypatch.setattr(reads, "SCAN_ROWS", 10)
    page = pool.list_trajectories(limit=50)
    assert (ids(page), page.partial) == (list(made)[:50], False)


def test_an_explanation_tells_what_an_index_answers(filled):
    pool, made = filled
    found = pool.explain("reward >= 0.75 and meta.k == 1")
    assert found.expression == "reward >= 0.75 and metadata.k == 1"
    assert found.fields == ["reward", "metadata.k"]
    assert (found.indexed, found.scanned, found.scans) == (["reward >= 0.75"], ["metadata.k == 1"], False)
    assert found.plan
    scan = pool.explain("meta.k == 1", "steps")
    assert (scan.subject, scan.indexed, scan.scans) == ("steps", [], True)
    if not pool.url.startswith("memory"):
        count = sum(facts["reward"] is not None and facts["reward"] >= 0.75 for facts in made.values())
        assert found.plan[0] == f"by an index: reward >= 0.75 finds {count} rows"
        assert scan.plan[0].startswith("row by row")
        assert pool.explain("status == 'open'").plan[0] == "in the order of an index: status == 'open'"
    if pool.url.startswith("sqlite"):
        assert any("trajectories_by_reward" in line for line in found.plan)


def test_what_is_no_query_is_not_explained(pool):
    with pytest.raises(QueryError):
        pool.explain("reward >=")
    with pytest.raises(QueryError):
        pool.explain("step_id == 'x'", "trajectories")


def test_a_page_size_that_is_none_is_refused(pool):
    for limit in (0, 1001):
        with pytest.raises(InvalidRequestError):
            pool.list_steps(where="late", limit=limit)


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_a_page_says_how_many_rows_it_looked_at(pool, order):
    if pool.url.startswith("memory"):
        pytest.skip("The store in memory looks at every row.")
    pool.append_steps([step("t", step_id=name) for name in ("a", "b", "c")])
    for where, found in (("late", []), ("not late", ["a", "b", "c"])):
        page = pool.list_steps(where=where, order=order)
        assert (sorted(ids(page)), page.next_cursor, page.scanned) == (found, None, 3)


@pytest.mark.parametrize("sort", [f"{way}{name}" for name in SORTS for way in ("", "-")])
def test_pages_in_the_order_of_a_value(filled, sort, monkeypatch):
    pool, made = filled
    monkeypatch.setattr(search, "FEW", 20)
    monkeypatch.setattr(sorted_pages, "FEW", 20)
    monkeypatch.setattr(sorted_pages, "_FIRST_LOOK", 3)
    name, down = sort.removeprefix("-"), sort.startswith("-")
    for where, fits in [
        (None, lambda f: True),
        ("group_id == 'g1'", lambda f: f["group_id"] == "g1"),
        ("meta.k != 1 and channel == 'train'", lambda f: f["k"] != 1 and f["channel"] == "train"),
    ]:
        chosen = [each for each in made.items() if fits(each[1])]
        there = [(facts[name], key) for key, facts in chosen if facts[name] is not None]
        absent = [key for key, facts in chosen if facts[name] is None]
        expected = [key for _, key in sorted(there, reverse=down)] + sorted(absent, reverse=down)
        found, cursor = [], None
        while True:
            page = pool.list_trajectories(where=where, sort=sort, cursor=cursor, limit=7)
            found += ids(page)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == expected, (where, sort)


def test_a_page_in_the_order_of_a_value_ends_with_its_budget(filled, monkeypatch):
    pool, _ = filled
    monkeypatch.setattr(reads, "SCAN_ROWS", 10)
    page = pool.list_trajectories(where="meta.k == 7", sort="-reward", limit=5)
    if not isinstance(pool, MemoryPool):
        assert (page.items, page.partial, page.scanned) == ([], True, 10)
        page = pool.list_trajectories(where="meta.k == 7", sort="-reward", limit=5, cursor=page.next_cursor)
        assert (page.items, page.partial) == ([], True)
        # Those that have no reward come last, and are looked for among all rows.
        last = pool.list_trajectories(sort="reward", limit=1000)
        assert last.partial
        found, cursor = ids(last), last.next_cursor
        while cursor is not None:
            page = pool.list_trajectories(sort="reward", cursor=cursor, limit=1000)
            found, cursor = found + ids(page), page.next_cursor
        monkeypatch.undo()
        assert found == ids(pool.list_trajectories(sort="reward", limit=1000))
    for wrong in ({"sort": "agent"}, {"sort": "reward", "order": "newest"}, {"sort": "reward", "cursor": "o1"}):
        with pytest.raises(QueryError):
            pool.list_trajectories(**wrong)
    of_users = pool.list_trajectories(sort="user", limit=1).next_cursor
    with pytest.raises(QueryError, match="no cursor"):
        pool.list_trajectories(sort="reward", cursor=of_users)
