"""What became of an import: how much of everything by format, and what was skipped and why."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.ingest.run import Note

SHOWN_NOTES = 1000
_KINDS = 1000
_LONGEST = 500
_OTHERS = "other reasons"


class FormatCounts(msgspec.Struct, kw_only=True):
    """Of one format. `runs` were read; of them `added` are new, `known` were there, `replaced` were there and have
    changed, so that they are stored beside what was there, `deleted` were deleted on request before and do not come
    back, `refused` cannot be stored, `empty` have no reply of a model, and are skipped. `steps` to `labels` are what is
    in the others. `derived`: steps that got ids by a tokenizer. `excluded`: steps that are stored and not served, by
    reason.
    """

    files: int = 0
    runs: int = 0
    added: int = 0
    known: int = 0
    replaced: int = 0
    deleted: int = 0
    refused: int = 0
    empty: int = 0
    steps: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    rewards: int = 0
    labels: int = 0
    derived: int = 0
    excluded: dict[str, int] = {}


class ImportReport(msgspec.Struct, kw_only=True):
    """`notes`: the first 1,000 of them, where there are more of something lost in the place of others; `reasons` counts
    all by their reason, numbers left out; `lost` how many say that something was lost. `unknown_files`: files that no
    format reads. `pool`, `channel`: where the command stored it, without what is secret of the address.
    """

    formats: dict[str, FormatCounts] = {}
    unknown_files: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    dry_run: bool = False
    pool: str | None = None
    channel: str | None = None
    lost: int = 0
    note_count: int = 0
    reasons: dict[str, int] = {}
    notes: list[Note] = []

    def take(self, note: Note) -> None:
        """Count a note, and keep it where it is one of the first."""
        self.note_count += 1
        self.lost += note.lost
        reason = _reason(note.why)
        if reason not in self.reasons and len(self.reasons) >= _KINDS:
            reason = _OTHERS
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if note.lost and len(self.notes) >= SHOWN_NOTES:
            self._make_room()
        if len(self.notes) < SHOWN_NOTES:
            self.notes.append(
                msgspec.structs.replace(note, file=_cut(note.file), place=_cut(note.place), why=_cut(note.why))
            )

    def _make_room(self) -> None:
        """Leave out the last note of nothing lost, if there is one."""
        for place in range(len(self.notes) - 1, -1, -1):
            if not self.notes[place].lost:
                del self.notes[place]
                return

    def first_notes(self) -> list[Note]:
        """The notes, those of something lost first."""
        return sorted(self.notes, key=lambda note: not note.lost)

    def reason(self, why: str) -> str:
        """Under which of the reasons a note is counted."""
        found = _reason(why)
        return found if found in self.reasons else _OTHERS

    def of(self, format: str) -> FormatCounts:
        """The counts of a format."""
        return self.formats.setdefault(format, FormatCounts())

    def total(self, name: str) -> int:
        """One figure over all formats."""
        return sum(getattr(counts, name) for counts in self.formats.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def _cut(text: str) -> str:
    """At most so many characters: notes may quote what is in a file."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _reason(why: str) -> str:
    """A note's reason without its numbers, so that equal ones are counted together."""
    kept, digits = [], False
    for character in why[:200]:
        if not character.isdigit():
            kept.append(character)
        elif not digits:
            kept.append("N")
        digits = character.isdigit()
    return "".join(kept)
