"""ToolBench: trees of answers by depth-first search with their failed branches, and answers that ToolEval judges."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.branches import add_branch
from agentworld.ingest.formats.chat_messages import ChatReader, tools_of
from agentworld.ingest.formats.noted import Values, as_text, kind_of
from agentworld.ingest.run import Run, RunFeedback, linear_steps, place_run
from agentworld.records import Message, Step

_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_KEYS = ("name", "arguments", "response")
_LONGEST_ESCAPE = 10
_THOUGHT, _ACTION, _INPUT = "Thought", "Action", "Action Input"
# A node, the step that it goes on from, what was said before, what was thought and not yet said, and its place.
_Waiting = tuple[Any, str | None, list[Message], str | None, str]


class ToolBench:
    """See Format."""

    name = "toolbench"
    title = "ToolBench and ToolEval answers"
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By the tree of an answer, or by answers to queries with their details."""
        return any(_is_answer(document) or bool(_evaluated(document)) for document in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run an answer."""
        for entry in bundle:
            values = Values(entry.name, note)
            for place, value in values.documents(entry):
                if _is_answer(value):
                    yield _Answer(values, place).run(value)
                elif answers := _evaluated(value):
                    for name, answer in answers.items():
                        yield _Evaluated(values, f"{place}.{name}").run(name, answer)
                    for name in value.keys() - answers.keys():
                        values.lost(f"{place}.{str(name)[:40]}", "it is no answer to a query")
                else:
                    values.lost(place, "it is no answer of ToolBench")


def _is_answer(value: Any) -> bool:
    about = value.get("answer_generation") if isinstance(value, dict) else None
    return isinstance(about, dict) and ("tree" in value or "train_messages" in about)


def _evaluated(value: Any) -> dict[str, Any]:
    """Those that are answers, of answers by the id of their query."""
    if not isinstance(value, dict):
        return {}
    return {name: each for name, each in value.items() if isinstance(each, dict) and _has_details(each.get("answer"))}


def _has_details(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("answer_details"), list)


class _Growing:
    """A run whose branches grow from any of its steps."""

    def __init__(self, values: Values, place: str) -> None:
        self.values, self.place = values, place
        self.built = Run(native_id=None)
        place_run(self.built, place)
        self.chat = ChatReader(values, self.built.media)
        self._children: dict[str | None, int] = {}

    def reply(
        self, parent: str | None, said: list[Message], message: Message, fields: dict[str, Any], *, again: bool
    ) -> str:
        """Add a step; returns its key. `again`: as another try from where the parent stands."""
        key = str(len(self.built.steps))
        step = Step(
            step_id=key,
            trajectory_id="",
            parent_step_id=parent,
            fork_reason="retry" if again else None,
            prompt_messages=said,
            response_message=message,
            **fields,
        )
        self.built.steps.append(step)
        return key

    def is_again(self, parent: str | None) -> bool:
        """Whether something was tried from there before; says that something now is."""
        self._children[parent] = self._children.get(parent, 0) + 1
        return self._children[parent] > 1


class _Answer(_Growing):
    """The answer to one query, with all that was tried."""

    def run(self, value: Mapping[str, Any]) -> Run:
        """The tree as a run; where there is none, the conversations that are kept for training."""
        about = value["answer_generation"]
        tools = tools_of(about.get("function"), self.values, f"{self.place}.answer_generation.function")
        fields: dict[str, Any] = {"tools": tools}
        prompt, talks = self._prompt(about)
        tree = value.get("tree")
        node = tree.get("tree", tree) if isinstance(tree, dict) else None
        if isinstance(node, dict):
            self._walk(node, prompt, fields)
        else:
            self._talk(talks, fields)
        run = self.built
        if isinstance(value.get("win"), bool):
            run.feedback.append(RunFeedback(kind="label", name="win", value=value["win"]))
        if not run.steps and not run.trailing:
            run.trailing = prompt
        kept = ("finish_type", "final_answer", "query_count", "total_tokens", "valid_data")
        rest = {name: about[name] for name in kept if about.get(name) not in (None, "")}
        rest |= {"forward_args": value["forward_args"]} if isinstance(value.get("forward_args"), dict) else {}
        if (bounded := self.values.bounded(rest, f"{self.place}.answer_generation")) is not None:
            run.metadata["toolbench"] = bounded
        return run

    def _prompt(self, about: Mapping[str, Any]) -> tuple[list[Message], list[list[Message]]]:
        """What was asked, and conversations that are kept for training."""
        talks: list[list[Message]] = []
        place = f"{self.place}.answer_generation"
        given = self.values.items(about, "train_messages", place) or []
        for number, each in enumerate(given):
            if isinstance(each, list):
                reader = ChatReader(self.values, self.built.media)
                talks.append(reader.conversation(each, f"{place}.train_messages[{number}]").messages)
        first = talks[0] if talks else []
        asked = first[: next((n for n, message in enumerate(first) if message.role == "assistant"), len(first))]
        if not asked:
            asked = [Message(role="user", content=as_text(about.get("query", "")))]
        return asked, talks

    def _talk(self, talks: list[list[Message]], fields: dict[str, Any]) -> None:
        longest = sorted(talks, key=len, reverse=True)
        kept: list[list[Message]] = []
        for talk in longest:
            if not any(other[: len(talk)] == talk for other in kept):
                kept.append(talk)
        for talk in kept:
            if talk is kept[0]:
                self.built.steps, self.built.trailing = linear_steps(talk, **fields)
                continue
            common = 0
            while common < min(len(talk), len(kept[0])) and talk[common] == kept[0][common]:
                common += 1
            replies = sum(message.role == "assistant" for message in talk[:common])
            steps = self.built.steps
            parent = steps[min(replies, len(steps)) - 1].step_id if replies and steps else None
            add_branch(self.built, talk[:common], talk[common:], parent, fields)

    def _walk(self, root: dict[str, Any], prompt: list[Message], fields: dict[str, Any]) -> None:
        """The tree, the first child of each node first; with a stack, as it may be deep."""
        place = f"{self.place}.tree"
        waiting: list[_Waiting] = [
            (child, None, prompt, None, where) for child, where in reversed(self._below(root, place))
        ]
        while waiting:
            node, parent, said, thought, where = waiting.pop()
            kind, text = node.get("node_type"), as_text(node.get("description") or "")
            below = self._below(node, where)
            if kind == _THOUGHT and below:
                thought = text if thought is None else f"{thought}\n{text}"
                waiting += [(child, parent, said, thought, w) for child, w in reversed(below)]
                continue
            if kind == _ACTION and (inputs := [child for child, _ in below if child.get("node_type") == _INPUT]):
                inputs_at = [(child, w) for child, w in below if child in inputs]
                for child, w in reversed(inputs_at):
                    waiting.append(({**child, "name": text}, parent, said, thought, w))
                for child, w in below:
                    if child not in inputs:
                        self.values.lost(w, "what comes after an action must be its input")
                continue
            key, after = self._reply(node, kind, text, parent, said, thought, fields, where)
            waiting += [(child, key, after, None, w) for child, w in reversed(below)]

    def _reply(
        self,
        node: dict[str, Any],
        kind: Any,
        text: str,
        parent: str | None,
        said: list[Message],
        thought: str | None,
        fields: dict[str, Any],
        place: str,
    ) -> tuple[str, list[Message]]:
        """A thought with its call, or one of both, and what came back."""
        calls: tuple[Any, ...] = ()
        if kind == _INPUT:
            calls = (self.chat.call(as_text(node.get("name") or ""), text),)
        elif kind == _ACTION:
            calls = (self.chat.call(text, ""),)
        else:
            thought = text if thought is None else f"{thought}\n{text}"
            if kind != _THOUGHT:
                self.values.said(place, f"a node of the type {as_text(kind)[:40]!r} is read as a thought")
        message = Message(role="assistant", content=thought, tool_calls=calls)
        about = {name: node[name] for name in ("pruned", "finished", "observation_code") if node.get(name)}
        key = self.reply(parent, said, message, {**fields, "metadata": about}, again=self.is_again(parent))
        after = [*said, message]
        if calls and node.get("observation") is not None:
            result = Message(role="tool", content=as_text(node["observation"]), tool_call_id=calls[0].id)
            after.append(result)
            if not self._below(node, place, heard=False):
                self._end(result, key)
        return key, after

    def _end(self, result: Message, key: str) -> None:
        """What no later reply saw."""
        self.built.trailing.append(result)
        self.built.metadata.setdefault("trailing_after", []).append(key)

    def _below(self, node: dict[str, Any], place: str, *, heard: bool = True) -> list[tuple[dict[str, Any], str]]:
        children = node.get("children")
        found = []
        for number, child in enumerate(children if isinstance(children, list) else ()):
            where = f"{place}.children[{number}]"
            if isinstance(child, dict):
                found.append((child, where))
            elif heard:
                self.values.lost(where, f"a node must be an object, not {kind_of(child)}")
        return found


class _Evaluated(_Growing):
    """One answer as ToolEval takes it."""

    def run(self, name: str, value: Mapping[str, Any]) -> Run:
        """The details as a run."""
        answer = value["answer"]
        tools = tools_of(value.get("available_tools"), self.values, f"{self.place}.available_tools")
        details = [
            (each, f"{self.place}.answer.answer_details[{n}]") for n, each in enumerate(answer["answer_details"])
        ]
        waiting: list[_Waiting] = [(each, None, [], None, where) for each, where in reversed(details)]
        run = self.built
        while waiting:
            node, parent, said, thought, where = waiting.pop()
            if not isinstance(node, dict) or not isinstance(node.get("role"), str):
                self.values.lost(where, f"a node must be an object with a role, not {kind_of(node)}")
                continue
            role, text = node["role"], as_text(node.get("message") if node.get("message") is not None else "")
            given = node.get("next")
            below = [(each, f"{where}.next[{n}]") for n, each in enumerate(given if isinstance(given, list) else ())]
            key, after, thought_after = parent, said, None
            if role == "assistant" and len(below) == 1 and _role(below[0][0]) == "tool":
                thought_after = text if thought is None else f"{thought}\n{text}"
            elif role == "assistant":
                message = Message(role="assistant", content=text)
                key = self.reply(parent, said, message, {"tools": tools}, again=self.is_again(parent))
                after = [*said, message]
            elif role == "tool":
                key, after = self._called(text, parent, said, thought, tools, bool(below), where)
            elif role in ("system", "user"):
                after = [*said, Message(role=role, content=text)]
                if not below:
                    run.trailing.append(after[-1])
            else:
                self.values.lost(where, f"the role {role[:40]!r} is not known; it is left out")
            waiting += [(each, key, after, thought_after, w) for each, w in reversed(below)]
        run.task = {"task_id": name, "prompt": as_text(value.get("query", ""))}
        kept = {key: answer[key] for key in ("method", "total_steps", "final_answer") if answer.get(key) is not None}
        if (bounded := self.values.bounded(kept, f"{self.place}.answer")) is not None:
            run.metadata["tooleval"] = bounded
        return run

    def _called(
        self,
        text: str,
        parent: str | None,
        said: list[Message],
        thought: str | None,
        tools: Any,
        goes_on: bool,
        where: str,
    ) -> tuple[str, list[Message]]:
        found, cut = _called(text)
        results: list[Message] = []
        if "name" not in found:
            self.values.said(where, "a call that cannot be taken apart; its text is kept as the reply")
            message = Message(role="assistant", content="\n".join(filter(None, (thought, text))))
        else:
            if cut:
                self.values.said(where, "the file has only the beginning of the call and its result")
            call = self.chat.call(found["name"], found.get("arguments", ""))
            message = Message(role="assistant", content=thought, tool_calls=(call,))
            response = found.get("response")
            # To finish is a call that nothing answers.
            if response is not None and (response or found["name"] != "Finish"):
                results = [Message(role="tool", content=response, tool_call_id=call.id)]
        key = self.reply(parent, said, message, {"tools": tools}, again=self.is_again(parent))
        if results and not goes_on:
            self.built.trailing += results
            self.built.metadata.setdefault("trailing_after", []).append(key)
        return key, [*said, message, *results]


def _called(text: str) -> tuple[dict[str, str], bool]:
    """Name, arguments and response of what Python writes of a call, as far as they are there; whether it ends early."""
    found: dict[str, str] = {}
    at = 0
    for key in _KEYS:
        before = f"{', ' if found else '{'}'{key}': "
        if not text.startswith(before, at):
            return found, True
        at += len(before)
        literal = _LITERAL.match(text, at)
        if literal is None:
            rest = text[at:]
            if key != "name" and rest[:1] in ("'", '"'):
                found[key] = _unfinished(rest)
            return found, True
        said = _literal(literal[0])
        found[key] = literal[0][1:-1] if said is None else said
        at = literal.end()
    return found, not text.startswith("}", at)


def _unfinished(text: str) -> str:
    """What a literal that is cut off says, which may end within an escape."""
    for end in range(len(text), max(0, len(text) - _LONGEST_ESCAPE), -1):
        if (said := _literal(text[:end] + text[0])) is not None:
            return said
    return text[1:]


def _literal(text: str) -> str | None:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return None


def _role(node: Any) -> Any:
    return node.get("role") if isinstance(node, dict) else None


FORMAT = ToolBench()
