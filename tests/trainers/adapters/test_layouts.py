"""Each layout has the fields of its trainer, in their shapes and types, and its masks mark the sampled tokens."""

import importlib.util

import numpy as np
import pytest

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import Message, adapt
from tests.trainers.adapters.rollouts import batch, member, said, step, two_groups, with_forks

torch = pytest.importorskip("torch")

INT64, INT32, FLOAT, BOOL = torch.int64, torch.int32, torch.float32, torch.bool
# Of two_groups(): 4 rows, of which the longest has 10 ids, the longest prompt 4 and the longest response 7.
ROWS, LENGTH, PROMPT, RESPONSE = 4, 10, 4, 7
# What the first row has: prompt 1 2 3, then 4 (5) 6 (7 8) 9 10 with what was put there in brackets.
IDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
MASK = [0, 0, 0, 1, 0, 1, 0, 0, 1, 1]
LOGPROBS = [0, 0, 0, -0.1, 0, -0.3, 0, 0, -0.1, -0.2]


def described(found):
    return {name: (value.dtype, tuple(value.shape)) for name, value in found.items() if torch.is_tensor(value)}


def test_torch():
    found = two_groups().to("torch", pad_id=99)
    wide = (ROWS, LENGTH)
    assert described(found) == {
        "input_ids": (INT64, wide),
        "attention_mask": (INT64, wide),
        "position_ids": (INT64, wide),
        "loss_mask": (BOOL, wide),
        "logprobs": (FLOAT, wide),
        "advantages": (FLOAT, wide),
        "weights": (FLOAT, wide),
        "versions": (INT64, wide),
        "temperatures": (FLOAT, (ROWS,)),
        "rewards": (FLOAT, (ROWS,)),
    }
    assert found["loss_mask"][0].int().tolist() == MASK
    assert found["input_ids"][2].tolist() == [5, 5, 5, 5, 6, 7, 99, 99, 99, 99]
    assert found["logprobs"][0].tolist() == pytest.approx(LOGPROBS)
    assert found["weights"].sum().item() == pytest.approx(1)
    assert (found["trajectory_ids"], found["groups"]) == (["a", "b", "c", "d"], ["g1", "g1", "g2", "g2"])
    plain = two_groups().to("torch", arrays="numpy", credit="none", logprobs="none", length=12)
    assert plain["input_ids"].shape == (ROWS, 12)
    assert not {"advantages", "logprobs"} & plain.keys()


@pytest.mark.parametrize("shared", ["first_path", "mean", "per_path"])
def test_a_trajectory_weighs_the_same_however_it_forked(shared):
    found = with_forks().to("torch", rows="tree", shared=shared, aggregation="trajectory_mean", arrays="numpy")
    own = np.asarray(found["trajectory_ids"]) == "f"
    assert found["weights"][own].sum() == pytest.approx(0.5)
    assert found["weights"][~own].sum() == pytest.approx(0.5)


def test_areal():
    found = two_groups().to("areal")
    wide = (ROWS, LENGTH)
    assert described(found) == {
        "input_ids": (INT32, wide),
        "loss_mask": (INT32, wide),
        "versions": (INT32, wide),
        "attention_mask": (BOOL, wide),
        "logprobs": (FLOAT, wide),
        "rewards": (FLOAT, (ROWS,)),
    }
    assert found["loss_mask"][0].tolist() == MASK
    assert found["versions"][0].tolist() == [-1, -1, -1, 3, -1, 4, -1, -1, 4, 4]


def test_verl():
    found = two_groups().to("verl", form="plain", pad_id=99, old_log_probs=True)
    tensors, others, about = found["batch"], found["non_tensor_batch"], found["meta_info"]
    whole, response = (ROWS, PROMPT + RESPONSE), (ROWS, RESPONSE)
    assert described(tensors) == {
        "prompts": (INT64, (ROWS, PROMPT)),
        "responses": (INT64, response),
        "response_mask": (INT64, response),
        "input_ids": (INT64, whole),
        "attention_mask": (INT64, whole),
        "position_ids": (INT64, whole),
        "rollout_log_probs": (FLOAT, response),
        "old_log_probs": (FLOAT, response),
        "advantages": (FLOAT, response),
        "rm_scores": (FLOAT, response),
    }
    assert tensors["prompts"][0].tolist() == [99, 1, 2, 3]
    assert tensors["responses"][2].tolist() == [6, 7, 99, 99, 99, 99, 99]
    assert tensors["response_mask"][0].tolist() == MASK[3:]
    assert tensors["attention_mask"][0].tolist() == [0] + [1] * 10
    assert tensors["position_ids"][0].tolist() == [0, *range(10)]
    assert tensors["rm_scores"].nonzero().tolist() == [[0, 6], [2, 1], [3, 0]]
    assert {name: values.dtype for name, values in others.items()} == {
        **dict.fromkeys(("uid", "data_source", "reward_model", "extra_info", "agent_name"), np.dtype(object)),
        **dict.fromkeys(("min_global_steps", "max_global_steps"), np.dtype(object)),
        "__num_turns__": np.dtype(np.int32),
    }
    assert others["reward_model"][0] == {"style": "rule", "ground_truth": "left"}
    assert (others["min_global_steps"][0], others["max_global_steps"][0]) == (3, 4)
    assert about["temperature"] == 1.0
    assert about["global_token_num"] == [10, 10, 6, 5]
    fixed = two_groups().to("verl", form="plain", prompt_length=6, response_length=8)["batch"]
    assert (fixed["prompts"].shape[1], fixed["responses"].shape[1]) == (6, 8)


def test_prompts_of_verl_are_messages_where_the_batch_has_them():
    groups = batch({"g1": two_groups().items[0].trajectories})
    others = groups.to("verl", form="plain")["non_tensor_batch"]
    assert others["raw_prompt"][0] == [{"role": "user", "content": "Where is it?"}]


def test_transfer_queue():
    found = two_groups().to("transfer_queue", global_steps=5)
    assert found.keys == ["g1_0_0", "g1_1_0", "g2_0_0", "g2_1_0"]
    row = found.fields[0]
    assert described(row) == {
        "prompts": (INT64, (3,)),
        "input_ids": (INT64, (10,)),
        "position_ids": (INT64, (10,)),
        **dict.fromkeys(("responses", "response_mask", "loss_mask"), (INT64, (7,))),
        **dict.fromkeys(("rollout_log_probs", "rm_scores", "advantages"), (FLOAT, (7,))),
    }
    assert row["response_mask"].tolist() == MASK[3:]
    assert row["rm_scores"].tolist() == [0] * 6 + [1]
    assert row.keys() > {"num_turns", "reward_score", "uid", "data_source", "reward_model", "extra_fields"}
    assert found.tags[0] == {"status": "success", "prompt_len": 3, "response_len": 7, "seq_len": 10,
                             "global_steps": 5, "min_global_steps": 3, "max_global_steps": 4}  # fmt: skip


def test_tinker():
    datum = two_groups().to("tinker", form="plain", mask=True)[0]
    inputs = datum["loss_fn_inputs"]
    assert datum["model_input"] == IDS[:-1]
    assert inputs["target_tokens"].tolist() == IDS[1:]
    assert inputs["mask"].tolist() == MASK[1:]
    assert inputs["logprobs"].tolist() == pytest.approx(LOGPROBS[1:])
    assert {name: value.dtype.name for name, value in inputs.items()} == {
        "target_tokens": "int64", "logprobs": "float32", "advantages": "float32", "mask": "float32"}  # fmt: skip
    plain = two_groups().to("tinker", form="plain", loss="cross_entropy", logprobs="none", credit="none")[0]
    assert plain["loss_fn_inputs"].keys() == {"target_tokens", "weights"}
    halves = with_forks().to("tinker", form="plain", rows="tree", shared="mean")
    whole = with_forks().to("tinker", form="plain", rows="step")
    total = [sum(each["loss_fn_inputs"]["advantages"].sum() for each in rows) for rows in (halves, whole)]
    assert total[0] == pytest.approx(total[1])


def test_openrlhf():
    groups = two_groups()
    for item in groups.items:
        for each in item.trajectories:
            each.annotations = {one.step_id: {"values": [0.5] * len(one.response_ids)} for one in each.steps}
    found = groups.to("openrlhf", annotations=["values"], old_log_probs=True)
    actions = (ROWS, LENGTH - 1)
    assert described(found) == {
        "sequences": (INT64, (ROWS, LENGTH)),
        "attention_mask": (INT64, (ROWS, LENGTH)),
        "action_mask": (BOOL, actions),
        **dict.fromkeys(("rollout_log_probs", "action_log_probs", "values", "advantages", "returns"), (FLOAT, actions)),
        **dict.fromkeys(("rewards", "scores", "response_length", "total_length", "truncated"), (FLOAT, (ROWS,))),
    }
    assert found["action_mask"][0].int().tolist() == MASK[1:]
    assert found["truncated"].tolist() == [0, 0, 1, 0]
    mask = found["action_mask"]
    assert torch.equal(found["returns"][mask], (found["advantages"] + found["values"])[mask])
    assert not found["returns"][~mask].any()
    assert found["labels"] == ["left"] * ROWS


def test_slime():
    rows = two_groups().to("slime")
    row = rows[0]
    assert (row["tokens"], row["response_length"], row["loss_mask"]) == (IDS, 7, MASK[3:])
    assert row["rollout_log_probs"] == pytest.approx(LOGPROBS[3:])
    assert row["weight_versions"] == ["4", "4"]
    assert [each["status"] for each in rows] == ["completed", "completed", "truncated", "completed"]
    assert [(each["group_index"], each["rollout_id"]) for each in rows] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    split = with_forks().to("slime")
    own = [each for each in split if each["rollout_id"] == 0]
    assert {each["metadata"]["rollout_mask_sum"] for each in own} == {sum(sum(each["loss_mask"]) for each in own)}
    assert len(own) == 3


def test_skyrl():
    found = with_forks().to("skyrl", rows="step")
    lists = [name for name, value in found.items() if value is not None]
    assert {len(found[name]) for name in lists} == {6}
    assert found["is_last_step"] == [False, False, False, True, False, True]
    assert found["rewards"] == [0, 0, 0, 1.0, 0, 0]
    assert found["loss_masks"][-2] == [1, 0, 1]
    assert found["trajectory_ids"][-1] == {"instance_id": "g1", "repetition_id": 1}
    assert two_groups().to("skyrl")["stop_reasons"] == ["stop", "stop", "length", "stop"]
    for ids, mask, logprobs in zip(*(found[name] for name in ("response_ids", "loss_masks", "rollout_logprobs"))):  # noqa: B905
        assert len(ids) == len(mask) == len(logprobs)


def test_nemo_rl():
    found = two_groups().to("nemo_rl", multiple=8)
    wide = (ROWS, 16)
    assert described(found) == {
        "input_ids": (INT64, wide),
        "token_mask": (INT64, wide),
        "generation_logprobs": (FLOAT, wide),
        "advantages": (FLOAT, wide),
        "input_lengths": (INT64, (ROWS,)),
        "sample_mask": (FLOAT, (ROWS,)),
    }
    assert found["token_mask"][0].tolist() == [*MASK, *[0] * 6]
    assert found["input_lengths"].tolist() == [10, 10, 6, 5]


def test_prime_rl():
    row = two_groups().to("prime_rl")[0]
    lists = ("token_ids", "mask", "logprobs", "temperatures", "advantages", "rl_weights", "ce_weights")
    assert {len(row[name]) for name in lists} == {LENGTH}
    assert row["mask"] == [bool(bit) for bit in MASK]
    assert row["rl_weights"] == MASK
    assert not any(row["ce_weights"])
    assert row["env_name"] == "doors"
    imitated = batch({"a": two_groups().items[0].trajectories}, method="sft").to("prime_rl", loss="ce")[0]
    assert imitated["ce_weights"] == MASK


def test_trl_rollouts():
    found = two_groups().to("trl")
    assert found["prompt_ids"][0] == IDS[:3]
    assert found["completion_ids"][0] == IDS[3:]
    assert found["env_mask"][0] == MASK[3:]
    assert found["logprobs"][0] == pytest.approx(LOGPROBS[3:])
    assert found["reward"] == [1.0, 0.0, 0.25, 0.75]
    with pytest.raises(InvalidRequestError, match="trajectory f is 3 rows"):
        with_forks().to("trl")


def test_trl_rows():
    runs = two_groups().items[0].trajectories
    row = batch({"a": runs[:1]}, unit="trajectory", method="sft").to("trl")[0]
    assert row == {"input_ids": IDS, "labels": [each if bit else -100 for each, bit in zip(IDS, MASK, strict=True)]}
    pair = batch({"a b": runs}, unit="pair", method="dpo").to("trl")[0]
    asked = [message["role"] for message in pair["prompt"]]
    assert (asked, pair["margin"]) == (["user", "assistant", "tool"], 1.0)
    assert pair["chosen"] == [{"role": "assistant", "content": "Left."}]
    assert pair["rejected"] == [{"role": "assistant", "content": "Right."}]
    judged = batch({"a": runs}, unit="trajectory", method="kto").to("trl")
    assert [row["label"] for row in judged] == [True, False]
    assert [message["role"] for message in judged[0]["completion"]] == ["assistant", "tool", "assistant"]
    call = judged[0]["completion"][0]
    assert call["reasoning_content"] == "I look."
    assert call["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": "door"}}
    steps = batch({"a": runs[:1]}, unit="trajectory", method="prm").to("trl")
    assert steps == [
        {
            "prompt": "Where is it?",
            "completions": ['I look.\n\nlook({"at": "door"})', "A door.\n\nLeft."],
            "labels": [True, False],
        }
    ]


def test_pairs_go_on_from_where_they_part():
    one = member("a", said("a", "Left."), 1.0)
    other = member("b", [step("b-0", [1, 2, 3], [9], trajectory="b", prompt_messages=one.steps[0].prompt_messages,
                              response_message=Message(role="assistant", content="No idea."))], 0.0)  # fmt: skip
    with pytest.raises(InvalidRequestError, match="no prompt in common"):
        batch({"p": [one, other]}, unit="pair").to("trl", trainer="dpo")
    other.steps[0].tools = one.steps[0].tools
    row = batch({"p": [one, other]}, unit="pair").to("trl", trainer="dpo")[0]
    assert [message["role"] for message in row["chosen"]] == ["assistant", "tool", "assistant"]
    assert row["rejected"] == [{"role": "assistant", "content": "No idea."}]
    with pytest.raises(InvalidRequestError, match=r"both trajectories of pair p say the same"):
        batch({"p": [one, member("c", said("c", "Left."), 0.0)]}, unit="pair").to("trl", trainer="dpo")


def test_verifiers():
    groups = batch({"g1": two_groups().items[0].trajectories})
    trace = groups.to("verifiers", form="plain")[0]
    nodes = trace["nodes"]
    assert [(node["parent"], node["message"]["role"], node["sampled"]) for node in nodes] == [
        (None, "user", False), (0, "assistant", True), (1, "tool", False), (2, "assistant", True)]  # fmt: skip
    assert [token for node in nodes for token in node["token_ids"]] == IDS
    assert [int(bit) for node in nodes for bit in node["mask"]] == MASK
    assert nodes[1]["logprobs"] == pytest.approx([-0.1, -0.3])
    assert nodes[1]["advantages"] == pytest.approx([1, 1], abs=1e-5)
    assert nodes[1]["message"]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": '{"at": "door"}'}]
    assert nodes[0]["tools"][0]["name"] == "look"
    assert trace["rewards"] == {"reward": {"score": 1.0}}


def test_datasets():
    found = with_forks().to("datasets", form="plain")
    assert found["response_mask"][-1] == MASK[3:]
    assert found["step_ids"] == [["f-0", "f-1"], ["f-2"], ["f-3"], ["a-0", "a-1"]]
    assert {len(column) for column in found.values()} == {4}


@pytest.mark.parametrize(("name", "package"), [("datasets", "datasets"), ("tinker", "tinker"), ("verl", "verl")])
def test_a_missing_package_is_named_with_what_to_install(name, package):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is here")
    with pytest.raises(ConfigError, match=f'pip install {package}, or say form = "plain"'):
        adapt(two_groups(), name, form="package")
