import datetime

import pytest

from agentworld.errors import QueryError
from agentworld.query import Now, parse


def value(literal, operator=">"):
    return parse(f"created_at {operator} {literal}", "steps").value


@pytest.mark.parametrize(
    ("literal", "moment"),
    [
        ("'2026-01-31'", datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)),
        ("'2026-01-31T10:00Z'", datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.UTC)),
        ("'2026-01-31T10:00:05Z'", datetime.datetime(2026, 1, 31, 10, 0, 5, tzinfo=datetime.UTC)),
        ("'2026-01-31T10:00:05.123Z'", datetime.datetime(2026, 1, 31, 10, 0, 5, 123000, tzinfo=datetime.UTC)),
        ("'2026-01-31T10:00:00+02:30'", datetime.datetime(2026, 1, 31, 7, 30, tzinfo=datetime.UTC)),
        ("'1969-12-31T23:59:59.5Z'", datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=datetime.UTC)),
    ],
)
def test_dates_and_times_are_seconds_since_the_epoch(literal, moment):
    assert value(literal) == moment.timestamp()


@pytest.mark.parametrize(
    ("literal", "seconds"),
    [
        ("now", 0),
        ("now - 90s", -90),
        ("now - 30m", -1800),
        ("now-2h", -7200),
        ("now - 7d", -604800),
        ("now + 1w", 604800),
        ("now - 0.5h", -1800),
    ],
)
def test_durations_have_units(literal, seconds):
    assert value(literal) == Now(seconds)


@pytest.mark.parametrize(
    "literal",
    [
        "'2026-1-31'",
        "'2026-13-01'",
        "'2026-01-31 10:00:00Z'",
        "'2026-01-31T25:00:00Z'",
        "'2026-01-31T10:00:00'",
        "'2026-01-31T10Z'",
        "'2026-01-31T10:00:00+25:00'",
        "'٢٠٢٦-01-31'",
        "''",
        "now - '2h'",
        "now - 2",
        "now - 2H",
        "now - 1e3s",
        "2h",
    ],
)
def test_what_is_no_moment_is_refused(literal):
    with pytest.raises(QueryError):
        value(literal)


def test_a_day_is_no_single_moment():
    assert value("'2026-01-31'", "<=") == value("'2026-01-31T00:00:00Z'", "==")
    for operator in ("==", "!="):
        with pytest.raises(QueryError) as caught:
            value("'2026-01-31'", operator)
        assert caught.value.hint.startswith("Give a range: >= '2026-01-31'")
