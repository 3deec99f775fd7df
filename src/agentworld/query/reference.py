"""The reference of `where` as a page: `python -m agentworld.query.reference > docs/reference/where.md`."""

from __future__ import annotations

import sys

from agentworld.query.fields import FIELDS, Field, Subject
from agentworld.query.lexer import MAX_LENGTH
from agentworld.query.parser import MAX_DEPTH, MAX_NODES
from agentworld.query.patterns import MAX_LENGTH as MAX_PATTERN
from agentworld.query.patterns import MAX_WILDCARDS

_TEXT = r"""# The `where` language

One small language filters trajectories and steps, the same everywhere and on every store:
`agentworld trajectories list --where`, `?where=` of the control API, `list_trajectories` and `list_steps` of a pool
or a client, and `where` of a batch.

    reward >= 0.5 and complete and staleness <= 2 and metadata.run != 'old' and created_at > now - 2h

## Grammar

    expression  = and-part { "or" and-part }
    and-part    = not-part { "and" not-part }
    not-part    = "not" not-part | "(" expression ")" | condition
    condition   = field ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value          in either order
                | field [ "not" ] "in" "(" value { "," value } ")"
                | field [ "not" ] "like" text
                | field "is" [ "not" ] "null"
                | "has" field  |  "has" "(" field ")"
                | field                                                         true or false by itself
    field       = name { "." key }
    key         = letters, digits, "_" and "-"  |  anything in quotes
    value       = text | number | "true" | "false" | "null" | moment
    moment      = "now" [ ( "+" | "-" ) duration ] | date or time as text | number
    duration    = number and "s", "m", "h", "d" or "w", such as 90s or 1.5h

- **Text** stands in `'` or `"`, with `\n`, `\t`, `\r`, and `\` before any other character. Texts are ordered by code
  points.
- **Numbers.** Whole numbers of 64 bits are exact, all others are doubles; 1 and 1.0 are equal.
- **Times.** `'2026-01-31'` is midnight UTC, `'2026-01-31T10:00:00Z'` a moment; a time needs its zone (`Z`, or an
  offset such as `+02:00`). `now` is the moment of the query. Seconds since the epoch compare as well. A day is not
  one moment, so `==`, `!=` and `in` refuse it.
- **`like`** compares the whole text: `%` is any text, `_` any one character, `\%`, `\_` and `\\` are these
  characters. Case counts. What is no text is like nothing.
- **`has`** is true where there is a value that is not null: `has reward.tests`, `has label.quality`, `has logprobs`.
- **Keys.** `task.a.b` is the value of `b` in the object `a`; `label.a.b` and `reward.a.b` have the one key `a.b`.
  Other keys stand in quotes: `metadata."a.b".c`, `reward."exact match"`. A key has no `"`, no backslash and no
  control character. Keys lead into objects, not into lists.

Logic has two values. An absent value is equal to null only: `agent != 'loop'` holds where the agent is absent, and no
order (`<`, `>=`, ...) holds for it. Types do not mix: `true` is not 1, and `task.level == '3'` does not match the
number 3.

Expressions are compiled to SQL with parameters. They are limited to {length} characters, {nodes} conditions and
{depth} levels, a pattern to {pattern} characters and {wildcards} `%`. An error names the position and, for a misspelt
field, the nearest one.

`staleness` counts from the published policy (`pool.set_policy`, `POST /api/v1/policy`, or `publish` of
`agentworld train`). Until one is published for a model, version 0 of the run `default` speaks, which is what the
gateway stamps on its steps then.

## How fast it is

Conditions on fields with an index are fast at any size where all rows have to fulfil them, that is, where they stand
alone or are joined with `and`; so are alternatives (`or`) of which each is so, but for `created_at` beside other
fields. `!=`, `not`, `is null` and `like` with a `%` or `_` in front use no index. `policy.run` has one beside
`policy.model ==`, and `policy.version` beside both.

Other conditions are looked at row by row. One page of a listing looks at up to 100,000 rows or for about a second: a
page that ends there is `partial`, with what it has found by then, be that nothing, and its `next_cursor` goes on from
there; `scanned` says how many rows it looked at. So does a page of a range that more than 50,000 rows are in, such as
of `reward`, where they lie far from the page. A search of which not even the first rows can be looked at within 5 s,
and one of a lease that takes longer, end with `invalid_query`: narrow it by trajectory, group or channel, or use fewer
conditions on keys of `metadata`, `task` and `label`, which are read from JSON. (`memory://` has neither limit.)

`pool.explain(where)`, `GET /api/v1/explain?where=` and `agentworld trajectories list --where EXPRESSION --explain` say
which conditions an index answers, and how the engine goes about the rest.

## Fields

A field with `.NAME` or `.PATH` is a map: put the key after the dot, such as `reward.tests` or `task.task_set`. In a
batch of trajectories or groups, and in lists of trajectories, use the fields of trajectories; in a batch of steps and
in lists of steps, those of steps. Fields of type presence stand with `has` only.

| field | of | type | index | meaning |
|---|---|---|---|---|
"""


def reference() -> str:
    """The page."""
    text = _TEXT
    limits = {
        "length": f"{MAX_LENGTH:,}",
        "nodes": str(MAX_NODES),
        "depth": str(MAX_DEPTH),
        "pattern": f"{MAX_PATTERN:,}",
        "wildcards": str(MAX_WILDCARDS),
    }
    for name, limit in limits.items():
        text = text.replace(f"{{{name}}}", limit)
    return text + "".join(_row(field) for field in FIELDS)


def _row(field: Field) -> str:
    names = [f"`{field.name}`"] * field.plain + [f"`{field.name}.{field.keys}`"] * (field.keys is not None)
    kind = "any" if field.kind == "json" else field.kind
    return f"| {', '.join(names)} | {_of(field.subjects)} | {kind} | {_of(field.indexed)} | {field.doc} |\n"


def _of(subjects: tuple[Subject, ...]) -> str:
    return "both" if len(subjects) == 2 else "".join(subjects)


if __name__ == "__main__":
    sys.stdout.write(reference())
