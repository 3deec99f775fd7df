"""The files of an export: columns, shards, the card, and what happens where one fails or is broken off."""

import errno
import gc
import io
import json
import os
import re
import shutil
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentworld.curation.exports import export_dataset, known_layouts
from agentworld.curation.exports.card import code
from agentworld.curation.exports.columns import arrow_array, arrow_type, card_feature, features, stored
from agentworld.curation.exports.place import PREFIX, Place
from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.records import MediaPart, Message, Splits, TextPart
from tests.curation.exports.talks import CLOCK, frozen, put, put_weather, says, step, user

HALVES = Splits(fractions={"train": 0.5, "held-out": 0.5}, by="trajectory", near_duplicates=None)


def front_matter(folder):
    """The card's front matter, each value of which is JSON."""
    text = (folder / "README.md").read_text()
    head = text.split("---\n")[1]
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in head.splitlines())}, text


def test_parquet_has_json_columns_features_and_splits(memory, tmp_path):
    for number in range(20):
        put_weather(memory, f"t{number}", f"town {number}")
    version = frozen(memory, splits=HALVES)
    report = export_dataset(memory, version.version, "sft", tmp_path / "out", license="cc-by-4.0")
    assert set(report.splits) == {"train", "held_out"}
    assert report.rows == 20
    total = 0
    for split, each in report.splits.items():
        assert each.files == [f"data/{split}-00000-of-00001.parquet"]
        table = pq.read_table(tmp_path / "out" / each.files[0])
        total += table.num_rows
        assert table.schema.field("messages").type == pa.list_(pa.json_())
        told = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert told["messages"] == {"feature": {"_type": "Json"}, "_type": "List"}
        message = json.loads(table["messages"][0][0].as_py())
        assert message == {"role": "system", "content": "Be short."}
    assert total == 20
    head, text = front_matter(tmp_path / "out")
    assert head["license"] == "cc-by-4.0"
    assert head["configs"][0]["data_files"] == [
        {"split": split, "path": f"data/{split}-*.parquet"} for split in report.splits
    ]
    assert head["dataset_info"]["features"][0] == {"name": "messages", "list": "json"}
    assert version.version in text
    assert version.digest in text
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_rows_go_into_shards_of_a_size_and_one_split_can_be_asked_for(memory, tmp_path, monkeypatch):
    monkeypatch.setattr("agentworld.curation.exports.writing.ROWS_OF_A_GROUP", 3)
    for number in range(8):
        put_weather(memory, f"t{number}")
    version = frozen(memory)
    seen = []
    for kind in ("parquet", "jsonl"):
        report = export_dataset(
            memory, version.name, "sft", tmp_path / kind, shard_bytes=1, file_format=kind, split="train",
            progress=lambda *told: seen.append(told),
        )  # fmt: skip
        files = report.splits["train"].files
        assert len(files) == {"parquet": 3, "jsonl": 8}[kind]
        assert files[-1] == f"data/train-{len(files) - 1:05d}-of-{len(files):05d}.{kind}"
    assert seen[-1] == ("trajectories", 8, 8)
    with pytest.raises(NotFoundError, match="no split 'test'"):
        export_dataset(memory, version.name, "sft", tmp_path / "other", split="test")


def test_the_columns_of_every_layout_come_back_from_parquet(memory, tmp_path):
    """Whatever a layout writes as JSON lines is what its Parquet holds."""
    put_weather(memory, "t1")
    put(
        memory,
        "t2",
        [
            step("t2", 0, [user("Hi")], says("Ho", "Umlaut: ü"), prompt_ids=[1, 2], response_ids=[3, 4],
                 response_logprobs=[-0.5, None], logprob_space="raw", token_source="engine", vocabulary="v")
        ],
        reward=0.0,
        group_id="g",
    )  # fmt: skip
    put(memory, "t3", [step("t3", 0, [user("Hi")], says("Hey"), reward=None)], group_id="g")
    put(memory, "t4", [step("t4", 0, [user("Hi")], says("half \ud800"))])
    version = frozen(memory)
    for name, options in {
        "sft": {"style": "prompt-completion"}, "sft-tokens": {}, "preference": {"margin": 0.5}, "kto": {},
        "rl-prompts": {}, "steps": {},
    }.items():  # fmt: skip
        lines = export_dataset(memory, version.name, name, tmp_path / f"{name}-l", file_format="jsonl", **options)
        files = export_dataset(memory, version.name, name, tmp_path / f"{name}-p", **options)
        assert files.rows == lines.rows > 0
        expected = [json.loads(line) for line in (tmp_path / f"{name}-l" / lines.splits["train"].files[0]).open()]
        table = pq.read_table(tmp_path / f"{name}-p" / files.splits["train"].files[0])
        columns = {each.name: each.type for each in table.schema}
        found = [{key: read(columns[key], value) for key, value in row.items()} for row in table.to_pylist()]
        assert found == expected, name
        # What has half a character is in raw steps only: loaders leave it out without a word.
        assert ("t4" in str(found)) == (name == "steps"), name
    assert set(known_layouts()) - {"prm"} == {"sft", "sft-tokens", "preference", "kto", "rl-prompts", "steps", "atif"}


def read(kind, value):
    """A value of Parquet with the JSON in it read."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [read(kind.value_type, one) for one in value]
    return json.loads(value) if isinstance(kind, pa.JsonType) else value


def test_nested_json_keeps_empty_and_absent_apart():
    values = [[[{"a": 1}], []], None, []]
    kind = arrow_type("turns")
    array = arrow_array("turns", [stored("turns", value) for value in values], kind)
    assert read(kind, array.to_pylist()[0]) == [[{"a": 1}], []]
    assert array.to_pylist()[1:] == [None, []]
    assert card_feature(features({"x": "turns"})["x"]) == {"list": {"list": "json"}}
    about = card_feature(features({"x": "about"})["x"])
    assert about["struct"][2] == {"name": "step_ids", "list": "string"}


def test_plain_columns_hold_only_tools_that_come_back_as_they_were(memory, tmp_path):
    put_weather(memory, "t1")
    put(memory, "t2", [step("t2", 0, [user("What time is it?")], says("Noon."), tools=[CLOCK])])
    put(memory, "t3", [step("t3", 0, [user("Hi")], says("Ho", "Polite."), tools=None)])
    put(memory, "t4", [step("t4", 0, [user("Hi")], says("half \ud800"), tools=None)])
    report = export_dataset(memory, frozen(memory).name, "sft", tmp_path / "out", style="verl")
    assert report.left_out == {"tools_of_another_shape": 1, "text_without_utf8": 1}
    rows = pq.read_table(tmp_path / "out" / report.splits["train"].files[0]).to_pylist()
    assert [row["enable_thinking"] for row in rows] == [True, True]
    assert rows[0]["tools"][0]["function"]["parameters"]["properties"] == {"town": {"type": "string"}}
    assert rows[0]["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"town": "Ulm"}'
    assert rows[1]["tools"] == []


def test_images_are_a_column_of_their_own_and_contents_are_parts(memory, tmp_path):
    digest = memory.put_media(b"\x89PNG", "image/png")
    sound = memory.put_media(b"RIFF", "audio/wav")
    shown = Message(role="user", content=(TextPart("What is it?"), MediaPart(digest, "image/png")))
    heard = Message(role="user", content=(MediaPart(sound, "audio/wav"),))
    put(memory, "t1", [step("t1", 0, [shown], says("A dot."))])
    put(memory, "t2", [step("t2", 0, [heard], says("A tone."))])
    put_weather(memory, "t3")
    report = export_dataset(memory, frozen(memory).name, "sft", tmp_path / "out", images=True)
    assert report.left_out == {"media_without_images": 1}
    rows = pq.read_table(tmp_path / "out" / report.splits["train"].files[0]).to_pylist()
    assert rows[0]["images"] == [{"bytes": b"\x89PNG", "path": None}]
    assert json.loads(rows[0]["messages"][0])["content"] == [{"type": "text", "text": "What is it?"}, {"type": "image"}]
    assert rows[1]["images"] == []


def test_nothing_is_there_unless_all_is(memory, tmp_path):
    put_weather(memory)
    version = frozen(memory)
    for options, error, said in (
        ({"layout": "kto", "reward": "label.none"}, InvalidRequestError, "without_value"),
        ({"layout": "stf"}, ConfigError, "Did you mean sft"),
        ({"style": "x"}, ConfigError, "no style 'x'"),
        ({"thinkin": "x"}, ConfigError, "Did you mean thinking"),
        ({"thinking": "x"}, ConfigError, "thinking"),
        ({"style": "messages", "expand": "each-step"}, ConfigError, "again"),
        ({"file_format": "csv"}, ConfigError, "parquet or jsonl"),
        ({"stopped": lambda: True}, KeyboardInterrupt, None),
    ):
        layout = options.pop("layout", "sft")
        with pytest.raises(error, match=said):
            export_dataset(memory, version.name, layout, tmp_path / "out", **options)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="is there already"):
        export_dataset(memory, version.name, "sft", tmp_path / "out")


@pytest.mark.parametrize("file_format", ["parquet", "jsonl"])
def test_what_is_broken_off_with_an_open_file_leaves_nothing_and_says_nothing(
    memory, tmp_path, monkeypatch, file_format
):
    for number in range(4):
        put_weather(memory, f"t{number}")
    monkeypatch.setattr("agentworld.curation.exports.writing.ROWS_OF_A_GROUP", 1)
    name = frozen(memory).name
    unraised = []
    monkeypatch.setattr("sys.unraisablehook", unraised.append)
    told = []
    with pytest.raises(KeyboardInterrupt):
        export_dataset(
            memory, name, "sft", tmp_path / "out", file_format=file_format,
            progress=lambda *at: told.append(at), stopped=lambda: len(told) == 3,
        )  # fmt: skip
    gc.collect()
    assert (unraised, list(tmp_path.iterdir())) == ([], [])


def test_only_what_killed_exports_left_is_removed_and_nothing_is_replaced_or_followed(memory, tmp_path):
    put_weather(memory)
    name = frozen(memory).name
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("precious")
    (tmp_path / "goal").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "goal")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    others = tmp_path / f"{PREFIX}own"
    others.mkdir()
    (others / "mine").write_text("precious")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "out.partial")
    before = sorted(tmp_path.rglob("*"))
    for folder, said in (
        ("goal", "there already"), ("link", "there already"), ("dangling", "there already"), (".", "there already"),
        ("goal/../out.partial/mine", "there already"), ("out.partial/mine/x", "Not a directory"),
        ("nul\0", "a NUL"), ("half \ud800", "no bytes"), ("long" * 100, "too long"), ("no/where", "does not exist"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=said) as caught:
            export_dataset(memory, name, "sft", tmp_path / folder)
        assert caught.value.path == "folder"
        assert caught.value.hint
        assert sorted(tmp_path.rglob("*")) == before

    alive, dead, other = Place(tmp_path / "out"), Place(tmp_path / "out"), Place(tmp_path / "another")
    for left in (dead, other):
        os.close(left._held)  # As of a process that was killed.
    (dead.inside / "data").mkdir()
    export_dataset(memory, name, "sft", tmp_path / "out")
    assert [each.inside.exists() for each in (alive, dead, other)] == [True, False, True]
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "goal").stat().st_mode)
    with pytest.raises(ConfigError, match="there already"):
        alive.arrive()
    alive.leave()
    shutil.rmtree(other.inside.parent)
    shutil.rmtree(tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_two_exports_into_one_folder_do_not_mix_and_one_is_told(memory, tmp_path):
    put_weather(memory)
    name = frozen(memory).name
    done = []

    def other(*told):
        if not done:
            done.append(True)
            export_dataset(memory, name, "sft", tmp_path / "out", file_format="parquet")

    with pytest.raises(ConfigError, match="there already"):
        export_dataset(memory, name, "sft", tmp_path / "out", file_format="jsonl", progress=other)
    assert [file.name for file in (tmp_path / "out" / "data").iterdir()] == ["train-00000-of-00001.parquet"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_files_that_cannot_be_written_are_said_and_leave_nothing(memory, tmp_path, monkeypatch, kind):
    put_weather(memory)
    name = frozen(memory).name

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "open", lambda self, mode: Full())
    with pytest.raises(ConfigError, match="No space left") as caught:
        export_dataset(memory, name, "sft", tmp_path / "out", file_format=kind)
    assert "space" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_what_was_deleted_since_is_left_out_and_said(memory, tmp_path):
    put_weather(memory, "t1")
    put_weather(memory, "t2")
    version = frozen(memory)
    memory.delete_trajectories(["t1"], "asked for")
    report = export_dataset(memory, version.name, "sft", tmp_path / "out")
    assert (report.rows, report.left_out) == (1, {"deleted": 1})
    assert "deleted on request" in (tmp_path / "out" / "README.md").read_text()


def test_values_that_are_none_are_refused_and_said(memory, tmp_path):
    put_weather(memory)
    name = frozen(memory).name
    for layout, options, path in (
        ("kto", {"threshold": float("nan")}, "threshold"), ("kto", {"reward": "reward."}, "reward"),
        ("kto", {"reward": "label."}, "reward"), ("preference", {"margin": float("inf")}, "margin"),
        ("sft", {"shard_bytes": float("nan")}, "shard_bytes"), ("sft", {"shard_bytes": True}, "shard_bytes"),
        ("sft", {"license": 5}, "license"), ("sft", {"license": "\ud800"}, "license"),
        ("sft", {"truncated": "x"}, "options"), ("rl-prompts", {"truncated": "keep"}, "truncated"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            export_dataset(memory, name, layout, tmp_path / "out", **options)
        assert caught.value.path == path
    assert list(tmp_path.iterdir()) == []


def test_a_license_of_any_text_is_read_back_from_the_card(memory, tmp_path):
    put_weather(memory)
    name = frozen(memory).name
    for number, license in enumerate(("free \U0001f600 \u00fc", "a: b # c\n---\x7f\u2028", "\U000e0001 \ufeff'\"\\")):
        export_dataset(memory, name, "sft", tmp_path / str(number), license=license)
        text = (tmp_path / str(number) / "README.md").read_text(encoding="utf-8")
        line = next(line for line in text.split("\n") if line.startswith("license: "))
        assert line.isprintable()  # YAML reads no others,
        assert not re.search(r"\\ud[89a-f]", line)  # and no halves of characters.
        whole = re.sub(r"\\U([0-9a-f]{8})", lambda found: chr(int(found[1], 16)), line)
        assert json.loads(whole.removeprefix("license: ")) == license


def test_texts_of_others_are_no_markup_in_the_card():
    for text in ("a`b``c", "| pipe |", "line\nbreak", "<b>", "`", "\x1b[31m"):
        shown = code(text)
        fence = re.match("`+", shown)[0]
        assert shown.endswith(fence)
        assert fence not in shown[len(fence) : -len(fence)].replace(fence + "`", "")
        assert "\n" not in shown
        assert "\x1b" not in shown
