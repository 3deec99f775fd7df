"""SQLite, PostgreSQL and Python agree on every kind of condition, on values that engines like to treat differently."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, select
from sqlalchemy.pool import NullPool, StaticPool

from agentworld.pool import schema
from agentworld.pool.exact_text import storable, stored_json
from agentworld.pool.intake import Prepared
from agentworld.pool.rules import step_readiness
from agentworld.pool.sql.rows import PROMPT_MESSAGES, RESPONSE_IDS
from agentworld.pool.sql.where import NOW, condition
from agentworld.pool.values import step_value, trajectory_value
from agentworld.query import bind, evaluate, parse, with_texts
from agentworld.records import Message, Policy, Step, Trajectory
from tests.examples import examples

from ..query.strategies import conditions, expressions

_NOW = 3.0
_NUMBERS = [
    *(0, 1, -1, 5, 1.0, 1.5, -0.0, 0.1, 0.30000000000000004, 1e300, 5e-324, 1.7976931348623157e308),
    *(2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 2**63, 2**64 - 1, -(2**63) - 1, 10**30, -(10**400)),
]
_TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "A",
    "B",
    "1",
    "true",
    "é",
    "e",
    "z",
    "ｚ",
    "🙂",
    "a'b\\",
    "a\nb",
    "[a]x",
    "*",
    "a%",
    "null",
    "\U00100001",
    "\U00100801",
    "\uffff",
]
_VALUES = [
    *_NUMBERS,
    *_TEXTS,
    *("\0", "a\0b", "\ud83d", "\udc00"),
    True,
    False,
    None,
    [],
    ["a"],
    [5],
    {},
    {"a": 1},
    {"a": {"a": "ab"}},
    {"b": None},
    {"0": 1},
]
_KEYS = ["a", "b", "a.b", "format", "", "é ü", "0", "A"]
_POLICIES = [
    None,
    Policy("m", "r", 3),
    Policy("m", "r", 2**63 - 1),
    Policy("m", "old", 1),
    Policy("n"),
    Policy("o", "x"),
]
_CURRENT = {"m": Policy("m", "r", 5)}


def some(chance, values):
    """A map with some of the keys, and some of the values under them."""
    return {key: chance.choice(values) for key in _KEYS if chance.random() < 0.4}


def records():
    """Trajectories, and steps with the number of their trajectory."""
    chance = random.Random(11)
    real = [float(number) for number in _NUMBERS if abs(number) < 2**70]
    optional = [None, *_TEXTS]
    trajectories, steps = [], []
    for number in range(60):
        trajectories.append(
            Trajectory(
                trajectory_id=_TEXTS[number] if number < len(_TEXTS) else f"t{number}",
                group_id=chance.choice(optional),
                group_size=chance.choice([None, 1, 5]),
                rollout_index=chance.choice([None, 0, 1]),
                attempt=chance.choice([0, 1]),
                task=chance.choice([None, {}, some(chance, _VALUES), some(chance, _VALUES)]),
                agent=chance.choice(optional),
                channel=chance.choice(_TEXTS),
                metadata=some(chance, _VALUES),
                user=chance.choice(optional),
                priority=chance.choice(real),
                status=chance.choice(["open", "finished", "failed"]),
                rewards=some(chance, real),
                reward=chance.choice([None, *real]),
                labels=some(chance, _VALUES),
                annotations=chance.sample(_KEYS, 3) if number % 3 else [],
                masked=chance.random() < 0.5,
                readiness=chance.choice(["open", "complete", "ready", "excluded"]),
                excluded_reason=chance.choice(optional),
                step_count=chance.choice([0, 1, 5]),
                policy=chance.choice(_POLICIES),
                created_at=chance.choice([0.5, 1.0, 2.0, 3.0, 1e9, 3603.0]),
                completed_at=chance.choice([None, 1.0, 3.0]),
            )
        )
    for number in range(120):
        owner = chance.randrange(len(trajectories))
        messages = chance.choice([None, [Message(role="user", content="x")]])
        reason = chance.choice([None, None, "aborted", "a"])
        steps.append(
            (
                Step(
                    step_id=_TEXTS[number] if number < len(_TEXTS) else f"s{number}",
                    trajectory_id=trajectories[owner].trajectory_id,
                    exchange_id=chance.choice(optional),
                    channel=chance.choice(_TEXTS),
                    step_index=chance.choice([0, 1, 5]),
                    agent=chance.choice(optional),
                    model=chance.choice(optional),
                    policy=chance.choice(_POLICIES),
                    prompt_length=chance.choice([None, 1, 5]),
                    prompt_messages=messages,
                    response_message=chance.choice([None, Message(role="assistant", content="y")]),
                    rewards=some(chance, real),
                    reward=chance.choice([None, *real]),
                    labels=some(chance, _VALUES),
                    annotations=chance.sample(_KEYS, 3) if number % 3 else [],
                    metadata=some(chance, _VALUES),
                    excluded_reason=reason,
                    readiness=step_readiness(trajectories[owner].readiness, reason),
                    late=chance.random() < 0.5,
                    created_at=chance.choice([0.5, 1.0, 2.0, 3.0, 1e9]),
                    latency_ms=chance.choice([None, *real]),
                ),
                owner,
                chance.choice([None, np.zeros(1, np.int32)]),
                chance.choice([None, np.zeros(1, np.float32)]),
            )
        )
    return trajectories, steps


TRAJECTORIES, STEPS = records()
_JSON = ("task", "metadata", "rewards", "labels", "annotations")


def row(record, number, table, **columns):
    """The columns of a record, as the stores have them."""
    values = {"pk": number, "user_id": getattr(record, "user", None), **columns}
    policy = record.policy
    values |= {f"policy_{name}": getattr(policy, name) for name in ("model", "run", "version")} if policy else {}
    for name in table.c.keys():  # noqa: SIM118  # A collection of columns, not a dictionary.
        if name not in values and hasattr(record, name):
            value = getattr(record, name)
            values[name] = stored_json(value).decode() if name in _JSON and value is not None else value
    # As stores leave out what is empty.
    return {
        name: None if name in _JSON[1:] and value in ("{}", "[]") else value
        for name, value in values.items()
        if name in table.c
    }


def filled(engine):
    """The connection of an engine with the schema and the records."""
    schema.metadata.create_all(engine)
    connection = engine.connect()
    for number, record in enumerate(TRAJECTORIES, 1):
        values = row(record, number, schema.trajectories, declared=1, masked=int(record.masked))
        connection.execute(insert(schema.trajectories).values(values))
    connection.execute(insert(schema.message_nodes).values(pk=1, digest=b"x", depth=0, body=b""))
    for number, (step, owner, response, logprobs) in enumerate(STEPS, 1):
        present = RESPONSE_IDS * (response is not None) + PROMPT_MESSAGES * (step.prompt_messages is not None)
        columns = {"trajectory": owner + 1, "content": b"", "id_count": 0, "present": present, "late": int(step.late)}
        columns |= {"logprobs": None if logprobs is None else b"x", "tools": None}
        columns["reply_node"] = None if step.response_message is None else 1
        connection.execute(insert(schema.steps).values(row(step, number, schema.steps, **columns)))
    for policy in (*_CURRENT.values(), Policy("o", "y", 7)):
        columns = {"model": policy.model, "run": policy.run, "version": policy.version, "current": 1}
        connection.execute(insert(schema.policies).values(columns))
    connection.commit()
    return connection


@pytest.fixture(scope="module")
def engines(postgres):
    url = postgres.create_database("where_sql")
    made = [
        create_engine("sqlite://", poolclass=StaticPool),
        create_engine(url.replace("postgresql", "postgresql+psycopg"), poolclass=NullPool),
    ]
    connections = [filled(engine) for engine in made]
    yield connections
    for connection, engine in zip(connections, made, strict=True):
        connection.close()
        engine.dispose()
    postgres.drop_database("where_sql")


def by_sql(connection, sources, subject):
    """For each expression, the numbers of the rows for which it holds."""
    table = schema.steps if subject == "steps" else schema.trajectories
    columns = [condition(parse(source, subject), subject).label(f"c{at}") for at, source in enumerate(sources)]
    statement = select(table.c.pk, *columns).order_by(table.c.pk)
    if subject == "steps":
        statement = statement.join(schema.trajectories, schema.steps.c.trajectory == schema.trajectories.c.pk)
    found = connection.execute(statement, {NOW: _NOW}).all()
    connection.rollback()
    assert len(found) == len(STEPS if subject == "steps" else TRAJECTORIES)
    # True or false, never null, so that `not` is the opposite.
    assert all(value in (0, 1) and value is not None for line in found for value in line[1:])
    return [[line[0] for line in found if line[at + 1]] for at in range(len(sources))]


def by_python(source, subject):
    tree = with_texts(bind(parse(source, subject), _NOW), storable)

    def current(record):
        if record.policy is None:
            return None
        return {**_CURRENT, "o": Policy("o", "y", 7)}.get(record.policy.model)

    if subject == "trajectories":
        holds = [
            evaluate(tree, lambda field: trajectory_value(record, field, current(record)))  # noqa: B023
            for record in TRAJECTORIES
        ]
    else:
        holds = []
        for step, owner, response, logprobs in STEPS:
            held = Prepared(step, None, response, None, logprobs, b"", [], {}, None, None, 0, 0)
            holds.append(
                evaluate(
                    tree,
                    lambda field: step_value(step, TRAJECTORIES[owner], field, current(step), held),  # noqa: B023
                )
            )
    return [number for number, one in enumerate(holds, 1) if one]


@pytest.mark.parametrize("subject", ["steps", "trajectories"])
def test_engines_agree_on_every_kind_of_condition(engines, subject):
    chance = random.Random(5)
    # Those of one kind differ in field and literal; some of each will do, so that it takes seconds.
    sources = chance.sample(conditions(subject), 600)
    expected = {source: by_python(source, subject) for source in sources}
    assert sum(0 < len(found) < 60 for found in expected.values()) > 150  # Most tell rows apart.
    for connection in engines:
        for begin in range(0, len(sources), 50):
            some = sources[begin : begin + 50]
            found = zip(some, by_sql(connection, some, subject), strict=True)
            wrong = [source for source, numbers in found if numbers != expected[source]]
            assert wrong == [], connection.dialect.name


EXPRESSIONS = {subject: expressions(subject) for subject in ("steps", "trajectories")}


@pytest.mark.parametrize("subject", list(EXPRESSIONS))
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(data=st.data())
def test_engines_agree_on_any_expression(engines, subject, data):
    source = data.draw(EXPRESSIONS[subject])
    expected = by_python(source, subject)
    for connection in engines:
        assert by_sql(connection, [source], subject) == [expected], connection.dialect.name


def test_the_largest_expressions_run(engines):
    longest = " or ".join(["meta.a=='x'"] * 256)
    many = " or ".join(["late"] * 500)
    deepest = "not (" * 20 + "late" + ")" * 20
    listed = "step_id in (" + ", ".join(["'a'"] * 600 + ["'b'"]) + ")"
    for source in (longest, many, deepest, listed):
        expected = by_python(source, "steps")
        for connection in engines:
            assert by_sql(connection, [source], "steps") == [expected], connection.dialect.name
