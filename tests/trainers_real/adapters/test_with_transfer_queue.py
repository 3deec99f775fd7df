"""Rows go through TransferQueue unchanged."""

from tests.trainers.adapters.rollouts import two_groups
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("transfer_queue")


def test_rows_come_out_as_they_went_in(tmp_path):
    said = run("transfer_queue", "with_transfer_queue", tmp_path, groups=two_groups())
    assert said["back"] == said["put"]
    assert said["back"]["input_ids"][0] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert said["back"]["response_mask"][0] == [1, 0, 1, 0, 0, 1, 1]
    assert set(said["dtypes"].values()) == {"torch.int64", "torch.float32"}
    assert {"prompts", "responses", "loss_mask", "extra_fields", "num_turns"} <= set(said["fields"])
    assert said["uid"] == ["g1", "g1", "g2", "g2"]
    assert said["tags"]["g1_0_0"] == {"status": "success", "prompt_len": 3, "response_len": 7, "seq_len": 10,
                                      "global_steps": 5, "min_global_steps": 3, "max_global_steps": 4}  # fmt: skip
    assert said["tags"]["g1"]["status"] == said["tags"]["g2"]["status"] == "finished"
