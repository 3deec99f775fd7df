"""How much of a hostile file is read before it is refused."""

from __future__ import annotations

import msgspec

MIB = 1024 * 1024
MAX_PROMPTS = 20_000_000
"""How many messages the prompts of one run hold together, each as often as it is shown, before no more of its replies
become steps. Prompts of a conversation that no window of a model holds grow with its square.
"""
MAX_TRAILING = 4 * MIB
"""How large the messages that no step has are together, as JSON, of one run."""


class Limits(msgspec.Struct, kw_only=True, frozen=True):
    """`document_bytes`: of one JSON document, one line, one element of an array. `depth`: how deep objects and lists
    nest in it. `member_bytes`: of one file, uncompressed. `archive_bytes`: of all members that are read of one archive.
    `archive_ratio`: how many times larger than in the archive a file may be, once it is over 16 MiB. `members`: of one
    archive, and files of one folder. `nested`: archives within archives.
    """

    document_bytes: int = 64 * MIB
    depth: int = 100
    member_bytes: int = 64 * 1024 * MIB
    archive_bytes: int = 256 * 1024 * MIB
    archive_ratio: int = 200
    members: int = 1_000_000
    nested: int = 3


USUAL = Limits()
