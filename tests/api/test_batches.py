import http.client
import threading
import time
from urllib.parse import quote, urlsplit

from agentworld.factory import connect
from agentworld.pool.memory import MemoryPool
from agentworld.records import BatchSpec
from tests.api.serving import Serving


def fill(server, count):
    for number in range(count):
        step = {"step_id": f"s{number}", "trajectory_id": f"t{number}", "prompt_ids": [1], "response_ids": [2]}
        server.post("/api/v1/steps", {"steps": [step]})
        server.post(f"/api/v1/trajectories/t{number}/complete", {"status": "finished", "reward": 1.0})


def test_a_batch_is_leased_extended_and_acknowledged(server):
    fill(server, 2)
    spec = {"method": "sft", "size": 2, "consumer": "c"}
    status, batch = server.post("/api/v1/batches/lease", spec)
    assert status == 200
    assert [item["trajectories"][0]["steps"][0]["response_ids"] for item in batch["items"]] == [[2], [2]]
    assert server.post("/api/v1/batches/lease", spec) == (204, b"")

    path = f"/api/v1/batches/{batch['batch_id']}"
    longer = server.post(f"{path}/extend", {"epoch": batch["epoch"], "seconds": 5000})[1]
    assert longer["deadline"] > batch["deadline"]
    stale = server.post(f"{path}/ack", {"epoch": batch["epoch"] + 1})
    assert (stale[0], stale[1]["error"]["code"]) == (409, "stale_lease")
    assert server.post(f"{path}/ack", {"epoch": batch["epoch"]}) == (204, b"")
    assert server.post(f"{path}/ack", {"epoch": batch["epoch"]}) == (204, b"")
    assert server.post("/api/v1/batches/lease", {**spec, "consumer": "another"})[0] == 200


def test_a_released_batch_comes_again(server):
    fill(server, 1)
    first = server.post("/api/v1/batches/lease", {"consumer": "c"})[1]
    assert server.post(f"/api/v1/batches/{first['batch_id']}/release", {"epoch": first["epoch"]})[0] == 204
    second = server.post("/api/v1/batches/lease", {"consumer": "c"})[1]
    assert [item["key"] for item in second["items"]] == [item["key"] for item in first["items"]]
    assert second["items"][0]["delivery_count"] == 2


def test_a_batch_that_cannot_be_sent_is_given_back():
    class Unsendable(MemoryPool):
        """Hands out a batch with a text that no JSON can hold."""

        def lease(self, spec, consumer):
            batch = super().lease(spec, consumer)
            batch.metadata = {"a": object()}
            return batch

    with Serving(Unsendable()) as server:
        fill(server, 1)
        status, reply = server.post("/api/v1/batches/lease", {"consumer": "c"})
        assert (status, reply["error"]["code"]) == (500, "internal_error")
        assert server.get("/api/v1/stats")[1]["batches"] == {"released": 1}


def test_a_restarted_consumer_settles_its_leases(server):
    fill(server, 2)
    applied = server.post("/api/v1/batches/lease", {"consumer": "c"})[1]["batch_id"]
    lost = server.post("/api/v1/batches/lease", {"consumer": "c"})[1]["batch_id"]
    settled = server.post("/api/v1/consumers/c/resume", {"applied": [applied, "bat_gone"]})[1]
    assert settled == {"acknowledged": [applied], "released": [lost], "unknown": ["bat_gone"]}


def test_specs_that_mean_nothing_are_refused(server):
    for spec, path in (({"method": "magic"}, "method"), ({"size": 0}, "size"), ({"methd": "sft"}, "$")):
        status, reply = server.post("/api/v1/batches/lease", spec)
        assert (status, reply["error"]["path"]) == (400, path)
    assert server.post("/api/v1/batches/bat_gone/ack", {"epoch": 1})[0] == 404


def test_a_lease_can_wait_for_what_is_not_there_yet(server):
    replies = []
    spec = {"consumer": "c", "wait_seconds": 30}
    waiting = threading.Thread(target=lambda: replies.append(server.post("/api/v1/batches/lease", spec)))
    waiting.start()
    fill(server, 1)
    waiting.join(100)
    assert [reply[0] for reply in replies] == [200]
    assert server.post("/api/v1/batches/lease", {"consumer": "c", "wait_seconds": 0.05}) == (204, b"")
    status, refusal = server.post("/api/v1/batches/lease", {"consumer": "c", "wait_seconds": 31})
    assert (status, refusal["error"]["path"]) == (400, "$.wait_seconds")


def test_a_closing_server_keeps_nobody_waiting(server):
    replies = []
    spec = {"consumer": "c", "wait_seconds": 30}
    waiting = threading.Thread(target=lambda: replies.append(server.post("/api/v1/batches/lease", spec)))
    waiting.start()
    server.end_streams()
    waiting.join(100)
    assert replies == [(204, b"")]


def test_a_client_that_left_is_leased_nothing(server):
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
    looked = threading.Event()
    lease = server.pool.lease

    def leasing(spec, consumer):
        looked.set()
        return lease(spec, consumer)

    server.pool.lease = leasing
    connection.request(
        "POST", "/api/v1/batches/lease", b'{"consumer": "c", "wait_seconds": 30}', {"Content-Type": "application/json"}
    )
    assert looked.wait(100)
    connection.close()
    # The server has noticed once nobody waits for changes any more.
    deadline = time.monotonic() + 100
    while server.pool._changes._wakes and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not server.pool._changes._wakes
    fill(server, 1)
    assert server.get("/api/v1/stats")[1]["batches"] == {}


def test_a_batch_leased_while_its_client_left_is_given_back(server):
    fill(server, 1)
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
    begun, left = threading.Event(), threading.Event()
    lease = server.pool.lease

    def leasing(spec, consumer):
        begun.set()
        assert left.wait(100)
        return lease(spec, consumer)

    server.pool.lease = leasing
    connection.request("POST", "/api/v1/batches/lease", b'{"consumer": "c"}', {"Content-Type": "application/json"})
    assert begun.wait(100)
    connection.close()
    for _ in range(3):  # By then the server has been told that the connection is closed.
        server.get("/api/v1/stats")
    left.set()
    deadline = time.monotonic() + 100
    while server.get("/api/v1/stats")[1]["batches"] != {"released": 1} and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert server.get("/api/v1/stats")[1]["batches"] == {"released": 1}


def test_batches_are_listed_and_read_with_their_rewards(server):
    fill(server, 3)
    first, second = (server.post("/api/v1/batches/lease", {"consumer": name})[1] for name in ("c", "d"))
    server.post(f"/api/v1/batches/{first['batch_id']}/ack", {"epoch": first["epoch"]})
    listed = server.get("/api/v1/batches")[1]
    assert [one["batch_id"] for one in listed["items"]] == [second["batch_id"], first["batch_id"]]
    assert [one["state"] for one in server.get("/api/v1/batches?consumer=c&limit=1")[1]["items"]] == ["acked"]
    assert [one["consumer"] for one in server.get("/api/v1/batches?batch_state=leased")[1]["items"]] == ["d"]
    record = server.get(f"/api/v1/batches/{first['batch_id']}")[1]
    assert record["units"] == [{"key": "t0", "rewards": {"t0": {"reward": 1.0}}, "trajectories": ["t0"], "steps": []}]
    assert server.get("/api/v1/batches/bat_gone")[0] == 404
    status, refusal = server.get("/api/v1/batches?batch_state=lost")
    assert (status, refusal["error"]["path"]) == (400, "batch_state")


def test_poisoned_units_are_listed_and_requeued(server):
    fill(server, 1)
    spec = {"consumer": "c", "max_deliveries": 1}
    batch = server.post("/api/v1/batches/lease", spec)[1]
    server.post(f"/api/v1/batches/{batch['batch_id']}/release", {"epoch": batch["epoch"]})
    assert server.post("/api/v1/batches/lease", spec)[0] == 204
    [unit] = server.get("/api/v1/consumers/c/poisoned")[1]["items"]
    assert (unit["key"], unit["deliveries"]) == ("t0", 1)
    assert server.post("/api/v1/consumers/c/requeue", {"keys": ["t0", "t1"]})[1] == {"requeued": 1}
    assert server.post("/api/v1/batches/lease", spec)[0] == 200


def test_why_something_is_handed_out_or_not(server):
    given = {
        "step_id": "s1",
        "trajectory_id": "t1",
        "prompt_ids": [1],
        "response_ids": [2],
        "response_logprobs": [-1.0],
    }
    server.post("/api/v1/steps", {"steps": [given]})
    path = "/api/v1/consumers/c/explain?target=t1"
    status, reply = server.get(path)
    assert (status, reply["error"]["path"]) == (400, "spec")
    spec = quote('{"method": "reinforce"}')
    assert server.get(f"{path}&spec={spec}")[1]["reason"] == "readiness"
    with connect(server.url) as factory:
        factory.complete_trajectory("t1", "finished", 1.0)
        consumer = factory.consumer("c")
        assert consumer.explain("t1", BatchSpec(method="reinforce")).served
        assert consumer.check(BatchSpec(method="reinforce")).satisfied
        lacking = consumer.check(BatchSpec(method="distill"))
        assert (lacking.satisfied, lacking.findings[0].need) == (False, "annotation.teacher_logprobs")
        batch = consumer.lease(BatchSpec(method="reinforce", size=1))
        found = consumer.explain("t1")
        assert (found.reason, found.batch_id, found.spec.method) == ("leased", batch.batch_id, "reinforce")
    assert server.get("/api/v1/consumers/c/explain?target=none")[0] == 404
    wrong = quote('{"size": "x"}')
    assert server.get(f"{path}&spec={wrong}")[1]["error"]["path"] == "?spec.size"
    assert server.get("/api/v1/consumers/c/explain")[0] == 400
