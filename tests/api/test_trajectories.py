import pytest


def test_a_trajectory_is_created_read_and_completed(server):
    status, made = server.post("/api/v1/trajectories", {"task": {"task_id": "7"}, "group_id": "g", "group_size": 2})
    assert status == 201
    trajectory_id = made["trajectory_id"]
    assert made["trajectory"]["group_id"] == "g"
    assert server.get(f"/api/v1/trajectories/{trajectory_id}")[1]["task"] == {"task_id": "7"}

    status, ended = server.post(f"/api/v1/trajectories/{trajectory_id}/complete", {"status": "finished", "reward": 0.5})
    assert (status, ended["status"], ended["reward"], ended["readiness"]) == (200, "finished", 0.5, "ready")


def test_creating_twice_is_one_trajectory_and_other_settings_are_a_conflict(server):
    first = server.post("/api/v1/trajectories", {"trajectory_id": "t1", "agent": "a"})
    again = server.post("/api/v1/trajectories", {"trajectory_id": "t1", "agent": "a"})
    other = server.post("/api/v1/trajectories", {"trajectory_id": "t1", "agent": "b"})
    assert first == again
    assert (other[0], other[1]["error"]["code"]) == (409, "conflict")
    assert len(server.get("/api/v1/trajectories")[1]["items"]) == 1


def test_an_ended_trajectory_does_not_end_otherwise(server):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    assert server.post("/api/v1/trajectories/t1/complete", {"status": "failed"})[0] == 200
    assert server.post("/api/v1/trajectories/t1/complete", {"status": "failed"})[0] == 200
    assert server.post("/api/v1/trajectories/t1/complete", {"status": "finished"})[0] == 409
    assert server.post("/api/v1/trajectories/t2/complete", {"status": "failed"})[0] == 404


def test_listing_walks_by_cursor_in_both_orders(server):
    for number in range(5):
        server.post("/api/v1/trajectories", {"trajectory_id": f"t{number}", "channel": "train" if number else "val"})

    def walk(query):
        seen, cursor = [], ""
        while cursor is not None:
            suffix = f"&cursor={cursor}" if cursor else ""
            page = server.get(f"/api/v1/trajectories?limit=2{query}{suffix}")[1]
            seen += [item["trajectory_id"] for item in page["items"]]
            cursor = page["next_cursor"]
        return seen

    assert walk("") == ["t0", "t1", "t2", "t3", "t4"]
    assert walk("&order=newest") == ["t4", "t3", "t2", "t1", "t0"]
    assert walk("&channel=val") == ["t0"]


def test_where_filters(server):
    for number in range(3):
        server.post("/api/v1/trajectories", {"trajectory_id": f"t{number}"})
        server.post("/api/v1/rewards", {"trajectory_id": f"t{number}", "value": number / 2})
    found = server.get("/api/v1/trajectories?where=reward%20%3E%3D%200.5")[1]["items"]
    assert [item["trajectory_id"] for item in found] == ["t1", "t2"]
    status, error = server.get("/api/v1/trajectories?where=rewrd%20%3E%3D%201")
    assert (status, error["error"]["code"]) == (400, "invalid_query")
    assert "reward" in f"{error['error']['message']} {error['error']['hint']}"


def test_without_a_gateway_there_is_no_base_url(server):
    assert server.post("/api/v1/trajectories", {})[1]["base_url"] is None


def test_the_calls_of_a_trajectory_are_listed(server):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    assert server.get("/api/v1/trajectories/t1/exchanges") == (200, {"items": [], "next_cursor": None})
    assert server.get("/api/v1/trajectories/t2/exchanges")[0] == 404


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"trajectory_id": "a/b"}, "trajectory_id"),
        ({"group_id": "a b"}, "group_id"),
        ({"group_size": 0}, "$.group_size"),
        ({"attempt": -1}, "$.attempt"),
        ({"channel": ""}, "$.channel"),
        ({"task": "7"}, "$.task"),
        ({"grup_id": "g"}, "$"),
    ],
)
def test_what_cannot_be_a_trajectory_is_refused(server, fields, path):
    status, reply = server.post("/api/v1/trajectories", fields)
    assert (status, reply["error"]["path"]) == (400, path)
    assert server.get("/api/v1/stats")[1]["trajectories"] == {}
