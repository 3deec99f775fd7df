r"""The `where` language: one small expression language over documented fields, the same everywhere.

    reward >= 0.5 and complete and staleness <= 2 and label.quality != 'bad' and created_at > now - 2h

Pure: text in, checked expression tree out. `bind` gives a tree the moment of the query, then stores compile it to SQL
with parameters or evaluate it. Logic is two-valued: an absent value is equal to null only, so `field != 'x'` holds
where the field is absent, and no order holds for it.
"""

from agentworld.query.binding import bind, with_texts
from agentworld.query.evaluate import evaluate
from agentworld.query.explain import Explanation, explain, uses_index
from agentworld.query.expression import (
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Expression,
    FieldRef,
    Flag,
    Has,
    Like,
    Membership,
    Not,
    Now,
    conditions,
)
from agentworld.query.fields import FIELDS, Field, Subject, fields_of
from agentworld.query.parser import parse
from agentworld.query.printer import printed
from agentworld.query.rules import Rule, parse_rule, parse_rules

__all__ = [
    "FIELDS",
    "Comparison",
    "Condition",
    "Conjunction",
    "Disjunction",
    "Explanation",
    "Expression",
    "Field",
    "FieldRef",
    "Flag",
    "Has",
    "Like",
    "Membership",
    "Not",
    "Now",
    "Rule",
    "Subject",
    "bind",
    "conditions",
    "evaluate",
    "explain",
    "fields_of",
    "parse",
    "parse_rule",
    "parse_rules",
    "printed",
    "uses_index",
    "with_texts",
]
