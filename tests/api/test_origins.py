"""Pages of other sites in a browser on this machine must not drive a server on a loopback address."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.api.origins import OriginGuard
from agentworld.config import ModelSettings, ServeSettings
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving

EVIL = {"Host": "evil.example", "Origin": "https://evil.example", "Content-Type": "text/plain"}
LLM = ("/v1/chat/completions", "/v1/messages", "/t/x/v1/chat/completions")
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@pytest.fixture(scope="module")
def gateway():
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,)) as running:
            yield running


@pytest.mark.parametrize("wrong", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, EVIL])
def test_a_page_of_another_site_cannot_pause_the_gateway(server, wrong):
    status, _, reply = server.send("POST", "/api/v1/gateway/pause", b"{}", wrong)
    assert (status, reply["error"]["code"]) == (403, "forbidden")
    assert set(reply["error"]) == {"code", "message", "path", "hint"}
    assert server.get("/api/v1/policy")[1]["paused"] is False


@pytest.mark.parametrize("path", LLM)
def test_nor_can_it_call_a_model(gateway, path):
    for headers in ({"Host": "evil.example:8400"}, {"Origin": "null"}, EVIL):
        status, _, reply = gateway.send("POST", path, CHAT, headers)
        assert (status, reply["error"]["code"]) == (403, "forbidden")
        kinds = {"/v1/messages": "permission_error"}
        assert reply["error"]["type"] == kinds.get(path, "invalid_request_error")
    assert gateway.get("/api/v1/stats")[1]["exchanges"] == 0


def test_nor_can_it_read(gateway):
    for path in ("/api/v1/steps", "/healthz", "/v1/models", "/metrics", "/api/docs"):
        assert gateway.send("GET", path, headers={"Host": "evil.example"})[0] == 403, path


FORMS = ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "", "application/jsonx",
         "application/json; charset=latin-1", "text/json"]  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("path", [*LLM, "/v1/messages/count_tokens", "/api/v1/gateway/pause", "/api/v1/steps"])
def test_every_write_has_to_be_json_which_no_page_sends_unasked(gateway, path, kind):
    status, _, reply = gateway.send("POST", path, CHAT, {"Content-Type": kind})
    assert (status, reply["error"]["code"]) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in str(reply)
    assert gateway.get("/api/v1/stats")[1]["exchanges"] == 0
    assert gateway.get("/api/v1/policy")[1]["paused"] is False


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=UTF-8", "application/vnd.x+json"])
def test_json_by_its_other_names_is_taken(server, kind):
    assert server.send("POST", "/api/v1/gateway/resume", b"{}", {"Content-Type": kind})[0] == 200


@pytest.mark.parametrize("path", [*LLM, "/v1/messages/count_tokens", "/api/v1/steps"])
def test_a_body_that_was_packed_is_refused_by_name(gateway, path):
    for encoding in ("gzip", "zstd", "BR", "identity, gzip"):
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        status, _, reply = gateway.send("POST", path, CHAT, headers)
        assert (status, reply["error"]["code"]) == (415, "unsupported_media_type")
        assert encoding in str(reply)
    headers = {"Content-Type": "application/json", "Content-Encoding": "Identity"}
    assert gateway.send("POST", "/api/v1/gateway/resume", b"{}", headers)[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something"])
def test_what_a_browser_sends_for_another_site_is_refused(gateway, site):
    headers = {"Sec-Fetch-Site": site}
    for path in (*LLM, "/api/v1/gateway/pause"):
        assert gateway.send("POST", path, CHAT, headers)[0] == 403, path
    # Following a link from there to a page here is no write.
    assert gateway.send("GET", "/api/docs", headers=headers)[0] == 200
    for own in ("same-origin", "none"):
        assert gateway.send("POST", "/api/v1/gateway/resume", b"{}", {"Sec-Fetch-Site": own})[0] == 200


@pytest.mark.parametrize("path", [*LLM, "/v1/models", "/api/v1/steps", "/api/v1/gateway/pause"])
def test_who_asks_for_permission_gets_an_answer_and_none(gateway, path):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    status, headers, _ = gateway.send("OPTIONS", path, headers=asked)
    assert status == 204
    assert "OPTIONS" in headers["allow"]
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("port", ["99999", "x", "-1", "123456"])
def test_a_port_that_is_none_is_refused_in_our_shape(gateway, port):
    for path in ("/api/v1/stats", "/v1/models"):
        status, _, reply = gateway.send("GET", path, headers={"Host": f"127.0.0.1:{port}"})
        assert (status, reply["error"]["code"], reply["error"]["path"]) == (400, "invalid_request", "Host")


def fault(settings, *headers):
    scope = {"type": "http", "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]}
    return OriginGuard(settings).fault(scope)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8400", "127.9.9.9:1", "localhost", "localhost:", "LocalHost.:8400", "[::1]", "[::1]:8400",
     "[::ffff:127.0.0.1]", "[::FFFF:127.0.0.1]:8400"],
)  # fmt: skip
def test_every_name_of_this_machine_may_be_used(host):
    settings = ServeSettings()
    assert fault(settings, ("host", host)) is None
    assert fault(settings, ("host", host), ("origin", f"http://{host}")) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "0.0.0.0",
        "[2001:db8::1]",
        "[::ffff:192.0.2.1]",
        "1",
    ],
)
def test_no_other_name_may_be_used(host):
    assert fault(ServeSettings(), ("host", host)).status == 403
    assert fault(ServeSettings(), ("host", "127.0.0.1"), ("origin", f"http://{host}")).status == 403


@pytest.mark.parametrize("origin", ["null", "", "file://", "http://127.0.0.1@evil.example", "x://localhost"])
def test_an_origin_that_is_no_page_of_this_machine_is_refused(origin):
    assert fault(ServeSettings(), ("host", "localhost"), ("origin", origin)).status == 403


def test_two_hosts_are_refused_and_none_is_not():
    assert fault(ServeSettings(), ("host", "localhost"), ("host", "localhost")).status == 400
    assert fault(ServeSettings()) is None
    assert fault(ServeSettings(), ("host", "")) is None


def test_the_address_outside_is_the_servers_own():
    settings = ServeSettings(gateway_url="https://Gateway.example/")
    assert fault(settings, ("host", "gateway.example"), ("origin", "https://gateway.example")) is None
    assert fault(settings, ("host", "localhost:8400")) is None
    assert fault(settings, ("host", "evil.example")).status == 403


def test_names_can_be_added():
    settings = ServeSettings(allowed_hosts=("Box.example", "[2001:db8::7]"))
    for host in ("box.example", "BOX.example:8400", "[2001:db8::7]:1", "localhost"):
        assert fault(settings, ("host", host), ("origin", f"http://{host}")) is None, host
    assert fault(settings, ("host", "other.example")).status == 403
    assert fault(settings, ("host", "box.example"), ("origin", "http://other.example")).status == 403


def test_elsewhere_pages_of_the_same_host_may_call_and_others_may_not():
    settings = ServeSettings(host="0.0.0.0")
    host = ("host", "factory.example:8400")
    assert fault(settings, host, ("origin", "http://factory.example:8400")) is None
    for origin in ("http://evil.example", "null", "http://localhost:8400"):
        assert fault(settings, host, ("origin", origin)).status == 403, origin


def test_a_server_inside_another_program_that_listens_elsewhere_answers_to_any_name():
    assert fault(ServeSettings(host="0.0.0.0"), ("host", "factory.example")) is None


_HEADERS = [
    ("host", "127.0.0.1:8400"), ("host", "localhost"), ("host", "evil.example"), ("host", ""), ("host", "a b"),
    ("Host", "evil.example"), ("origin", "http://127.0.0.1"), ("Origin", "http://evil.example"), ("origin", "null"),
    ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site"), ("content-type", "application/json"),
    ("content-type", "text/plain"), ("Content-Type", "application/json; charset=latin-1"), ("accept", "x"),
    ("content-encoding", "gzip"), ("content-encoding", "identity"), ("content-type", "application/x-protobuf"),
]  # fmt: skip
_requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "POST", "DELETE", "OPTIONS"]),
        "path": st.sampled_from(["/t/one/v1/chat/completions", "/t/two/v1/models", "/v1/traces"]),
        "headers": st.lists(st.sampled_from(_HEADERS), max_size=4).map(
            lambda said: [(name.encode(), value.encode()) for name, value in said]
        ),
    }
)


@given(st.lists(_requests, min_size=1, max_size=12))
def test_a_verdict_that_is_kept_is_that_of_a_first_look(requests: list[Any]) -> None:
    guard = OriginGuard(ServeSettings())
    for request in [*requests, *requests]:
        fresh, kept = OriginGuard(ServeSettings()).fault(request), guard.fault(request)
        assert (kept and kept.to_dict()) == (fresh and fresh.to_dict())
