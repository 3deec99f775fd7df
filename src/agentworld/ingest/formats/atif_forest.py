"""Documents of ATIF that name one another as runs: one for each that no other names, with the others as branches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentworld.ingest.formats.atif_document import Document, Reference, rewards_of
from agentworld.ingest.formats.atif_extension import KEY, BranchFacts, RunFacts
from agentworld.ingest.run import Part, Run, RunFeedback
from agentworld.records import Message, Step
from agentworld.records.step import ForkReason

_CONTINUATION = re.compile(r"cont(?:inuation)?[-_.]?(\d+)")
_CONTINUED = re.compile(r"-cont-\d+$")
_DEEPEST = 50  # sub-agents of sub-agents, over files
_KINDS = frozenset(("rating", "label", "comment", "comparison", "correction"))


class Forest:
    """Documents by what names them."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self._by_file: dict[str, int] = {}
        self._by_id: dict[str, int] = {}
        self._by_session: dict[str, list[int]] = {}
        for index, document in enumerate(documents):
            if document.place == "$":
                self._by_file.setdefault(document.file.rpartition("/")[2], index)
            if document.trajectory_id is not None:
                self._by_id.setdefault(document.trajectory_id, index)
            if document.session_id is not None:
                self._by_session.setdefault(document.session_id, []).append(index)

    def named_by(self, document: Document) -> list[int]:
        """The documents that one names, by their places in the list."""
        found = [self.find(reference, document) for reference in document.references()]
        return [index for index in found if index is not None and self.documents[index] is not document]

    def find(self, reference: Reference, of: Document) -> int | None:
        """The document that is meant: by its id, by its file's name, or by its run where only one has it."""
        if reference.trajectory_id is not None and reference.trajectory_id in self._by_id:
            return self._by_id[reference.trajectory_id]
        if reference.path is not None:
            name = reference.path.replace("\\", "/").rpartition("/")[2]
            if name in self._by_file:
                return self._by_file[name]
            number = _CONTINUATION.search(name)
            if number and of.session_id is not None:
                # Files that were renamed: runs that go on are named after the one that they go on from.
                base = _CONTINUED.sub("", of.session_id)
                several = self._by_session.get(f"{base}-cont-{number[1]}", [])
                if len(several) == 1:
                    return several[0]
        several = self._by_session.get(reference.session_id or "", [])
        return several[0] if len(several) == 1 and self.documents[several[0]] is not of else None

    def runs(self) -> Iterator[Run]:
        """The runs, in the order of the documents that they begin with."""
        several = self.documents if len(self.documents) > 1 else ()  # One alone names no other.
        named = {index for document in several for index in self.named_by(document)}
        read: set[int] = set()
        first = [index for index in range(len(self.documents)) if index not in named]
        # Documents that name each other in a circle begin with the first of them.
        for index in [*first, *sorted(named)]:
            if index not in read:
                yield _Building(self, read).run(index)


class _Building:
    """One run while it is put together."""

    def __init__(self, forest: Forest, read: set[int]) -> None:
        self._forest = forest
        self._read = read
        self._run = Run(native_id=None)
        self._count = 0
        self._after: list[str | None] = []
        self._about: list[dict[str, Any]] = []
        self._keys: dict[tuple[str | None, str], str] = {}

    def run(self, index: int) -> Run:
        """The run that begins with a document of the forest."""
        self._read.add(index)
        root = self._forest.documents[index]
        run = self._run
        facts = BranchFacts.read(root.own.get("branch"))
        self._add(root, None, None if facts is None else facts.fork_reason, 0)
        _about_run(run, root)
        run.feedback = [each for each in (self._feedback(root, said) for said in _said(root)) if each]
        if self._count > 1:
            run.metadata["documents"] = self._about
            if run.trailing:
                run.metadata["trailing_after"] = self._after
        return run

    def _add(self, document: Document, parent: str | None, reason: ForkReason | None, depth: int) -> None:
        """A document's steps, and those of all that it names; then what it goes on with, and so on."""
        following: Document | None = document
        while following is not None:
            parent = self._one(following, parent, reason, depth)
            index = self._forest.find(Reference(path=following.continued), following) if following.continued else None
            if following.continued and (index is None or index in self._read):
                following.values.said(
                    f"{following.place}.continued_trajectory_ref",
                    f"{following.continued[:80]!r} is not among the files; what follows the compaction is not there",
                    "Import the folder",
                )
            if index is None or index in self._read:
                return
            self._read.add(index)
            following, reason = self._forest.documents[index], "compaction"

    def _one(self, document: Document, parent: str | None, reason: ForkReason | None, depth: int) -> str | None:
        """Adds one document, and returns the key of its last step."""
        prefix = f"{self._count}." if self._count else ""
        self._count += 1
        about = _about_document(document, prefix)
        self._about.append(about)
        run, tools = self._run, document.tools()
        embedded = self._embedded(document, depth)
        last, begins = parent, True
        said: list[Message] = []
        listed: list[Message] = []  # since the last step
        for turn in document.turns():
            if turn.sampled:
                key = prefix + turn.key
                fields: dict[str, Any] = {
                    "tools": tools, "prompt_messages": list(said), "response_message": turn.said[0], **turn.step,
                }  # fmt: skip
                why = reason if begins else None
                run.steps.append(Step(step_id=key, trajectory_id="", parent_step_id=last, fork_reason=why, **fields))
                run.rewards += [msgspec.structs.replace(each, step=key) for each in turn.rewards]
                self._keys[document.trajectory_id if prefix else None, turn.key] = key
                last, begins, listed = key, False, []
                said += turn.said
                listed += turn.said[1:]
            else:
                said += turn.said
                listed += turn.said
            for reference in turn.references:
                self._sub_agent(reference, document, embedded, last, depth)
        for _, each in embedded.pop("", []):
            self._branch(each, last, depth)
        if prefix:
            about |= _besides(document)
            if (name := _native_id(document)) is not None:
                run.parts.append(Part(native_id=name))
        # What is said of a sub-agent as a whole is on its last reply, as the run as a whole is that of who asked it.
        on = last if depth and not begins else None
        run.rewards += rewards_of(document.values, document.extra, f"{document.place}.extra", on)
        run.trailing += listed
        self._after += [last] * len(listed)
        run.media |= document.media
        return last

    def _embedded(self, document: Document, depth: int) -> dict[str, list[tuple[str, Document]]]:
        """The documents within one: by their ids, and under "" those that nothing names."""
        found: dict[str, list[tuple[str, Document]]] = {}
        given = document.embedded()
        if given and depth >= _DEEPEST:
            document.values.lost(f"{document.place}.subagent_trajectories", f"they nest more than {_DEEPEST} deep")
            return found
        if not given:
            return found
        named = {name for each in document.references() for name in (each.trajectory_id, each.session_id) if name}
        for place, value in given:
            each = Document(value, document.values, place)
            names = [name for name in (each.trajectory_id, each.session_id) if name in named]
            found.setdefault(names[0] if names else "", []).append((place, each))
        return found

    def _sub_agent(
        self,
        reference: Reference,
        document: Document,
        embedded: dict[str, list[tuple[str, Document]]],
        parent: str | None,
        depth: int,
    ) -> None:
        for name in (reference.trajectory_id, reference.session_id):
            if name and (within := embedded.pop(name, None)):
                for _, each in within:
                    self._branch(each, parent, depth)
                return
        index = self._forest.find(reference, document)
        if index is None or index in self._read:
            if index is None:
                shown = reference.path or reference.trajectory_id or reference.session_id or ""
                document.values.said(reference.place, f"the sub-agent {shown[:80]!r} is not among the files", None)
            return
        if depth >= _DEEPEST:
            document.values.lost(reference.place, f"sub-agents nest more than {_DEEPEST} deep")
            return
        self._read.add(index)
        self._branch(self._forest.documents[index], parent, depth)

    def _branch(self, document: Document, parent: str | None, depth: int) -> None:
        facts = BranchFacts.read(document.own.get("branch"))
        if facts is None:
            self._add(document, parent, "subagent", depth + 1)
            return
        at = self._keys.get((facts.document, str(facts.step_id))) if facts.step_id is not None else None
        self._add(document, at, facts.fork_reason, depth + 1)

    def _feedback(self, document: Document, said: dict[str, Any]) -> RunFeedback | None:
        fields, found = dict(said), True
        for name in ("step", "other"):
            on = fields.pop(name, None)
            if isinstance(on, dict):
                fields[name] = self._keys.get((on.get("document"), str(on.get("step_id"))))
                found = found and fields[name] is not None
        try:
            made = msgspec.convert(fields, RunFeedback)
        except (msgspec.ValidationError, TypeError):
            made = None
        if made is None or made.kind not in _KINDS or not found:
            document.values.lost(f"{document.place}.extra.{KEY}.run.feedback", "it is no feedback that can be read")
            return None
        return made


def _said(root: Document) -> list[dict[str, Any]]:
    return RunFacts.read(root.own.get("run"), root.values, f"{root.place}.extra.{KEY}.run").feedback


def _about_run(run: Run, root: Document) -> None:
    """What a document says of the whole run."""
    values, place = root.values, root.place
    facts = RunFacts.read(root.own.get("run"), values, f"{place}.extra.{KEY}.run")
    run.native_id = _native_id(root)
    run.exported = root.trajectory_id if "run" in root.own else None
    if root.trajectory_id is None and root.session_id is not None:
        begun = _CONTINUED.sub("", root.session_id)
        run.held_by = begun if begun != root.session_id else None
    run.file = values.file
    run.agent = facts.agent if "run" in root.own else root.agent_name
    run.status, run.task, run.user = facts.status, facts.task, facts.user
    run.group_id, run.rollout_index = facts.group_id, facts.rollout_index
    final = root.value.get("final_metrics")
    final = final if isinstance(final, dict) else {}
    if not any(reward.step is None for reward in run.rewards) and isinstance(final.get("extra"), dict):
        run.rewards += rewards_of(values, final["extra"], f"{place}.final_metrics.extra", None)
    parent = root.agent.get("extra")
    parent_id = parent.get("parent_session_id") if isinstance(parent, dict) else None
    run.parent_run = parent_id if isinstance(parent_id, str) else None
    about = {
        "schema_version": root.value.get("schema_version"),
        "session_id": root.session_id,
        "agent_version": root.agent.get("version"),
        "agent_extra": values.bounded(parent, f"{place}.agent.extra"),
        **_besides(root),
    }
    run.metadata = {**facts.metadata, "atif": {key: value for key, value in about.items() if value is not None}}
    times = [step.created_at for step in run.steps if step.created_at]
    run.created_at = facts.created_at or (min(times) if times else 0.0)
    run.completed_at = facts.completed_at or (max(times) if times else 0.0)


def _native_id(document: Document) -> str | None:
    return document.trajectory_id or (None if document.row and not document.session_id else document.session_id)


def _besides(document: Document) -> dict[str, Any]:
    """What a document says of itself that has no place of its own."""
    values, place = document.values, document.place
    rest = {key: value for key, value in document.extra.items() if key not in (KEY, "reward", "rewards")}
    about = {
        "notes": values.bounded(document.value.get("notes"), f"{place}.notes"),
        "final_metrics": values.bounded(
            values.object(document.value, "final_metrics", place), f"{place}.final_metrics"
        ),
        "extra": values.bounded(rest, f"{place}.extra"),
        "other": values.bounded(document.others, f"{place} (other fields)"),
    }
    return {key: value for key, value in about.items() if value is not None}


def _about_document(document: Document, prefix: str) -> dict[str, Any]:
    about = {
        "steps": f"{prefix}*",
        "agent": document.agent_name,
        "session_id": document.session_id,
        "trajectory_id": document.trajectory_id,
        "file": document.file.rpartition("/")[2] if document.place == "$" else None,
    }
    return {key: value for key, value in about.items() if value is not None}
