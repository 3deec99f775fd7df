"""The page on feedback: its code runs, the server takes its snippet for pages, its tables name what there is."""

import json
import re
import shutil
import subprocess
import typing

import pytest

from agentworld.config import ModelSettings
from agentworld.errors import InvalidRequestError
from agentworld.factory import connect
from agentworld.feedback import implicit
from agentworld.feedback.content import reply_digest, step_of_reply
from agentworld.pool.keys import NewKey
from agentworld.records import FeedbackKind
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.docs.pages import DOCS, blocks, codes, section, table_of

from .talks import said

PAGE = DOCS / "feedback.md"
OWN_PAGE = {"Host": "app.example", "Origin": "https://app.example", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def serve():
    """Starts a gateway that says `four ü`."""
    with ScriptedEngine(lambda request: "four ü", model="policy") as engine:
        model = ModelSettings(name="policy", upstream=engine.url, driver="builtin", tokens="engine")
        yield lambda **settings: Serving(models=(model,), **settings)


def test_its_examples_run(serve, capsys):
    names = {"__name__": "page"}
    with serve() as server:
        try:
            for block in blocks("python"):
                if block.page == PAGE:
                    code = block.text.replace("http://127.0.0.1:8400", server.url)
                    exec(compile(code, str(block), "exec"), names)
        finally:
            names["factory"].close()
            names["pool"].close()
        (step,) = server.pool.list_steps().items
        first, second = server.pool.list_feedback().items
        assert (first.step_id, first.source, first.value) == (step.step_id, "user-7", 1)
        assert second.trajectory_id == step.trajectory_id
    printed = capsys.readouterr().out.splitlines()
    assert printed[-4:] == ["current", "4 over 5", "['4', '5']", "0.4 0.5"]


CALLS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", CALLS)
def test_a_reply_names_its_step_in_every_api(serve, path, stream):
    with serve() as server:
        status, _, body = server.send("POST", path, {"model": "policy", "stream": stream, **CALLS[path]})
        assert status == 200
        reply_id = re.search(rb'"id":\s*"([^"]*exc_[^"]*)"', body)[1].decode() if stream else body["id"]
        (step,) = server.pool.list_steps().items
        assert step_of_reply(reply_id) == step.step_id


def test_other_ids_name_no_step():
    for wrong in ("", "chatcmpl-123", "stp_1"):
        with pytest.raises(InvalidRequestError):
            step_of_reply(wrong)


def snippet():
    (text,) = (block.text for block in blocks("js") if block.page == PAGE)
    return text


@pytest.fixture
def talked(serve):
    """A server that asks for keys, behind the proxy of app.example, and what the app's server tells its page."""
    with serve(require_keys=True, allowed_hosts=("app.example",)) as server:
        secret = server.pool.create_key(NewKey(name="app", scopes=("write",))).secret
        with connect(server.url, api_key=secret) as factory, factory.trajectory() as talk:
            reply = talk.chat([{"role": "user", "content": "hi"}], model="policy").body
            told = {"trajectory": talk.trajectory_id, "key": talk.page_key, "replyId": reply["id"], "text": "four ü"}
            yield server, told


def sent_by(told):
    """The request of the snippet: path, body and headers."""
    text = snippet()
    assert 'method: "POST"' in text
    assert 'replyId.split("exc_")[1]' in text
    path = re.search(r'fetch\("([^"]+)"', text)[1]
    given = {"value": 1, "trajectory": told["trajectory"], "step": step_of_reply(told["replyId"]),
             "content": reply_digest(said(told["text"]))}  # fmt: skip
    body = {}
    for field in re.search(r"feedback = \{ (.*) \};", text)[1].split(", "):
        name, _, value = field.partition(": ")
        body[name] = json.loads(value) if value.startswith('"') else given[value or name]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {told['key']}"}
    assert all(name in text for name in headers)
    assert "`Bearer ${key}`" in text
    return path, body, headers


def test_its_snippet_for_pages_is_taken_from_the_apps_own_pages(talked):
    server, told = talked
    path, body, headers = sent_by(told)
    status, _, reply = server.send("POST", path, body, {**headers, **OWN_PAGE})
    assert (status, reply) == (200, {"changed": 1, "set": 1, "waiting": []})
    (one,) = server.pool.list_feedback().items
    (step,) = server.pool.list_steps(include=("messages",)).items
    assert (one.step_id, one.source, one.name) == (step.step_id, "page", "thumb")
    assert one.content == reply_digest(step.response_message)


@pytest.mark.parametrize(
    "page",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example", "Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_pages_of_other_sites_cannot_send_it(talked, page):
    server, told = talked
    path, body, headers = sent_by(told)
    assert server.send("POST", path, body, {**headers, **OWN_PAGE, **page})[0] == 403
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answered = server.send("OPTIONS", path, headers=asked)[1]
    assert [name for name in answered if name.lower().startswith("access-control")] == []
    assert server.pool.list_feedback().items == []


def test_a_pages_key_gives_feedback_and_does_nothing_else(talked):
    server, told = talked
    path, body, headers = sent_by(told)
    headers = {**headers, **OWN_PAGE}
    trajectory = told["trajectory"]
    for changed in ({"kind": "label", "name": "checked"}, {"source": "anna"}, {"source": "pages"},
                    {"kind": "comparison", "other_id": "x", "value": None}):  # fmt: skip
        assert server.send("POST", path, {**body, **changed}, headers)[0] == 403
    for changed in ({"source": "page:user-7"}, {"kind": "comment", "comment": "good", "value": None, "name": None}):
        assert server.send("POST", path, {**body, **changed}, headers)[0] == 200
    for other, sent in (
        ("/api/v1/rewards", {"trajectory_id": trajectory, "value": 1}),
        (f"/api/v1/trajectories/{trajectory}/complete", {"status": "finished"}),
        ("/api/v1/decisions", {"decisions": []}),
        ("/v1/chat/completions", {"model": "policy", **CALLS["/v1/chat/completions"]}),
        (f"/t/{trajectory}/v1/chat/completions", {"model": "policy", **CALLS["/v1/chat/completions"]}),
    ):
        assert server.send("POST", other, sent, headers)[0] == 403
    # What one key is made of makes no other.
    swapped = {**headers, "Authorization": headers["Authorization"].replace("aw-p-", "aw-t-")}
    assert server.send("POST", path, body, swapped)[0] == 401


def test_a_pages_key_takes_the_step_alone_once_it_is_there(talked):
    server, told = talked
    path, body, headers = sent_by(told)
    del body["trajectory_id"]
    assert "`step_id` alone suffices" in section(PAGE, "From a page")
    assert server.send("POST", path, body, {**headers, **OWN_PAGE})[0] == 200
    assert [one.step_id for one in server.pool.list_feedback().items] == [body["step_id"]]
    for more in ({}, {"trajectory_id": told["trajectory"]}):
        status, _, said_of = server.send("POST", path, {**body, **more, "step_id": "later"}, {**headers, **OWN_PAGE})
        assert (status, "later" in said_of["error"]["message"]) == (403, True)


def test_a_pages_key_is_for_its_trajectory_and_for_writing_alone(talked):
    server, told = talked
    path, body, headers = sent_by(told)
    for other in ({"trajectory_id": "other"}, {"trajectory_id": "other", "step_id": None}):
        assert server.send("POST", path, {**body, **other}, {**headers, **OWN_PAGE})[0] == 403
    assert server.send("GET", path, None, {**headers, **OWN_PAGE})[0] == 403
    assert server.send("POST", path, body, {**OWN_PAGE, "Content-Type": "application/json"})[0] == 401
    assert server.pool.list_feedback().items == []


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_its_snippet_runs(talked):
    server, told = talked
    script = f"""
        const own = fetch;
        globalThis.fetch = (path, options) => own({json.dumps(server.url)} + path, options);
        {snippet()}
        await rate({json.dumps(told)}, 1);
        await rate({{...{json.dumps(told)}, trajectory: "other"}}, 1).catch((error) => console.log(error.message));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-"], input=script, capture_output=True, text=True, timeout=150, check=True
    )
    assert "this key is for the trajectory" in done.stdout
    (one,) = server.pool.list_feedback().items
    (step,) = server.pool.list_steps(include=("messages",)).items
    assert (one.step_id, one.content) == (step.step_id, reply_digest(step.response_message))


def test_it_names_every_kind_and_signal():
    assert set(table_of(section(PAGE, "Feedback"))) == set(typing.get_args(FeedbackKind))
    rows = table_of(section(PAGE, "Implicit signals"))
    assert set(rows) == {f"implicit:{signal}" for signal in implicit.SIGNALS}
    assert set(codes(rows["implicit:abandon"][1])) == {implicit.LABEL, "after_reply", "in_tool_call"}
