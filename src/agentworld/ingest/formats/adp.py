"""The Agent Data Protocol: trajectories of actions and observations; and the web trajectories that it was made from.

Rows of chat that it keeps beside these (its raw and SFT files) are of ShareGPT's family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.beside import beside
from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.media import put_nothing
from agentworld.ingest.formats.noted import Values, as_finite, as_text, json_text, kind_of
from agentworld.ingest.run import Run, RunFeedback, RunReward, linear_steps
from agentworld.records import MediaPart, Message, TextPart

_ACTIONS = frozenset(("message_action", "api_action", "code_action"))
_OBSERVATIONS = frozenset(("text_observation", "web_observation", "image_observation", "json_observation"))
_CLASSES = (*_ACTIONS, *_OBSERVATIONS)  # compared with whatever stands in their place
_WEB = ("url", "axtree", "html", "viewport_size")
_NUMBERS, _FLAGS = ("reward", "score"), ("resolved", "success", "correct")


class ADP:
    """See Format."""

    name = "adp"
    title = "Agent Data Protocol"
    plain_chat = True
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By the classes of what is in it, or by pages and what was done on them."""
        return any(_is_trajectory(document) or _is_web(document) for document in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a trajectory."""
        for entry in bundle:
            values = Values(entry.name, note, beside(entry))
            for place, row in values.documents(entry):
                if _is_trajectory(row):
                    yield _Reading(values, place).trajectory(row)
                elif _is_web(row):
                    yield _Reading(values, place).web(row)
                else:
                    values.lost(place, "it is no trajectory of the Agent Data Protocol")


def _is_trajectory(row: Any) -> bool:
    content = row.get("content") if isinstance(row, dict) else None
    if not isinstance(content, list) or not content:
        return False
    return any(isinstance(each, dict) and each.get("class_") in _CLASSES for each in content[:8])


def _is_web(row: Any) -> bool:
    steps = row.get("trajectory") if isinstance(row, dict) else None
    if not isinstance(steps, list) or not steps or not isinstance(row.get("intent"), str):
        return False
    return all(isinstance(each, dict) and ("action" in each or "axtree" in each or "url" in each) for each in steps[:4])


class _Reading:
    """One trajectory while it is read."""

    def __init__(self, values: Values, place: str) -> None:
        self._values, self._place = values, place
        self._run = Run(native_id=None)
        self._chat = ChatReader(values, self._run.media)
        self._waiting: list[str] = []  # calls without a result
        self._said: list[Message] = []
        self._rewards: list[float | None] = []  # of each reply

    def trajectory(self, row: Mapping[str, Any]) -> Run:
        """A trajectory of actions and observations."""
        for number, each in enumerate(row["content"]):
            place = f"{self._place}.content[{number}]"
            kind = each.get("class_") if isinstance(each, dict) else None
            if not isinstance(each, dict) or not isinstance(kind, str):
                self._values.lost(place, f"what is done or seen must be an object with a class_, not {kind_of(each)}")
            elif kind in _ACTIONS:
                self._act(each, kind, place)
            elif kind in _OBSERVATIONS:
                self._observe(each, kind, place)
            else:
                self._values.lost(place, f"no action or observation is of the class {kind[:40]!r}")
        self._end({})
        details = row.get("details")
        if isinstance(details, dict):
            self._outcomes(details)
        self._keep({key: value for key, value in row.items() if key != "content" and value not in (None, {})})
        return self._run

    def web(self, row: Mapping[str, Any]) -> Run:
        """What was done on pages: each action is a call, and the page after it is its result."""
        self._said.append(Message(role="user", content=row["intent"]))
        for number, each in enumerate(row["trajectory"]):
            place = f"{self._place}.trajectory[{number}]"
            if not isinstance(each, dict):
                self._values.lost(place, f"a page or an action must be an object, not {kind_of(each)}")
            elif "action" in each:
                self._act_on_page(each, place)
            else:
                self._hear(self._page(each, each.get("screenshot_path"), place), "environment", None, None)
        model = self._values.name(row, "source", self._place)
        self._end({"model": model})
        task = row.get("task_id")
        if isinstance(task, (str, int)) and not isinstance(task, bool):
            self._run.task = {"task_id": task, "prompt": row["intent"]}
        self._outcomes(row)
        self._keep({key: value for key, value in row.items() if key not in ("trajectory", "intent", "source")})
        return self._run

    def _act(self, action: dict[str, Any], kind: str, place: str) -> None:
        values = self._values
        thought = values.text(action, "reasoning_content", place)
        beside = values.text(action, "description", place)
        if kind == "message_action":
            content: str | None = as_text(action["content"]) if action.get("content") is not None else ""
            thought = "\n".join(each for each in (thought, beside) if each is not None) or thought or beside
            calls: tuple[Any, ...] = ()
        else:
            content = beside
            call_id = values.text(action, "tool_call_id", place)
            name, arguments = action.get("function"), action.get("kwargs", {})
            if kind == "code_action":
                language = values.text(action, "language", place)
                name, arguments = language or "code", {"code": action.get("content")}
            if not isinstance(name, str):
                values.lost(place, "a call needs the name of a function; it is left out")
                return
            call = self._chat.call(name, arguments, call_id)
            self._waiting.append(call.id)
            calls = (call,)
        self._said.append(Message(role="assistant", content=content, reasoning=thought, tool_calls=calls))
        self._rewards.append(values.number(action, "reward", place))

    def _act_on_page(self, step: dict[str, Any], place: str) -> None:
        action, about = step["action"], step.get("metadata")
        name = action.get("action_name") if isinstance(action, dict) else None
        if not isinstance(name, str):
            self._values.lost(f"{place}.action", "an action needs an action_name; it is left out")
            return
        thought = about.get("cot") if isinstance(about, dict) else None
        said = action.get("raw_prediction")
        arguments = {key: value for key, value in action.items() if key not in ("action_name", "raw_prediction")}
        call = self._chat.call(name, arguments)
        self._waiting.append(call.id)
        message = Message(
            role="assistant",
            content=said if isinstance(said, str) and said else None,
            reasoning=thought if isinstance(thought, str) else None,
            tool_calls=(call,),
        )
        self._said.append(message)
        self._rewards.append(None)

    def _observe(self, given: dict[str, Any], kind: str, place: str) -> None:
        source = given.get("source") if kind != "web_observation" else given.get("source", "environment")
        content: str | tuple[TextPart | MediaPart, ...]
        if kind == "web_observation":
            shown = given.get("image_observation")
            content = self._page(given, shown.get("content") if isinstance(shown, dict) else None, place)
        elif kind == "image_observation":
            content = self._image(given, place)
        else:
            content = as_text(given.get("content") if given.get("content") is not None else "")
        name = given.get("name")
        call_id = self._values.text(given, "tool_call_id", place)
        self._hear(content, source, name if isinstance(name, str) and name else None, call_id)

    def _hear(
        self, content: str | tuple[TextPart | MediaPart, ...], source: Any, name: str | None, call_id: str | None
    ) -> None:
        """What came from without: results of calls from the environment, words of the user."""
        if call_id is None and source == "environment" and name != "system" and self._waiting:
            call_id = self._waiting[0]
        if call_id is not None:
            if call_id in self._waiting:
                self._waiting.remove(call_id)
            self._said.append(Message(role="tool", content=content, tool_call_id=call_id, name=name))
        elif source == "environment" and name == "system":
            self._said.append(Message(role="system", content=content))
        else:
            spoke = name or ("agent" if source == "agent" else None)
            self._said.append(Message(role="user", content=content, name=spoke))

    def _page(self, given: dict[str, Any], shown: Any, place: str) -> str | tuple[TextPart | MediaPart, ...]:
        text = json_text({key: given[key] for key in _WEB if given.get(key) is not None})
        if not isinstance(shown, str) or not shown:
            return text
        return (TextPart(text), self._chat.picture(shown, place))

    def _image(self, given: dict[str, Any], place: str) -> tuple[TextPart | MediaPart, ...]:
        parts: list[TextPart | MediaPart] = []
        if isinstance(given.get("content"), str):
            parts.append(self._chat.picture(given["content"], f"{place}.content"))
        else:
            parts.append(self._values.told(f"{place}.content", put_nothing(self._run.media, said="image")))
        if given.get("annotations"):
            parts.append(TextPart(json_text(given["annotations"])))
        return tuple(parts)

    def _end(self, fields: dict[str, Any]) -> None:
        run = self._run
        run.steps, run.trailing = linear_steps(self._said, **fields)
        for step, reward in zip(run.steps, self._rewards, strict=False):
            if reward is not None:
                run.rewards.append(RunReward(name="reward", value=reward, step=step.step_id))
        if not self._said:
            self._values.lost(self._place, "the trajectory is empty")

    def _outcomes(self, given: Mapping[str, Any]) -> None:
        for name in _NUMBERS:
            if (number := as_finite(given.get(name))) is not None:
                self._run.rewards.append(RunReward(name=name, value=number))
        for name in _FLAGS:
            if isinstance(given.get(name), bool):
                self._run.feedback.append(RunFeedback(kind="label", name=name, value=given[name]))

    def _keep(self, rest: dict[str, Any]) -> None:
        if (kept := self._values.bounded(rest, f"{self._place} (details)")) is not None:
            self._run.metadata["row"] = kept


FORMAT = ADP()
