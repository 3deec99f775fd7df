"""From trajectories of a batch to the rollouts that credit methods take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.credit.registry import CreditRule, Need, credit_from
from agentworld.credit.rollouts import Rollout
from agentworld.credit.trees import FloatArray, IntArray, StepTree
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.forest.messages import canonical_arguments
from agentworld.records import BatchItem, BatchTrajectory, Message, Step, digest

# continued: as recorded, and what has no parent continues the step that its prompt extends, or else the latest before
# it. recorded: each root begins a branch. order: each step continues the one before it.
Tree = Literal["continued", "recorded", "order"]
State = Callable[[Step], Hashable]
PRIMARY = "reward"
# Roots that begin something of their own; any other goes on with what was said before, only spelled anew.
_OWN_BRANCH = ("subagent", "parallel", "retry")


class CreditSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a batch is credited: a method by name with its `parameters`, and where its inputs are.

    `reward`: name of the trajectories' reward; `reward = ""` goes without. `step_reward`: name of a reward on steps;
    where a step has none the batch is refused, or with `missing` "zero" it counts as 0. `baseline_reward`: name of the
    reward on each trajectory that the greedy rollout of its task had. `tree`: which step continues which. `state`: what
    makes two steps' states the same: `prompt` (its ids, else its messages), `observation` (the messages since the reply
    before) or `metadata.KEY` of the step. `values`: name of the annotation with the values of steps. `bootstrap`: name
    of the annotation (a number, on the leaf or the trajectory) with the value after what was truncated; with
    `truncated` "terminal" a truncated trajectory counts as ended.
    """

    method: str = "group_relative"
    parameters: dict[str, Any] = {}
    reward: str = PRIMARY
    step_reward: str | None = None
    missing: Literal["refuse", "zero"] = "refuse"
    baseline_reward: str | None = None
    tree: Tree = "continued"
    state: str = "prompt"
    values: str = "values"
    bootstrap: str = "bootstrap"
    truncated: Literal["bootstrap", "terminal"] = "bootstrap"

    def rule(self) -> CreditRule:
        """The method with its parameters; ConfigError where something of either is unknown."""
        if self.state not in ("prompt", "observation") and not self.state.removeprefix("metadata."):
            raise ConfigError("metadata. needs a key", path="state", hint="For example metadata.room")
        if self.state not in ("prompt", "observation") and not self.state.startswith("metadata."):
            raise ConfigError(f"no state {self.state!r}", path="state", hint="Use prompt, observation or metadata.KEY")
        return credit_from(self.method, self.parameters)


def read_rollout(
    item: BatchItem, member: BatchTrajectory, spec: CreditSpec, needs: Collection[Need], state: State | None = None
) -> Rollout:
    """One trajectory as a rollout of its item's group. Reads only what the method `needs`.

    Raises InvalidRequestError where a reward, a state or a value that is needed is not there.
    """
    steps = member.steps
    tree = step_tree(steps, spec.tree)
    marked = [index for index, step in enumerate(steps) if step.is_last]
    identity = state or state_by_name(spec.state)
    return Rollout(
        tree=tree,
        lengths=np.asarray([int(sampled(step).sum()) for step in steps], dtype=np.int64),
        group=item.key,
        last=marked[-1] if marked else len(steps) - 1,
        name=member.trajectory.trajectory_id,
        reward=_trajectory_reward(member, spec.reward) if spec.reward else None,
        step_rewards=_step_rewards(item, member, spec) if spec.step_reward else None,
        states=[identity(step) for step in steps] if "states" in needs else None,
        roles=[step.agent or member.trajectory.agent for step in steps] if "roles" in needs else None,
        values=[_values(member, step, spec.values) for step in steps] if "values" in needs else None,
        bootstrap=_bootstrap(member, tree, spec) if "values" in needs else None,
        greedy=_greedy(member, spec) if "greedy" in needs else None,
    )


def step_tree(steps: list[Step], tree: Tree = "continued") -> StepTree:
    """The tree of a trajectory's steps in order, from `parent_step_id` and `fork_reason`.

    A step whose parent is not among them is a root. With `continued`, a root after the first that is no sub-agent,
    parallel choice or retry of its own continues an earlier step after all: the one whose prompt and reply are the
    longest beginning of its prompt's ids, as of submitted steps; else, as after a compaction, the latest step of its
    agent; where that agent has none, the step just before.
    """
    if tree == "order":
        return StepTree(np.arange(-1, len(steps) - 1, dtype=np.int64))
    place = {step.step_id: index for index, step in enumerate(steps)}
    parents: list[int] = []
    latest: dict[str | None, int] = {}
    whole: dict[int, npt.NDArray[np.int64]] = {}
    for index, step in enumerate(steps):
        parent = place.get(step.parent_step_id or "", -1)
        if parent < 0 and index and tree == "continued" and step.fork_reason not in _OWN_BRANCH:
            parent = _extended(steps, index, whole)
            parent = latest.get(step.agent, index - 1) if parent < 0 else parent
        parents.append(parent)
        latest[step.agent] = index
    return StepTree(parents)


def _extended(steps: list[Step], index: int, whole: dict[int, npt.NDArray[np.int64]]) -> int:
    """The latest of the earlier steps whose ids are the longest beginning of the step's prompt; -1 where none are.

    `whole`: prompt and reply of the steps that were looked at before.
    """
    prompt = np.asarray(steps[index].prompt_ids or [], dtype=np.int64)
    found, longest = -1, 0
    for earlier in range(index - 1, -1, -1):
        if earlier not in whole:
            ids = [*(steps[earlier].prompt_ids or []), *(steps[earlier].response_ids or [])]
            whole[earlier] = np.asarray(ids, dtype=np.int64)
        ids_before = whole[earlier]
        size = len(ids_before)
        if not longest < size <= len(prompt) or ids_before[-1] != prompt[size - 1]:
            continue
        if np.array_equal(ids_before, prompt[:size]):
            found, longest = earlier, size
    return found


def state_by_name(name: str) -> State:
    """How `CreditSpec.state` tells states apart. Ids of tool calls are no part of a state: each run has its own."""
    if name == "prompt":
        return _prompt
    if name == "observation":
        return _observation
    key = name.removeprefix("metadata.")

    def from_metadata(step: Step) -> Hashable:
        if key not in step.metadata:
            raise InvalidRequestError(f"step {step.step_id} has no metadata.{key}", path="state")
        return msgspec.json.encode(step.metadata[key], order="deterministic")

    return from_metadata


def sampled(step: Step) -> npt.NDArray[np.bool_]:
    """Which of the reply's tokens the policy sampled, bool [reply]; empty without ids."""
    count = 0 if step.response_ids is None else len(step.response_ids)
    if step.response_mask is None:
        return np.ones(count, dtype=np.bool_)
    return np.asarray(np.asarray(step.response_mask[:count]) > 0, dtype=np.bool_)


def _prompt(step: Step) -> Hashable:
    if step.prompt_ids is not None:
        return digest((step.vocabulary or "").encode(), np.asarray(step.prompt_ids, dtype=np.int64).tobytes())
    if step.prompt_messages is not None:
        return tuple(_said(message) for message in step.prompt_messages)
    raise InvalidRequestError(f"step {step.step_id} has no prompt to tell its state by", path="state")


def _observation(step: Step) -> Hashable:
    if step.prompt_messages is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no messages to tell its state by",
            path="state",
            hint='Lease with require = ["tokens", "messages"], or tell states by prompt or metadata.KEY',
        )
    since: list[Hashable] = []
    for message in reversed(step.prompt_messages):
        if message.role == "assistant":
            break
        since.append(_said(message))
    return tuple(since)


def _said(message: Message) -> Hashable:
    calls = tuple((call.function.name, canonical_arguments(call.function.arguments)) for call in message.tool_calls)
    return (message.role, message.name, message.text, tuple(part.digest for part in message.media), calls)


def _trajectory_reward(member: BatchTrajectory, name: str) -> float:
    trajectory = member.trajectory
    value = trajectory.reward if name == PRIMARY else trajectory.rewards.get(name)
    if value is None:
        what = "no reward" if name == PRIMARY else f"no reward {name!r}"
        raise InvalidRequestError(
            f"trajectory {trajectory.trajectory_id} has {what}",
            path="reward",
            hint="Absent is not zero: reward it first",
        )
    return value


def _greedy(member: BatchTrajectory, spec: CreditSpec) -> float:
    if spec.baseline_reward is None:
        raise ConfigError(
            f"credit {spec.method} needs the reward of the greedy rollout",
            path="baseline_reward",
            hint="Name the reward that holds it on each trajectory",
        )
    return _trajectory_reward(member, spec.baseline_reward)


def _step_rewards(item: BatchItem, member: BatchTrajectory, spec: CreditSpec) -> FloatArray:
    name = spec.step_reward or ""
    found = np.zeros(len(member.steps))
    for index, step in enumerate(member.steps):
        # As they were at the lease, where the batch says so.
        rewards: Mapping[str, float] = item.rewards.get(step.step_id, {}) if item.rewards else step.rewards
        if name in rewards:
            found[index] = rewards[name]
        elif spec.missing == "refuse":
            raise InvalidRequestError(
                f"step {step.step_id} has no reward {name!r}",
                path="step_reward",
                hint='Absent is not zero: reward every step, or say missing = "zero"',
            )
    return found


def _values(member: BatchTrajectory, step: Step, name: str) -> FloatArray:
    """The step's values at its sampled tokens, or the one of the step."""
    given = member.annotations.get(step.step_id, {}).get(name)
    if given is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no annotation {name!r}",
            path="values",
            hint=f'Lease with require = ["tokens", "annotation.{name}"]',
        )
    values = np.asarray(given, dtype=np.float64).reshape(-1)
    mask = sampled(step)
    return values[mask] if len(values) == len(mask) else values


def _bootstrap(member: BatchTrajectory, tree: StepTree, spec: CreditSpec) -> FloatArray | None:
    if member.trajectory.status != "truncated" or spec.truncated == "terminal":
        return None
    after = np.zeros(len(tree))
    leaves: IntArray = tree.leaves
    for leaf in leaves.tolist():
        for target in (member.steps[leaf].step_id, member.trajectory.trajectory_id):
            given = member.annotations.get(target, {}).get(spec.bootstrap)
            if given is not None:
                after[leaf] = float(np.asarray(given, dtype=np.float64).reshape(()))
                break
        else:
            raise InvalidRequestError(
                f"trajectory {member.trajectory.trajectory_id} was truncated and has no annotation {spec.bootstrap!r}",
                path="bootstrap",
                hint='Annotate the value after its end, or say truncated = "terminal"',
            )
    return after
