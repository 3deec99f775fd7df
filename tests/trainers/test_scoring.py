"""A teacher's log-probabilities of what was sampled: as engines give them, onto steps, before they are leased."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from agentworld.engines.builtin.pocket import load_pocket
from agentworld.errors import ConfigError, ConflictError, EngineError
from agentworld.factory import open_pool
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from agentworld.trainers.job import open_trainer, read_job, run_job
from agentworld.trainers.scorers import TeacherSettings, TokenScores, open_scorer
from agentworld.trainers.scoring import ScoredConsumer, Scoring
from tests.trainers.builders import fill, step
from tests.trainers.test_publish import world  # noqa: F401 - a fixture

PROMPT, REPLY = [5, 6, 7], [8, 9]


def settings(url, driver="vllm", **more):
    return TeacherSettings(engine=url, model="teacher", driver=driver, **more)


def vllm_place(own, *others):
    """One place of vLLM's prompt_logprobs: the id that stands there, and the likeliest."""
    entries = {
        str(each): {"logprob": value, "rank": rank, "decoded_token": "x"} for each, value, rank in (*others, own)
    }
    return dict(sorted(entries.items()))


VLLM = {
    "choices": [{
        "prompt_logprobs": [
            None, vllm_place((6, -1.0, 1)), vllm_place((7, -1.0, 1)),
            vllm_place((8, -2.5, 40), (30, -0.2, 1), (31, -1.2, 2)),
            vllm_place((9, -0.1, 1), (31, -3.0, 2)),
        ],
    }],
}  # fmt: skip
SGLANG = {
    "text": "",
    "meta_info": {
        "input_token_logprobs": [[None, 7, None], [-2.5, 8, None], [-0.1, 9, None]],
        "input_top_logprobs": [None, [[-0.2, 30, None], [-1.2, 31, None]], [[-0.1, 9, None], [-3.0, 31, None]]],
    },
}


@pytest.mark.parametrize(
    ("driver", "path", "answer"), [("vllm", "/v1/completions", VLLM), ("sglang", "/generate", SGLANG)]
)
def test_both_give_the_same_numbers(world, driver, path, answer):  # noqa: F811
    make, _, _ = world
    engine = make(**{path: (200, answer)})
    found = open_scorer(settings(engine.url, driver)).score(PROMPT, REPLY, 2)
    assert found.logprobs == [-2.5, -0.1]
    assert found.top_ids == [[30, 31], [9, 31]]
    assert found.top_logprobs == [[-0.2, -1.2], [-0.1, -3.0]]
    body = engine.bodies[0][1]
    if driver == "vllm":
        assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == (PROMPT + REPLY, 2, 1)
    else:
        assert (body["input_ids"], body["logprob_start_len"], body["top_logprobs_num"]) == (PROMPT + REPLY, 2, 2)


@pytest.mark.parametrize(
    ("driver", "path", "answer", "says"),
    [
        ("vllm", "/v1/completions", {"choices": [{"text": "x"}]}, "prompt_logprobs of 5 places"),
        (
            "vllm", "/v1/completions",
            {"choices": [{"prompt_logprobs": [None, {}, {}, {"8": {"logprob": -1.0}}, {}]}]}, "ids and ranks",
        ),
        ("vllm", "/v1/completions", {"choices": [{"prompt_logprobs": [None, {}, {}, {}, {}]}]}, "of id 8"),
        ("sglang", "/generate", {"meta_info": {}}, "input_token_logprobs of the reply's 2 ids"),
        ("sglang", "/generate", {"meta_info": {"input_token_logprobs": [[-1.0, 8, None], [-1.0, 3, None]]}}, "2 ids"),
        (
            "sglang", "/generate",
            {"meta_info": {"input_token_logprobs": [[None, 8, None], [-1.0, 9, None]], "input_top_logprobs": [[], []]}},
            "2 input_top_logprobs",
        ),
    ],
)  # fmt: skip
def test_what_an_engine_does_not_give_is_said(world, driver, path, answer, says):  # noqa: F811
    make, _, _ = world
    with pytest.raises(EngineError, match=says):
        open_scorer(settings(make(**{path: (200, answer)}).url, driver)).score(PROMPT, REPLY, 2)


@pytest.fixture(scope="module")
def builtin():
    """A builtin engine that serves pocket, in a thread of its own; its address."""
    import asyncio

    from agentworld.engines.builtin.models import open_model
    from agentworld.engines.builtin.server import BuiltinEngine, EngineSettings
    from agentworld.engines.http_surface import EngineApp, Server

    ready, loop = threading.Event(), asyncio.new_event_loop()
    state = {}

    async def serve():
        state["stop"] = asyncio.Event()
        engine = BuiltinEngine(open_model("pocket"), EngineSettings(model="pocket"))
        engine.start()
        server = Server(EngineApp(engine))
        await server.start()
        state["url"] = server.url
        ready.set()
        await state["stop"].wait()
        await server.stop()
        engine.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    yield state["url"]
    loop.call_soon_threadsafe(state["stop"].set)
    thread.join(100)
    loop.close()


def test_the_builtin_engine_scores_as_a_plain_forward_does(builtin):
    found = open_scorer(TeacherSettings(engine=builtin, model="pocket")).score(PROMPT, REPLY, 3)
    model, _ = load_pocket()
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([PROMPT + REPLY])).logits[0], -1)[2:4]
    assert found.logprobs == pytest.approx([float(table[n, each]) for n, each in enumerate(REPLY)], abs=1e-5)
    best = table.topk(3, dim=-1)
    assert found.top_ids == best.indices.tolist()
    for own, values in zip(found.top_logprobs, best.values.tolist(), strict=True):
        assert own == pytest.approx(values, abs=1e-5)


def test_steps_are_scored_once_as_they_come_and_nothing_that_is_excluded(world):  # noqa: F811
    make, _, _ = world
    engine = make(**{"/generate": (200, SGLANG)})
    given = settings(engine.url, "sglang", top_k=2, where="trajectory_id != 'g-1'")
    pool = open_store("memory://")
    fill(pool, {"g": [([step("", PROMPT, REPLY)], 1.0), ([step("", PROMPT, REPLY)], 0.0)]})
    scoring = Scoring(pool, open_scorer(given), given, "train", "teacher_logprobs")
    assert (scoring.score_new(), scoring.score_new()) == (1, 0)
    fill(pool, {"h": [([step("", PROMPT, REPLY)], 1.0)]})
    fill(pool, {f"m{n}": [([step("", PROMPT, REPLY)], 1.0)] for n in range(25)})
    pool.append_steps([step("seen", PROMPT, REPLY, "images", metadata={"prompt": "media"})])
    assert (scoring.score_new(), scoring.score_new()) == (26, 0)
    assert Scoring(pool, open_scorer(given), given, "train", "teacher_logprobs").score_new() == 0
    found = {each.name: each for each in pool.get_annotations(step_ids=["h-0-0"])}
    assert set(found) == {"teacher_logprobs", "teacher_top_ids", "teacher_top_logprobs"}
    assert found["teacher_top_ids"].dtype == "int32"
    assert found["teacher_logprobs"].source == "teacher:teacher"
    assert len(engine.bodies) == 27
    pool.close()


def test_where_scores_cannot_be_stored_the_teacher_is_not_asked_for_the_rest(monkeypatch):
    asked, ended = [], threading.Event()

    class Threads(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            ended.set()

    class Slow:
        def score(self, prompt, reply, top):
            asked.append(reply)
            assert len(asked) == 1 or ended.wait(100)
            return TokenScores([-1.0] * len(reply), [], [])

    def refuse(annotations):
        raise ConflictError("no room")

    monkeypatch.setattr("agentworld.trainers.scoring.ThreadPoolExecutor", Threads)
    pool = open_store("memory://")
    fill(pool, {f"m{n}": [([step("", PROMPT, REPLY)], 1.0)] for n in range(9)})
    monkeypatch.setattr(pool, "add_annotations", refuse)
    with pytest.raises(ConflictError, match="no room"):
        Scoring(pool, Slow(), settings("http://127.0.0.1:9", concurrency=1), "train", "teacher_logprobs").score_new()
    assert len(asked) <= 2
    pool.close()


@pytest.mark.parametrize("url", ["host:1", "http://me:secret@host:1"])
def test_an_address_that_cannot_be_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match=r"the engine of the teacher (is no HTTP address|holds a user)") as caught:
        settings(url)
    assert "secret" not in caught.value.one_line()


def names(leased):
    return [item.trajectories[0].trajectory.trajectory_id for item in leased.batch.items]


@pytest.mark.parametrize("order", ["fifo", "freshest", "random"])
def test_no_more_is_scored_than_the_next_batch_needs(monkeypatch, order):
    """A page at a time, from the end that the order begins at; of a random order all of it."""
    monkeypatch.setattr("agentworld.trainers.scoring.PAGE", 4)

    class Teacher:
        def score(self, prompt, reply, top):
            return TokenScores([-1.0] * len(reply), [], [])

    pool, heard = open_store("memory://"), []
    fill(pool, {f"m{n}": [([step("", PROMPT, REPLY)], 1.0)] for n in range(11)})
    given = settings("http://127.0.0.1:9")
    scoring = Scoring(
        pool, Teacher(), given, "train", "teacher_logprobs", newest=order == "freshest", heard=heard.append
    )
    consumer = ScoredConsumer(pool.consumer("policy"), scoring)
    spec = BatchSpec(method="distill", size=5, min_size=1, order=order)
    stream = consumer.stream(spec, timeout=0)
    first = next(stream)
    assert heard == list(range(1, 12 if order == "random" else 9))  # Five are more than a page.
    known = pool.get_annotations(step_ids=[f"{name}-0" for name in names(first)])
    assert {each.step_id for each in known} == {f"{name}-0" for name in names(first)}
    if order == "fifo":
        assert names(first) == [f"m{n}-0" for n in range(5)]
    elif order == "freshest":
        assert set(names(first)) <= {f"m{n}-0" for n in range(3, 11)}
    fill(pool, {f"n{n}": [([step("", PROMPT, REPLY)], 1.0)] for n in range(2)})
    rest = list(stream)
    assert [len(leased.batch.items) for leased in rest] == [5, 3]  # The last one is all that is left.
    assert len({name for leased in (first, *rest) for name in names(leased)}) == len(heard) == 13
    pool.close()


JOB = """
pool = "{pool}"
model = "pocket"
out = "{out}"
timeout = 0.2
[batch]
size = 2
[settings]
method = "distill"
divergence = "top_forward_kl"
threads = 1
[teacher]
engine = "{engine}"
model = "pocket"
top_k = 4
"""


def test_a_job_distils_from_an_engine(builtin, tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    fill(pool, {"g": [([step("", PROMPT, REPLY)], 1.0), ([step("", PROMPT, [3, 4])], 0.0)]})
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(pool=url, out=tmp_path / "out", engine=builtin))
    job = read_job(path)
    [metrics] = run_job(job, open_trainer(job), pool)
    assert metrics.tokens == 4
    assert metrics.loss == pytest.approx(0.0, abs=1e-4)  # The teacher is the student.
    pool.close()
    distilled = '"distill"\ndivergence = "top_forward_kl"'
    for change, says in ((("top_k = 4", "top_k = 0"), "top_k is 0"), ((distilled, '"sft"'), "teacher does not go")):
        path.write_text(JOB.format(pool=url, out=tmp_path / "out", engine=builtin).replace(*change))
        with pytest.raises(ConfigError, match=says):
            read_job(path)


def test_a_job_with_adapters_publishes_the_model_that_it_trained(builtin, tmp_path):
    pytest.importorskip("peft")
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    fill(pool, {"g": [([step("", PROMPT, REPLY)], 1.0), ([step("", PROMPT, [3, 4])], 0.0)]})
    path = tmp_path / "train.toml"
    text = JOB.format(pool=url, out=tmp_path / "out", engine=builtin).replace("learning", "")
    published = f'\n[publish]\nengine = "{builtin}"\nmodel = "pocket"\n[lora]\nrank = 2\n'
    path.write_text(
        text.replace('"distill"\ndivergence = "top_forward_kl"', '"grpo"').split("[teacher]")[0] + published
    )
    path.write_text(path.read_text().replace("size = 2", "rollouts = 2"))
    job = read_job(path)
    trainer = open_trainer(job)
    assert len(list(run_job(job, trainer, pool))) == 1
    assert pool.gateway_state().policies["pocket"].version == 1
    found = open_scorer(TeacherSettings(engine=builtin, model="pocket")).score(PROMPT, REPLY, 0)
    with torch.no_grad():
        table = torch.log_softmax(trainer.model(torch.tensor([PROMPT + REPLY])).logits[0], -1)[2:4]
    assert found.logprobs == pytest.approx([float(table[n, each]) for n, each in enumerate(REPLY)], abs=1e-4)
    first, _ = load_pocket()
    with torch.no_grad():
        before = torch.log_softmax(first(torch.tensor([PROMPT + REPLY])).logits[0], -1)[2:4]
    assert abs(float(before[0, REPLY[0]]) - found.logprobs[0]) > 1e-3
    pool.close()
