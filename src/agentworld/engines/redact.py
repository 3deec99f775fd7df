"""Takes the key that the gateway sends to an engine out of what the engine says, since errors may repeat it."""

from __future__ import annotations

import re

HIDDEN = "[key]"
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;<>\\]+")


class Redactor:
    """Hides one key, and whatever stands behind `Bearer`, in texts."""

    def __init__(self, key: str | None) -> None:
        self._key = key

    def text(self, text: str) -> str:
        """The text without keys. Call it before the text is cut, as half a key is one too."""
        if self._key:
            text = text.replace(self._key, HIDDEN)
        return _BEARER.sub(rf"\g<1>{HIDDEN}", text)
