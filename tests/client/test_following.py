"""Events, explanations and arrays over HTTP, as on a pool in this process."""

import contextlib
import http.server
import itertools
import threading
from typing import ClassVar

import pytest

from agentworld.api.events import frame
from agentworld.client import following
from agentworld.client.connection import ServerUnreachableError
from agentworld.errors import ConfigError, InvalidRequestError, QueryError
from agentworld.factory import connect
from agentworld.pool.protocol import Page
from agentworld.pool.sql import reads
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Event, NewTrajectory, Step
from tests.api.serving import Serving


@pytest.fixture
def server():
    with Serving() as running:
        yield running


@pytest.fixture
def factory(server):
    with connect(server.url) as connected:
        yield connected


@contextlib.contextmanager
def serving(handler):
    """The address of a server that is none of ours."""
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
            thread.join()


def create(pool, *names):
    for name in names:
        pool.create_trajectory(NewTrajectory(trajectory_id=name))


def step(name, **more):
    fields = {"prompt_ids": [1, 2], "response_ids": [3, 4], "response_logprobs": [-0.5, None], "response_mask": [1, 0]}
    return Step(step_id=name, trajectory_id="t", token_source="submitted", **(fields | more))


def test_a_follower_gets_the_past_and_what_comes(server, factory):
    create(server.pool, "a")
    following_ = factory.follow()
    assert next(following_).trajectory_id == "a"
    create(server.pool, "b")
    second = next(following_)
    assert second.trajectory_id == "b"
    create(server.pool, "c")
    assert next(factory.follow(after=second.sequence)).trajectory_id == "c"


def test_a_follower_ends_when_nothing_comes(server, factory):
    create(server.pool, "a", "b")
    server.pool.complete_trajectory("a", "finished")
    assert [event.kind for event in factory.follow(timeout=1.5, kinds=["trajectory.completed"])] == [
        "trajectory.completed"
    ]
    assert list(factory.follow(timeout=0.0, kinds=[])) == []


class Fragile(http.server.BaseHTTPRequestHandler):
    """Two events a stream, then a piece of the third; every other stream is refused for the moment."""

    asked: ClassVar[list[int]] = []

    def do_GET(self):
        after = int(self.path.rpartition("=")[2])
        self.asked.append(after)
        if len(self.asked) % 2 == 0:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        frames = [frame(Event(sequence=after + number, kind="k", at=1.0)) for number in (1, 2, 3)]
        self.wfile.write(b": agentworld events\n" + frames[0] + b": ping\n" + frames[1] + frames[2][:-9])

    def log_message(self, *_):
        pass


def test_a_stream_that_breaks_is_taken_up_where_it_broke(monkeypatch):
    monkeypatch.setattr(following, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(Fragile, "asked", [])
    with serving(Fragile) as url, connect(url) as connected:
        found = [event.sequence for event in itertools.islice(connected.follow(), 7)]
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert Fragile.asked == [0, 2, 2, 4, 4, 6, 6]


def test_a_server_that_is_gone_is_given_up(monkeypatch):
    monkeypatch.setattr(following, "PATIENCE", 0.2)
    with Serving() as running, connect(running.url) as connected:
        create(running.pool, "a")
        following_ = connected.follow()
        next(following_)
    with pytest.raises(ServerUnreachableError):
        next(following_)


def test_a_server_that_refuses_says_why(factory):
    with pytest.raises(InvalidRequestError):
        factory.follow(after=-1)


def test_what_is_no_agentworld_server_is_told():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data: {}\n\n")

        def log_message(self, *_):
            pass

    with serving(Other) as url, connect(url) as connected, pytest.raises(ConfigError):
        next(connected.follow())


def test_queries_are_explained(factory):
    found = factory.explain("reward > 0.5 and meta.k == 1")
    assert (found.indexed, found.scanned, found.subject) == (["reward > 0.5"], ["metadata.k == 1"], "trajectories")
    assert factory.explain("late", "steps").subject == "steps"
    with pytest.raises(QueryError):
        factory.explain("reward >")


def test_sequences_over_http_are_those_of_the_pool(server, factory):
    text = step("text", prompt_ids=None, response_ids=None, response_mask=None, response_logprobs=None)
    server.pool.append_steps([step("a"), step("b", response_mask=None), text])
    for asked in ({}, {"trajectory_id": "t"}, {"step_ids": ["b", "a"]}, {"where": "step_index == 1"}):
        ours, theirs = (sorted(pool.sequences(**asked), key=lambda one: one.step_id) for pool in (factory, server.pool))
        assert [one.step_id for one in ours] == [one.step_id for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            assert one.prompt_length == other.prompt_length == 2
            assert (one.mask is None) == (other.mask is None)
            assert str(one.logprobs) == str(other.logprobs)


def test_partial_pages_say_so_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr(reads, "SCAN_ROWS", 3)
    with Serving(SqlitePool(tmp_path / "pool.db")) as running, connect(running.url) as connected:
        create(running.pool, *"abcdefg")
        page = connected.list_trajectories(where="meta.k == 1")
        assert (page.items, page.partial, page.scanned) == ([], True, 3)
        assert page.next_cursor is not None
        status, shown = running.get("/api/v1/trajectories?where=meta.k%20==%201")
        assert (status, shown["partial"], shown["scanned"]) == (200, True, 3)
        status, shown = running.get("/api/v1/trajectories?limit=2")
        assert status == 200
        assert "partial" not in shown


def test_the_last_page_has_a_null_cursor(server):
    assert server.get("/api/v1/trajectories")[1] == {"items": [], "next_cursor": None}
    assert Page([]) == Page([], None, False, None)
