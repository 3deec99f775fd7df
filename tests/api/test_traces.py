"""Spans over OTLP: what exporters send becomes steps, once, whatever server takes it and however often it comes."""

import gzip
import itertools
import json
import random
import threading
import time
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agentworld.api import otlp_replies, traces
from agentworld.config import TracesSettings
from agentworld.errors import PoolError
from agentworld.ingest.spans import closing
from agentworld.ingest.spans.closing import Looked, close_silent
from agentworld.ingest.spans.live import take
from agentworld.ingest.spans.otlp_json import spans_in
from agentworld.pool.keys import NewKey
from agentworld.pool.memory import MemoryPool
from agentworld.records import Message, NewTrajectory, Step
from tests.api.serving import Serving
from tests.ingest.shapes import said

TRACE = "ab" * 16
NEVER = TracesSettings(quiet_seconds=3600)
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def attributes(values):
    def value(each):
        if isinstance(each, int):
            return {"intValue": str(each)}
        return {"stringValue": each if isinstance(each, str) else json.dumps(each)}

    return [{"key": key, "value": value(each)} for key, each in values.items()]


def message(role, text):
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def span(own, parent=None, *, name="chat m", at=0, values=None, error=None, trace=TRACE, events=()):
    made = {
        "traceId": trace,
        "spanId": own * 8,
        "name": name,
        "startTimeUnixNano": str((1_790_000_000 + at) * 10**9),
        "endTimeUnixNano": str((1_790_000_001 + at) * 10**9),
        "attributes": attributes(values or {}),
        "events": [{"name": "gen_ai.evaluation.result", "attributes": attributes(each)} for each in events],
        "status": {"code": 2, "message": error} if error else {},
    }
    return made | ({"parentSpanId": parent * 8} if parent else {})


def chat(own, turns, reply, *, at=0, **named):
    """A call whose prompt is `turns`, user and assistant in turn."""
    roles = ("user", "assistant")
    given = [message(roles[index % 2], text) for index, text in enumerate(turns)]
    values = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": given,
        "gen_ai.output.messages": [message("assistant", reply)] if reply else [],
        **named.pop("values", {}),
    }
    return span(own, named.pop("parent", "01"), at=at, values=values, **named)


ROOT = span("01", name="run", at=0)
FIRST = chat("02", ["Hi"], "Hello", at=1)
SECOND = chat("03", ["Hi", "Hello", "And?"], "Bye", at=2)


def request(*spans, resource=None):
    batch = {"resource": {"attributes": attributes(resource or {})}, "scopeSpans": [{"spans": list(spans)}]}
    return {"resourceSpans": [batch]}


def parsed(*spans, resource=None):
    return list(spans_in(request(*spans, resource=resource), "$", lambda *_, **__: None))


def steps(pool, trajectory_id=f"trace-{TRACE}"):
    found = pool.list_steps(trajectory_id=trajectory_id, include=("messages",)).items
    return [(said(step.response_message), step.parent_step_id, step.fork_reason) for step in found]


def wait_for(condition):
    until = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server():
    with Serving(traces=NEVER) as running:
        yield running


def test_the_exporter_of_opentelemetry_fills_a_trajectory_that_ends_with_its_root(monkeypatch):
    pool = MemoryPool()
    append, failures = pool.append_steps, [PoolError("away")]

    def failing(sent, **named):
        if failures:
            raise failures.pop()
        return append(sent, **named)

    monkeypatch.setattr(pool, "append_steps", failing)
    monkeypatch.setattr(otlp_replies, "RETRY_SECONDS", 0)
    with Serving(pool, traces=TracesSettings(quiet_seconds=0.2, channel="live")) as server:
        resource = Resource.create({"service.name": "booking", "agentworld.group_id": "g-1"})
        provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=f"{server.url}/v1/traces", compression=Compression.Gzip)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("tests")
        with tracer.start_as_current_span("run") as root:
            for turns, reply in ((["Hi"], "Hello"), (["Hi", "Hello", "And?"], "Bye")):
                values = {
                    pair["key"]: next(iter(pair["value"].values())) for pair in chat("02", turns, reply)["attributes"]
                }
                tracer.start_span("chat m", attributes=values).end()
        provider.shutdown()
        name = f"trace-{root.get_span_context().trace_id:032x}"
        first, second = pool.list_steps(trajectory_id=name).items
        wait_for(lambda: pool.get_trajectory(name).status != "open")
        ended, found = pool.get_trajectory(name), steps(pool, name)

    assert failures == []
    assert (ended.status, ended.channel, ended.group_id) == ("finished", "live", "g-1")
    assert (ended.metadata["service"], ended.labels["trace"]["root"]) == ("booking", "run")
    assert found == [("assistant(Hello)", None, None), ("assistant(Bye)", first.step_id, None)]
    assert second.model == "m"


def test_what_comes_twice_or_to_several_servers_at_once_is_there_once():
    pool = MemoryPool()
    with Serving(pool, traces=NEVER) as one, Serving(pool, traces=NEVER) as other:
        replies = []

        def export(server):
            replies.append(server.send("POST", "/v1/traces", request(FIRST, SECOND, ROOT))[::2])

        threads = [threading.Thread(target=export, args=(server,)) for server in (one, other) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said_twice = chat("05", ["Hi", "Hello", "And?"], "Bye", at=2, parent="03")

        assert replies == [(200, {})] * 8
        assert one.send("POST", "/v1/traces", request(said_twice))[::2] == (200, {})
        assert [each[0] for each in steps(pool)] == ["assistant(Hello)", "assistant(Bye)"]
        assert pool.stats().dead_letters == 0


def test_a_late_span_revives_nothing_and_is_told(server):
    pool, name, trace = server.pool, "trace-" + "1a" * 16, "1a" * 16
    late = {**FIRST, "traceId": trace}
    assert server.post("/v1/traces", request({**SECOND, "traceId": trace}))[0] == 200
    pool.complete_trajectory(name, "finished")
    status, told = server.post("/v1/traces", request(late))

    assert (status, told["partialSuccess"]["rejectedSpans"]) == (200, "0")
    assert "1 calls came after their trajectory had ended" in told["partialSuccess"]["errorMessage"]
    assert pool.get_trajectory(name).status == "finished"
    assert [step.late for step in pool.list_steps(trajectory_id=name).items] == [False, True]


def test_silent_traces_end_by_their_root_or_by_themselves():
    pool, now = MemoryPool(), time.time()
    ended = {}
    cases = {
        "11": (chat("02", ["a"], "b"), ROOT),
        "12": (chat("02", ["a"], "b"), span("01", name="run", error="boom")),
        "13": (chat("02", ["a"], "b"),),
        "14": (chat("02", ["a"], "b", values={"gen_ai.output.messages": [
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {}}]}]}),),
    }  # fmt: skip
    for name, spans in cases.items():
        take(pool, parsed(*({**each, "traceId": name * 16} for each in spans)), "traces")
    pool.create_trajectory(NewTrajectory(trajectory_id="trace-of-a-program"))
    for seconds in (5, 30, 700):
        closed, others = close_silent(pool, 10, 600, now=lambda at=now + seconds: at)
        ended[seconds] = {each[6:8]: pool.get_trajectory(each).status for each in closed}

    assert ended == {5: {}, 30: {"11": "finished", "12": "failed"}, 700: {"13": "finished", "14": "abandoned"}}
    assert not others
    assert pool.get_trajectory("trace-of-a-program").status == "open"
    take(pool, parsed({**FIRST, "traceId": "15" * 16}), "traces")
    assert close_silent(pool, 10, 0, now=lambda: now + 10**6) == ([], True)


def test_traces_that_stay_open_keep_no_other_from_its_end(monkeypatch):
    monkeypatch.setattr(closing, "_PAGE", 2)
    pool, now, looked = MemoryPool(), time.time(), Looked()
    for number in range(12):
        take(pool, parsed({**FIRST, "traceId": f"{number + 1:032x}"}), "traces")
    take(pool, parsed(*({**each, "traceId": "ff" * 16} for each in (FIRST, ROOT))), "traces")
    rounds = [close_silent(pool, 10, 0, looked=looked, now=lambda: now + 60) for _ in range(3)]

    assert sorted(rounds) == [([], True), ([], True), ([f"trace-{'ff' * 16}"], True)]


def test_several_traces_in_one_trajectory_are_the_same_steps_in_any_order():
    resource, found = {"agentworld.trajectory_id": "mine"}, set()
    spans = [
        {**chat("02", [name], name.upper(), at=at), "traceId": name * 32}
        for at, name in enumerate("abc")
    ]  # fmt: skip
    for order in itertools.permutations(spans):
        pool = MemoryPool()
        for sent in (order, order[::-1], order[:1], order[1:]):
            assert take(pool, parsed(*sent, resource=resource), "traces").refused == 0
        page = pool.list_steps(trajectory_id="mine", include=("messages",)).items
        found.add(tuple(sorted((step.step_id, said(step.response_message)) for step in page)))

    assert found == {tuple((f"{name * 32}.{'02' * 8}", f"assistant({name.upper()})") for name in "abc")}


def judged(own, parent, value, *, name="acc", **named):
    values = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value}
    return span(own, parent, name="evaluation", values=values, **named)


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_on_the_calls_that_they_are_within_in_whatever_order_all_comes(seed):
    between, within_it = span("0b", "03", name="judge"), judged("0c", "0b", 3)
    spans = [FIRST, SECOND, judged("0a", "02", 1), within_it, judged("0d", "01", 2), ROOT, between]
    random.Random(seed).shuffle(spans)
    # What a span is within ends, and so comes, after it.
    spans.sort(key=lambda each: (each is between and 2) or (each is within_it and 1))
    pool, reasons = MemoryPool(), []
    for each in (*spans, *spans[::-1]):
        reasons += take(pool, parsed(each), "traces").reasons
    close_silent(pool, 0, 60, now=lambda: time.time() + 99)
    ended, found = pool.get_trajectory(f"trace-{TRACE}"), pool.list_steps().items

    assert {step.step_id[-2:]: step.rewards for step in found} == {"02": {"acc": 1.0}, "03": {"acc": 3.0}}
    assert (ended.status, ended.rewards, list(ended.labels)) == ("finished", {"acc": 2.0}, ["trace"])
    assert reasons == ([f"trace-{TRACE} has no call of a model that this root could be of"] if spans[0] is ROOT else [])


@pytest.mark.parametrize("resource", [{}, {"agentworld.trajectory_id": "mine"}])
def test_a_score_that_comes_after_the_root_or_the_end_waits_for_nothing(resource):
    pool, name = MemoryPool(), resource.get("agentworld.trajectory_id", f"trace-{TRACE}")
    for each in (FIRST, ROOT, judged("0a", "01", 1)):
        take(pool, parsed(each, resource=resource), "traces")
    assert pool.get_trajectory(name).rewards == {"acc": 1.0}
    pool.complete_trajectory(name, "finished")
    for each in (judged("0b", "0c", 2, name="late"), judged("0d", "02", 3)):
        take(pool, parsed(each, resource=resource), "traces")
    ended = pool.get_trajectory(name)
    assert (ended.rewards, list(ended.labels)) == ({"acc": 1.0, "late": 2.0}, ["trace"])
    assert [step.rewards for step in pool.list_steps().items] == [{"acc": 3.0}]


def test_branches_have_the_reason_that_their_messages_say():
    talk = ["Hi", "Hello", "And?", "Well", "So?"]
    turns = [chat(f"0{2 + at}", talk[: 2 * at + 1], [*talk, "Bye"][2 * at + 1], at=at) for at in range(3)]
    for order in itertools.permutations(turns):
        pool = MemoryPool()
        for each in order:
            take(pool, parsed(each), "traces")
        assert [reason for _, _, reason in steps(pool)] == [None] * 3

    def reasons(*prompts):
        pool = MemoryPool()
        for at, prompt in enumerate(prompts):
            given = [message(("system", "user", "assistant")["sua".index(text[0])], text[1:]) for text in prompt]
            take(
                pool, parsed(chat(f"0{2 + at}", [], f"r{at}", at=at, values={"gen_ai.input.messages": given})), "traces"
            )
        return [reason for _, _, reason in steps(pool)]

    long = ["sBe kind", "uHi", "ar0", "uMore", "ax", "uGo on"]
    assert reasons(["uOne"], ["uTwo"]) == [None, "parallel"]
    assert reasons(long, ["sBe kind", "uElse"]) == [None, "parallel"]
    assert reasons(["sBe kind", "uElse"], long) == [None, "parallel"]
    assert reasons(long, ["sBe kind", "uHi", "uIn short: more"]) == [None, "compaction"]
    assert reasons(long, [*long[:3], "uLess", *long[4:]]) == [None, "history_rewritten"]
    assert reasons(long, ["sJudge", "uHi"]) == [None, "subagent"]
    assert reasons(long[:2], [*long[:3], "uA", "ax", "uB"], [*long[:3], "uC"])[1:] == [None, "history_rewritten"]


def test_what_cannot_be_kept_is_rejected_with_the_reason():
    pool, elsewhere = MemoryPool(), {"agentworld.trajectory_id": "other"}
    other = chat("02", ["Hi"], "Something else", at=1)

    def rejected(*sent, resource=None):
        taken = take(pool, parsed(*sent, resource=resource), "traces")
        assert len(taken.reasons) == bool(taken.refused)
        return taken.refused, (taken.reasons or [""])[0]

    assert rejected(ROOT) == (1, f"trace-{TRACE} has no call of a model that this root could be of")
    assert pool.list_trajectories().items == []
    assert rejected(FIRST, other, FIRST) == (1, f"the span {'02' * 8} is there twice; the first one is taken")
    assert rejected(FIRST, ROOT, ROOT) == (0, "")
    assert rejected(other) == (1, f"the span {'02' * 8} is on record with other content, which stays")
    assert rejected({**ROOT, "name": "else"}) == (
        1,
        f"the span {'01' * 8} is on record with other content, which stays",
    )
    assert rejected(FIRST, resource=elsewhere) == (1, f"the span {'02' * 8} is on record in trace-{TRACE}")
    assert rejected(judged("0a", "02", 1), judged("0a", "02", 1)) == (0, "")
    assert rejected(judged("0b", "02", 1)) == (0, "")
    count, why = rejected(judged("0c", "02", 0), judged("0d", "02", "good", name="tone"))
    assert (count, why.partition(" has ")[2]) == (1, "the score 'acc' of 1.0 already; 0.0 is not kept")
    assert rejected(judged("0e", "02", "bad", name="tone"))[0] == 1
    (step,), (ended,) = pool.list_steps(include=("messages",)).items, pool.list_trajectories().items
    assert (said(step.response_message), step.rewards, step.labels) == (
        "assistant(Hello)",
        {"acc": 1.0},
        {"tone": "good"},
    )
    assert (ended.labels["trace"]["root"], ended.rewards) == ("run", {})


def test_a_call_is_placed_by_what_it_was_shown_and_judged_where_it_stands():
    pool = MemoryPool()
    judged = chat("02", ["Hi"], "Hello", at=1, events=(
        {"gen_ai.evaluation.name": "short", "gen_ai.evaluation.score.value": 1},
        {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.label": "warm"},
    ))  # fmt: skip
    named = {"gen_ai.agent.name": "helper"}
    for one in (
        judged,
        SECOND,
        chat("04", ["Look it up"], "Found", at=3, values=named),
        chat("06", ["Hi"], "Hey", at=4),
    ):
        assert take(pool, parsed(one), "traces").refused == 0
    by_id = {step.step_id.partition(".")[2][:2]: step for step in pool.list_steps(include=()).items}

    assert [(each.parent_step_id or "")[-2:] for each in by_id.values()] == ["", "02", "", ""]
    assert [each.fork_reason for each in by_id.values()] == [None, None, "subagent", "parallel"]
    assert by_id["04"].agent == "helper"
    assert (by_id["02"].rewards["short"], by_id["02"].labels["tone"]) == (1.0, "warm")


def test_a_call_that_the_gateway_has_recorded_is_not_recorded_again():
    pool, resource = MemoryPool(), {"agentworld.trajectory_id": "mine"}
    pool.create_trajectory(NewTrajectory(trajectory_id="mine"))
    pool.append_steps(
        [
            Step(
                step_id="recorded",
                trajectory_id="mine",
                dialect="chat",
                created_at=1_790_000_001.25,
                latency_ms=500.0,
                prompt_messages=[Message(role="user", content="Hi")],
                response_message=Message(role="assistant", content="Hello"),
            )
        ]
    )
    around = chat("09", ["Hi"], "Hello", at=1)
    taken = take(pool, parsed(around, resource=resource), "traces")
    later = take(pool, parsed(chat("0a", ["Hi"], "Hello", at=5), resource=resource), "traces")

    assert [(each.known, each.steps) for each in (taken, later)] == [(1, 0), (0, 1)]
    assert close_silent(pool, 0.001, 0.001, now=lambda: time.time() + 9) == ([], False)


def test_equal_votes_at_one_time_are_as_many_calls():
    pool = MemoryPool()
    for own in ("02", "03", "04"):
        take(pool, parsed(chat(own, ["Good?"], "yes", at=1)), "traces")

    assert [each[2] for each in steps(pool)] == [None, "parallel", "parallel"]


def test_keys_and_their_channels():
    with Serving(require_keys=True, traces=NEVER) as server:
        secret = {
            name: server.pool.create_key(new).secret
            for name, new in {
                "reader": NewKey(name="r", scopes=("read",)),
                "writer": NewKey(name="w", scopes=("write",)),
                "val": NewKey(name="v", scopes=("write",), channel="val"),
                "one": NewKey(name="o", scopes=("write",), trajectory_id="t-one"),
            }.items()
        }

        def export(name, trace):
            headers = {"Authorization": f"Bearer {secret[name]}"} if name else {}
            body = request({**FIRST, "traceId": trace * 16}, {**ROOT, "traceId": trace * 16})
            status, _, told = server.send("POST", "/v1/traces", body, headers)
            return status, told

        assert [export(None, "21")[0], export("reader", "21")[0]] == [401, 403]
        assert export(None, "21")[1]["code"] == 16
        assert [export("writer", "22"), export("val", "23"), export("one", "24")] == [(200, {})] * 3
        status, refused = export("val", "22")
        found = {each.trajectory_id[:8]: each.channel for each in server.pool.list_trajectories().items}

        assert (status, refused["partialSuccess"]["rejectedSpans"]) == (200, "2")
        assert "is for the channel 'val' alone" in refused["partialSuccess"]["errorMessage"]

        def rejected(name, *spans):
            headers = {"Authorization": f"Bearer {secret[name]}"}
            told = server.send("POST", "/v1/traces", request(*spans), headers)[2].get("partialSuccess", {})
            return int(told.get("rejectedSpans", 0)), told.get("errorMessage", "")

        other = {**FIRST, "traceId": "22" * 16}
        count, why = rejected("val", judged("0a", "02", 1, trace="22" * 16))
        assert (count, "is for the channel 'val' alone" in why) == (1, True)
        assert rejected("val", {**ROOT, "traceId": "22" * 16})[0] == 1
        # Its trajectory is its own, and the span another's: nothing is left open for it.
        other["attributes"] = other["attributes"] + attributes({"agentworld.trajectory_id": "mine"})
        assert rejected("val", other) == (1, f"the span {'02' * 8} is on record in another trajectory")
        assert server.pool.get_trajectory("mine").status == "abandoned"
        assert rejected("val", judged("0a", "02", 1, trace="23" * 16)) == (0, "")
        assert rejected("val", judged("0a", "02", 1, trace="25" * 16)) == (0, "")
        assert rejected("val", {**FIRST, "traceId": "25" * 16}) == (0, "")
        assert [step.rewards for step in server.pool.list_steps(where="reward.acc > 0").items] == [{"acc": 1.0}] * 2
        assert found == {"trace-22": "traces", "trace-23": "val", "t-one": "traces"}


def test_what_cannot_be_taken_is_told_in_the_words_of_the_protocol(server, monkeypatch):
    no_content = span("07", "01", values={"gen_ai.operation.name": "chat"}, trace="3a" * 16)
    nameless = {**FIRST, "traceId": "", "spanId": ""}
    status, told = server.post("/v1/traces", request(nameless, no_content))
    assert (status, told["partialSuccess"]["rejectedSpans"]) == (200, "1")
    assert "needs a trace_id" in told["partialSuccess"]["errorMessage"]
    assert "CAPTURE_MESSAGE_CONTENT" in told["partialSuccess"]["errorMessage"]

    def failed(body, headers=()):
        status, _, reply = server.send("POST", "/v1/traces", body, dict(headers))
        return status, reply["code"] if isinstance(reply, dict) else reply[:2]

    assert failed(b"[1") == (400, 3)
    assert failed(b'{"spans": []}') == (400, 3)
    assert failed(b"\x0a\xff", PROTOBUF) == (400, b"\x08\x03")
    assert failed(b"x", {"Content-Encoding": "gzip"}) == (400, 3)
    assert failed(b"x", {"Content-Encoding": "br"}) == (400, 3)
    assert failed(gzip.compress(b"{}")[:-3], {"Content-Encoding": "gzip"}) == (400, 3)
    assert failed(gzip.compress(b" " * (65 * 2**20)), {"Content-Encoding": "gzip"}) == (413, 8)
    assert failed(b"{}", {"Content-Type": "text/plain"}) == (415, 3)
    assert failed(b"{}", {"Origin": "https://elsewhere.example"}) == (403, 7)
    assert server.send("POST", "/v1/traces", b"", PROTOBUF)[::2] == (200, b"")

    monkeypatch.setattr(traces, "_working", threading.BoundedSemaphore(1))
    traces._working.acquire()
    status, headers, _ = server.send("POST", "/v1/traces", b"{}")
    assert (status, headers["retry-after"]) == (429, str(otlp_replies.RETRY_SECONDS))


def test_replies_in_protobuf_are_those_that_exporters_read():
    reply = ExportTraceServiceResponse.FromString(otlp_replies.success(otlp_replies.PROTOBUF, 300, "why"))
    assert (reply.partial_success.rejected_spans, reply.partial_success.error_message) == (300, "why")


def test_more_spans_than_a_request_may_have_and_a_server_that_takes_none():
    with Serving(traces=TracesSettings(max_spans=1)) as server:
        assert server.post("/v1/traces", request(FIRST, SECOND))[0] == 413
        assert server.post("/v1/traces", request(FIRST))[0] == 200
    with Serving(traces=NEVER, max_body_bytes=100) as server:
        status, told = server.post("/v1/traces", request(FIRST))
        assert (status, told["code"]) == (413, 8)
    with Serving(traces=TracesSettings(enabled=False)) as server:
        assert server.post("/v1/traces", request(FIRST))[0] == 404


def test_no_request_makes_the_server_stumble(server):
    chosen, fixtures = random.Random(5), Path(__file__).parent.parent / "ingest" / "fixtures" / "otlp"
    document = json.loads((fixtures / "genai.json").read_text())
    packed = (fixtures / "split" / "a.binpb").read_bytes()
    odd = [
        None,
        True,
        -1,
        10**30,
        "",
        "\ud800",
        "\0",
        [],
        {},
        [None],
        "[",
        {"stringValue": 5},
        {"arrayValue": {"values": 3}},
    ]

    def places(value):
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            yield value, key
            yield from places(value[key])

    for _ in range(40):
        changed = json.loads(json.dumps(document))
        for _ in range(chosen.choice([1, 3, 20])):
            container, key = chosen.choice(list(places(changed)))
            container[key] = chosen.choice(odd)
        status, reply = server.post("/v1/traces", changed)
        assert status in (200, 400), reply
        broken = bytearray(packed)
        for _ in range(chosen.choice([1, 3, 20])):
            broken[chosen.randrange(len(broken))] = chosen.randrange(256)
        assert server.send("POST", "/v1/traces", bytes(broken), PROTOBUF)[0] in (200, 400)
