"""A server that requires keys: each route needs its scope, and a bound key sees and writes its own place only."""

import sys
import time

import pytest
import structlog

from agentworld.api.app import ROUTES
from agentworld.api.bound_curation import BoundCuration
from agentworld.api.bound_datasets import BoundDatasets
from agentworld.api.bound_pool import BoundPool
from agentworld.cli.exec import exec_
from agentworld.config import ModelSettings
from agentworld.errors import ForbiddenError, UnauthorizedError
from agentworld.factory import connect
from agentworld.gateway.access import Grant
from agentworld.pool.keys import SCOPES, NewKey
from agentworld.pool.memory import MemoryPool
from agentworld.pool.protocol import Pool
from agentworld.records import Annotation, BatchSpec, Feedback, NewTrajectory, Policy, Reward, Step
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
LLM = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
       "/v1/responses/input_tokens", "/t/x/v1/chat/completions", "/t/x/g/y/v1/messages"]  # fmt: skip
OPEN = {"/healthz", "/readyz", "/api/docs", "/api/openapi.json", "/api/v1/session"}
PAGE = {"/", "/dashboard", "/dashboard/x"}
"""Likewise, where it is built."""


@pytest.fixture(scope="module")
def server():
    with (
        ScriptedEngine(lambda request: "four", model="m") as engine,
        ScriptedEngine(lambda request: "four", model="judge") as judging,
    ):
        models = (
            ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine"),
            ModelSettings(name="judge", upstream=judging.url, driver="builtin", tokens="engine", channel="judge"),
        )
        with Serving(models=models, require_keys=True) as running:
            yield running


@pytest.fixture(scope="module")
def secrets(server):
    """One key of each scope, and of some that are bound."""
    made = {scope: NewKey(name=scope, scopes=(scope,)) for scope in SCOPES}
    made["val"] = NewKey(name="val", scopes=("write", "read", "lease"), channel="val")
    made["one"] = NewKey(name="one", scopes=("write", "read"), trajectory_id="t-one")
    return {name: server.pool.create_key(new).secret for name, new in made.items()}


def operations():
    for route in ROUTES:
        for path in route.paths:
            for method in route.http_methods - {"OPTIONS"}:
                yield method, "".join("x" if part.startswith("{") else part for part in _parts(path))


def _parts(path):
    for number, part in enumerate(path.split("/")):
        yield ("/" if number else "") if not part.startswith("{") else "/"
        yield part


CONTROL = sorted({each for each in operations() if each[1] not in OPEN | PAGE})


def with_key(secret):
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def test_a_key_that_is_made_here_works_at_once(server, secrets, monkeypatch):
    asked = ("GET", "/api/v1/stats", None)
    made = with_key("aw-k-that-was-not-known")
    assert server.send(*asked, made)[0] == 401
    monkeypatch.setattr("agentworld.pool.keys.secrets.token_urlsafe", lambda size: "that-was-not-known")
    body = {"name": "new", "scopes": ["read"]}
    assert server.send("POST", "/api/v1/keys", body, with_key(secrets["admin"]))[0] == 201
    assert server.send(*asked, made)[0] == 200


def test_no_route_but_the_open_ones_answers_without_a_key(server):
    for method, path in CONTROL:
        status, headers, reply = server.send(method, path, b"{}" if method != "GET" else None)
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), (method, path)
        # Exporters of spans are told in the words of their protocol.
        told = reply if path == "/v1/traces" else reply["error"]
        assert set(told) == ({"code", "message"} if path == "/v1/traces" else {"code", "message", "path", "hint"})
    for path in LLM:
        status, _, reply = server.send("POST", path, CHAT)
        assert (status, reply["error"]["code"]) == (401, "unauthorized"), path
        assert ("type" in reply) == ("messages" in path.removesuffix("completions"))
    assert server.send("GET", "/v1/models")[0] == 401
    assert server.send("DELETE", "/anything")[0] == 401
    for path in OPEN:
        assert server.send("GET", path)[0] == 200, path
    assert {path: server.send("GET", path)[0] not in (401, 403) for path in PAGE} == dict.fromkeys(PAGE, True)
    assert server.pool.stats().exchanges == 0


SCOPE_OF = {"/metrics": "read", "keys": "admin", "gateway": "admin", "pool": "admin", "batches": "lease",
            "consumers": "lease", "policy": "lease", "metrics": "lease", "methods": "lease",
            "curation": "read"}  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES)
def test_each_route_needs_its_scope(server, secrets, scope):
    for method, path in CONTROL:
        if path.endswith(("events", "gateway/pause")):
            continue  # One has no end, the other would hold up all that follows.
        subject = path.removeprefix("/api/v1/").partition("/")[0]
        wanted = (
            "admin" if method in ("DELETE", "PUT") else SCOPE_OF.get(subject, "read" if method == "GET" else "write")
        )
        if path.endswith(("/verify", "/evaluations/known")):
            wanted = "read"  # They compute, or look up, and write nothing.
        if method == "GET" and wanted != "lease":
            wanted = "admin" if subject == "keys" else "read"
        allowed = {wanted, "admin"} | ({"read"} if method == "GET" and wanted == "lease" else set())
        if (method, path) == ("POST", "/api/v1/feedback"):
            allowed.add("feedback")
        if method == "GET" and path.endswith("/exchanges"):
            allowed.add("write")  # Where it is that of the trajectory alone, see below.
            assert server.send(method, path, None, with_key(secrets["write"]))[0] == 403
            if scope == "write":
                continue
        status, _, reply = server.send(method, path, b"{}" if method != "GET" else None, with_key(secrets[scope]))
        assert (status == 403) == (scope not in allowed), (method, path, reply)
    for path in LLM:
        status = server.send("POST", path, b"{}", with_key(secrets[scope]))[0]
        assert (status == 403) == (scope not in ("write", "admin")), path
    models = server.send("GET", "/v1/models", None, with_key(secrets[scope]))[0]
    assert models == (403 if scope == "feedback" else 200)


def test_an_agent_reads_the_calls_of_its_own_trajectory_and_no_other(server, secrets):
    with connect(server.url, api_key=secrets["write"]) as writer:
        started = writer.start_trajectory(NewTrajectory())
        other = writer.start_trajectory(NewTrajectory())
        with pytest.raises(ForbiddenError):
            writer.list_exchanges(started.trajectory_id)
    with connect(server.url, api_key=started.api_key) as own:
        assert own.list_exchanges(started.trajectory_id) == []
        with pytest.raises(ForbiddenError):
            own.list_exchanges(other.trajectory_id)
        with pytest.raises(ForbiddenError):
            own.get_trajectory(started.trajectory_id)
    # Calls that another's key may not make in a trajectory leave nothing there.
    path = f"/t/{started.trajectory_id}/v1/chat/completions"
    assert server.send("POST", path, CHAT, with_key(other.api_key))[0] == 403
    assert server.send("POST", path, {**CHAT, "temperature": "hot"}, with_key(secrets["val"]))[0] == 400
    assert server.send("POST", path, {**CHAT, "temperature": "hot"})[0] == 401
    assert server.pool.list_exchanges(started.trajectory_id) == []
    assert server.send("POST", path, {**CHAT, "temperature": "hot"}, with_key(started.api_key))[0] == 400
    assert len(server.pool.list_exchanges(started.trajectory_id)) == 1


def test_calls_that_the_gateway_does_not_see_are_in_the_log(server):
    with structlog.testing.capture_logs() as lines:
        assert server.send("POST", "/t/x/v1/chat/completions", CHAT)[0] == 401
        assert server.send("POST", "/t/x/v1/chat/completions", b"{}", {"Content-Type": "text/plain"})[0] == 415

        def told():
            own = "/t/x/v1/chat/completions"
            return [line for line in lines if line["event"] == "request" and line["path"] == own]

        # A line is written once its answer is sent, also that of a call of another test.
        until = time.monotonic() + 100
        while len(told()) < 2 and time.monotonic() < until:
            time.sleep(0.01)
    requests = told()
    assert [(each["status"], each["code"]) for each in requests] == [
        (401, "unauthorized"),
        (415, "unsupported_media_type"),
    ]


def test_exec_needs_no_key_but_one_that_writes(server, secrets, capsys):
    agent = (
        "import os, json, urllib.request as u\n"
        "body = json.dumps({'model': 'm', 'temperature': 'hot', 'messages': []}).encode()\n"
        "headers = {'Content-Type': 'application/json', 'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}\n"
        "try: u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', body, headers))\n"
        "except OSError: raise SystemExit(7)\n"
    )
    assert exec_([sys.executable, "-c", agent], url=server.url, channel="train", api_key=secrets["write"]) == 7
    assert "warning: 1 call failed, and none got a reply. The last: 400" in capsys.readouterr().err


def test_keys_over_http(server, secrets):
    with connect(server.url, api_key=secrets["admin"]) as admin, connect(server.url, api_key=secrets["write"]) as other:
        issued = admin.create_key(NewKey(name="made", scopes=("read",), channel="val", expires_in=3600))
        assert issued.key in admin.list_keys()
        with connect(server.url, api_key=issued.secret) as reader:
            assert reader.list_trajectories(limit=1).partial is False
        assert admin.revoke_key(issued.key.key_id).revoked_at is not None
        for call in (other.list_keys, lambda: other.create_key(NewKey(name="x", scopes=("admin",)))):
            with pytest.raises(ForbiddenError):
                call()
    text = str(server.send("GET", "/api/v1/keys", None, with_key(secrets["admin"]))[2])
    assert not [name for name, secret in secrets.items() if secret in text]


def test_the_clients_take_their_key_from_the_environment(server, secrets, monkeypatch):
    with connect(server.url) as nobody, pytest.raises(UnauthorizedError):
        nobody.stats()
    monkeypatch.setenv("AGENTWORLD_API_KEY", secrets["read"])
    with connect(server.url) as reader:
        assert reader.stats().steps >= 0
    with connect(server.url, api_key="aw-k-wrong") as wrong, pytest.raises(UnauthorizedError):
        wrong.stats()


def test_an_agent_gets_a_key_for_its_own_trajectory(server, secrets):
    with connect(server.url, api_key=secrets["write"]) as factory:
        other = factory.trajectory(trajectory_id="t-other")
        with factory.trajectory(trajectory_id="t-agent") as mine:
            assert mine.api_key.startswith("aw-t-t-agent.key_")
            assert mine.chat([{"role": "user", "content": "hi"}], model="m").message.content == "four"
            assert [step.trajectory_id for step in server.pool.list_steps(trajectory_id="t-agent").items] == ["t-agent"]
            for path in ("/t/t-other/v1/chat/completions", "/t/new/v1/chat/completions"):
                status, _, reply = server.send("POST", path, CHAT, with_key(mine.api_key))
                assert (status, reply["error"]["code"]) == (403, "forbidden")
            named = {**with_key(mine.api_key), "X-AgentWorld-Trajectory": "t-other"}
            assert server.send("POST", "/v1/chat/completions", CHAT, named)[0] == 403
            # Without a name in path or header, it is the key's.
            status, headers, _ = server.send("POST", "/v1/chat/completions", CHAT, with_key(mine.api_key))
            assert (status, headers["x-agentworld-trajectory"]) == (200, "t-agent")
            with connect(server.url, api_key=mine.api_key) as agent:
                agent.add_rewards([Reward(value=1, trajectory_id="t-agent")])
                for refused in (
                    lambda: agent.add_rewards([Reward(value=1, trajectory_id="t-other")]),
                    lambda: agent.add_feedback([compared(trajectory_id="t-agent", other_id="t-other")]),
                    lambda: agent.append_steps([Step(step_id="s", trajectory_id="t-other", prompt_ids=[1])]),
                    lambda: agent.complete_trajectory("t-other", "failed"),
                    lambda: agent.start_trajectory(NewTrajectory(trajectory_id="t-new")),
                    lambda: agent.get_trajectory("t-agent"),
                    lambda: agent.lease(BatchSpec(), "c"),
                ):
                    with pytest.raises(ForbiddenError):
                        refused()
            assert other.trajectory_id == "t-other"
    assert server.pool.get_trajectory("t-other").reward is None


def compared(**sides):
    return Feedback(kind="comparison", **sides)


def given(server, trajectory, channel, **more):
    server.pool.create_trajectory(NewTrajectory(trajectory_id=trajectory, channel=channel, **more))
    fields = {"prompt_ids": [1], "response_ids": [2], "response_logprobs": [-1.0], "token_source": "submitted"}
    server.pool.append_steps([Step(step_id=f"s-{trajectory}", trajectory_id=trajectory, channel=channel, **fields)])
    server.pool.add_feedback([Feedback(kind="comment", comment="secret", trajectory_id=trajectory)])
    server.pool.complete_trajectory(trajectory, "finished", 1.0)


def test_a_key_of_a_channel_sees_that_channel(server, secrets):
    given(server, "v1", "val", group_id="gv", group_size=1)
    given(server, "t1", "train", group_id="gt", group_size=1)
    with connect(server.url, api_key=secrets["val"]) as val:
        assert {each.channel for each in val.all_trajectories()} == {"val"}
        assert {each.channel for each in val.all_steps()} == {"val"}
        assert {each.channel for each in val.list_groups().items} == {"val"}
        assert val.get_trajectory("v1").channel == val.get_step("s-v1").channel == val.get_group("gv").channel == "val"
        assert [each.comment for each in val.list_feedback(trajectory_id="v1").items] == ["secret"]
        assert val.get_annotations(trajectory_id="v1") == []
        assert {each.source for each in val.rewards_on(trajectory_ids=["v1"], step_ids=["s-v1"])} <= {"api", "complete"}
        assert val.list_exchanges("v1") == []
        events = val.events(limit=3)
        told = {each.trajectory_id or each.data.get("group_id") for each in val.events()}
        assert {"v1", "gv"} <= told
        assert not told & {"t1", "gt", "t-agent"}
        assert [each.sequence for each in val.events(after=events[0].sequence, limit=2)] == [
            each.sequence for each in events[1:]
        ]
        with pytest.raises(Exception, match="no "):
            val.get_trajectory("t1")
        for unseen in (
            lambda: val.get_step("s-t1"),
            lambda: val.get_group("gt"),
            lambda: val.list_exchanges("t1"),
            lambda: val.list_feedback(trajectory_id="t1"),
            lambda: val.list_feedback(step_id="s-t1"),
            lambda: val.rewards_on(trajectory_ids=["v1", "t1"]),
            lambda: val.rewards_on(step_ids=["s-t1"]),
            lambda: val.get_annotations(step_ids=["s-v1", "s-t1"]),
        ):
            with pytest.raises(Exception, match="no ") as caught:
                unseen()
            assert caught.value.status == 404
        for refused in (
            lambda: val.list_trajectories(channel="train"),
            lambda: val.list_steps(channel="train"),
            lambda: val.list_groups(channel="train"),
            val.stats,
            val.dead_letters,
            val.list_feedback,
            val.awaited,
            val.gateway_workers,
            lambda: val.set_policy(Policy("m", "r", 1)),
            lambda: val.poisoned("c"),
            lambda: val.requeue("c", ["x"]),
            lambda: val.set_paused(True),
            val.list_keys,
        ):
            with pytest.raises(ForbiddenError):
                refused()
    assert server.send("GET", "/metrics", None, with_key(secrets["val"]))[0] == 403


def test_and_writes_to_that_channel(server, secrets):
    given(server, "t2", "train", group_id="gt2", group_size=2)
    step = {"prompt_ids": [1], "response_ids": [2], "response_logprobs": [-1.0], "token_source": "submitted"}
    with connect(server.url, api_key=secrets["val"]) as val:
        # What says nothing of a channel goes to the key's.
        assert val.start_trajectory(NewTrajectory(trajectory_id="v2")).trajectory.channel == "val"
        val.append_steps(
            [Step(step_id="v2-1", trajectory_id="v2", **step), Step(step_id="v3-1", trajectory_id="v3", **step)]
        )
        assert server.pool.get_step("v2-1").channel == server.pool.get_trajectory("v3").channel == "val"
        val.add_signals([Reward(value=1, step_id="v2-1"), Reward(value=1, trajectory_id="v2")])
        val.add_annotations([Annotation(name="a", values=[1.0], step_id="v2-1")])
        assert val.complete_trajectory("v2", "finished").status == "finished"
        for refused in (
            lambda: val.start_trajectory(NewTrajectory(trajectory_id="t2")),
            lambda: val.start_trajectory(NewTrajectory(channel="other")),
            lambda: val.start_trajectory(NewTrajectory(group_id="gt2")),
            lambda: val.append_steps([Step(step_id="x", trajectory_id="t2", **step)]),
            lambda: val.append_steps([Step(step_id="x", trajectory_id="v4", channel="other", **step)]),
            lambda: val.complete_trajectory("t2", "failed"),
            lambda: val.add_rewards([Reward(value=0, trajectory_id="t2")]),
            lambda: val.add_rewards([Reward(value=0, step_id="s-t2")]),
            lambda: val.add_rewards([Reward(value=0, step_id="to-come")]),
            lambda: val.add_feedback([Feedback(kind="comment", comment="c", trajectory_id="to-come")]),
            lambda: val.add_feedback([compared(trajectory_id="v2", other_id="t2")]),
            lambda: val.add_feedback([compared(trajectory_id="v2", other_id="to-come")]),
            lambda: val.add_feedback([compared(step_id="v2-1", other_id="s-t2")]),
        ):
            with pytest.raises(ForbiddenError):
                refused()
    assert server.pool.get_trajectory("t2").reward == 1.0


def test_what_a_pool_comes_to_offer_is_not_open_to_a_bound_key_by_oversight():
    bound = BoundPool(MemoryPool(), Grant(frozenset(("write", "read")), channel="val"))
    offered = {name for name in dir(Pool) if not name.startswith("_")}
    refused = set()
    for name in offered:
        try:
            getattr(bound, name)
        except ForbiddenError:
            refused.add(name)
    assert refused == offered - set(vars(BoundPool)) - set(vars(BoundDatasets)) - set(vars(BoundCuration)) - {
        "poll_seconds"
    }
    assert {"stats", "delete_trajectories", "create_key", "set_paused", "sequences", "check"} <= refused


@pytest.mark.parametrize("write", ["create_trajectory", "complete_trajectory", "append_steps", "add_signals"])
def test_a_channel_that_a_trajectory_gets_just_before_the_write_counts(write):
    class Raced(MemoryPool):
        """Another writer is faster than who has looked already."""

        def _settle(self):
            super().create_trajectory(NewTrajectory(trajectory_id="t", channel="train"))

    def faster(self, *sent, **more):
        self._settle()
        return getattr(MemoryPool, write)(self, *sent, **more)

    setattr(Raced, write, faster)
    pool = Raced()
    pool.append_steps([Step(step_id="implied", trajectory_id="t", channel="val", prompt_ids=[1])])
    if write == "append_steps":
        assert pool.get_trajectory("t").channel == "train"
    before = pool.stats().last_event
    bound = BoundPool(pool, Grant(frozenset(("write",)), channel="val"))
    sent = {
        "create_trajectory": (NewTrajectory(trajectory_id="t", channel="val"),),
        "complete_trajectory": ("t", "failed"),
        "append_steps": ([Step(step_id="s", trajectory_id="t", prompt_ids=[1])],),
        "add_signals": ([Reward(trajectory_id="t", value=1.0)],),
    }
    with pytest.raises(ForbiddenError, match="is in 'train'"):
        getattr(bound, write)(*sent[write])
    assert {event.kind for event in pool.events(before)} <= {"trajectory.created"}
    assert pool.get_trajectory("t").status == "open"


def test_its_calls_of_models_stay_in_it_too(server, secrets):
    headers = with_key(secrets["val"])
    status, reply_headers, _ = server.send("POST", "/v1/chat/completions", CHAT, headers)
    assert status == 200
    assert server.pool.get_trajectory(reply_headers["x-agentworld-trajectory"]).channel == "val"
    before = server.pool.stats().steps
    server.pool.create_trajectory(NewTrajectory(trajectory_id="t-train"))
    for path, body, more in (
        ("/t/t-train/v1/chat/completions", CHAT, {}),
        ("/v1/chat/completions", CHAT, {"X-AgentWorld-Channel": "train"}),
        ("/v1/chat/completions", CHAT | {"model": "judge"}, {}),
        ("/v1/chat/completions", CHAT, {"X-AgentWorld-Group": "gt"}),
    ):
        status, _, reply = server.send("POST", path, body, headers | more)
        assert (status, reply["error"]["code"]) == (403, "forbidden"), (path, more)
    assert server.pool.stats().steps == before


def test_responses_are_read_back_by_their_own_channel_and_trajectory_alone(server, secrets):
    asked = {"model": "m", "input": "hi"}
    status, _, first = server.send("POST", "/t/r1/v1/responses", asked, with_key(secrets["write"]))
    assert status == 200
    again = asked | {"previous_response_id": first["id"]}
    for name in ("val", "one"):
        key = with_key(secrets[name])
        assert server.send("GET", f"/v1/responses/{first['id']}", None, key)[0] == 404
        status, _, reply = server.send("POST", "/v1/responses", again, key)
        assert (status, reply["error"]["code"]) == (400, "previous_response_not_found")
    assert server.send("GET", f"/v1/responses/{first['id']}", None, with_key(secrets["write"]))[0] == 200
    assert server.send("POST", "/v1/responses", again, with_key(secrets["write"]))[0] == 200


def test_a_key_of_a_channel_leases_from_it_alone(server, secrets):
    given(server, "v-lease", "val")
    with (
        connect(server.url, api_key=secrets["val"]) as val,
        connect(server.url, api_key=secrets["lease"]) as any_channel,
    ):
        spec = BatchSpec(method="reinforce", size=1, channel="val", where="trajectory_id == 'v-lease'")
        batch = val.lease(spec, "vc")
        assert val.extend(batch.batch_id, batch.epoch, 60) > 0
        assert val.get_batch(batch.batch_id).channel == "val"
        assert [each.batch_id for each in val.list_batches(consumer="vc").items] == [batch.batch_id]
        assert val.resume("vc", [batch.batch_id])["acknowledged"] == [batch.batch_id]
        with pytest.raises(ForbiddenError):
            val.lease(BatchSpec(method="reinforce", size=1), "vc")
        given(server, "t-lease", "train")
        theirs = any_channel.lease(BatchSpec(method="reinforce", size=1, where="trajectory_id == 't-lease'"), "tc")
        for unseen in (
            lambda: val.get_batch(theirs.batch_id),
            lambda: val.ack(theirs.batch_id, theirs.epoch),
            lambda: val.release(theirs.batch_id, theirs.epoch),
            lambda: val.extend(theirs.batch_id, theirs.epoch, 1),
        ):
            with pytest.raises(Exception, match="no batch"):
                unseen()
        assert val.list_batches().items != []
        assert {each.channel for each in val.list_batches().items} == {"val"}
        for applied in ([], [theirs.batch_id]):
            with pytest.raises(ForbiddenError):
                val.resume("tc" if not applied else "vc", applied)
        assert any_channel.get_batch(theirs.batch_id).state == "leased"


def test_a_key_of_a_trajectory_sees_it_alone(server, secrets):
    given(server, "t-one", "train")
    with connect(server.url, api_key=secrets["one"]) as one:
        assert [each.trajectory_id for each in one.list_trajectories().items] == ["t-one"]
        assert {each.trajectory_id for each in one.list_steps().items} == {"t-one"}
        assert {each.trajectory_id for each in one.events()} <= {"t-one", None}
        assert [each.comment for each in one.list_feedback().items] == ["secret"]
        assert one.list_groups().items == []
        for refused in (lambda: one.list_steps(trajectory_id="t1"), lambda: one.list_trajectories(trajectory_id="t1")):
            with pytest.raises(ForbiddenError):
                refused()
        with pytest.raises(Exception, match="no step"):
            one.get_step("s-t1")


def test_a_stream_of_events_ends_with_its_key(server):
    issued = server.pool.create_key(NewKey(name="gone", scopes=("read",)))
    server.pool.create_trajectory(NewTrajectory(trajectory_id="t-streamed"))
    with connect(server.url, api_key=issued.secret) as factory:
        followed = factory.follow(timeout=100)
        next(followed)
        server.pool.revoke_key(issued.key.key_id)
        with pytest.raises(UnauthorizedError):
            list(followed)
