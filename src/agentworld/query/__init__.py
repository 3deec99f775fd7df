"""The `where` language: one small expression language over documented fields, the same everywhere.

    reward >= 0.5 and complete and staleness <= 2 and label.quality != 'bad'

Pure: text in, checked expression tree out. Stores compile the tree to SQL with parameters or evaluate it.

Comparisons `== != < <= > >=` and `in (...)` between a field and literals (strings in either quotes, numbers, true,
false, null), `is null`, `is not null`, `not in`, fields that are true or false on their own, `and`, `or`, `not` and
parentheses. Logic is two-valued: an absent value is equal to null only, so `field != 'x'` holds where the field is
absent, and no order holds for it.
"""

from agentworld.query.evaluate import evaluate
from agentworld.query.expression import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Membership,
    Not,
)
from agentworld.query.fields import FIELDS, Field, Subject, fields_of
from agentworld.query.parser import parse

__all__ = [
    "FIELDS",
    "Comparison",
    "Conjunction",
    "Disjunction",
    "Expression",
    "Field",
    "FieldRef",
    "Flag",
    "Membership",
    "Not",
    "Subject",
    "evaluate",
    "fields_of",
    "parse",
]
