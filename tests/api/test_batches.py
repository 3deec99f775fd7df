from agentworld.pool.memory import MemoryPool
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
