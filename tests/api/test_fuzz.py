"""Whatever is sent to the control API, the answer is a success or an error in the one shape, never a fault of ours."""

import http.client
import json
import typing
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.api.app import ROUTES
from agentworld.pool import open_store
from tests.api.serving import Serving
from tests.api.test_errors import is_an_error
from tests.examples import examples, stores

BIG = (2**31, 2**53, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63), -(2**63) - 1, 10**30)
DEEP = "DEEP"  # stands for a value that nests 3,000 deep
numbers = st.sampled_from((-1, 0, 1, 2, *BIG))
texts = st.sampled_from(
    ("", "t1", "s1", "m", "train", "../x", "a\0b", "é", "x" * 300, "oldest", "o5", "n5", "o" + "f" * 16, "o-5", "1e2",
     "reward > 0", "step_index == 99999999999999999999", "1.5", "group", "sft", "tokens")
)  # fmt: skip
leaves = st.none() | st.booleans() | numbers | texts | st.sampled_from((1e308, -0.5, float("nan"), DEEP))
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner), max_leaves=5)
MAY_STAND_FOR = {int: numbers, float: numbers, str: texts, dict: st.dictionaries(texts, values, max_size=2)}


def fitting(kind):
    """Values that a field of this type could take, as far as it is simple, and a few others."""
    options = [
        MAY_STAND_FOR[part] for part in (kind, typing.get_origin(kind), *typing.get_args(kind)) if part in SIMPLE
    ]
    for part in (kind, *typing.get_args(kind)):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            options.append(record(part))
        elif typing.get_origin(part) is list:
            options.append(st.lists(fitting(typing.get_args(part)[0]), max_size=3))
        elif typing.get_origin(part) is typing.Literal:
            options.append(st.sampled_from(typing.get_args(part)))
    return st.one_of(*options) if options else values


SIMPLE = frozenset(MAY_STAND_FOR)


def record(kind):
    """Objects of the type's own fields, those that are required always there."""
    known = msgspec.structs.fields(kind)
    required = {field.encode_name: fitting(field.type) for field in known if field.required}
    optional = [(field.encode_name, fitting(field.type)) for field in known if not field.required]
    named = [st.tuples(st.just(name), strategy) for name, strategy in optional]
    some = st.lists(st.one_of(named), max_size=3) if named else st.just([])
    return st.tuples(st.fixed_dictionaries(required), some).map(lambda parts: {**parts[0], **dict(parts[1])})


BROKEN = (b"[" * 5000, b'{"steps": [' + b'"\\' * 500, b"\xef\xbb\xbf{}", b'{"steps": [' + b"[" * 5000, b"\xff", b"")


def body_of(handler):
    kind = handler.opt["body"]
    kinds = typing.get_args(kind) or (kind,)
    whole = st.one_of(*map(record, kinds)).map(
        lambda body: json.dumps(body).replace(json.dumps(DEEP), "[" * 3000 + "]" * 3000).encode()
    )
    return st.one_of(whole, whole, whole, st.sampled_from(BROKEN))


def query_of(handler):
    names = sorted(set(handler.parsed_fn_signature.parameters) - {"request", "state", "body"})
    pairs = st.tuples(st.sampled_from(names or ["foo"]), texts | numbers.map(str))
    plain = st.lists(pairs, max_size=2).map(urlencode)
    return plain | st.sampled_from(("where=%ff%fe", "where=a%20==%20%00", "limit=%D9%A3", "%ff=1", "&&==", "limit"))


def requests_to(handler, method, route):
    """Method, path and body."""
    there = () if method == "DELETE" else ("t1", "s1", "1")  # What is deleted would be gone for the other searches.
    names = st.sampled_from((*there, "none", "a\0b", "é", "x" * 300)).map(lambda name: quote(name, safe=""))
    parts = st.tuples(*(names if part.startswith("{") else st.just(part) for part in route.split("/"))).map("/".join)
    if method in ("POST", "PUT"):
        return st.tuples(st.just(method), parts, body_of(handler))
    return st.tuples(st.just(method), st.tuples(parts, query_of(handler)).map("?".join), st.none())


OPERATIONS = [
    (route, method, path)
    for route in ROUTES
    for path in sorted(route.paths)
    for method in sorted(route.http_methods & {"GET", "POST", "PUT", "DELETE"})
    if path.startswith("/api/v1")
]


@pytest.fixture(scope="module", params=stores("sqlite", "memory"))
def served(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    pool = open_store("memory://" if request.param == "memory" else f"sqlite:///{folder}/pool.db")
    with Serving(pool) as running:
        running.post("/api/v1/trajectories", {"trajectory_id": "t1"})
        running.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
        address = urlsplit(running.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
        yield connection
        connection.close()


def ask(connection, method, path, body=None):
    """One request; the connection is kept, as a new one for each would be most of the time."""
    # With this header the events come as one page instead of a stream, which would not end.
    connection.request(method, path, body, {"Accept": "application/json", "Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def test_all_operations_are_searched():
    assert len(OPERATIONS) == len([route for route in ROUTES if min(route.paths).startswith("/api/v1")]) > 15


@pytest.mark.hypothesis
@pytest.mark.parametrize(("route", "method", "path"), OPERATIONS, ids=[f"{each[1]} {each[2]}" for each in OPERATIONS])
def test_nothing_that_is_sent_is_a_fault_of_ours(served, route, method, path):
    @settings(
        max_examples=examples(60),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(requests_to(route, method, path))
    def search(sent):
        status, content = ask(served, *sent)
        assert status < 500, content
        assert status < 400 or is_an_error(json.loads(content)), content

    search()
    # Whatever of it was taken can be read back.
    for listing in ("trajectories?limit=1000", "steps?limit=1000&include=tokens,messages,logprobs"):
        status, content = ask(served, "GET", f"/api/v1/{listing}")
        assert status == 200, content
