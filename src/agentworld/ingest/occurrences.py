"""Which of several equal runs of a file one is, so that equal rows stay several wherever they stand."""

from __future__ import annotations

MOST = 1_000_000
_BITS = 2**64 - 1


class Occurrences:
    """Counts equal contents of one file, by 64 bits of their digests: some 80 bytes for each content, and at most
    `most` contents. Runs whose content was first met after so many are each the first of their kind, which `full` says.
    Two contents that agree in those bits only leave numbers out, and stay two.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._met: dict[int, int] = {}
        self.full = False

    def start(self) -> None:
        """Another file begins, or several that are read together."""
        self._met.clear()
        self.full = False

    def count(self, digest: str, file: str = "") -> int:
        """The number of this one among those in its file that are equal to it, from 1."""
        key = int(digest[:16], 16) ^ (hash(file) & _BITS)
        number = self._met.get(key, 0) + 1
        if number == 1 and len(self._met) >= self._most:
            self.full = True
        else:
            self._met[key] = number
        return number
