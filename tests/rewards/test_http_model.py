"""Reward models over HTTP: each layout, and what the network does."""

import socket
import threading

import pytest

from agentworld.errors import ConfigError
from agentworld.records import MediaPart, Message, TextPart
from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.posting import Address, post
from agentworld.rewards.registry import make_evaluator
from tests.rewards.runs import calling, run_of
from tests.rewards.servers import answering


def model(url, **settings):
    return make_evaluator({"kind": "http", "url": url, "retries": 0, **settings}, "test")


def by_length(text):
    return len(text) / 10


# layout: its path, how a server of that layout answers a body, the value of the reply "four"
LAYOUTS = {
    "messages": (
        "/",
        lambda body: {"scores": [by_length(each["messages"][-1]["content"]) for each in body["inputs"]]},
        {},
    ),
    "vllm_classify": (
        "/classify",
        lambda body: {
            "data": [
                {"index": 0, "label": "x", "probs": [0.1, by_length(body["messages"][-1]["content"])], "num_classes": 2}
            ]
        },
        {"index": 1},
    ),
    "vllm_pooling": (
        "/pooling",
        lambda body: {"data": [{"index": 0, "data": [[0.0], [by_length(body["messages"][-1]["content"])]]}]},
        {},
    ),
    "vllm_score": (
        "/score",
        lambda body: {
            "data": [
                {"index": place, "score": by_length(text.partition("\n")[2])}
                for place, text in reversed(list(enumerate(body["text_2"])))
            ]
        },
        {},
    ),
    "tei": (
        "/predict",
        lambda body: [
            [{"label": "bad", "score": 0.9}, {"label": "good", "score": by_length(text.rpartition("\n")[2])}]
            for (text,) in body["inputs"]
        ],
        {"label": "good"},
    ),
    "sglang": (
        "/classify",
        lambda body: [{"embedding": [by_length(text.rpartition("\n")[2])]} for text in body["text"]],
        {},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    path, answer, settings = LAYOUTS[layout]
    with answering(lambda _path, body, _headers: answer(body)) as server:
        made = model(server.url, layout=layout, model="rm", **settings)
        assert checked(made, run_of("four"))["t"].values == {"reward": 0.4}
        many = made.evaluate_many([run_of("a" * size) for size in (1, 2, 3)])
    assert [each.values["reward"] for each in many] == [0.1, 0.2, 0.3]
    assert {asked[0] for asked in server.asked} == {path}
    assert len(server.asked) == (4 if layout in ("vllm_classify", "vllm_pooling") else 2)


def test_pooled_numbers_of_every_shape():
    for data, value in ((0.5, 0.5), ([0.5], 0.5), ([[0.1], [0.5]], 0.5)):
        with answering(lambda *_, data=data: {"data": [{"data": data}]}) as server:
            assert checked(model(server.url, layout="vllm_pooling"), run_of("x"))["t"].values["reward"] == value


def test_several_named_numbers():
    with answering(lambda *_: {"scores": [{"helpful": 0.25, "safe": 1}]}) as server:
        made = model(server.url, values=["helpful", "safe"])
        assert made.gives == ("helpful", "safe")
        assert checked(made, run_of("x"))["t"].values == {"helpful": 0.25, "safe": 1.0}
        with pytest.raises(EvaluationError, match="gave 'helpful', and says that it gives reward"):
            checked(model(server.url), run_of("x"))


def test_batches_are_as_large_as_they_may_be():
    with answering(lambda _path, body, _headers: {"scores": [0.0] * len(body["inputs"])}) as server:
        model(server.url, batch=2).evaluate_many([run_of("x")] * 5)
    assert [len(body["inputs"]) for _, body, _ in server.asked] == [2, 2, 1]


def test_what_is_sent_is_text_and_the_key(monkeypatch):
    monkeypatch.setenv("RM_KEY", "s3cret")
    seen = Message(role="user", content=(TextPart(text="look: "), MediaPart(digest="00", media_type="image/png")))
    run = run_of(calling(("f", "{}")))
    run.steps[0].prompt_messages = [seen]
    with answering(lambda *_: {"scores": [1]}) as server:
        checked(model(server.url, model="rm", api_key_env="RM_KEY"), run)
    _, body, headers = server.asked[0]
    assert headers["Authorization"] == "Bearer s3cret"
    assert body["model"] == "rm"
    said, call = body["inputs"][0]["messages"]
    assert said == {"role": "user", "content": "look: [image/png]"}
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "not of the layout messages"),
        ([], "not of the layout messages"),
        ({"scores": []}, "0 numbers came for 1"),
        ({"scores": [1, 2]}, "2 numbers came for 1"),
        ({"scores": ["1"]}, "reward is a str, not a number"),
        ({"scores": [None]}, "reward is a NoneType"),
        ({"scores": [True]}, "reward is a bool"),
        ((200, '{"scores": [NaN]}', {}), "is no JSON"),
        ((200, "oops", {}), "is no JSON"),
        ((404, "no such model", {}), "status 404: no such model"),
        ((302, "", {"Location": "http://192.0.2.1/"}), "status 302"),
        ((200, "x" * 3000, {}), "over 2000 bytes"),
    ],
)
def test_what_is_no_number_is_a_failed_evaluation(answer, reason):
    with answering(lambda *_: answer) as server, pytest.raises(EvaluationError, match=reason):
        checked(model(server.url, max_bytes=2000), run_of("x"))
    assert len(server.asked) == 1


def test_a_key_is_not_repeated_in_an_error(monkeypatch):
    monkeypatch.setenv("RM_KEY", "s3cret")
    with answering(lambda *_: (401, "bad key s3cret", {})) as server, pytest.raises(EvaluationError) as caught:
        checked(model(server.url, api_key_env="RM_KEY"), run_of("x"))
    assert "bad key [key]" in caught.value.message
    cut = "." * 296 + "s3cret"
    with answering(lambda *_: (401, cut, {})) as server, pytest.raises(EvaluationError) as caught:
        checked(model(server.url, api_key_env="RM_KEY"), run_of("x"))
    assert "s3c" not in caught.value.message
    monkeypatch.setenv("RM_KEY", "s3cret\nX: y")
    with pytest.raises(EvaluationError, match="cannot be a key") as caught:
        checked(model(server.url, api_key_env="RM_KEY"), run_of("x"))
    assert "s3cret" not in str(caught.value)
    monkeypatch.delenv("RM_KEY")
    with pytest.raises(EvaluationError, match="RM_KEY is not set"):
        checked(model(server.url, api_key_env="RM_KEY"), run_of("x"))


def test_what_may_pass_is_tried_again_with_growing_pauses():
    pauses, answers = [], [(503, "", {}), (429, "", {"Retry-After": "7"}), (502, "", {}), {"ok": 1}]
    with answering(lambda *_: answers.pop(0)) as server:
        assert post(Address(url=server.url, retries=3), "/x", {}, pause=pauses.append) == {"ok": 1}
    assert pauses == [0.5, 7.0, 2.0]


def test_tries_end():
    pauses = []
    with answering(lambda *_: (503, "busy", {})) as server, pytest.raises(EvaluationError, match="status 503: busy"):
        post(Address(url=server.url, retries=2), "/x", {}, pause=pauses.append)
    assert (len(server.asked), pauses) == (3, [0.5, 1.0])
    with pytest.raises(EvaluationError, match="refused"):
        post(Address(url=server.url, retries=1), "/x", {}, pause=pauses.append)


def test_a_server_that_does_not_answer_is_left():
    left = threading.Event()
    with answering(lambda *_: left.wait(100) and {}) as server:
        with pytest.raises(EvaluationError, match="timed out"):
            post(Address(url=server.url, retries=0, seconds=0.3), "/x", {})
        left.set()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"HTTP/1.1 200 OK", b"K"),
        (OK + b"X: ", b"a"),
        (OK, b"X-Y: a\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (OK + b"Content-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.0 200 OK\r\n\r\n", b" "),  # no length: until the server closes
    ],
    ids=["status", "header", "headers", "continue", "chunk", "body", "no_length"],
)
def test_a_server_that_never_stops_answering_is_left(begun, piece):
    left = threading.Event()

    def drip(server):
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(begun)
            try:
                while not left.wait(0.02):
                    connection.sendall(piece)
            except OSError:
                return  # the other side has had enough

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        try:
            with pytest.raises(EvaluationError, match=r"timed out|in time"):
                post(Address(url=f"http://127.0.0.1:{server.getsockname()[1]}", retries=0, seconds=0.3), "/x", {})
        finally:
            left.set()
            thread.join()


def test_an_answer_that_breaks_off_is_asked_for_again():
    answers = [(200, '{"ok"', {"Content-Length": "10"}), {"ok": 1}]
    with answering(lambda *_: answers.pop(0)) as server:
        assert post(Address(url=server.url, retries=1), "/x", {}, pause=lambda _: None) == {"ok": 1}


def test_an_address_holds_no_password():
    with pytest.raises(ConfigError, match="a name or a password") as caught:
        model("http://user:s3cret@127.0.0.1:9")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://x/?a=1"])
def test_addresses_that_are_none(url):
    with pytest.raises(ConfigError, match="is no address"):
        model(url)


def test_a_trajectory_without_messages_is_no_judgement():
    with pytest.raises(EvaluationError, match="holds no reply's message"):
        checked(model("http://127.0.0.1:9"), run_of())


def test_each_step_is_judged_by_its_own_path():
    """Two branches: each step's conversation is its own prompt and reply, all in one call."""
    run = run_of("one", "three", "fours!")
    run.steps[2].parent_step_id = "t-s0"
    path, answer, _ = LAYOUTS["messages"]
    with answering(lambda _path, body, _headers: answer(body)) as server:
        settings = {"kind": "steps", "of": {"kind": "http", "url": server.url}, "reward": "progress"}
        verdicts = checked(make_evaluator(settings, "test"), run)
    assert {target: each.values["progress"] for target, each in verdicts.items()} == {
        "t-s0": 0.3,
        "t-s1": 0.5,
        "t-s2": 0.6,
    }
    assert len(server.asked) == 1
    assert path == server.asked[0][0]


@pytest.mark.parametrize("places", [[5], ["0"], [True], [None], [0, 0], [1, 2]])
def test_scores_whose_places_are_not_those_of_the_question_are_refused(places):
    answer = {"data": [{"index": place, "score": 1.0} for place in places]}
    runs = [run_of("x", trajectory_id=f"t{number}") for number in range(len(places))]
    with answering(lambda *_: answer) as server, pytest.raises(EvaluationError, match="places are"):
        model(server.url, layout="vllm_score", retries=0).evaluate_many(runs)
