"""The message graph of verifiers: each message a node with the ids that it adds, a branch a path to a leaf."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.credit import apply_credit
from agentworld.credit.reading import sampled
from agentworld.errors import InvalidRequestError
from agentworld.records import AdapterNeeds, Batch, BatchItem, BatchTrajectory, Message, Step
from agentworld.trainers.adapters.adapter import Form, installed
from agentworld.trainers.adapters.paths import check_ids, prefix_parents
from agentworld.trainers.adapters.samples import CreditChoice, credit_of
from agentworld.trainers.adapters.spaces import Logprobs, logprobs_of, temperature_of
from agentworld.trainers.adapters.tasks import rendered, task_set_of


class VerifiersOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `verifiers`. `credit`, `logprobs`: as of other adapters. `form`: Trace, or the same as
    dictionaries.
    """

    credit: CreditChoice = "method"
    logprobs: Logprobs = "recomputable"
    form: Form = "auto"


class Verifiers:
    """The adapter `verifiers`."""

    name = "verifiers"
    says = "Traces of verifiers, one a trajectory"
    needs = AdapterNeeds(require=("tokens", "logprobs", "messages"), logprob_spaces=("raw", "temperature", "processed"))
    options = VerifiersOptions

    def convert(self, batch: Batch, options: VerifiersOptions) -> list[Any]:
        """One trace a trajectory: `nodes` with `parent`, `message`, `sampled`, `token_ids`, `mask`, `logprobs` and
        `advantages` (of the sampled tokens alone), `tools` at roots; `task`, `agent`, `rewards`, `info`.

        The ids of a path's nodes, one after the other, are the prompt and reply of its last step. A prompt that does
        not extend a step id for id begins a new root.
        """
        spec = credit_of(batch, options.credit)
        credited = None if spec is None else apply_credit(batch, spec)
        traces, index = [], 0
        for item in batch.items:
            for member in () if item.padding else item.trajectories:
                advantages = None if credited is None else credited.of_trajectory(index)
                index += 1
                traces.append(_trace(item, member, advantages, options))
        module = installed("verifiers.v1.trace", options.form, "verifiers")
        return traces if module is None else [module.Trace.model_validate(trace) for trace in traces]


def _trace(item: BatchItem, member: BatchTrajectory, advantages: Any, options: VerifiersOptions) -> dict[str, Any]:
    trajectory = member.trajectory
    for step in member.steps:
        check_ids(step)
    keys = [(step.vocabulary, temperature_of(step, options.logprobs)) for step in member.steps]
    parents = prefix_parents(member.steps, keys)
    nodes: list[dict[str, Any]] = []
    ends: list[int] = []
    for place, step in enumerate(member.steps):
        parent = parents[place]
        before = None if parent < 0 else (member.steps[parent], ends[parent])
        nodes += _nodes(step, before, len(nodes), None if advantages is None else advantages[place], options)
        ends.append(len(nodes) - 1)
    task = trajectory.task or {}
    return {
        "id": trajectory.trajectory_id,
        "task": {"type": task_set_of(trajectory), "data": {"id": _text(task.get("task_id"))}},
        "agent": {"config": {}, "name": trajectory.agent or "agent", "trainable": member.trained},
        "nodes": nodes,
        "rewards": {} if trajectory.reward is None else {"reward": {"score": trajectory.reward}},
        "metrics": {name: value for name, value in _rewards(item, member).items() if name != "reward"},
        "info": {"group": item.key, "step_ids": [step.step_id for step in member.steps]},
        "is_completed": trajectory.status != "open",
        "ok": trajectory.status in ("finished", "truncated"),
    }


def _nodes(
    step: Step, before: tuple[Step, int] | None, number: int, advantages: Any, options: VerifiersOptions
) -> list[dict[str, Any]]:
    """What the step adds to the path that it extends: the new messages, and the reply. What the prompt adds in ids is
    on the last new message, or begins the reply where there is none.
    """
    if step.prompt_messages is None or step.response_message is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no messages", path="messages", hint='Lease with require = ["tokens", "messages"]'
        )
    known, shown, parent = 0, 0, None
    if before is not None:
        earlier, parent = before
        known = len(earlier.prompt_ids or ()) + len(earlier.response_ids or ())
        shown = len(earlier.prompt_messages or ()) + 1
    added = (step.prompt_ids or [])[known:]
    reply = step.response_ids or []
    mask = sampled(step)
    asked = [_node(message, step.step_id) for message in step.prompt_messages[shown:]]
    answer = _node(step.response_message, step.step_id)
    if asked:
        asked[-1] |= {"token_ids": added, "mask": [False] * len(added)}
        added = []
    logprobs = logprobs_of(step, mask, options.logprobs)
    answer |= {"sampled": True, "token_ids": [*added, *reply], "mask": [False] * len(added) + mask.tolist()}
    answer["logprobs"] = [] if logprobs is None else logprobs[mask].tolist()
    if advantages is not None:
        answer["advantages"] = advantages[mask].tolist()
    nodes = [*asked, answer]
    if parent is None and step.tools:
        nodes[0]["tools"] = [_tool(tool) for tool in step.tools]
    for place, node in enumerate(nodes):
        node["parent"] = parent if place == 0 else number + place - 1
        node["timestamp"] = step.created_at
    return nodes


def _node(message: Message, step_id: str) -> dict[str, Any]:
    (said,) = rendered([message], step_id)
    said.pop("tool_calls", None)
    said["content"] = said["content"] or ("" if said["role"] != "assistant" else None)
    if message.tool_calls:
        said["tool_calls"] = [
            {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
            for call in message.tool_calls
        ]
    if said["role"] != "tool":
        said.pop("name", None)
    if said["role"] == "assistant" and message.reasoning is not None:
        said["reasoning_content"] = message.reasoning
    return {"message": said, "sampled": False, "token_ids": [], "mask": [], "logprobs": []}


def _tool(tool: Any) -> dict[str, Any]:
    function = tool.get("function", tool)
    return {
        "name": function.get("name", ""),
        "description": function.get("description") or "",
        "parameters": function.get("parameters") or {},
    }


def _rewards(item: BatchItem, member: BatchTrajectory) -> dict[str, float]:
    return item.rewards.get(member.trajectory.trajectory_id, member.trajectory.rewards)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


ADAPTER = Verifiers()
