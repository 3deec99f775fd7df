"""Random expressions, as text."""

from hypothesis import strategies as st

from agentworld.query import fields_of

NUMBERS = ["0", "1", "-1", "1.0", "1.5", "-0.0", "5", "1e300"]
NUMBERS += ["9007199254740992", "9007199254740993", "9007199254740992.0", "9223372036854775807", "-9223372036854775808"]
NUMBERS += ["9223372036854775808", "18446744073709551615", "0.1", "0.30000000000000004"]
NAMES = [
    "''",
    "'a'",
    "'b'",
    "'ab'",
    "'A'",
    "'1'",
    "'true'",
    "'é'",
    "'ｚ'",
    "'🙂'",
    r"'a\'b\\'",
    r"'a\nb'",
    "'open'",
    "'m'",
    "'\U00100001'",
    "'\uffff'",
]
# What only values inside JSON hold.
TEXTS = [*NAMES, "'\0'", "'a\0b'", "'\ud83d'"]
PATTERNS = [
    "'a_b'",
    "'\U00100001%'",
    "'%'",
    "'a%'",
    "'%b'",
    "'_'",
    "'A%'",
    r"'a\%'",
    r"'%\\'",
    "'[a]%'",
    "'*'",
    "'é%'",
    "'%a%b%'",
    "''",
]
MOMENTS = ["'2026-01-31'", "'1970-01-01T00:00:01Z'", "now", "now - 2s", "now + 1h", "1", "0.5"]
KEYS = {"NAME": ["a", "b", "a.b", "format"], "PATH": ["a", "b", "a.b", '"a.b"', "a.a.a", "a.0", '""', "'é ü'"]}
ORDERS = ["==", "!=", "<", "<=", ">", ">="]


def names(subject, *kinds):
    """The fields of those kinds as they are written."""
    found = []
    for field in fields_of(subject):
        if field.kind in kinds:
            found += [field.name] * field.plain
            found += [f"{field.name}.{key}" for key in KEYS.get(field.keys, ())]
    return found


def conditions(subject):
    """Every condition of one field and one literal, or none."""
    scalars = {
        "text": NAMES,
        "number": NUMBERS,
        "time": [moment for moment in MOMENTS if moment != "'2026-01-31'"],
        "boolean": ["true", "false"],
        "json": [*TEXTS, *NUMBERS, "true", "false"],
    }
    ordered = {"text": NAMES, "number": NUMBERS, "time": MOMENTS, "json": [*TEXTS, *NUMBERS]}
    found = [f"has {name}" for name in names(subject, "text", "number", "time", "json", "presence")]
    found += [f"{name} is {null}" for name in names(subject, *scalars) for null in ("null", "not null")]
    found += names(subject, "boolean", "json")
    for kind, values in scalars.items():
        found += [f"{name} {op} {v}" for name in names(subject, kind) for op in ORDERS[:2] for v in values]
    for kind, values in ordered.items():
        found += [f"{name} {op} {v}" for name in names(subject, kind) for op in ORDERS[2:] for v in values]
    for word in ("like", "not like"):
        found += [f"{name} {word} {pattern}" for name in names(subject, "text", "json") for pattern in PATTERNS]
    for kind, values in scalars.items():
        lists = [", ".join([*values[at : at + 3], "null"][at % 2 :]) for at in range(0, len(values), 2)]
        found += [f"{name} {word} ({v})" for name in names(subject, kind) for word in ("in", "not in") for v in lists]
    return found


def expressions(subject, max_leaves=6):
    """Expressions over a subject that parse."""
    return st.recursive(
        st.sampled_from(conditions(subject)),
        lambda inner: (
            st.builds("({} and {})".format, inner, inner)
            | st.builds("({} or {})".format, inner, inner)
            | st.builds("not {}".format, inner)
        ),
        max_leaves=max_leaves,
    )
