import asyncio
import http.client
import json
from urllib.parse import urlsplit

import pytest

from agentworld.api.events import _woken
from agentworld.pool.keys import NewKey
from agentworld.records import NewTrajectory, Policy
from tests.api.serving import Serving


class Stream:
    """An open stream of events; `take(n)` waits for n of them."""

    def __init__(self, server, path="/api/v1/events", **headers):
        address = urlsplit(server.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
        self.connection.request("GET", path, headers={"Accept": "text/event-stream", **headers})
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["content-type"].startswith("text/event-stream")

    def take(self, count):
        found = []
        while len(found) < count:
            fields = {}
            while line := self.response.readline().strip():
                if not line.startswith(b":"):
                    name, _, value = line.partition(b": ")
                    fields[name.decode()] = value.decode()
            assert fields, "the stream ended, or sent an event without fields"
            found.append(fields)
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.response.close()
        self.connection.close()


@pytest.fixture
def closed():
    with Serving(require_keys=True) as running:
        yield running


def create(server, *names):
    for name in names:
        assert server.post("/api/v1/trajectories", {"trajectory_id": name})[0] == 201


def test_a_stream_tells_the_past_and_then_what_happens(server):
    create(server, "a", "b")
    with Stream(server) as stream:
        assert [json.loads(event["data"])["trajectory_id"] for event in stream.take(2)] == ["a", "b"]
        create(server, "c")
        (event,) = stream.take(1)
    assert event["event"] == "trajectory.created"
    assert json.loads(event["data"])["sequence"] == int(event["id"])


def test_a_stream_goes_on_after_the_last_event_that_was_seen(server):
    create(server, "a", "b", "c")
    with Stream(server) as stream:
        last = stream.take(2)[-1]["id"]
    with Stream(server, **{"Last-Event-ID": last}) as stream:
        assert json.loads(stream.take(1)[0]["data"])["trajectory_id"] == "c"
    with Stream(server, f"/api/v1/events?after={last}") as stream:
        assert json.loads(stream.take(1)[0]["data"])["trajectory_id"] == "c"


def test_polling_page_by_page(server):
    create(server, "a", "b", "c")
    first = server.get("/api/v1/events?limit=2", Accept="application/json")[1]
    assert [event["trajectory_id"] for event in first["items"]] == ["a", "b"]
    rest = server.get(f"/api/v1/events?after={first['next_cursor']}", Accept="application/json")[1]
    assert [event["trajectory_id"] for event in rest["items"]] == ["c"]
    assert rest["next_cursor"] is None
    last = rest["items"][-1]["sequence"]
    none = server.get(f"/api/v1/events?after={last}", Accept="application/json")[1]
    assert none == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("sent", ["x", "-1", "٣", "9" * 40])
def test_an_event_id_that_is_none_is_refused(server, sent):
    headers = {"Last-Event-ID": sent.encode("utf-8").decode("latin-1")}
    status, _, body = server.send("GET", "/api/v1/events", headers=headers)
    assert (status, body["error"]["path"]) == (400, "Last-Event-ID")


def test_open_streams_end_with_the_server(server):
    create(server, "a")
    with Stream(server) as stream:
        stream.take(1)
        server.end_streams()
        assert stream.response.read() == b""


def test_a_bound_key_hears_of_its_channel_alone(closed):
    def key(**bound):
        return closed.pool.create_key(NewKey(name="k", scopes=("read",), **bound)).secret

    mine, own = (
        {"Authorization": f"Bearer {key(**bound)}"} for bound in ({"channel": "val"}, {"trajectory_id": "t-2"})
    )
    tell = closed.pool.create_trajectory
    tell(NewTrajectory(trajectory_id="v-1", channel="val"))
    with Stream(closed, "/api/v1/events?from_now=true", **mine) as stream, Stream(closed, **own) as narrow:
        # Nothing of what was before, nor of others: the first that comes is the own.
        tell(NewTrajectory(trajectory_id="t-1", channel="train"))
        tell(NewTrajectory(trajectory_id="t-2", channel="train"))
        tell(NewTrajectory(trajectory_id="v-2", channel="val"))
        closed.pool.set_policy(Policy("m", "r", 1))
        told = stream.take(2)
        assert [event["event"] for event in told] == ["trajectory.created", "policy.set"]
        assert json.loads(told[0]["data"])["trajectory_id"] == "v-2"
        assert [json.loads(event["data"])["trajectory_id"] for event in narrow.take(2)] == ["t-2", None]
        tell(NewTrajectory(trajectory_id="v-3", channel="val"))
        assert json.loads(stream.take(1)[0]["data"])["trajectory_id"] == "v-3"
    # What a stream has seen goes before the present.
    again = {**mine, "Last-Event-ID": told[0]["id"]}
    with Stream(closed, "/api/v1/events?from_now=true", **again) as stream:
        assert [event["event"] for event in stream.take(2)] == ["policy.set", "trajectory.created"]
    assert closed.send("GET", "/api/v1/events?channel=train", headers=mine)[0] == 403
    theirs = closed.send("GET", "/api/v1/events?trajectory_id=t-1", headers={**mine, "Accept": "application/json"})[2]
    assert [event["kind"] for event in theirs["items"]] == ["policy.set"]


async def test_a_client_that_leaves_leaves_no_task_behind():
    before = asyncio.all_tasks()
    ends = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(_woken(asyncio.Event(), ends, 60.0))
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks() - before) == 2  # The stream, and what it waits for.
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
