"""One row of ShareGPT's family as a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentworld.ingest.formats.branches import preference
from agentworld.ingest.formats.chat_blocks import prepared
from agentworld.ingest.formats.chat_messages import READ, ROLES, ChatReader, Part, beyond, role_of, tools_of
from agentworld.ingest.formats.media import put_base64, put_nothing
from agentworld.ingest.formats.noted import Values, as_finite, as_text, kind_of
from agentworld.ingest.formats.sharegpt_pairs import (
    NUMBERS,
    PAIRS,
    PROMPTS,
    ROLE,
    SCORES,
    TALKS,
    TEXT,
    columns_within,
    rewards_in,
    same,
)
from agentworld.ingest.formats.sharegpt_texts import (
    PLACES,
    around_places,
    call_in,
    calls_in,
    dialogue_in,
    results_in,
    turns_in,
)
from agentworld.ingest.run import Run, RunFeedback, RunReward, linear_steps
from agentworld.records import MediaPart, Message, TextPart

ANSWERS = ("completion", "response", "output", "answer")
_FLAGS = frozenset(("label", "kto_tag", "verified", "resolved", "success", "correct", "is_correct"))
_MEDIA = {"images": "image", "image": "image", "videos": "video", "video": "video", "audios": "audio", "audio": "audio"}
_WEIGHTS = ("loss", "loss_weight", "weight")
_HERE = READ.union(("role", "from", "speaker", "content", "value", "text", "thoughts", "actions", *_WEIGHTS))
_CALLER = frozenset(("function_call", "tool_call"))


class Mapped(msgspec.Struct, kw_only=True, frozen=True):
    """What columns and roles are called, where a data set's description beside the file says so: `columns` by what they
    hold (messages, prompt, response, system, tools, images, chosen, rejected, kto_tag), `tags` by what they mark.
    """

    columns: dict[str, str] = {}
    tags: dict[str, str] = {}

    def renamed(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its columns under the names that are read here, and dialogues as messages."""
        names = {"messages": "conversations", "query": "input", "kto_tag": "label"}
        back = {given: names.get(known, known) for known, given in self.columns.items()}
        return {back.get(name, name): turns_in(value) or value for name, value in row.items()}


class RowReader:
    """Reads the rows of one file."""

    def __init__(self, values: Values, mapped: Mapped) -> None:
        self.values = values
        self._mapped = mapped
        tags = mapped.tags
        self._roles = {
            tags[name]: name.removesuffix("_tag")
            for name in ("user_tag", "assistant_tag", "system_tag", "observation_tag", "function_tag")
            if isinstance(tags.get(name), str)
        }

    def run(self, row: dict[str, Any], place: str) -> Run:
        """The row as a run."""
        return _Row(self, self._mapped.renamed(row), place).run()

    def role(self, given: Any) -> Any:
        """A role under the name that is read here."""
        found = self._roles.get(given, given) if isinstance(given, str) else given
        return "function_call" if found == "function" and given in self._roles else found

    @property
    def keys(self) -> Iterable[str]:
        """The keys under which messages have their role and content, where the description names them."""
        return [self._mapped.tags[name] for name in ("role_tag", "content_tag") if name in self._mapped.tags]

    def known_role(self, message: Mapping[str, Any]) -> Any:
        """The role of a message as it is called here; that of one that only calls, too."""
        key = self.key("role_tag", message, ROLE)
        role = self.role(message.get(key)) if key else None
        return "assistant" if isinstance(role, str) and role in _CALLER else role_of(role)

    def key(self, name: str, message: Mapping[str, Any], usual: tuple[str, ...]) -> str | None:
        """The key under which a message has its role or its content."""
        given = self._mapped.tags.get(name)
        return given if given in message else next((key for key in usual if key in message), None)


class _Row:
    def __init__(self, rows: RowReader, row: dict[str, Any], place: str) -> None:
        self._rows, self._row, self._place = rows, row, place
        self._values = rows.values
        self._run = Run(native_id=None)
        self._chat = ChatReader(self._values, self._run.media)
        self._read: set[str] = set()
        self._weights: dict[int, tuple[Message, Any]] = {}  # by the identity of replies
        self._about: dict[int, tuple[Message, dict[str, Any], str]] = {}  # by the identity of messages
        self._is_talk = False
        self._shown: dict[str, list[MediaPart]] = {}

    def run(self) -> Run:
        run, row = self._run, self._row
        for name, kind in _MEDIA.items():
            if row.get(name) not in (None, [], ""):
                self._read.add(name)
                self._shown.setdefault(kind, []).extend(self._media(row[name], kind, f"{self._place}.{name}"))
        tools = tools_of(row.get("tools"), self._values, f"{self._place}.tools")
        self._read.add("tools")
        model = self._values.name(row, "model", self._place) if isinstance(row.get("model"), str) else None
        fields: dict[str, Any] = {"tools": tools, "model": model}
        pair = next((pair for pair in PAIRS if pair[0] in row and pair[1] in row), None)
        within = columns_within(row, pair) if pair else None
        before = self._system()
        if within is None:
            before += self._asked()
        self._read.update(within or ())
        if pair is not None:
            self._pair(before, pair, fields)
        else:
            run.steps, run.trailing = linear_steps([*before, *self._answer()], **fields)
        self._place_rest()
        self._weigh()
        self._tell()
        self._outcomes()
        return run

    # --- what was said --------------------------------------------------------------------------------------------
    def _system(self) -> list[Message]:
        self._read.update(("system", "system_prompt"))
        given = self._row.get("system") or self._row.get("system_prompt")
        if given in (None, ""):
            return []
        return [Message(role="system", content=as_text(given))]

    def _asked(self) -> list[Message]:
        """The conversation, or the prompt."""
        row = self._row
        name = next((name for name in TALKS if isinstance(row.get(name), list)), None)
        if name is not None:
            self._is_talk = True
            self._read.add(name)
            return self._messages(row[name], f"{self._place}.{name}")
        if isinstance(row.get("example"), str) and (turns := dialogue_in(row["example"])):
            self._is_talk = True
            self._read.add("example")
            given = [{"role": role, "content": text} for role, text in turns]
            return self._messages(given, f"{self._place}.example")
        messages = self._history()
        name = next((name for name in PROMPTS if row.get(name) is not None), None)
        if name is None:
            return messages
        self._read.add(name)
        if isinstance(row[name], list):
            return messages + self._messages(row[name], f"{self._place}.{name}")
        text = as_text(row[name])
        if isinstance(row.get("input"), str):
            self._read.add("input")
            text = "\n".join(filter(None, (text, row["input"])))
        return [*messages, Message(role="user", content=self._placed(text))]

    def _history(self) -> list[Message]:
        messages: list[Message] = []
        given = self._row.get("history")
        for pair in given if isinstance(given, list) else ():
            if isinstance(pair, list) and len(pair) == 2:
                messages += [Message(role="user", content=as_text(pair[0])), Message("assistant", as_text(pair[1]))]
            else:
                self._values.lost(f"{self._place}.history", "each of it must be a question and an answer")
        self._read.add("history")
        return messages

    def _answer(self) -> list[Message]:
        name = next((name for name in ANSWERS if self._row.get(name) is not None), None)
        if name is None or self._is_talk:
            return []
        self._read.add(name)
        return self._said(self._row[name], f"{self._place}.{name}")

    def _pair(self, before: list[Message], pair: tuple[str, str], fields: dict[str, Any]) -> None:
        """Two answers, each by itself or with what was said before it."""
        self._read.update(pair)
        chat, shown = self._chat, self._shown
        answers: list[list[Message]] = []
        for name in pair:
            # Both go on from the same: the calls that wait there, and the images that are not yet shown.
            self._chat = chat.again()
            self._shown = {kind: list(parts) for kind, parts in shown.items()}
            answers.append(self._said(self._row[name], f"{self._place}.{name}"))
        good, bad = answers
        if all(answer and answer[0].role in ("system", "developer") for answer in answers):
            before = [message for message in before if message.role != "system"]
        if not any(message.role != "system" for message in before):
            common = 0
            while common < min(len(good), len(bad)) - 1 and good[common] == bad[common]:
                common += 1
            before, good, bad = [*before, *good[:common]], good[common:], bad[common:]
        elif before[-1].role == "user" and all(answer and same(answer[0], before[-1]) for answer in answers):
            good, bad = good[1:], bad[1:]  # Each begins with what was asked last.
        preference(self._run, before, good, bad, fields)
        branches = [each for each in self._run.feedback if each.kind == "comparison"]
        for name, side, kind in SCORES:
            score = as_finite(self._row.get(name))
            if score is not None and branches:
                self._read.add(name)
                step = branches[0].step if side == "chosen" else branches[0].other
                self._run.rewards.append(RunReward(name=kind, value=score, step=step))

    def _said(self, given: Any, place: str) -> list[Message]:
        """An answer: text, a message or messages."""
        if isinstance(given, dict):
            return self._messages([given], place)
        if isinstance(given, list):
            return self._messages(given, place)
        return [Message(role="assistant", content=as_text(given))]

    def _messages(self, given: list[Any], place: str) -> list[Message]:
        messages: list[Message] = []
        for number, each in prepared(given, self._rows.known_role):
            where = f"{place}[{number}]"
            if not isinstance(each, dict):
                self._values.lost(where, f"a message must be an object, not {kind_of(each)}")
                continue
            made = self._message(each, where)
            messages += made
            if made and (about := beyond(each, _HERE.union(self._rows.keys))):
                self._about[id(made[-1])] = made[-1], about, where
            weight = next((each[key] for key in _WEIGHTS if each.get(key) is not None), None)
            for message in made:
                if weight is not None and message.role == "assistant":
                    self._weights[id(message)] = message, weight
        return messages

    def _message(self, given: dict[str, Any], place: str) -> list[Message]:
        rows, chat = self._rows, self._chat
        role_key, text_key = rows.key("role_tag", given, ROLE), rows.key("content_tag", given, TEXT)
        role = rows.role(given.get(role_key)) if role_key else None
        content = given.get(text_key) if text_key else None
        calls: list[tuple[str, Any]] | None = None
        if isinstance(role, str) and role in _CALLER and isinstance(content, str):
            calls = call_in(content)
            if calls is None:
                self._values.said(place, "a call that is no JSON with a name; it is kept as text")
            content, role = (None if calls else content), "assistant"
        elif isinstance(content, list):
            content, calls = self._parted(content)
        named = ROLES.get(role.lower()) if isinstance(role, str) else None
        if named == "assistant" and isinstance(content, str) and not given.get("tool_calls"):
            within = calls_in(content)
            if within is not None:
                content, calls = within[0] or None, within[1]
        if named == "tool" and isinstance(content, str) and (results := results_in(content)):
            given_id = given.get("tool_call_id")
            return [
                Message(role="tool", content=text, tool_call_id=chat.answered(given_id if len(results) == 1 else None))
                for text in results
            ]
        rest = {key: value for key, value in given.items() if key in READ or key == "reasoning_details"}
        message = chat.message({**rest, "role": role, "content": content}, place)
        if calls:
            made = tuple(chat.call(name, arguments) for name, arguments in calls)
            message = msgspec.structs.replace(message, role="assistant", tool_calls=(*message.tool_calls, *made))
        return [self._thinking(message, given, place)]

    def _thinking(self, message: Message, given: dict[str, Any], place: str) -> Message:
        """The message with thoughts and actions in fields of their own, and with images at their places."""
        thoughts = given.get("thoughts")
        if isinstance(thoughts, str) and message.role == "assistant":
            message = msgspec.structs.replace(message, reasoning=thoughts)
        for number, each in enumerate(self._values.items(given, "actions", place) or ()):
            name = each.get("API_name", each.get("name")) if isinstance(each, dict) else None
            if not isinstance(name, str):
                self._values.lost(f"{place}.actions[{number}]", "an action needs a name; it is left out")
                continue
            arguments = each.get("API_params", each.get("arguments", {}))
            calls = (*message.tool_calls, self._chat.call(name, arguments))
            message = msgspec.structs.replace(message, tool_calls=calls)
        if isinstance(message.content, str):
            message = msgspec.structs.replace(message, content=self._placed(message.content))
        return message

    def _parted(self, content: list[Any]) -> tuple[list[Any], list[tuple[str, Any]] | None]:
        """Parts without those that are calls, and the calls."""
        kept: list[Any] = []
        calls: list[tuple[str, Any]] = []
        for part in content:
            found = None
            if isinstance(part, dict) and part.get("type") == "tool_call" and isinstance(part.get("value"), str):
                found = call_in(part["value"])
            if found:
                calls += found
            else:
                kept.append(part)
        return kept, calls or None

    # --- images and the like --------------------------------------------------------------------------------------
    def _media(self, given: Any, kind: str, place: str) -> list[MediaPart]:
        parts = []
        for number, each in enumerate(given if isinstance(given, list) else [given]):
            where = f"{place}[{number}]"
            if isinstance(each, dict) and isinstance(each.get("bytes"), str):
                made = put_base64(self._run.media, each["bytes"], f"{kind}/octet-stream")
                if isinstance(made, MediaPart):
                    parts.append(made)
                    continue
                self._values.lost(where, f"a medium cannot be read: {made}")
            address = each.get("path", each.get("url")) if isinstance(each, dict) else each
            if isinstance(address, str) and address:
                parts.append(self._chat.picture(address, where))
            else:
                parts.append(self._values.told(where, put_nothing(self._run.media, said=kind)))
        return parts

    def _placed(self, text: str) -> str | tuple[Part, ...]:
        """The text with media in the place of their marks, as far as there are any."""
        if not any(self._shown.values()):
            return text
        parts: list[Part] = []
        for piece in around_places(text):
            kind = next((kind for kind, mark in PLACES.items() if mark == piece), None)
            waiting = self._shown.get(kind, []) if kind else []
            parts.append(waiting.pop(0) if waiting else TextPart(piece))
        return tuple(parts) if any(isinstance(part, MediaPart) for part in parts) else text

    def _place_rest(self) -> None:
        """Media without a mark stand before the text of the first user."""
        rest = [part for waiting in self._shown.values() for part in waiting]
        messages = [*(self._run.steps[-1].prompt_messages or ())] if self._run.steps else list(self._run.trailing)
        first = next((message for message in messages if message.role == "user"), None)
        if not rest:
            return
        if first is None:
            self._values.lost(self._place, f"no user's message shows the {len(rest)} media of the row")
            return
        content = first.content if isinstance(first.content, tuple) else (TextPart(first.content or ""),)
        shown = msgspec.structs.replace(first, content=(*rest, *content))

        def replaced(said: list[Message]) -> list[Message]:
            return [shown if message is first else message for message in said]

        for step in self._run.steps:
            step.prompt_messages = replaced(step.prompt_messages or [])
        self._run.trailing = replaced(self._run.trailing)

    # --- what is said of it ---------------------------------------------------------------------------------------
    def _weigh(self) -> None:
        for step in self._run.steps:
            _, weight = self._weights.get(id(step.response_message), (None, None))
            if weight is not None:
                value = (1 if weight else 0) if isinstance(weight, bool) else weight
                label = RunFeedback(kind="label", name="training_weight", value=value, step=step.step_id)
                self._run.feedback.append(label)

    def _tell(self) -> None:
        """What messages have besides what is read: of a reply the metadata of its step, of others of the run."""
        for step in self._run.steps:
            _, about, place = self._about.pop(id(step.response_message), (None, None, ""))
            if about is not None and (kept := self._values.bounded(about, f"{place} (other fields)")) is not None:
                step.metadata = {**step.metadata, "message": kept}
        others = {place.removeprefix(f"{self._place}."): about for _, about, place in self._about.values()}
        if (kept := self._values.bounded(others, f"{self._place} (other fields of messages)")) is not None:
            self._run.metadata["messages"] = kept

    def _outcomes(self) -> None:
        """Flags and numbers of the row, of its last reply; and the rest as metadata."""
        run, row = self._run, self._row
        last = run.steps[-1].step_id if run.steps else None
        for name, value in row.items():
            if name in _FLAGS and isinstance(value, bool):
                self._read.add(name)
                step = last if name == "label" else None
                run.feedback.append(RunFeedback(kind="label", name=name, value=value, step=step))
            elif name in NUMBERS and (rewards := rewards_in(name, value, [step.step_id for step in run.steps])):
                self._read.add(name)
                short, where = self._values.short, f"{self._place}.{name}"
                run.rewards += [msgspec.structs.replace(each, name=short(each.name, where)) for each in rewards]
        task = row.get("instance_id", row.get("task_id"))
        if isinstance(task, (str, int)) and not isinstance(task, bool):
            run.task = {"task_id": task}
        rest = {name: value for name, value in row.items() if name not in self._read and value is not None}
        if (kept := self._values.bounded(rest, f"{self._place} (other columns)")) is not None:
            run.metadata["row"] = kept
        if not run.steps and not run.trailing:
            self._values.lost(self._place, "the row has no messages")
