"""A version of a server is exported on the client's side, as on a pool in the same process."""

import asyncio
import filecmp
import json

import pytest

from agentworld.api import datasets
from agentworld.client.aio import AsyncFactory
from agentworld.client.calls import Call
from agentworld.errors import AgentWorldError, ForbiddenError, InvalidRequestError, NotFoundError
from agentworld.factory import connect, open_pool
from agentworld.pool.keys import NewKey
from agentworld.records import Feedback, MediaPart, Message, Reward, Selection, Splits, TextPart
from tests.api.serving import Serving
from tests.curation.datasets.filling import fill, run
from tests.curation.exports.talks import put, says, step

LAYOUTS = (
    ("sft", {"style": "prompt-completion"}),
    ("sft", {"style": "verl"}),
    ("sft", {"expand": "each-step", "images": True}),
    ("sft-tokens", {}),
    ("preference", {"images": True}),
    ("kto", {"file_format": "jsonl"}),
    ("prm", {"reward": "reward.own"}),
    ("rl-prompts", {}),
    ("steps", {"license": "mit"}),
    ("steps", {"file_format": "jsonl"}),
    ("atif", {}),
)


def more(pool):
    """What exports read beside the rows: images, other rows of comparisons, and rows that are gone."""
    shown = MediaPart(pool.put_media(b"\x89PNG", "image/png"), "image/png")
    asked = Message(role="user", content=(TextPart("What is it?"), shown))
    put(pool, "seen", [step("seen", number, [asked], says(f"A {number}.")) for number in range(2)])
    pool.add_rewards([Reward(step_id=f"t4-{number}", value=1.0, name="own") for number in range(2)])
    pool.add_feedback([Feedback(kind="comparison", step_id="seen-0", other_id="seen-1", value=1.0, source="ann")])
    run(pool, "gone", steps=1)
    run(pool, "half", text="a\0b \ud800 \U00100001", changes={"response_mask": [1, 0]})


def same(one, other):
    """Whether two folders hold the same files byte for byte; the files."""
    names = [sorted(file.relative_to(top) for file in top.rglob("*") if file.is_file()) for top in (one, other)]
    assert names[0] == names[1]
    apart = [name for name in names[0] if not filecmp.cmp(one / name, other / name, shallow=False)]
    assert apart == []
    return names[0]


async def aside(url, tmp_path, read):
    """The same of a client for event loops, which goes on meanwhile; cancelled, it leaves nothing."""
    async with AsyncFactory(url) as factory:
        skipped = []
        assert [one async for one in factory.read_dataset("d", skipped=skipped.append)] == read
        assert [row.trajectory_id for row in skipped] == ["gone"]
        with pytest.raises(NotFoundError):
            await anext(factory.read_dataset("d", split="none"))
        with pytest.raises(InvalidRequestError):
            await factory.export_dataset("d", "prm", tmp_path / "x")
        layout, options = LAYOUTS[4]
        assert (await factory.export_dataset("d", layout, tmp_path / "aside", **options)).rows
        assert len(same(tmp_path / "local4", tmp_path / "aside")) > 1
        begun, left = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def progress(*said):
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(left.wait(), loop).result()

        export = asyncio.create_task(factory.export_dataset("d", "steps", tmp_path / "x", progress=progress))
        await begun.wait()
        export.cancel()
        with pytest.raises(asyncio.CancelledError):
            await export
        left.set()
        await loop.shutdown_default_executor()  # Once its thread has ended.
        assert not (tmp_path / "x").exists()
        assert not list(tmp_path.glob(".agentworld-export-*"))


def test_its_files_are_those_of_an_export_beside_the_pool(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_PAGE_BYTES", 4000)  # Pages of one row and of several.
    with open_pool(f"sqlite:///{tmp_path}/pool.db") as pool:
        fill(pool)
        more(pool)
        splits = Splits(fractions={"train": 0.5, "test": 0.5}, near_duplicates=None)
        # Two halves of a pair that stand apart are one character in any JSON.
        version = pool.create_dataset("d", Selection(where="trajectory_id != 'odd'", splits=splits)).version
        pool.delete_trajectories(["gone"], reason="asked for it")
        local = [
            pool.export_dataset("d", layout, tmp_path / f"local{number}", **options)
            for number, (layout, options) in enumerate(LAYOUTS)
        ]
        read = list(pool.read_dataset("d"))
        with Serving(pool.store) as server, connect(server.url) as factory:
            told = []
            for number, (layout, options) in enumerate(LAYOUTS):
                report = factory.export_dataset(
                    "d", layout, tmp_path / f"far{number}", progress=lambda *said: told.append(said), **options
                )
                assert (report.version, report.splits) == (version, local[number].splits)
                assert len(same(tmp_path / f"local{number}", tmp_path / f"far{number}")) > 1
            assert told[-1][0] == "trajectories"
            skipped = []
            assert list(factory.read_dataset("d", skipped=skipped.append)) == read
            assert [(row.trajectory_id, row.why, row.reason) for row in skipped] == [
                ("gone", "deleted", "asked for it")
            ]
            assert {one.row.split for one in factory.read_dataset("d", split="test")} == {"test"}
            for wrong, error in (
                (lambda: factory.read_dataset("d", split="none"), NotFoundError),
                (lambda: factory.export_dataset("none", "sft", tmp_path / "x"), NotFoundError),
                (lambda: factory.export_dataset("d", "sft", tmp_path / "x", margin=1.0), AgentWorldError),
                (lambda: factory.export_dataset("d", "prm", tmp_path / "x"), InvalidRequestError),
            ):
                with pytest.raises(error):
                    wrong()
            assert not (tmp_path / "x").exists()
            asyncio.run(aside(server.url, tmp_path, read))
            assert server.get(f"/api/v1/datasets/{version}/frozen?include=ids")[0] == 400


def test_who_may_read_a_version_may_export_it(tmp_path):
    with Serving(require_keys=True) as server:
        run(server.pool, "a")
        run(server.pool, "b", channel="val")
        scopes = {"reads": ("read",), "writes": ("write",), "val": ("read",)}
        secrets = {
            name: server.pool.create_key(
                NewKey(name=name, scopes=scope, channel="val" if name == "val" else None)
            ).secret
            for name, scope in scopes.items()
        }
        with open_pool("memory://") as _, connect(server.url, api_key=secrets["reads"]) as reads:
            boss = connect(server.url, api_key=server.pool.create_key(NewKey(name="boss", scopes=("admin",))).secret)
            version = boss.create_dataset("d").version
            boss.close()
            assert reads.export_dataset("d", "kto", tmp_path / "out").rows == 2
        for name, error in (("writes", ForbiddenError), ("val", NotFoundError)):
            with connect(server.url, api_key=secrets[name]) as other, pytest.raises(error):
                other.export_dataset(version, "kto", tmp_path / name)
        assert server.send("GET", f"/api/v1/datasets/{version}/frozen")[0] == 401


def test_a_long_trajectory_travels_in_what_is_new_in_it():
    sizes = []
    with Serving() as server:
        for steps in (50, 100):
            run(server.pool, f"long{steps}", steps=steps, text="word " * 200)
        with connect(server.url) as factory:
            factory.create_dataset("d")
            page = factory._body(Call("GET", "/api/v1/datasets/d/frozen?include=messages,arrays", dict))
            sizes = [len(json.dumps(one["steps"])) for one in sorted(json.loads(page)["items"], key=str)]
            assert len(next(iter(factory.read_dataset("d"))).steps) == 100
    assert max(sizes) < 2.2 * min(sizes)
