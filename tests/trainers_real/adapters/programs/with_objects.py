"""Tinker's Datum and verifiers' Trace, made with their own classes."""

import given
import tinker
from verifiers.v1.trace import Trace


def datum(each):
    assert type(each) is tinker.Datum
    return {
        "input": each.model_input.to_ints(),
        **{name: {"dtype": value.dtype, "data": value.to_numpy().tolist()}
           for name, value in each.loss_fn_inputs.items()},
    }  # fmt: skip


def trace(each):
    assert type(each) is Trace
    again = Trace.model_validate_json(each.model_dump_json())
    return {
        "reward": again.reward,
        "branches": [
            {
                "ids": branch.token_ids,
                "mask": branch.sampled_mask,
                "roles": [message.role for message in branch.messages],
                "logprobs": branch.spread(lambda node: node.logprobs),
                "advantages": branch.spread(lambda node: node.advantages),
                "tools": [tool.name for tool in branch.tools],
            }
            for branch in again.branches
        ],
    }


if __name__ == "__main__":
    given.say(
        {
            "policy": [datum(each) for each in given.batch("groups").to("tinker", form="package")],
            "cross_entropy": [
                datum(each)
                for each in given.batch("groups").to("tinker", loss="cross_entropy", logprobs="none", credit="none")
            ],
            "traces": [trace(each) for each in given.batch("runs").to("verifiers", form="package")],
        }
    )
