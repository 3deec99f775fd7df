"""Rows of a batch through TransferQueue on a local Ray: put, listed by their tags, and read back."""

import given
import ray
import transfer_queue as queue


def main():
    rows = given.batch("groups").to("transfer_queue", global_steps=5)
    # Its controller and its two storage units take one each, of however many there are.
    given.start_ray()
    try:
        queue.init()
        meta = rows.put(queue)
        tags = queue.kv_list(partition_id="train")["train"]
        back = queue.kv_batch_get(keys=rows.keys, partition_id="train")
        names = ("input_ids", "response_mask", "rollout_log_probs", "rm_scores", "advantages", "position_ids")
        given.say(
            {
                "fields": sorted(meta.fields),
                "tags": tags,
                "back": {name: [row.tolist() for row in back[name].unbind(0)] for name in names},
                "put": {name: [row[name].tolist() for row in rows.fields] for name in names},
                "dtypes": {name: str(back[name].dtype) for name in names},
                "uid": [str(back[place]["uid"]) for place in range(len(rows.keys))],
            }
        )
        queue.close()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
