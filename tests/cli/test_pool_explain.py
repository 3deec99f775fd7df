"""`agentworld pool explain`."""

import json

from agentworld.factory import open_pool
from agentworld.records import BatchSpec, Step


def test_why_something_is_handed_out_or_not(cli, refused, tmp_path):
    pool = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(pool) as opened:
        fields = {"prompt_ids": [1], "response_ids": [2], "response_logprobs": [-1.0]}
        opened.append_steps([Step(step_id="s", trajectory_id="t", **fields)])
        asked = ("pool", "explain", "c", "t", "--pool", pool)
        line = refused(*asked)
        assert "c has had no batch" in line
        assert """--spec '{"method":"grpo"}'""" in line
        assert cli(*asked, "--spec", '{"method": "reinforce"}')[1].startswith(
            "trajectory t: readiness: its trajectory is"
        )
        alone = ("pool", "explain", "c", "--pool", pool, "--spec", '{"method": "reinforce", "max_staleness": 0}')
        assert cli(*alone)[1] == (
            "a batch for reinforce cannot be had: 0 of 1 trajectory fit, 1 needed\n"
            "  the only trajectory is open or excluded (such as t)\n"
            "    Complete them, or see with `agentworld curate explain t` what excluded them\n"
        )
        assert json.loads(cli(*alone, "--json")[1])["findings"][0]["reason"] == "readiness"
        opened.complete_trajectory("t", "finished", 1.0)
        batch = opened.consumer("c").lease(BatchSpec(method="reinforce", size=1))
        code, out, _ = cli(*asked, "--json")
        found = json.loads(out)
        assert (code, found["reason"], found["batch_id"]) == (0, "leased", batch.batch_id)
        assert "this is no spec" in refused(*asked, "--spec", "{", code=2)
        assert "unknown field `szie`" in refused(*asked, "--spec", '{"szie": 1}', code=2)
        assert "'nothing'" in refused("pool", "explain", "c", "nothing", "--pool", pool)
