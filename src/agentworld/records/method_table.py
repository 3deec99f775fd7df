"""The table of methods as docs/methods.md has it: `python -m agentworld.records.method_table` prints it."""

from __future__ import annotations

from agentworld.records.methods import METHODS, Freshness, Method

HEADER = ("method", "unit", "every step has", "reward", "freshness", "uses, where required", "log-probability spaces")
_FRESHNESS: dict[Freshness, str] = {"on_policy": "on-policy", "bounded": "bounded lag", "any": "any"}


def rows() -> list[tuple[str, ...]]:
    """A row a method."""
    return [_row(method) for method in METHODS.values()]


def table() -> str:
    """The table in Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *rows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _row(method: Method) -> tuple[str, ...]:
    unit = f"{method.unit} of {method.rollouts} or more" if method.rollouts > 1 else method.unit
    or_texts = " or `messages`" if method.takes_text else ""
    needs = ", ".join(f"`{need}`{or_texts if need == 'tokens' else ''}" for need in method.needs)
    return (
        f"`{method.name}`",
        unit,
        needs,
        "primary" if method.rewarded else "no",
        _FRESHNESS[method.freshness],
        ", ".join(f"`annotation.{name}`" for name in method.uses) or "-",
        ", ".join(f"`{space}`" for space in method.spaces) or "-",
    )


if __name__ == "__main__":
    print(table(), end="")
