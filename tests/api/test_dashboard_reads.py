"""What the dashboard asks beside the listings: the server, runs, labels, agreement, use of batches, and files."""

import asyncio
import http.client
import json
import threading
import time
import traceback
from urllib.parse import quote, urlsplit

import pytest
from litestar.exceptions import LitestarException

from agentworld.api import dataset_files, judgements, scanning
from agentworld.api.server_status import without_secrets
from agentworld.config import LabelScheme, ModelSettings
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.pool import open_store
from agentworld.pool.keys import NewKey
from agentworld.pool.urls import shown_url
from agentworld.records import BatchSpec, Exchange, Feedback, NewTrajectory, Policy, Selection
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.curation.datasets.filling import fill, run


def rollout(
    pool, name, reward=None, *, version=None, channel="train", agent="a", task_set="sums", run="r1", status=None
):
    """A trajectory of one step, ended where it is said how."""
    pool.create_trajectory(
        NewTrajectory(
            trajectory_id=name, agent=agent, channel=channel, task={"task_set": task_set}, metadata={"run": run}
        )
    )
    step = {"step_id": f"{name}-s", "trajectory_id": name, "channel": channel, "prompt_ids": [1], "response_ids": [2]}
    if version is not None:
        step["policy"] = {"model": "m", "run": "default", "version": version}
    pool.append_steps([_step(step)])
    if status is not None:
        pool.complete_trajectory(name, status, reward)


def _step(fields):
    import msgspec

    from agentworld.records import Step

    return msgspec.convert({"response_logprobs": [-0.5], **fields}, Step)


@pytest.fixture
def keyed():
    with Serving(require_keys=True) as server:
        yield server


def bearer(server, *scopes, channel=None):
    issued = server.pool.create_key(NewKey(name="k", scopes=scopes, channel=channel))
    return {"Authorization": f"Bearer {issued.secret}"}


def test_runs_are_told_by_agent_task_set_and_version(server):
    for number in range(6):
        rollout(server.pool, f"t{number}", float(number % 2), version=number // 2, status="finished")
    rollout(server.pool, "o", agent="b", task_set="other")
    rollout(server.pool, "x", agent="b", run="r2", status="failed", channel="val")
    found = server.get("/api/v1/runs")[1]
    assert (found["looked"], found["whole"], {each["run"] for each in found["runs"]}) == (8, True, {"r1", "r2"})
    [first] = [each for each in found["runs"] if each["run"] == "r1"]
    cells = {(each["agent"], each["task_set"]): each for each in first["cells"]}
    sums = cells["a", "sums"]
    assert (sums["finished"], sums["rewarded"], sums["reward"], sums["successes"]) == (6, 6, 0.5, 3)
    assert (cells["b", "other"]["open"], cells["b", "other"]["reward"]) == (1, None)
    assert [(each["version"], each["trajectories"], each["reward"]) for each in first["versions"]] == [
        (0, 2, 0.5), (1, 2, 0.5), (2, 2, 0.5),
    ]  # fmt: skip
    assert sum(each["trajectories"] for each in first["times"]) == 7
    narrow = server.get(f"/api/v1/runs?run=r1&success=2&limit=3&channel={quote('train')}")[1]
    assert (narrow["looked"], narrow["whole"], narrow["runs"][0]["successes"]) == (3, False, 0)
    assert server.get("/api/v1/runs?success=nan")[0] == 400
    assert server.get(f"/api/v1/runs?run={quote(chr(39) + ' or true')}")[1]["runs"] == []


def test_labels_are_counted_with_examples_and_the_budget_ends_it(server, monkeypatch):
    for number in range(5):
        rollout(server.pool, f"t{number}", 1.0, status="finished")
    said = [
        Feedback(kind="label", name="check.loop", value=number % 2, trajectory_id=f"t{number}") for number in range(5)
    ]
    server.pool.add_feedback([*said, Feedback(kind="label", name="long", value="x" * 999, trajectory_id="t0")])
    found = server.get("/api/v1/labels")[1]
    by_name = {each["name"]: each for each in found["labels"]}
    assert [(each["value"], each["count"]) for each in by_name["check.loop"]["values"]] == [("0", 3), ("1", 2)]
    assert by_name["check.loop"]["values"][0]["examples"] == ["t4", "t2", "t0"]
    assert len(by_name["long"]["values"][0]["value"]) < 140
    assert server.get(f"/api/v1/labels?where={quote('label.check.loop == 1')}")[1]["looked"] == 2
    monkeypatch.setattr(scanning, "_PAGE", 1)
    monkeypatch.setattr(scanning, "MOST_SECONDS", -1.0)
    cut = server.get("/api/v1/labels")[1]
    assert (cut["looked"], cut["whole"]) == (1, False)


def test_agreement_tells_who_disagrees_on_what(server, monkeypatch):
    for number in range(4):
        rollout(server.pool, f"t{number}", 1.0, status="finished")
    said = []
    for number in range(4):
        for who in ("anna", "ben"):
            value = "bad" if (who, number) == ("ben", 3) else "good" if number % 2 else "poor"
            said.append(Feedback(kind="label", name="q", value=value, source=who, trajectory_id=f"t{number}"))
    server.pool.add_feedback([*said, Feedback(kind="label", name="q", value=1, source="check:x@1", trajectory_id="t0")])
    found = server.get("/api/v1/agreement?name=q")[1]
    assert found["whole"]
    assert found["agreement"]["compared"] == 4
    assert found["agreement"]["annotators"] == {"anna": 4, "ben": 4}
    assert [(one["target_id"], one["values"]) for one in found["disagreements"]] == [
        ("t3", {"anna": '"good"', "ben": '"bad"'})
    ]
    assert server.get("/api/v1/agreement?name=none")[1]["agreement"]["targets"] == 0
    assert server.get("/api/v1/agreement?name=q&level=interval")[0] == 400
    assert server.get("/api/v1/agreement?name=")[0] == 400
    monkeypatch.setattr(judgements, "MOST_SECONDS", -1.0)
    assert server.get("/api/v1/agreement?name=q")[1]["whole"] is True  # One page was all there was.


def test_agreement_that_would_compare_too_many_is_refused(server):
    rollout(server.pool, "t", 1.0, status="finished")
    for name, count, value in (("crowd", 400, str), ("texts", 1001, lambda number: f"text {number}")):
        every = range(count)
        if name == "crowd":
            said = [Feedback(kind="label", name=name, value="a", source=f"s{one}", trajectory_id="t") for one in every]
        else:
            for one in every:
                server.pool.create_trajectory(NewTrajectory(trajectory_id=f"x{one}"))
            said = [Feedback(kind="label", name=name, value=value(one), trajectory_id=f"x{one}") for one in every]
        for start in range(0, count, 500):
            server.pool.add_feedback(said[start : start + 500])
        assert server.get(f"/api/v1/agreement?name={name}")[0] == 400, name


def test_use_of_batches_tells_staleness_redelivery_and_how_often(server):
    pool = server.pool
    for number in range(4):
        rollout(pool, f"t{number}", 1.0, version=number % 2, status="finished")
    pool.set_policy(Policy("m", "default", 1))
    first = pool.lease(BatchSpec(unit="trajectory", size=2), "c")
    pool.release(first.batch_id, first.epoch)
    pool.set_policy(Policy("m", "default", 3))
    second = pool.lease(BatchSpec(unit="trajectory", size=4), "c")
    pool.ack(second.batch_id, second.epoch)
    found = server.get("/api/v1/consumers/c/usage")[1]
    assert [each["state"] for each in found["batches"]] == ["acked", "released"]
    assert found["uses"] == [{"value": 1, "count": 2}, {"value": 2, "count": 2}]
    assert found["staleness"] == [{"value": value, "count": count} for value, count in ((0, 1), (1, 1), (2, 2), (3, 2))]
    assert (found["redelivered"], found["unjudged"], found["looked"]) == (2, 0, 4)
    assert found["redeliveries"][0]["states"] == ["acked", "released"]
    assert found["batches"][0]["staleness_most"] == 3
    assert found["batches"][0]["held_seconds"] >= 0
    assert server.get("/api/v1/consumers/nobody/usage")[1]["batches"] == []


def test_a_split_comes_as_lines_and_what_gives_no_row_is_an_error(server, monkeypatch):
    fill(server.pool)
    version = create_dataset(server.pool, "d", Selection(channel=None)).version
    monkeypatch.setattr(dataset_files, "PIECE", 1)
    layouts = {each["name"]: each["drops_truncated"] for each in server.get("/api/v1/dataset-layouts")[1]["items"]}
    assert (layouts["sft"], layouts["sft-tokens"]) == (True, False)
    assert "atif" not in layouts
    status, headers, body = server.send("GET", f"/api/v1/datasets/{quote(version)}/export?layout=sft")
    rows = [json.loads(line) for line in body.splitlines()]
    assert (status, headers["x-content-type-options"]) == (200, "nosniff")
    assert headers["content-disposition"].startswith('attachment; filename="d-')
    assert {row["agentworld"]["version"] for row in rows} == {version}
    assert rows[0]["messages"]
    for query in ("layout=nope", "layout=atif", "layout=sft&split=nope", "layout=sft&style=nope", "layout=preference"):
        status, reply = server.get(f"/api/v1/datasets/d/export?{query}")
        assert status >= 400, query
        assert reply["error"]["message"], query
    run(server.pool, "cut", changes={"finish_reason": "length"})
    cut = quote(create_dataset(server.pool, "cut", Selection(where="trajectory_id == 'cut'")).version)
    status, reply = server.get(f"/api/v1/datasets/{cut}/export?layout=sft")
    assert (status, reply["error"].get("path")) == (400, None)
    assert "export with truncated as keep" in reply["error"]["hint"]
    kept = server.send("GET", f"/api/v1/datasets/{cut}/export?layout=sft&truncated=keep")[2]
    assert {json.loads(line)["agentworld"]["trajectory_id"] for line in kept.splitlines()} == {"cut"}
    for query in ("layout=sft&truncated=all", "layout=sft-tokens&truncated=keep"):
        assert server.get(f"/api/v1/datasets/{cut}/export?{query}")[0] == 400, query
    for _ in range(dataset_files.MOST_AT_ONCE + 1):  # Who leaves early gives the place back too.
        left = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=100)
        left.request("GET", "/api/v1/datasets/d/export?layout=sft")
        assert left.getresponse().read(1) == b"{"
        left.close()
    until = time.monotonic() + 100
    while (status := server.get("/api/v1/datasets/d/export?layout=sft")[0]) == 429 and time.monotonic() < until:
        pass
    assert status == 200


@pytest.mark.parametrize("path", ["/api/v1/datasets/d/export", "/api/v1/events"])
def test_what_a_stream_holds_is_given_back_though_somebody_keeps_its_fault(server, monkeypatch, path):
    fill(server.pool)
    create_dataset(server.pool, "d", Selection(channel=None))
    room = threading.BoundedSemaphore(1)
    monkeypatch.setattr(dataset_files, "_room", room)
    monkeypatch.setattr(dataset_files, "PIECE", 1)
    watch, watched, stopped = server.pool.watch, [], []

    def counted(wake):
        stop = watch(wake)
        watched.append(stop)
        return lambda: (stopped.append(stop), stop())

    monkeypatch.setattr(server.pool, "watch", counted)

    async def send(message):
        if message["type"] == "http.response.body":
            raise OSError("gone")

    host = urlsplit(server.url).netloc
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"layout=sft" * ("data" in path),
        "headers": [(b"host", host.encode())], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
    }  # fmt: skip
    asked = server.app(scope, asyncio.Event().wait, send)
    with pytest.raises(LitestarException, match="after response started") as kept:
        asyncio.run_coroutine_threadsafe(asked, server._loop).result(100)
    assert "gone" in "".join(traceback.format_exception(kept.value))
    assert room.acquire(blocking=False)
    assert (len(watched), stopped) == ((0, []) if "data" in path else (1, watched))


def test_who_leaves_an_export_leaves_its_place_when_the_thread_ends(monkeypatch):
    room = threading.BoundedSemaphore(1)
    monkeypatch.setattr(dataset_files, "_room", room)
    monkeypatch.setattr(dataset_files, "PIECE", 1)
    began, goes_on = threading.Event(), threading.Event()

    def lines():
        began.set()
        assert goes_on.wait(100)
        yield b"second"

    async def leave():
        transfer = dataset_files._Transfer(b"first", lines(), dataset_files._Place())
        sent = transfer.pieces()
        assert await anext(sent) == b"first"
        reading = asyncio.ensure_future(anext(sent))
        await asyncio.to_thread(began.wait, 30)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await transfer.end()
        try:
            assert not room.acquire(blocking=False)
        finally:
            goes_on.set()
        assert await asyncio.to_thread(room.acquire, timeout=100)

    asyncio.run(leave())


def test_the_server_tells_of_its_engines_without_secrets(keyed, tmp_path):
    schemes = (LabelScheme(name="quality", values=("good", "bad"), says="how well"),)
    with ScriptedEngine(lambda request: "yes", model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine", api_key="hidden-one")
        with Serving(models=(model,), labels=schemes) as server:
            found = server.get("/api/v1/server")[1]
            assert server.get("/api/v1/label-schemes")[1]["items"][0]["values"] == ["good", "bad"]
    [told] = found["models"]
    assert (told["ready"], told["keyed"], told["engines"][0]["ready"]) == (True, True, True)
    assert "hidden-one" not in json.dumps(found)
    assert (found["pool"]["kind"], found["pool"]["error"], found["keys_required"]) == ("memory", None, False)
    with Serving(pool=open_store(f"sqlite:///{tmp_path}/pool.db")) as server:
        pool = server.get("/api/v1/server")[1]["pool"]
    assert (pool["kind"], pool["error"]) == ("sqlite", None)
    assert 0 < pool["bytes"] < pool["disk_bytes"]
    with Serving(gateway_url="https://user:hidden-two@host/x") as server:
        assert server.get("/api/v1/server")[1]["gateway_url"] == "https://host/x"
    assert shown_url("postgresql://u:hid?den@host/db?password=x") == "postgresql://u@host/db?password=***"
    assert without_secrets("http://user:word@host:1/v1?key=2#3") == "http://host:1/v1"
    assert keyed.send("GET", "/api/v1/server", headers=bearer(keyed, "read"))[2]["models"] == []
    assert keyed.send("GET", "/api/v1/server", headers=bearer(keyed, "write"))[0] == 403
    assert keyed.send("GET", "/api/v1/server", headers=bearer(keyed, "read", channel="val"))[0] == 403


def test_a_bound_key_sees_its_channel_alone(keyed):
    rollout(keyed.pool, "t", 1.0, status="finished")
    rollout(keyed.pool, "v", 1.0, status="finished", channel="val")
    keyed.pool.add_feedback([Feedback(kind="label", name="q", value=1, trajectory_id="t")])
    own = bearer(keyed, "read", channel="val")
    assert keyed.send("GET", "/api/v1/runs", headers=own)[2]["looked"] == 1
    assert keyed.send("GET", "/api/v1/labels", headers=own)[2]["labels"] == []
    assert keyed.send("GET", "/api/v1/agreement?name=q", headers=own)[0] == 403
    keyed.pool.lease(BatchSpec(unit="trajectory", size=1), "c")
    assert keyed.send("GET", "/api/v1/consumers/c/usage", headers=own)[2]["batches"] == []
    for path in ("runs", "labels", "agreement?name=q", "label-schemes", "dataset-layouts"):
        assert keyed.send("GET", f"/api/v1/{path}", headers=bearer(keyed, "lease"))[0] == 403, path


def test_methods_and_the_last_calls_are_told(server):
    told = {each["name"]: each for each in server.get("/api/v1/methods")[1]["items"]}
    assert (told["grpo"]["unit"], told["grpo"]["rewarded"], told["grpo"]["rollouts"]) == ("group", True, 2)
    for number in range(3):
        exchange = Exchange(
            exchange_id=f"e{number}", trajectory_id="t", dialect="chat", model="m", requested_model="m", messages=[],
            error={"code": "engine_error", "message": f"no {number}"},
        )  # fmt: skip
        server.pool.append_exchange(exchange)
    listed = [
        [each["exchange_id"] for each in server.get(f"/api/v1/trajectories/t/exchanges?{query}")[1]["items"]]
        for query in ("limit=2", "limit=2&order=newest")
    ]
    assert listed == [["e0", "e1"], ["e2", "e1"]]
