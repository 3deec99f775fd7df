import json

import pytest

STEP = {
    "step_id": "s1",
    "trajectory_id": "t1",
    "model": "m",
    "policy_version": 3,
    "prompt_ids": [1, 2, 3],
    "response_ids": [4, 5],
    "response_logprobs": [-0.25, None],
    "prompt_messages": [{"role": "user", "content": "hi"}],
    "response_message": {"role": "assistant", "content": "ho"},
}


def outcomes(reply):
    return [result["outcome"] for result in reply["results"]]


def test_a_white_box_step_is_stored_once_and_read_back(server):
    assert server.post("/api/v1/steps", {"steps": [STEP]}) == (
        200,
        {"results": [{"step_id": "s1", "outcome": "stored", "step_index": 0}]},
    )
    assert outcomes(server.post("/api/v1/steps", {"steps": [STEP]})[1]) == ["duplicate"]
    assert outcomes(server.post("/api/v1/steps", {"steps": [{**STEP, "response_ids": [4, 6]}]})[1]) == ["conflict"]

    status, step = server.get("/api/v1/steps/s1?include=tokens,messages,logprobs")
    assert status == 200
    assert step["policy"] == {"model": "m", "run": "default", "version": 3}
    assert step["token_source"] == "submitted"
    assert step["prompt_ids"] == [1, 2, 3]
    assert step["response_ids"] == [4, 5]
    assert step["response_logprobs"] == [-0.25, None]
    assert step["response_message"]["content"] == "ho"


def test_parts_are_sent_only_when_included(server):
    server.post("/api/v1/steps", {"steps": [STEP]})
    bare = server.get("/api/v1/steps")[1]["items"][0]
    assert (bare["prompt_ids"], bare["response_logprobs"], bare["prompt_messages"]) == (None, None, None)
    assert bare["prompt_length"] == 3
    tokens = server.get("/api/v1/steps/s1?include=tokens")[1]
    assert tokens["prompt_ids"] == [1, 2, 3]
    assert (tokens["response_logprobs"], tokens["prompt_messages"]) == (None, None)
    assert server.get("/api/v1/steps/s1?include=token")[1]["error"]["path"] == "?include"


def test_one_bad_record_does_not_fail_its_batch(server):
    bad_type = {**STEP, "step_id": "s2", "prompt_ids": [1, "two"]}
    bad_role = {**STEP, "step_id": "s3", "prompt_messages": [{"role": "wizard", "content": "hi"}]}
    misspelt = {**STEP, "step_id": "s4", "reponse_ids": [1]}
    status, reply = server.post("/api/v1/steps", {"steps": [bad_type, STEP, bad_role, misspelt]})
    assert status == 200
    assert outcomes(reply) == ["rejected", "stored", "rejected", "rejected"]
    assert [result["step_id"] for result in reply["results"]] == ["s2", "s1", "s3", "s4"]
    assert "$.steps[0].prompt_ids[1]" in reply["results"][0]["reason"]
    assert "$.steps[2].prompt_messages[0].role" in reply["results"][2]["reason"]
    assert "Did you mean response_ids?" in reply["results"][3]["reason"]
    assert len(server.get("/api/v1/steps")[1]["items"]) == 1


BAD_RECORDS = {
    "unknown field": b'{"step_id": "bad", "trajectory_id": "t1", "promt_ids": [1]}',
    "float ids": b'{"step_id": "bad", "trajectory_id": "t1", "prompt_ids": [1.0]}',
    "text ids": b'{"step_id": "bad", "trajectory_id": "t1", "prompt_ids": ["1"]}',
    "too large a number": b'{"step_id": "bad", "trajectory_id": "t1", "metadata": {"a": 1e999}}',
    "long number": b'{"step_id": "bad", "trajectory_id": "t1", "metadata": {"a": %s}}' % (b"9" * 5000),
    "not a number": b'{"step_id": "bad", "trajectory_id": "t1", "metadata": {"a": NaN}}',
    "broken byte": b'{"step_id": "bad", "trajectory_id": "t1", "metadata": {"a": "\xff"}}',
    "deep": b'{"step_id": "bad", "trajectory_id": "t1", "metadata": {"a": %s}}' % (b"[" * 5000 + b"]" * 5000),
    "long name": b'{"step_id": "bad", "trajectory_id": "t1", "channel": "%s"}' % (b"c" * 20_000),
    "long record": b'{"step_id": "bad", "trajectory_id": "t1", "promt": "%s"}' % (b"x" * 100_000),
}


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_that_cannot_be_read_is_a_dead_letter(server, record):
    status, _, reply = server.send(
        "POST", "/api/v1/steps", b'{"steps": [%s, %s]}' % (record, json.dumps(STEP).encode())
    )
    assert (status, outcomes(reply)) == (200, ["rejected", "stored"])
    assert reply["results"][0]["step_id"] == "bad"
    [letter] = server.get("/api/v1/dead-letters")[1]["items"]
    assert (letter["step_id"], letter["trajectory_id"]) == ("bad", "t1")
    assert letter["reason"] == reply["results"][0]["reason"]
    assert "bad" in letter["record"]
    assert len(letter["record"]) <= 65_536


def test_records_that_name_no_id_are_dead_letters_too(server):
    for number, record in enumerate(("null", "7", "[]", '{"step_id": {"a": 1}, "trajectory_id": null, "x": 1}')):
        status, _, reply = server.send("POST", "/api/v1/steps", b'{"steps": [%s]}' % record.encode())
        assert (status, outcomes(reply)) == (200, ["rejected"])
        letters = server.get("/api/v1/dead-letters")[1]["items"]
        assert (len(letters), letters[-1]["record"], letters[-1]["trajectory_id"]) == (number + 1, record, "")


def test_a_number_too_long_beside_one_that_json_has_not_fails_no_third(server):
    records = (BAD_RECORDS["long number"], BAD_RECORDS["not a number"], json.dumps(STEP).encode())
    status, _, reply = server.send("POST", "/api/v1/steps", b'{"steps": [%s, %s, %s]}' % records)
    assert (status, outcomes(reply)) == (200, ["rejected", "rejected", "stored"])


def test_a_lone_surrogate_or_a_broken_byte_fails_its_own_record_only(server):
    broken = json.dumps({**STEP, "step_id": "s2", "agent": "AGENT"}).encode()
    for poison in (b"\\ud800", b"\xff\xfe"):
        body = b'{"steps": [%s, %s]}' % (broken.replace(b"AGENT", poison), json.dumps(STEP).encode())
        status, reply = server.post("/api/v1/steps", body)
        assert status == 200
        assert outcomes(reply)[0] == "rejected"
        assert outcomes(reply)[1] in ("stored", "duplicate")
    assert [item["step_id"] for item in server.get("/api/v1/steps")[1]["items"]] == ["s1"]


@pytest.mark.parametrize("depth", [150, 950, 5000])
def test_a_record_that_nests_too_deeply_fails_alone(server, depth):
    deep = json.dumps({**STEP, "step_id": "s2", "labels": {"a": "DEEP"}}).replace('"DEEP"', "[" * depth + "]" * depth)
    # Brackets within texts do not count.
    fine = json.dumps({**STEP, "step_id": "s3", "metadata": {"text": '[{"\\' * 500}})
    records = ", ".join((json.dumps(STEP), deep, deep.replace("s2", "s4"), fine))
    body = '{"steps": [' + records + "]}"
    status, _, reply = server.send("POST", "/api/v1/steps", body.encode())
    assert status == 200
    assert outcomes(reply) == ["stored", "rejected", "rejected", "stored"]
    assert [result["step_id"] for result in reply["results"]] == ["s1", "s2", "s4", "s3"]
    assert "$.steps[1]" in reply["results"][1]["reason"]
    assert server.get("/api/v1/steps/s3")[1]["metadata"]["text"] == '[{"\\' * 500


def test_a_deep_record_beside_a_broken_one_fails_no_third(server):
    deep = b'{"step_id": "s2", "trajectory_id": "t1", "labels": {"a": %s}}' % (b"[" * 5000 + b"]" * 5000)
    broken = b'{"step_id": "s3", "trajectory_id": "t1", "agent": "\xff"}'
    body = b'{"steps": [%s, %s, %s]}' % (deep, broken, json.dumps(STEP).encode())
    status, _, reply = server.send("POST", "/api/v1/steps", body)
    assert status == 200
    assert outcomes(reply) == ["rejected", "rejected", "stored"]


def test_a_number_over_64_bits_fails_its_own_record_only(server):
    wide = [{**STEP, "step_id": "s2", "choice_index": 2**63}, {**STEP, "step_id": "s3", "policy_version": 2**63}]
    reply = server.post("/api/v1/steps", {"steps": [*wide, STEP]})[1]
    assert outcomes(reply) == ["rejected", "rejected", "stored"]
    assert "$.steps[0].choice_index" in reply["results"][0]["reason"]


def test_a_policy_and_another_policy_version_are_refused(server):
    both = {**STEP, "policy": {"model": "m", "version": 4}}
    assert outcomes(server.post("/api/v1/steps", {"steps": [both]})[1]) == ["rejected"]


def test_an_id_is_made_where_none_is_sent(server):
    step = {name: value for name, value in STEP.items() if name != "step_id"}
    result = server.post("/api/v1/steps", {"steps": [step]})[1]["results"][0]
    assert result["outcome"] == "stored"
    assert server.get(f"/api/v1/steps/{result['step_id']}")[0] == 200


def test_a_step_for_an_ended_trajectory_is_late(server):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    server.post("/api/v1/trajectories/t1/complete", {"status": "finished"})
    assert outcomes(server.post("/api/v1/steps", {"steps": [STEP]})[1]) == ["late"]
    assert server.get("/api/v1/trajectories/t1")[1]["status"] == "finished"


def test_bodies_that_hold_no_steps_are_refused(server):
    for body, path in ((b"{", "$"), (b"[]", "$"), (b"{}", "$"), (b'{"steps": 1}', "$.steps"), (b"", "$")):
        status, reply = server.post("/api/v1/steps", body)
        assert (status, reply["error"]["path"]) == (400, path), body
