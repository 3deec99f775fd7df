"""Dataset versions over HTTP: with the same words as on a pool, and what keys that are bound see."""

import asyncio
import threading

import pytest

from agentworld.api.long_work import LongWork
from agentworld.client.aio import AsyncFactory
from agentworld.errors import BusyError, ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from agentworld.factory import connect, open_pool
from agentworld.pool.keys import NewKey
from agentworld.records import Reward, Selection, Splits
from tests.api.serving import Serving
from tests.api.test_errors import is_an_error
from tests.curation.datasets.filling import fill, run

EVERYTHING = Selection(splits=Splits(fractions={"train": 0.5, "test": 0.5}))


@pytest.fixture(params=["http", "embedded"])
def factory(request):
    """The same surface twice, each on a filled pool."""
    if request.param == "embedded":
        with open_pool("memory://") as pool:
            fill(pool)
            yield pool
    else:
        with Serving() as server, connect(server.url) as connected:
            fill(server.pool)
            yield connected


def test_a_client_has_the_words_of_a_pool(factory):
    lines, stages = [], []
    made = factory.create_dataset(
        "d", EVERYTHING, note="n", created_by="ann", say=lines.append, progress=lambda *told: stages.append(told)
    )
    assert (made.rows, made.steps, made.note, made.created_by) == (10, 19, "n", "ann")
    assert stages[-1] == ("freeze", 10, 10)
    assert factory.create_dataset("d", EVERYTHING) == made == factory.get_dataset(made.version[:10])
    factory.add_rewards([Reward(value=0.9, trajectory_id="t1")])
    other = factory.create_dataset(
        "d", Selection(where="reward >= 0.4", splits=EVERYTHING.splits), parents=[made.version]
    )
    assert [one.version for one in factory.list_datasets(name="d").items] == [other.version, made.version]
    page = factory.list_datasets(limit=1)
    assert factory.list_datasets(limit=1, cursor=page.next_cursor).items == [made]
    rows = factory.dataset_rows("d", limit=100)
    assert [row.position for row in rows] == list(range(other.rows))
    assert factory.dataset_rows("d", after=1, limit=2) == rows[2:4]
    assert factory.dataset_rows(made.version, split="test")[0].split == "test"
    assert [row.trajectory_id for row in rows if row.labels] == ["t4"]
    found = factory.diff_datasets(made.version, other.version, samples=1)
    assert (found.removed, len(found.samples)) == (10 - other.rows, 2)
    assert factory.verify_dataset(made.version, problems=5).is_ok
    origin = factory.trace_row("d", step_id="t1-1")
    assert (origin.trajectory_id, [one.step_id for one in origin.steps]) == ("t1", ["t1-1"])
    assert factory.trace_row("d", trajectory_id="called").steps[0].exchange_id == "call"
    about = {"version": made.version, "trajectory_id": "t0", "step_ids": ["t0-0"]}
    assert factory.trace_row(exported={"agentworld": about}).version == made.version
    for refused, error in (
        (lambda: factory.create_dataset("d", Selection(where="reward > 5")), InvalidRequestError),
        (lambda: factory.create_dataset("d", "reward > 5"), InvalidRequestError),
        (lambda: factory.get_dataset("none"), NotFoundError),
        (lambda: factory.get_dataset("d@zz"), InvalidRequestError),
        (lambda: factory.trace_row("d", trajectory_id="none"), NotFoundError),
        (lambda: factory.trace_row(trajectory_id="t1"), InvalidRequestError),
        (lambda: factory.trace_row("d", trajectory_id="t1", step_id="t1-1"), InvalidRequestError),
        (lambda: factory.dataset_rows("d", split="a/b"), InvalidRequestError),
        (lambda: factory.delete_dataset("d"), InvalidRequestError),
    ):
        with pytest.raises(error):
            refused()
    assert factory.delete_dataset(other.version).version == other.version
    assert factory.list_datasets().items == [made]


async def test_an_asynchronous_client_has_the_same_words():
    with Serving() as server:
        fill(server.pool)
        async with AsyncFactory(server.url) as factory:
            made = await factory.create_dataset("d", EVERYTHING)
            assert await factory.get_dataset("d") == made
            assert (await factory.list_datasets()).items == [made]
            assert len(await factory.dataset_rows("d")) == 10
            assert (await factory.diff_datasets("d", "d")).same == 10
            assert (await factory.verify_dataset("d")).is_ok
            assert (await factory.trace_row("d", step_id="t1-1")).trajectory_id == "t1"
            assert await factory.delete_dataset(made.version) == made


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "where"),
    [
        ("POST", "datasets", {}, 400, "$"),
        ("POST", "datasets", {"name": "a b"}, 400, "name"),
        ("POST", "datasets", {"name": "d", "selection": {"wher": "ready"}}, 400, "$.selection"),
        ("POST", "datasets", {"name": "d", "selection": {"where": "rewrd > 1"}}, 400, None),
        ("POST", "datasets", {"name": "d", "selection": {"splits": {"by": "user"}}}, 400, "$.selection.splits.by"),
        ("POST", "datasets", {"name": "d", "selection": {"splits": {"fractions": {}}}}, 400, "splits.fractions"),
        ("POST", "datasets", {"name": "d", "parents": ["none"]}, 404, "version"),
        ("GET", "datasets/none", None, 404, "version"),
        ("GET", "datasets/d%2Fe", None, 404, None),
        ("GET", "datasets/d@x", None, 400, "version"),
        ("GET", "datasets/d/rows?limit=0", None, 400, None),
        ("GET", "datasets/d/rows?after=-2", None, 400, None),
        ("GET", "datasets/d/diff", None, 400, None),
        ("GET", "datasets/d/diff?other=none", None, 404, "version"),
        ("GET", "datasets/d/trace", None, 400, "row"),
        ("POST", "datasets/d/verify", {"problem": 1}, 400, "$"),
        ("DELETE", "datasets/d", None, 400, "version"),
    ],
)
def test_what_cannot_be_taken_is_named(served, method, path, body, status, where):
    got, _, reply = served.send(method, f"/api/v1/{path}", body)
    assert got == status, reply
    assert is_an_error(reply)
    if where is not None:
        assert reply["error"]["path"] == where


@pytest.fixture(scope="module")
def served():
    with Serving() as server:
        run(server.pool, "t1")
        assert server.post("/api/v1/datasets", {"name": "d"})[0] == 201
        yield server


def test_rows_come_in_pages(served):
    run(served.pool, "t2")
    run(served.pool, "t3")
    assert served.post("/api/v1/datasets", {"name": "e"})[0] == 201
    first = served.get("/api/v1/datasets/e/rows?limit=2")[1]
    assert [row["trajectory_id"] for row in first["items"]] == ["t1", "t2"]
    rest = served.get(f"/api/v1/datasets/e/rows?limit=2&after={first['next_cursor']}")[1]
    assert ([row["trajectory_id"] for row in rest["items"]], rest["next_cursor"]) == (["t3"], None)


def test_the_end_of_the_server_breaks_a_version_off():
    with Serving() as server:
        run(server.pool, "t1")
        server.end_streams()
        status, reply = server.post("/api/v1/datasets", {"name": "d"})
        assert (status, reply["error"]["code"]) == (503, "shutting_down")
        assert server.pool.list_datasets().items == []
        assert server.pool.pins() == []


def test_only_so_much_is_done_at_once(monkeypatch):
    with Serving() as server:
        run(server.pool, "t1")
        begun, go, begin = threading.Semaphore(0), threading.Event(), server.pool.begin_dataset

        def slow(name):
            begun.release()
            assert go.wait(100)
            return begin(name)

        monkeypatch.setattr(server.pool, "begin_dataset", slow)
        found = []
        threads = [
            threading.Thread(target=lambda name=name: found.append(server.post("/api/v1/datasets", {"name": name})))
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=100)
        status, headers, reply = server.send("POST", "/api/v1/datasets", {"name": "e"})
        assert (status, reply["error"]["code"], headers["retry-after"]) == (429, "busy", "5")
        go.set()
        for thread in threads:
            thread.join()
        assert [status for status, _ in found] == [201] * 4
        assert server.post("/api/v1/datasets", {"name": "e"})[0] == 201


@pytest.mark.parametrize("fault", [None, ValueError("broken")])
async def test_who_asks_the_same_again_waits_for_it_without_a_thread(fault):
    """Also where the first one has left; nobody takes the place of the work itself."""
    work, begun, go = LongWork(asyncio.Event(), most=1, waiting=2), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(progress):
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(100)
        if fault is not None:
            raise fault
        return "made"

    def never(progress):
        raise AssertionError("made twice")

    first = asyncio.ensure_future(work.run("a", slow))
    await asyncio.wait_for(begun.wait(), 100)
    threads = threading.active_count()
    others = [asyncio.ensure_future(work.run("a", never)) for _ in range(2)]
    await asyncio.sleep(0)  # They wait now.
    with pytest.raises(BusyError) as raised:
        await work.run("a", never)
    assert raised.value.status == 429
    with pytest.raises(BusyError):
        await work.run("b", never)
    assert threading.active_count() == threads
    for left in (first, others[0]):
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
    another = asyncio.ensure_future(work.run("a", never))  # In the place of the one that has left.
    await asyncio.sleep(0)
    go.set()
    found = await asyncio.wait_for(asyncio.gather(others[1], another, return_exceptions=True), 100)
    assert found == [fault or "made"] * 2
    assert await work.run("a", lambda progress: "made anew") == "made anew"


def test_a_bound_key_has_the_versions_of_its_channel_alone():
    with Serving(require_keys=True) as server:
        pool = server.pool
        for name, channel in (("a", "train"), ("b", "val"), ("c", "val")):
            run(pool, name, channel=channel)
        keys = {
            "val": NewKey(name="val", scopes=("write", "read"), channel="val"),
            "boss": NewKey(name="boss", scopes=("admin",)),
            "one": NewKey(name="one", scopes=("write", "read"), trajectory_id="b"),
            "reads": NewKey(name="reads", scopes=("read",)),
            "free": NewKey(name="free", scopes=("write", "read")),
            "nobody": NewKey(name="nobody", scopes=("write", "read"), channel="empty"),
        }
        secrets = [pool.create_key(new).secret for new in keys.values()]
        val, boss, one, reads, free, nobody = (connect(server.url, api_key=secret) for secret in secrets)
        val_secret = secrets[0]
        train, whole = free.create_dataset("d"), free.create_dataset("all", Selection(channel=None))
        # A name that others use, rows that others froze, and channels that others have.
        free.create_dataset("shared", Selection(channel=None, where="channel == 'val'"), note="not for everybody")
        with pytest.raises(ConflictError, match="another name"):
            val.create_dataset("shared")
        with pytest.raises(NotFoundError):
            val.get_dataset("shared")
        third = val.create_dataset("d", note="own")
        free.create_dataset("d", Selection(where="trajectory_id == 'a'", unrewarded=True), note="later")
        assert val.get_dataset("d") == third == val.get_dataset(f"d@{third.digest[:6]}")
        assert boss.delete_dataset(third.version) == third
        status, _, reply = server.send(
            "POST", "/api/v1/datasets", {"name": "d", "selection": {"channel": "train"}},
            {"Authorization": f"Bearer {val_secret}"},
        )  # fmt: skip
        assert (status, reply["error"]["code"]) == (403, "forbidden")
        with pytest.raises(InvalidRequestError) as raised:
            nobody.create_dataset("d")
        assert (raised.value.path, raised.value.hint) == ("channel", None)
        own = val.create_dataset("mine")
        assert (own.selection.channel, [row.trajectory_id for row in val.dataset_rows("mine")]) == ("val", ["b", "c"])
        assert val.create_dataset("mine", Selection(channel=None)) == own
        assert [one.version for one in val.list_datasets().items] == [own.version]
        assert val.verify_dataset("mine").is_ok
        assert val.trace_row("mine", step_id="b-1").trajectory_id == "b"
        assert reads.verify_dataset(whole.version).ok == 3
        for hidden in (train.version, whole.version, "d", "all"):
            for call, arguments in (
                (val.get_dataset, {}),
                (val.dataset_rows, {}),
                (val.verify_dataset, {}),
                (val.diff_datasets, {"other": "mine"}),
                (val.trace_row, {"trajectory_id": "a"}),
                (one.get_dataset, {}),
            ):
                with pytest.raises(NotFoundError):
                    call(hidden, **arguments)
            with pytest.raises(NotFoundError):
                val.diff_datasets("mine", hidden)
            with pytest.raises(NotFoundError):
                val.create_dataset("mine", parents=[hidden])
        assert one.list_datasets().items == []
        for call in (
            lambda: val.create_dataset("mine", Selection(channel="other")),
            lambda: one.create_dataset("mine"),
            lambda: reads.create_dataset("mine"),
            lambda: val.delete_dataset(own.version),
            lambda: free.delete_dataset(own.version),
        ):
            with pytest.raises(ForbiddenError):
                call()
        assert boss.delete_dataset(own.version) == own
        for client in (val, boss, one, reads, free, nobody):
            client.close()


def test_a_selection_travels_as_it_is(factory):
    asked = Selection(
        where="reward >= 0.1",
        unit="trajectory",
        splits=Splits(fractions={"a": 0.25, "b": 0.75}, by="group", near_duplicates=None, seed=-7),
    )
    assert factory.create_dataset("d", asked).selection == asked
