"""Runs into a pool: ids, idempotency, changed runs, what cannot be stored."""

import gc
import gzip
import json
import tracemalloc
import zipfile

import pytest

from agentworld import extensions
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.ingest import formats as registry
from agentworld.ingest.deriving import Deriver
from agentworld.ingest.format import each_alone
from agentworld.ingest.formats import formats
from agentworld.ingest.limits import Limits
from agentworld.ingest.loader import Importer, import_paths
from agentworld.ingest.occurrences import Occurrences
from agentworld.ingest.run import Note, Run, RunFeedback, RunReward, linear_steps
from agentworld.ingest.wholes import Placing
from agentworld.records import Decision, Message, Step


class Chat:
    """{"chat": [[role, text], ...], "id": ..., "rewards": {...}} as a line."""

    name = "chat"
    title = "Chats of the tests"
    bundles = staticmethod(each_alone)

    def claims(self, head):
        return any(isinstance(document, dict) and "chat" in document for document in head.documents)

    def runs(self, bundle, note):
        for place, document in bundle[0].documents():
            if isinstance(document, Exception):
                note(Note(file=bundle[0].name, place=place, why=document.why))
                continue
            messages = [Message(role=role, content=text) for role, text in document["chat"]]
            steps, trailing = linear_steps(messages, model=document.get("model"))
            rewards = [RunReward(name=name, value=value) for name, value in document.get("rewards", {}).items()]
            feedback = [RunFeedback(kind="label", name="good", value=True)] if document.get("good") else []
            yield Run(
                native_id=document.get("id"),
                steps=steps,
                rewards=rewards,
                feedback=feedback,
                trailing=trailing,
                metadata=document.get("metadata", {}),
                created_at=document.get("at", 0.0),
            )


@pytest.fixture(autouse=True)
def chat():
    formats()["chat"] = Chat()
    yield
    del formats()["chat"]


@pytest.fixture(params=["memory", "sqlite"])
def pool(request, tmp_path_factory):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path_factory.mktemp('pool')}/pool.db"
    with open_pool(url) as opened:
        yield opened


TALK = [["user", "two and two"], ["assistant", "4"], ["user", "and two"], ["assistant", "6"], ["user", "thanks"]]


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_becomes_a_trajectory_with_its_steps(pool, tmp_path):
    row = {"id": "talk 1", "chat": TALK, "rewards": {"solved": 1.0}, "good": True, "metadata": {"a": 1}, "at": 5.0}
    report = import_paths(pool, [written(tmp_path / "a.jsonl", row)])

    (stored,) = pool.list_trajectories().items
    steps = pool.list_steps(trajectory_id=stored.trajectory_id, include=["messages"]).items
    assert [step.step_id for step in steps] == [f"{stored.trajectory_id}.0", f"{stored.trajectory_id}.1"]
    assert steps[1].parent_step_id == steps[0].step_id
    assert [message.content for message in steps[1].prompt_messages] == ["two and two", "4", "and two"]
    assert steps[1].response_message == Message(role="assistant", content="6")
    assert stored.rewards == {"solved": 1.0, "reward": 1.0}
    assert stored.reward == 1.0
    assert stored.labels == {"good": True}
    assert stored.status == "finished"
    assert stored.created_at == 5.0
    assert stored.metadata["a"] == 1
    assert stored.metadata["trailing"] == [{"role": "user", "content": "thanks"}]
    assert stored.metadata["import"] | {"digest": ""} == {
        "format": "chat",
        "file": "a.jsonl",
        "place": "0",
        "native_id": "talk 1",
        "digest": "",
    }
    counts = report.formats["chat"]
    assert (counts.files, counts.runs, counts.added, counts.steps, counts.messages) == (1, 1, 1, 2, 5)
    assert (counts.rewards, counts.labels, report.lost) == (1, 1, 0)


def test_a_file_imported_again_changes_nothing_wherever_it_lies(pool, tmp_path):
    rows = [{"id": "one", "chat": TALK}, {"chat": TALK}, {"chat": TALK}]
    import_paths(pool, [written(tmp_path / "a.jsonl", *rows)])
    before = pool.list_trajectories().items
    (tmp_path / "below").mkdir()
    report = import_paths(pool, [written(tmp_path / "below" / "b.jsonl", *rows)])

    assert pool.list_trajectories().items == before
    assert len(before) == 3
    assert (report.formats["chat"].known, report.formats["chat"].added) == (3, 0)


def test_runs_without_a_name_are_known_wherever_in_a_file_they_stand_and_equal_ones_stay_several(pool, tmp_path):
    one, two, other, new = ({"chat": TALK[:2], "metadata": {"a": n}} for n in range(4))
    written(tmp_path / "a.jsonl", one, two, two, other).write_text(
        (tmp_path / "a.jsonl").read_text().replace(json.dumps(other), json.dumps(other)[:-1])
    )
    assert import_paths(pool, [tmp_path / "a.jsonl"]).formats["chat"].added == 3
    pool.delete_trajectories([pool.list_trajectories().items[0].trajectory_id], "asked")
    # A row in front, a repaired line, and another order, in another file.
    for rows, added in (((new, one, two, two, other), 2), ((other, two, one, two, new, two), 1)):
        report = import_paths(pool, [written(tmp_path / "b.jsonl", *rows)])
        counts = report.formats["chat"]
        assert (counts.added, counts.deleted, counts.known) == (added, 1, len(rows) - added - 1)
    found = sorted(t.metadata["a"] for t in pool.list_trajectories().items)
    assert found == [1, 1, 1, 2, 3]
    # Each file counts for itself, and what is too much to be told apart is said.
    importer = Importer(pool)
    importer._occurrences = Occurrences(most=1)
    for name in "cd":
        written(tmp_path / f"{name}.jsonl", {"chat": TALK}, {"chat": TALK}, new, one, one)
    report = importer.run([tmp_path / "c.jsonl", tmp_path / "d.jsonl"])
    assert (report.formats["chat"].added, report.formats["chat"].deleted) == (2, 4)
    assert [(n.file, n.lost) for n in report.notes if n.why.startswith("too many")] == [
        ("c.jsonl", False),
        ("d.jsonl", False),
    ]


def test_a_run_that_has_grown_takes_the_place_of_what_was_there(pool, tmp_path):
    path = tmp_path / "a.jsonl"
    for length in (2, 4, 4, 5):
        written(path, {"id": "one", "chat": TALK[:length]})
        report = import_paths(pool, [path])
    first, second, third = (trajectory.trajectory_id for trajectory in pool.list_trajectories().items)

    assert (second, third) == (f"{first}.2", f"{first}.3")
    assert report.formats["chat"].replaced == 1
    assert [note.why for note in report.notes] == [f"it has changed since it was imported: stored as {third}"]
    assert report.lost == 0
    assert [t.readiness for t in pool.list_trajectories().items] == ["excluded", "excluded", "complete"]
    assert pool.decisions(trajectory_id=first)[0].reason == f"imported again as {second}"
    # What is older than the latest one is known too, and what people decided stands.
    written(path, {"id": "one", "chat": TALK[:2]})
    assert import_paths(pool, [path]).formats["chat"].known == 1
    assert pool.get_step(f"{first}~3.1", include=["messages"]).parent_step_id == f"{first}~3.0"


def states(pool):
    return {t.trajectory_id: (t.channel, t.user, t.readiness) for t in pool.list_trajectories().items}


def test_a_run_replaces_older_ones_of_its_channel_and_user_only(pool, tmp_path):
    path = tmp_path / "a.jsonl"

    def put(length, channel, user=None):
        written(path, {"id": "one", "chat": TALK[:length]})
        report = import_paths(pool, [path], placing=Placing(channel=channel, user=user))
        counts = report.formats["chat"]
        return (counts.added, counts.replaced, counts.known, counts.deleted), [n.why for n in report.notes], report.lost

    assert put(2, "a") == ((1, 0, 0, 0), [], 0)
    (first,) = states(pool)
    assert put(3, "b") == ((1, 0, 0, 0), [f"another run of its name is there: stored as {first}.2"], 0)
    assert states(pool) == {first: ("a", None, "complete"), f"{first}.2": ("b", None, "complete")}
    # What is known stays where it is, which is said.
    stays = "it is there already, in the channel {}, and stays there"
    assert put(2, "b") == ((0, 0, 1, 0), [stays.format("a")], 0)
    assert put(3, "c") == ((0, 0, 1, 0), [stays.format("b")], 0)
    assert put(3, "b") == ((0, 0, 1, 0), [], 0)
    assert put(4, "a") == (
        (0, 1, 0, 0),
        [f"it has changed since it was imported: stored as {first}.3"],
        0,
    )
    assert put(5, "b")[0] == (0, 1, 0, 0)
    standing = {name: readiness for name, (_, _, readiness) in states(pool).items()}
    assert list(standing.values()) == ["excluded", "excluded", "complete", "complete"]
    # Other users' runs are others, and so is what they delete.
    for user in ("anna", "bob"):
        assert put(2, "a", user)[0] == put(2, "a", user + "2")[0] == (1, 0, 0, 0)
        pool.delete_user(user, "asked")
    assert put(4, "a", "bob2")[0] == (0, 1, 0, 0)
    assert standing.items() <= {name: readiness for name, (_, _, readiness) in states(pool).items()}.items()
    assert put(2, "a", "anna")[0] == (0, 0, 0, 1)


def test_what_is_excluded_for_a_newer_one_is_taken_back_once_that_is_deleted(pool, tmp_path):
    path = tmp_path / "a.jsonl"
    back = "{} is no longer excluded: what had taken its place was deleted"

    def put(length):
        return [n.why for n in import_paths(pool, [written(path, {"id": "one", "chat": TALK[:length]})]).notes]

    for length in (2, 3, 4):
        put(length)
    first, second, third = states(pool)
    pool.delete_trajectories([second], "asked")
    assert put(2) == []
    assert states(pool)[first][2] == "excluded"
    pool.delete_trajectories([third], "asked")
    assert put(2) == [back.format(first)]
    assert states(pool) == {first: ("train", None, "complete")}
    # What was deleted, imported again, does it too.
    pool.decide(
        [Decision(verdict="exclude", trajectory_id=first, reason=f"imported again as {second}", source="import")]
    )
    gone = "it was deleted on request, and does not come back"
    assert [put(4), put(5)] == [[back.format(first), gone], [gone]]
    assert states(pool) == {first: ("train", None, "complete")}
    assert (put(2), pool.decisions(trajectory_id=first)) == ([], [])
    # What people decided stands.
    pool.decide([Decision(verdict="exclude", trajectory_id=first, reason=f"imported again as {second}")])
    assert (put(2), states(pool)[first][2]) == ([], "excluded")


def test_where_equal_runs_were_deleted_no_further_one_comes_in_their_place(pool, tmp_path):
    import_paths(pool, [written(tmp_path / "a.jsonl", *[{"chat": TALK}] * 2)])
    one, two = states(pool)
    pool.delete_trajectories([one], "asked")
    report = import_paths(pool, [written(tmp_path / "a.jsonl", *[{"chat": TALK}] * 4, {"chat": TALK[:2]})])
    counts = report.formats["chat"]
    assert (counts.added, counts.known, counts.deleted) == (1, 1, 3)
    assert two in states(pool)
    assert len(states(pool)) == 2


def test_runs_without_a_reply_are_skipped_and_counted_unless_they_say_how_it_went(pool, tmp_path):
    asked = {"chat": TALK[:1]}
    path = written(tmp_path / "a.jsonl", asked, {"chat": []}, {**asked, "rewards": {"solved": 0}}, {"chat": TALK[:2]})
    report = import_paths(pool, [path])
    counts = report.formats["chat"]

    assert (counts.runs, counts.empty, counts.added, counts.messages) == (4, 2, 2, 3)
    assert [(note.place, note.lost) for note in report.notes] == [("run 0: $", False), ("run 1: $", False)]
    assert report.reasons == {"there is no reply of a model in it, so it is skipped": 2}
    assert [t.reward for t in pool.list_trajectories().items] == [0.0, None]


def test_nothing_is_written_by_a_dry_run(pool, tmp_path):
    path = written(tmp_path / "a.jsonl", {"chat": TALK}, {"chat": TALK[:2]})
    report = import_paths(None, [path])

    assert report.dry_run
    assert (report.formats["chat"].runs, report.formats["chat"].added, report.formats["chat"].messages) == (2, 0, 7)


def test_the_limit_and_the_placing(pool, tmp_path):
    path = written(tmp_path / "a.jsonl", *({"id": f"{n}", "chat": TALK, "rewards": {"a": n, "b": 1}} for n in range(9)))
    placing = Placing(channel="old", group_id="g", agent="coder", user="u", reward_name="b")
    assert Importer(pool, "chat", placing=placing, limit=2).run([path]).notes == []
    (note,) = Importer(None, "chat").run([path]).notes
    assert (note.why, note.hint) == ("none of the rewards a, b is the primary one", "Choose it with --reward-name")
    (note,) = Importer(None, "chat", placing=Placing(reward_name="c")).run([path]).notes
    assert note.why == "none of the rewards a, b is 'c'"

    stored = pool.list_trajectories(channel="old").items
    assert [(t.group_id, t.agent, t.user, t.reward, t.rewards["a"]) for t in stored] == [
        ("g", "coder", "u", 1.0, 0.0),
        ("g", "coder", "u", 1.0, 1.0),
    ]


def test_what_a_pool_cannot_hold_is_said_and_the_rest_is_stored(pool, tmp_path):
    bad = tmp_path / "a.jsonl"
    nested = json.loads('{"x":' * 97 + "1" + "}" * 97)
    bad.write_bytes(
        json.dumps({"id": "odd", "chat": TALK, "model": "m\x00" + "n" * 300, "metadata": {"nested": nested}}).encode()
        + b'\n{"chat": \n'
        + b'{"id": "nan", "chat": [["assistant", "\\ud800 \xff"]], "rewards": {"r": NaN, "s": 1e999}, "at": -3}\n'
    )
    report = import_paths(pool, [bad])

    first, second, last = pool.list_steps(include=["messages"]).items
    assert report.formats["chat"].added == 2
    assert sorted((note.place, note.why.split(":")[0]) for note in report.notes) == [
        ("line 2", "the JSON ends too early, after 8 bytes"),
        ("line 3", "NaN, infinity and numbers that are too large are read as null"),
        ("line 3", "bytes that are no UTF-8 are read as U+FFFD"),
        ("nan: created_at", "it is no time"),
        ("nan: reward r", "its value is no finite number"),
        ("nan: reward s", "its value is no finite number"),
        (f"odd: step {first.step_id} model", "the name is changed"),
        (f"odd: step {second.step_id} model", "the name is changed"),
    ]
    assert report.lost == 8
    assert report.reasons["its value is no finite number"] == 2
    assert last.response_message.content == "\ud800 \ufffd"
    assert first.model == "m\ufffd" + "n" * 254
    assert pool.list_trajectories().items[0].metadata["nested"] == nested


def test_who_deleted_a_run_does_not_get_it_again(pool, tmp_path):
    path = written(tmp_path / "a.jsonl", {"id": "one", "chat": TALK})
    import_paths(pool, [path])
    (stored,) = pool.list_trajectories().items
    pool.delete_trajectories([stored.trajectory_id], "asked")
    report = import_paths(pool, [path])

    assert report.formats["chat"].deleted == 1
    assert not pool.list_trajectories().items


def test_steps_and_keys_of_a_run_are_put_right(pool, tmp_path, monkeypatch):
    def runs(self, bundle, note):
        steps = [
            Step(step_id="a/b", trajectory_id="", response_message=Message(role="assistant", content="1")),
            Step(step_id="a/b", trajectory_id="", parent_step_id="nowhere"),
        ]
        yield Run(native_id="x", steps=steps, rewards=[RunReward(name="reward", value=0, step="gone")], group_id="g 1")

    monkeypatch.setattr(Chat, "runs", runs)
    report = import_paths(pool, [written(tmp_path / "a.jsonl", {"chat": []})])

    assert report.formats["chat"].added == 1
    assert sorted(note.why for note in report.notes) == [
        "no step nowhere comes before it, which it should go on from",
        "there is no step gone, so it is on the whole trajectory",
        "two steps have the same key",
    ]
    (stored,) = pool.list_trajectories().items
    assert stored.group_id.startswith("x")
    assert stored.metadata["import"]["group"] == "g 1"


def test_a_run_that_a_pool_does_not_take_is_refused_alone(pool, tmp_path, monkeypatch):
    def runs(self, bundle, note):
        said = Message(role="assistant", content="a")
        for place, name in enumerate((["no", "name"], "good", "x")):
            step = Step(step_id="0", trajectory_id="", response_message=said, model=name)
            if place == 2:
                step.finish_reason, step.created_at = "stop", "yesterday"
            media = {"0" * 32: (b"", "image/png")} if place == 2 else {}
            yield Run(native_id=f"{place}", steps=[step], media=media, completed_at=1e99)
        yield Run(native_id="3", steps=[Step(step_id="0", trajectory_id="", tools=[{"a": object()}])])
        step = Step(step_id="0", trajectory_id="", response_message=said)
        yield Run(native_id="4", steps=[step], media={"0" * 32: ("text", "image/png")}, metadata={"import": 1})

    monkeypatch.setattr(Chat, "runs", runs)
    report = import_paths(pool, [written(tmp_path / "a.jsonl", {"chat": []})])
    counts = report.formats["chat"]

    assert (counts.runs, counts.added, counts.refused) == (5, 1, 4)
    (stored,) = pool.list_trajectories().items
    assert stored.metadata["import"]["native_id"] == "1"
    refused = [note for note in report.notes if "cannot be stored" in note.why]
    assert [note.place.split(":")[0] for note in refused] == ["0", "2", "3", "4"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.jsonl.gz", "rows.zip"])
def test_files_are_read_as_streams_whatever_their_size(tmp_path, name):
    rows = [json.dumps({"id": f"{n}", "chat": [["user", f"{n} " * 10_000], ["assistant", "a"]]}) for n in range(200)]
    text = f"[{','.join(rows)}]" if name == "rows.json" else "\n".join(rows)
    path = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rows.jsonl", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    size = len(text)
    del rows, text
    gc.collect()
    tracemalloc.start()
    try:
        report = import_paths(None, [path], limits=Limits(archive_ratio=10_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (report.formats["chat"].runs, report.lost) == (200, 0)
    assert peak < size / 2


def test_a_format_that_stumbles_ends_its_file_only(pool, tmp_path):
    written(tmp_path / "a.jsonl", {"chat": TALK}, {"chat": 5}, {"chat": TALK})
    written(tmp_path / "b.jsonl", {"chat": TALK[:2]})
    (tmp_path / "c.txt").write_text("no format")
    report = import_paths(pool, [tmp_path])

    assert report.formats["chat"].added == 2
    assert report.unknown_files == 1
    assert [(note.lost, note.why.split(":")[0]) for note in report.notes] == [
        (True, "reading it as chat broke off"),
        (False, "no format knows it"),
    ]


def test_a_format_that_stumbles_over_a_file_it_is_asked_about_is_named(tmp_path):
    class Faulty(Chat):
        name = "faulty"

        def claims(self, head):
            return head.documents[0]["no such key"]

    formats()["faulty"] = Faulty()
    try:
        report = import_paths(None, [written(tmp_path / "a.jsonl", {"chat": TALK})])
        named = import_paths(None, [tmp_path / "a.jsonl"], "faulty")
    finally:
        del formats()["faulty"]
    why = "faulty broke off when it was asked whether it reads this: KeyError: 'no such key'"
    assert [(note.file, note.why, note.lost) for note in report.notes] == [("a.jsonl", why, False)]
    assert report.formats["chat"].runs == 1
    assert [note.why for note in named.notes] == [why, "it is not of the format faulty: JSON lines with the keys chat"]


def test_where_formats_claim_the_same_file_the_first_reads_it_and_it_is_said_once(pool, tmp_path):
    class Other(Chat):
        name = "other"

    formats()["other"] = Other()
    try:
        for name in "ab":
            written(tmp_path / f"{name}.jsonl", {"chat": TALK, "id": name})
        report = import_paths(pool, [tmp_path])
        named = import_paths(None, [tmp_path / "a.jsonl"], "other")
        strange = import_paths(None, [written(tmp_path / "c.jsonl", {"a": 1}), tmp_path / "a.jsonl"], "other")
    finally:
        del formats()["other"]

    assert (report.formats["chat"].added, list(report.formats)) == (2, ["chat"])
    assert [(note.why, note.lost) for note in report.notes] == [("read as chat; other would read it too", False)]
    assert (named.formats["other"].runs, named.notes) == (1, [])
    assert [note.why for note in strange.notes] == ["it is not of the format other: JSON lines with the keys a"]
    assert (strange.lost, strange.formats["other"].runs) == (1, 1)


def test_text_gets_ids_by_a_named_tokenizer(pool, tmp_path):
    talk = [["user", "two and two"], ["assistant", "4"], ["user", "say <|im_end|>"], ["assistant", " <|im_end|> 6\n"]]
    path = written(tmp_path / "a.jsonl", {"id": "one", "chat": [*talk, ["user", "more"], ["assistant", "7"]]})
    deriver = Deriver("pocket")
    report = Importer(pool, deriver=deriver).run([path])

    first, odd, last = pool.list_steps(include=["tokens", "messages"]).items
    tokenizer = load_tokenizer("pocket")
    assert (first.token_source, first.vocabulary) == ("derived", tokenizer.digest.hex())
    assert first.response_logprobs is None
    assert tokenizer.decode(first.response_ids) == "<think>\n\n</think>\n\n4<|im_end|>"
    assert set(first.response_mask) == {1}
    assert tokenizer.decode(first.prompt_ids).endswith("two and two<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(last.prompt_ids[: len(first.prompt_ids)]) == tokenizer.decode(first.prompt_ids)
    assert tokenizer.decode(last.prompt_ids).count("<|im_end|>") == 7  # of five turns, and two that stand in them
    assert last.prompt_ids.count(first.response_ids[-1]) == 5
    # The reply begins with a space, which the format takes away.
    assert (odd.token_source, odd.response_ids) == ("none", None)
    assert odd.response_message.content == " <|im_end|> 6\n"
    assert [note.why for note in report.notes] == [
        "it gets no ids: the reply's ids would not be read back as the reply's text, which has white space around it"
    ]


def test_what_plain_chat_thinks_within_its_texts_becomes_reasoning_and_gets_ids(tmp_path):
    call = '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
    texts = ["two?", "<think>\nsum\n</think>\n\n4", "more", f"\n<think>call</think>{call}", "", "<think>no end", "so"]
    texts += ["they write <think>a</think>", "last", "<think></think>9\n"]
    roles = ["human", "gpt", "human", "gpt", "observation", "gpt", "human", "gpt", "human", "gpt"]
    row = {"conversations": [{"from": role, "value": text} for role, text in zip(roles, texts, strict=True)]}
    path = written(tmp_path / "a.jsonl", row)
    stored = []
    for keep in (False, True):
        with open_pool("memory://") as pool:
            report = Importer(pool, deriver=Deriver("qwen3"), keep_thinking=keep).run([path])
            stored.append(pool.list_steps(include=["messages", "tokens"]).items)
        counts = report.formats["sharegpt"]
        assert (counts.derived, report.lost) == ((3, 0) if not keep else (1, 0))
        whys = [note.why for note in report.notes]
        assert ("what replies think between <think> and </think> becomes their reasoning" in whys) is not keep
    assert "it gets no ids: the reply's ids would not be read back as the reply's reasoning" in whys
    split, kept = stored
    assert [step.step_id for step in split] == [step.step_id for step in kept]
    said = [(step.response_message.reasoning, step.response_message.content) for step in split]
    assert said[:2] == [("sum", "4"), ("call", None)]
    assert said[2:] == [(None, texts[5]), (None, texts[7]), ("", "9\n")]
    assert split[1].prompt_messages[1] == split[0].response_message == split[4].prompt_messages[1]
    assert kept[4].prompt_messages[1].content == texts[1]
    decoded = load_tokenizer("qwen3").decode(split[0].response_ids)
    assert decoded == "<think>\nsum\n</think>\n\n4<|im_end|>"
    assert [step.token_source for step in split] == ["derived", "derived", "derived", "none", "none"]


class Point:
    """An entry point."""

    name, value = "diary", "diary.formats:FORMAT"

    def __init__(self, loaded):
        self.loaded = loaded

    def load(self):
        if self.loaded is None:
            raise ImportError("no module named diary")
        return self.loaded


def test_formats_of_other_packages_are_asked_first(monkeypatch):
    class Diary(Chat):
        name = "diary"

    known = list(formats())
    points = {"agentworld.formats": [Point(Diary())]}
    monkeypatch.setattr(extensions, "entry_points", lambda group: points.get(group, []))
    registry.formats.cache_clear()
    try:
        assert list(registry.formats()) == ["diary", *(name for name in known if name != "chat")]
        points["agentworld.formats"] = [Point(None)]
        registry.formats.cache_clear()
        with pytest.raises(ConfigError, match=r"the format diary of .* cannot be loaded: no module"):
            registry.formats()
    finally:
        monkeypatch.undo()
        registry.formats.cache_clear()
        formats()["chat"] = Chat()
