"""A trajectory as a document of ATIF, with token ids, log-probabilities, rewards and results of tools.

The line from the first step on is the document; each branch is a document of a sub-agent within it, with what it
took over as copied context. What ATIF has no field for stands under `agentworld` in its `extra` objects, so that
`agentworld import atif` gives back what was exported. Images are within the document, as data URLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentworld.curation.exports.atif_chain import Chain, Media
from agentworld.ingest.formats.atif_extension import KEY, BranchFacts, RunFacts, StepFacts
from agentworld.ingest.formats.noted import as_finite, as_time
from agentworld.ingest.versions import step_ids
from agentworld.records import Feedback, Message, Step, TerminalStatus, Trajectory

SCHEMA = "ATIF-v1.7"
SCHEMA_WITH_AUDIO = "ATIF-v1.8"
_OWN_METADATA = frozenset(("trailing", "trailing_after", "documents", "import"))


def to_atif(
    trajectory: Trajectory, steps: Sequence[Step], *, feedback: Sequence[Feedback] = (), media: Media | None = None
) -> dict[str, Any]:
    """The document of a trajectory. `steps`: in order, with messages, ids and log-probabilities as far as they are
    there. `media` reads the bytes of images; NotFoundError where one is not there.
    """
    return _Export(trajectory, list(steps), feedback, media).document()


class _Export:
    def __init__(
        self, trajectory: Trajectory, steps: list[Step], feedback: Sequence[Feedback], media: Media | None
    ) -> None:
        self._trajectory, self._steps, self._feedback, self._media = trajectory, steps, feedback, media
        self._chains: list[Chain] = []
        self._at: dict[str, tuple[Chain, int]] = {}  # chain and number of its step, from 1, by step id
        self._in_chain: dict[str, Chain] = {}

    def document(self) -> dict[str, Any]:
        trajectory = self._trajectory
        for step in self._steps:
            self._place(step)
        for chain in self._chains:
            for step in chain.steps:
                self._add_step(chain, step)
        self._add_trailing()
        whole = self._chains[0] if self._chains else None
        extra: dict[str, Any] = {}
        if trajectory.rewards:
            extra["rewards"] = dict(trajectory.rewards)
        extra[KEY] = {"run": msgspec.to_builtins(self._run_facts())}
        if whole is not None and whole.steps[0].fork_reason is not None:
            extra[KEY]["branch"] = msgspec.to_builtins(BranchFacts(fork_reason=whole.steps[0].fork_reason))
        document: dict[str, Any] = {
            "schema_version": SCHEMA_WITH_AUDIO if any(each.has_audio for each in self._chains) else SCHEMA,
            "session_id": trajectory.trajectory_id,
            "trajectory_id": trajectory.trajectory_id,
            "agent": self._agent(whole),
            "steps": whole.out if whole is not None else self._only_said(),
            "final_metrics": self._metrics(),
            "extra": extra,
        }
        branches = [self._branch(chain) for chain in self._chains[1:]]
        if branches:
            document["subagent_trajectories"] = branches
        return document

    # --- lines of steps -------------------------------------------------------------------------------------------
    def _place(self, step: Step) -> None:
        before = self._in_chain.get(step.parent_step_id or "")
        if before is not None and before.steps[-1].step_id == step.parent_step_id and _goes_on(before.steps[-1], step):
            before.steps.append(step)
            self._in_chain[step.step_id] = before
            return
        name = step.step_id if self._chains else None
        chain = Chain(name, step, self._media)
        self._chains.append(chain)
        self._in_chain[step.step_id] = chain

    def _add_step(self, chain: Chain, step: Step) -> None:
        prompt = step.prompt_messages
        if prompt is not None:
            for message in prompt[len(chain.said) :]:
                chain.add(message)
            chain.said = list(prompt)
        if step is chain.steps[0] and step.parent_step_id is not None:
            chain.parent = self._at.get(step.parent_step_id)
            self._refer(chain, step)
        reply = step.response_message
        out = chain.message(reply if reply is not None else Message(role="assistant", content=None))
        if step.created_at:
            out["timestamp"] = _timestamp(step.created_at)
        if step.model is not None:
            out["model_name"] = step.model
        metrics = _step_metrics(step)
        if metrics:
            out["metrics"] = metrics
        extra = out.setdefault("extra", {})
        if step.rewards:
            extra["rewards"] = dict(step.rewards)
        facts = self._step_facts(chain, step, out)
        if facts:
            extra.setdefault(KEY, {})["step"] = facts
        if not extra:
            del out["extra"]
        chain.out.append(out)
        chain.results_of = out
        self._at[step.step_id] = (chain, len(chain.out))
        if reply is not None:
            chain.said.append(reply)

    def _refer(self, chain: Chain, step: Step) -> None:
        """A sub-agent is named by the step that began it, where both are in the same place for every reader."""
        if step.fork_reason == "subagent" and chain.parent is not None and chain.parent[0].name is None:
            began = chain.parent[0].out[chain.parent[1] - 1]
            results = began.setdefault("observation", {}).setdefault("results", [])
            results.append({"subagent_trajectory_ref": [{"trajectory_id": chain.name}]})

    def _step_facts(self, chain: Chain, step: Step, out: dict[str, Any]) -> dict[str, Any]:
        facts = StepFacts.of(step)
        facts.agent = None if step.agent == _agent_name(chain) else step.agent
        facts.model = None
        facts.tools = None if step.tools == chain.tools else step.tools
        facts.token_source = None if step.token_source == _token_source(step) else step.token_source
        facts.created_at = None if as_time(out.get("timestamp")) == (step.created_at or None) else step.created_at
        if step.response_logprobs is None or None not in step.response_logprobs:
            facts.response_logprobs = None
        absent = [] if step.agent is not None else ["agent"]
        absent += [name for name in ("prompt_messages", "response_message") if getattr(step, name) is None]
        if step.model is None and chain.model is not None:
            absent.append("model")
        if step.tools is None and chain.tools:
            absent.append("tools")
        facts.absent = tuple(absent)
        found: dict[str, Any] = msgspec.to_builtins(facts)
        return found

    # --- around the steps -----------------------------------------------------------------------------------------
    def _agent(self, chain: Chain | None) -> dict[str, Any]:
        about = self._trajectory.metadata.get("atif")
        version = about.get("agent_version") if isinstance(about, dict) else None
        name = _agent_name(chain) if chain is not None else self._trajectory.agent
        agent: dict[str, Any] = {"name": name or "agent", "version": version if isinstance(version, str) else "unknown"}
        if chain is not None and chain.model is not None:
            agent["model_name"] = chain.model
        if chain is not None and chain.tools:
            agent["tool_definitions"] = chain.tools
        return agent

    def _branch(self, chain: Chain) -> dict[str, Any]:
        parent = chain.parent
        facts = BranchFacts(
            document=parent[0].name if parent is not None else None,
            step_id=parent[1] if parent is not None else None,
            fork_reason=chain.steps[0].fork_reason,
        )
        return {
            "schema_version": SCHEMA_WITH_AUDIO if chain.has_audio else SCHEMA,
            "session_id": self._trajectory.trajectory_id,
            "trajectory_id": chain.name,
            "agent": self._agent(chain),
            "steps": chain.out,
            "extra": {KEY: {"branch": msgspec.to_builtins(facts)}},
        }

    def _only_said(self) -> list[dict[str, Any]]:
        """The steps of a trajectory without replies: what is kept of it."""
        chain = Chain(None, Step(step_id="", trajectory_id=""), self._media)
        for message, _ in self._trailing():
            chain.add(message)
        return chain.out

    def _add_trailing(self) -> None:
        if not self._chains:
            return
        tips = {chain.steps[-1].step_id: chain for chain in self._chains}
        for message, after in self._trailing():
            named = step_ids(self._trajectory.trajectory_id, after)
            chain = next((tips[step_id] for step_id in named if step_id in tips), self._chains[0])
            chain.add(message)

    def _trailing(self) -> Iterator[tuple[Message, Any]]:
        """Messages after the last replies, with the key of the reply that each comes after where it is said."""
        metadata = self._trajectory.metadata
        try:
            messages = msgspec.convert(metadata.get("trailing", ()), list[Message])
        except msgspec.ValidationError:
            return
        said = metadata.get("trailing_after")
        after = said if isinstance(said, list) and len(said) == len(messages) else [None] * len(messages)
        yield from zip(messages, after, strict=True)

    def _run_facts(self) -> RunFacts:
        trajectory = self._trajectory
        metadata = {name: value for name, value in trajectory.metadata.items() if name not in _OWN_METADATA}
        return RunFacts(
            status=_ended(trajectory),
            task=trajectory.task,
            group_id=trajectory.group_id,
            rollout_index=trajectory.rollout_index,
            agent=trajectory.agent,
            user=trajectory.user,
            metadata=metadata,
            feedback=list(self._said()),
            created_at=trajectory.created_at,
            completed_at=trajectory.completed_at or 0.0,
        )

    def _said(self) -> Iterator[dict[str, Any]]:
        """Labels of the trajectory and its steps, and other feedback on them that stays within it."""
        for name, value in self._trajectory.labels.items():
            yield {"kind": "label", "name": name, "value": value}
        for step in self._steps:
            for name, value in step.labels.items():
                yield {"kind": "label", "name": name, "value": value, "step": self._named(step.step_id)}
        for each in self._feedback:
            outside = [id for id in (each.step_id, each.other_id) if id is not None and id not in self._at]
            if each.kind == "label" or outside:
                continue
            said = {"kind": each.kind, "name": each.name, "value": each.value, "comment": each.comment}
            said = {name: value for name, value in said.items() if value is not None}
            for name, step_id in (("step", each.step_id), ("other", each.other_id)):
                if step_id is not None:
                    said[name] = self._named(step_id)
            yield said

    def _named(self, step_id: str) -> dict[str, Any]:
        chain, number = self._at[step_id]
        return {"document": chain.name, "step_id": number}

    def _metrics(self) -> dict[str, Any]:
        counted = [step.usage for step in self._steps if step.usage is not None]
        found: dict[str, Any] = {"total_steps": len(self._chains[0].out) if self._chains else 0}
        if counted:
            found["total_prompt_tokens"] = sum(each.prompt_tokens for each in counted)
            found["total_completion_tokens"] = sum(each.completion_tokens for each in counted)
        costs = [as_finite(step.metadata.get("cost_usd")) for step in self._steps]
        if any(cost is not None for cost in costs):
            found["total_cost_usd"] = sum(cost for cost in costs if cost is not None)
        return found


def _goes_on(before: Step, step: Step) -> bool:
    """Whether a step is the next of the line of the one before."""
    if step.fork_reason is not None or step.agent != before.agent:
        return False
    if step.prompt_messages is None or before.prompt_messages is None or before.response_message is None:
        return step.prompt_messages is None and before.prompt_messages is None
    said = len(before.prompt_messages)
    prompt = step.prompt_messages
    return len(prompt) > said and prompt[:said] == before.prompt_messages and prompt[said] == before.response_message


def _agent_name(chain: Chain) -> str:
    return chain.agent or "agent"


def _token_source(step: Step) -> str:
    return "none" if step.response_ids is None else "submitted"


def _step_metrics(step: Step) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    if step.usage is not None:
        metrics["prompt_tokens"] = step.usage.prompt_tokens
        metrics["completion_tokens"] = step.usage.completion_tokens
    for name in ("cached_tokens", "cost_usd"):
        value = as_finite(step.metadata.get(name))
        if value is not None:
            metrics[name] = int(value) if name == "cached_tokens" else value
    if step.prompt_ids is not None:
        metrics["prompt_token_ids"] = list(step.prompt_ids)
    if step.response_ids is not None:
        metrics["completion_token_ids"] = list(step.response_ids)
    if step.response_logprobs is not None and None not in step.response_logprobs:
        metrics["logprobs"] = list(step.response_logprobs)
    return metrics


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _ended(trajectory: Trajectory) -> TerminalStatus:
    if trajectory.status == "finished":
        return "finished"  # This one text: msgspec does not write a default, and tells it by identity.
    return trajectory.status if trajectory.status != "open" else "abandoned"
