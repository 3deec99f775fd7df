"""Records that cannot be stored: what is kept of them."""

from __future__ import annotations

import reprlib

import msgspec

from agentworld.pool.results import Rejected
from agentworld.pool.rules import printable
from agentworld.pool.step_arrays import with_lists
from agentworld.records import Step, exact_json

MAX_RECORD = 65_536  # characters of a record that are kept


class _Printer(reprlib.Repr):
    """Prints anything, cut in depth and length: what is too deep for JSON is too deep for repr too."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 20
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 1000
        self.maxstring = self.maxother = self.maxlong = 10_000

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python refuses to print very long numbers.
            return f"<an integer of {x.bit_length()} bits>"


_printer = _Printer()


def rejection(record: object, reason: str) -> Rejected:
    """What was given in the place of a step, as it goes to the dead letters."""
    if isinstance(record, Step):
        return Rejected(reason, _text_of(record), printable(record.step_id), printable(record.trajectory_id))
    return Rejected(reason, kept_text(_printer.repr(record)))


def kept_text(text: str | bytes) -> str:
    """A record's text as a store can hold it: broken characters escaped, cut at 64 KiB."""
    if isinstance(text, str):
        text = text.encode("utf-8", "backslashreplace")
    return text.decode("utf-8", "backslashreplace").replace("\0", "\\x00")[:MAX_RECORD]


def _text_of(step: Step) -> str:
    try:
        return kept_text(exact_json.encode(with_lists(step)))
    except Exception:  # The record is broken in a way that JSON cannot hold, so its printed form is all there is.
        return kept_text(_printer.repr(msgspec.structs.asdict(step)))
