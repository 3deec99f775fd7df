"""Which headers can be sent to an engine as they are."""

from __future__ import annotations


class HeaderError(ValueError):
    """A header cannot be sent; nothing was. `name`: its own."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def check_header(name: str, value: str) -> None:
    """HeaderError where a header could not go out as it is."""
    for what, text in (("name", name), ("value", value)):
        if not text.isascii():
            try:
                text.encode("latin-1")
            except UnicodeEncodeError as error:
                place = f"U+{ord(text[error.start]):04X}"
                raise HeaderError(name, f"its {what} holds {place}, and headers take Latin-1 only") from None
        if "\r" in text or "\n" in text or "\0" in text:
            raise HeaderError(name, f"its {what} holds a line end or a zero character")
