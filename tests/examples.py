"""How many examples a generated test tries: a part of them in `make test`, all of them in `make test-scale`."""

import os

ALL = os.environ.get("TEST_EXAMPLES") == "all"
_PART = 4
_FEWEST = 10


def examples(number: int) -> int:
    """What to try of `number` examples."""
    return number if ALL else min(number, max(_FEWEST, number // _PART))


def seeds(number: int) -> range:
    """Seeds of a test that draws by itself; it is marked `hypothesis`, so that all `number` are tried there too."""
    return range(number if ALL else (number + 1) // 2)


def stores(first: str, *others: str) -> list[str]:
    """The stores that a generated test runs on, where what it looks for is above them: `first` in `make test`."""
    return [first, *others] if ALL else [first]
