"""One document of ATIF as turns: what was said in order, and which of it the agent's model sampled there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.ingest.formats.atif_extension import KEY, StepFacts
from agentworld.ingest.formats.atif_others import of_document, of_step
from agentworld.ingest.formats.media import Media, put_url
from agentworld.ingest.formats.noted import Values, as_finite, as_text, call_of, kind_of
from agentworld.ingest.run import RunReward
from agentworld.records import MediaPart, Message, TextPart, Tool, ToolCall, Usage
from agentworld.records.message import Role

_IDS = frozenset(("prompt_token_ids", "completion_token_ids", "logprobs"))
_SOURCES: dict[str, Role] = {"system": "system", "user": "user", "agent": "assistant"}
_LENGTH = 12  # of what is shown of an unknown key


class Reference(msgspec.Struct, frozen=True):
    """What names another document: a file beside it, an id, or a run."""

    path: str | None = None
    trajectory_id: str | None = None
    session_id: str | None = None
    place: str = ""


class Turn(msgspec.Struct):
    """What one step of a document adds. `said`: the message and the results that came after it. `sampled`: where the
    first of them is a reply of the model. `step`: fields of that reply's Step, without its prompt.
    """

    place: str
    key: str
    said: list[Message]
    sampled: bool = False
    step: dict[str, Any] = {}
    references: list[Reference] = []
    rewards: list[RunReward] = []
    at: float | None = None


class Document:
    """A document that is read: its names, its turns, and what it says of the run."""

    def __init__(self, value: Mapping[str, Any], values: Values, place: str, *, row: bool = False) -> None:
        self.value = value
        self.values = values
        self.place = place
        self.row = row
        self.file = values.file
        agent = values.object(value, "agent", place) or {}
        self.agent = agent
        self.agent_name = values.name(agent, "name", f"{place}.agent")
        self.model = values.name(agent, "model_name", f"{place}.agent")
        self.session_id = values.text(value, "session_id", place)
        self.trajectory_id = values.text(value, "trajectory_id", place)
        self.continued = values.text(value, "continued_trajectory_ref", place)
        self.extra = values.object(value, "extra", place) or {}
        self.media: Media = {}
        self.others = of_document(value)  # what else is said in it, by place; of steps that are no replies, once read

    @classmethod
    def links(cls, value: Mapping[str, Any], file: str) -> Document:
        """A document only for what it names; what is wrong with it is said when it is read."""
        kept = {key: value.get(key) for key in ("session_id", "trajectory_id", "continued_trajectory_ref")}
        named = [{"subagent_trajectory_ref": each} for step in _steps(value) for each in _named(step) if each]
        return cls({**kept, "steps": [{"observation": {"results": named}}]}, Values(file, _unheard), "$")

    @property
    def own(self) -> dict[str, Any]:
        """What an export of AgentWorld says beside the format's own fields."""
        return own_of(self.extra)

    def tools(self) -> list[Tool] | None:
        """What the agent could call."""
        given = self.values.items(self.agent, "tool_definitions", f"{self.place}.agent")
        if not given:
            return None
        tools: list[Tool] = []
        for number, each in enumerate(given):
            if isinstance(each, dict):
                tools.append(each if "function" in each else {"type": "function", "function": each})
            else:
                self.values.lost(f"{self.place}.agent.tool_definitions[{number}]", f"no tool can be {kind_of(each)}")
        return tools or None

    def embedded(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The documents of sub-agents within it, with their places."""
        place = f"{self.place}.subagent_trajectories"
        found = []
        for number, each in enumerate(self.values.items(self.value, "subagent_trajectories", self.place) or ()):
            if is_document(each):
                found.append((f"{place}[{number}]", each))
            else:
                self.values.lost(f"{place}[{number}]", "it is no trajectory of ATIF")
        return found

    def references(self) -> list[Reference]:
        """All that it names, without reading it."""
        found = [each for step in _steps(self.value) for each in self._references(step, self.place, heard=False)]
        return found + ([Reference(path=self.continued)] if self.continued else [])

    def turns(self) -> list[Turn]:
        """Its steps, in order."""
        raw = self.values.items(self.value, "steps", self.place)
        if raw is None:
            self.values.lost(f"{self.place}.steps", "there are no steps")
        turns: list[Turn] = []
        keys: set[str] = set()
        for number, each in enumerate(raw or ()):
            place = f"{self.place}.steps[{number}]"
            if not isinstance(each, dict):
                self.values.lost(place, f"a step must be an object, not {kind_of(each)}")
                continue
            turn = self._turn(each, number, place)
            if turn.key in keys:
                turn.key = f"{turn.key}-{number}"
            keys.add(turn.key)
            turns.append(turn)
        return turns

    def _turn(self, step: dict[str, Any], number: int, place: str) -> Turn:
        values = self.values
        extra = values.object(step, "extra", place) or {}
        own = own_of(extra)
        role = self._role(step, place)
        calls = self._calls(step, place)
        content = step.get("message")
        message = Message(
            role=role,
            content=content if isinstance(content, str) else self._content(content, f"{place}.message"),
            reasoning=values.text(step, "reasoning_content", place),
            tool_calls=calls,
        )
        if message.role != "assistant" and (message.reasoning is not None or message.tool_calls):
            values.said(place, f"only agents think and call tools, and the step's source is {role}", None)
            message = msgspec.structs.replace(message, role="assistant")
        message = own_message(message, own.get("message"), self.media)
        given = step.get("step_id")
        whole = isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**53
        turn = Turn(place=place, key=str(given) if whole else f"n{number + 1}", said=[message])
        turn.said += self._results(step, message.tool_calls, place)
        turn.references = self._references(step, place)
        turn.at = values.time(step, "timestamp", place)
        copied = step.get("is_copied_context") is True or step.get("llm_call_count") == 0
        turn.sampled = message.role == "assistant" and not copied
        metadata = self._metadata(step, extra, place)
        if not turn.sampled and step.get("is_copied_context") is not True:
            about = {key: metadata[key] for key in ("extra", "other") if key in metadata}
            self.others |= {f"steps[{number}].{key}": value for key, value in about.items()}
        if turn.sampled:
            turn.step = {"created_at": turn.at or 0.0, **self._step(step, own, place)}
            turn.step["metadata"] = {**turn.step.get("metadata", {}), **metadata}
            turn.rewards = rewards_of(values, extra, f"{place}.extra", turn.key) if extra else []
        elif step.get("metrics") not in (None, {}) and role != "assistant":
            values.lost(f"{place}.metrics", "only replies of the model have metrics; they are left out")
        return turn

    def _role(self, step: dict[str, Any], place: str) -> Role:
        source = step.get("source")
        role = _SOURCES.get(source) if isinstance(source, str) else None
        if role is None:
            agent = source in ("assistant", "model") or any(step.get(key) for key in ("tool_calls", "metrics"))
            role = "assistant" if agent else "user"
            self.values.said(
                f"{place}.source", f"a step cannot be of {as_text(source)[:40]!r}; it is read as of {role}"
            )
        return role

    def _calls(self, step: dict[str, Any], place: str) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        for number, each in enumerate(self.values.items(step, "tool_calls", place) or ()):
            where = f"{place}.tool_calls[{number}]"
            name = each.get("function_name") if isinstance(each, dict) else None
            if not isinstance(name, str):
                self.values.lost(where, "a call needs a function_name; it is left out")
                continue
            call_id = self.values.text(each, "tool_call_id", where) or f"call_{number}"
            raw = own_of(each.get("extra")).get("arguments")
            calls.append(call_of(name, raw if isinstance(raw, str) else each.get("arguments", {}), call_id))
        return tuple(calls)

    def _results(self, step: dict[str, Any], calls: tuple[ToolCall, ...], place: str) -> list[Message]:
        """What came back: as results of the calls, by their ids or in their order, or as words of the environment."""
        found: list[Message] = []
        results = self._observed(step, place)
        if not results:
            return found
        named = {each["source_call_id"] for _, each in results if isinstance(each.get("source_call_id"), str)}
        waiting = [call.id for call in calls if call.id not in named]
        for where, each in results:
            source = self.values.text(each, "source_call_id", where)
            if source is None and "content" not in each and each.get("subagent_trajectory_ref"):
                continue  # It only says who was asked.
            content = self._content(each.get("content"), f"{where}.content", null=True)
            if source is None and calls:
                source = waiting.pop(0) if waiting else calls[-1].id
            if source is not None:
                message = Message(role="tool", content=content, tool_call_id=source)
            else:
                message = Message(role="user", content="" if content is None else content)
            found.append(own_message(message, own_of(each.get("extra")).get("message"), self.media))
        return found

    def _observed(self, step: dict[str, Any], place: str) -> list[tuple[str, dict[str, Any]]]:
        observation = self.values.object(step, "observation", place) or {}
        found = []
        for number, each in enumerate(self.values.items(observation, "results", f"{place}.observation") or ()):
            where = f"{place}.observation.results[{number}]"
            if isinstance(each, dict):
                found.append((where, each))
            elif isinstance(each, str):
                found.append((where, {"content": each}))
            else:
                self.values.lost(where, f"a result must be an object, not {kind_of(each)}")
        return found

    def _references(self, step: Mapping[str, Any], place: str, *, heard: bool = True) -> list[Reference]:
        values = self.values if heard else Values(self.file, _unheard)
        found: list[Reference] = []
        for number, given in enumerate(_named(step)):
            if not given:
                continue
            where = f"{place}.observation.results[{number}].subagent_trajectory_ref"
            for each in given if isinstance(given, list) else [given] if given else ():
                if isinstance(each, str):
                    each = {"trajectory_path": each}
                if not isinstance(each, dict):
                    values.lost(where, f"a reference must be an object, not {kind_of(each)}")
                    continue
                path, named, session = (
                    values.text(each, key, where) for key in ("trajectory_path", "trajectory_id", "session_id")
                )
                found.append(Reference(path=path, trajectory_id=named, session_id=session, place=where))
        return found

    def _content(self, value: Any, place: str, *, null: bool = False) -> Any:
        if isinstance(value, str):
            return value
        if value is None:
            return None if null else ""
        if not isinstance(value, list):
            self.values.said(place, f"a message must be text or parts, not {kind_of(value)}; its JSON is kept as text")
            return as_text(value)
        if not value:
            return None if null else ""
        return tuple(self._part(each, f"{place}[{number}]") for number, each in enumerate(value))

    def _part(self, part: Any, place: str) -> TextPart | MediaPart:
        if isinstance(part, str):
            return TextPart(part)
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            return TextPart(text)
        source = part.get("source") if isinstance(part, dict) else None
        if not isinstance(source, dict) or not isinstance(source.get("path"), str):
            self.values.said(place, "the part is neither text nor a picture; its JSON is kept as text")
            return TextPart(as_text(part))
        said = self.values.text(source, "media_type", f"{place}.source")
        put = put_url(self.media, source["path"], said, beside=self.values.beside)
        return self.values.told(f"{place}.source.path", put)

    def _metadata(self, step: dict[str, Any], extra: dict[str, Any], place: str) -> dict[str, Any]:
        rest = {key: value for key, value in extra.items() if key not in (KEY, "reward", "rewards")}
        other = of_step(step)
        found = {
            "reasoning_effort": step.get("reasoning_effort"),
            "llm_call_count": step.get("llm_call_count"),
            "extra": self.values.bounded(rest, f"{place}.extra") if rest else None,
            "other": self.values.bounded(other, f"{place} (other fields)") if other else None,
        }
        metrics = step.get("metrics")
        if isinstance(metrics, dict):
            found["cached_tokens"] = as_finite(metrics.get("cached_tokens"))
            found["cost_usd"] = as_finite(metrics.get("cost_usd"))
            more = metrics.get("extra")
            found["metrics"] = None if more is None else self.values.bounded(more, f"{place}.metrics.extra")
        return {key: value for key, value in found.items() if value is not None}

    def _step(self, step: dict[str, Any], own: dict[str, Any], place: str) -> dict[str, Any]:
        values = self.values
        facts = StepFacts.read(own.get("step"), values, f"{place}.extra.{KEY}.step")
        model = values.name(step, "model_name", place) or self.model
        fields: dict[str, Any] = {"agent": self.agent_name, "model": model, **facts}
        metrics = values.object(step, "metrics", place) or {}
        where = f"{place}.metrics"
        ids: dict[str, Any] = {}
        if not _IDS.isdisjoint(metrics):
            ids = {
                "prompt_ids": values.ids(metrics, "prompt_token_ids", where),
                "response_ids": values.ids(metrics, "completion_token_ids", where),
                "response_logprobs": values.logprobs(metrics, "logprobs", where),
            }
            fields = {name: value for name, value in ids.items() if value is not None} | fields
            if ids["response_ids"] is not None:
                fields.setdefault("token_source", "submitted")
        prompt = values.count(metrics, "prompt_tokens", where)
        completion = values.count(metrics, "completion_tokens", where)
        if prompt is not None or completion is not None:
            fields["usage"] = Usage(
                prompt_tokens=len(ids.get("prompt_ids") or ()) if prompt is None else prompt,
                completion_tokens=len(ids.get("response_ids") or ()) if completion is None else completion,
            )
        return fields


def own_of(extra: Any) -> dict[str, Any]:
    """What an export of AgentWorld put into an `extra` object."""
    own = extra.get(KEY) if isinstance(extra, dict) else None
    return own if isinstance(own, dict) else {}


def own_message(message: Message, own: Any, media: Media) -> Message:
    """The message with what an export of AgentWorld says that the format cannot, as far as its media are there."""
    if not isinstance(own, dict):
        return message
    try:
        said = msgspec.convert({"role": message.role, **own}, Message)
    except msgspec.ValidationError:
        return message
    changes = {name: getattr(said, name) for name in own if name in Message.__struct_fields__}
    if any(part.digest not in media for part in said.media):
        changes.pop("content", None)
    return msgspec.structs.replace(message, **changes)


def rewards_of(values: Values, extra: Mapping[str, Any], place: str, step: str | None) -> list[RunReward]:
    """Rewards that `extra` names: `reward`, a number, and `rewards`, numbers by name."""
    found: dict[str, Any] = {}
    if "reward" in extra:
        found["reward"] = extra["reward"]
    given = extra.get("rewards")
    if isinstance(given, dict):
        found |= given
    elif given is not None:
        values.lost(f"{place}.rewards", f"it must be an object of numbers, not {kind_of(given)}")
    rewards = []
    for name, value in found.items():
        number = as_finite(value)
        if number is not None:
            rewards.append(RunReward(name=values.short(name, f"{place}.rewards"), value=number, step=step))
        elif value is not None:
            values.lost(f"{place}.rewards.{name[:_LENGTH]}", f"a reward must be a finite number, not {kind_of(value)}")
    return rewards


def is_document(value: Any) -> bool:
    """Whether it is a document of ATIF."""
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    if isinstance(version, str):
        return version.upper().startswith("ATIF")
    steps = value["steps"][:4]
    return bool(steps) and isinstance(value.get("agent"), dict) and all(_is_step(step) for step in steps)


def _is_step(step: Any) -> bool:
    return isinstance(step, dict) and "step_id" in step and step.get("source") in tuple(_SOURCES)


def _steps(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps = value.get("steps")
    return [each for each in steps if isinstance(each, dict)] if isinstance(steps, list) else []


def _named(step: Mapping[str, Any]) -> list[Any]:
    """What each result of a step names as a sub-agent."""
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    if not isinstance(results, list):
        return []
    return [result.get("subagent_trajectory_ref") if isinstance(result, dict) else None for result in results]


def _unheard(note: object) -> None:
    """Takes notes that are made again when the document is read."""
