"""Bytes to JSON documents: shapes, splitting, limits, compressed files and archives, folders."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import tarfile
import zipfile

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.ingest import tars
from agentworld.ingest.detection import head_of, looks_like
from agentworld.ingest.entry import BadDocument
from agentworld.ingest.files import BytesEntry
from agentworld.ingest.finding import entries
from agentworld.ingest.limits import MIB, Limits
from agentworld.ingest.splitting import Oversized, lines, values
from tests.examples import examples


def read(data, name="x", **limits):
    """Shape, documents (the malformed ones as their reason) and notes."""
    entry = BytesEntry(data, name, limits=Limits(**limits))
    documents = [(p, d.why if isinstance(d, BadDocument) else d) for p, d in entry.documents()]
    return entry.shape, documents, [note.why for note in entry.notes]


@pytest.mark.parametrize(
    ("data", "shape", "documents"),
    [
        (b'{"a":1}', "json", [("$", {"a": 1})]),
        (b'\xef\xbb\xbf{\n "a": [1,\n2]}', "json", [("$", {"a": [1, 2]})]),
        (b'{"a":1}\r\n\n {"a":2}', "jsonl", [("line 1", {"a": 1}), ("line 3", {"a": 2})]),
        (b'[[1],[2]]\n[[3]]', "jsonl", [("line 1", [[1], [2]]), ("line 2", [[3]])]),
        (b'[{"a":"]"}, 3 , "x,\\"y", null, [[]] ]', "array", [(f"$[{n}]", v) for n, v in enumerate(
            [{"a": "]"}, 3, 'x,"y', None, [[]]])]),
        (b"[]", "array", []),
        (b'{"a":\n1}\n{\n"b":2}', "json", [("$", {"a": 1}), ("document 2", {"b": 2})]),
        (b'[1, {"a":', "array", [("$[0]", 1), ("$[1]", "the JSON ends too early")]),
        (b'[1, 2', "array", [("$[0]", 1), ("$[1]", 2), ("$[2]", "the array is not closed: the file ends too early")]),
        (b"[1, 2 3]", "array", [("$[0]", 1), ("$[1]", 2), (
            "$[2]", "a comma or the end of the array is missing, found b'3]'")]),
        (b"[1,]", "array", [("$[0]", 1), ("$[1]", "a comma stands before the end of the array")]),
        (b"[1] 2", "array", [("$[0]", 1), ("$[1]", "more follows the end of the array: b'2'")]),
        (b"[nul, 2]", "array", [("$[0]", "the JSON ends too early, after 3 bytes"), ("$[1]", 2)]),
        (b'{"a":1}\n{broken\n{"b":1}', "jsonl", [("line 1", {"a": 1}), (
            "line 2", "it is no JSON at byte 1: object keys must be strings"), ("line 3", {"b": 1})]),
    ],
)  # fmt: skip
def test_documents_of_every_shape(data, shape, documents):
    assert read(data) == (shape, documents, [])


def test_what_json_leaves_open_is_decided_and_said():
    big = 10**40
    assert read(b'["\\ud800", %d, {"a": 1, "a": 2}]' % big)[1:] == (
        [("$[0]", "\ud800"), ("$[1]", big), ("$[2]", {"a": 2})],
        ["the key 'a' is there twice; its last value counts"],
    )
    assert read(b'[{"a\\\\": "\\": ", "b" : {"c": [{"d\\"": {}}]}}]')[2] == []
    assert read(b'[[NaN, -Infinity, 1e999], "\xff", "a\tb", %s]' % (b"9" * 5000))[1:] == (
        [("$[0]", [None, None, None]), ("$[1]", "\ufffd"), ("$[2]", "a\tb"), ("$[3]", "9" * 5000)],
        [
            "NaN, infinity and numbers that are too large are read as null",
            "bytes that are no UTF-8 are read as U+FFFD",
            "control characters stand in texts as they are, which JSON forbids; they are kept",
            "a whole number of thousands of digits is read as text",
        ],
    )


@pytest.mark.parametrize("length", [0, 10_000])
def test_keys_that_are_there_twice_are_found_beside_texts_that_look_like_keys(length):
    text = b'\\": \\":' + b"x" * length
    assert read(b'[{"a": "%s", "b": 1, "a": 2}]' % text)[2] == ["the key 'a' is there twice; its last value counts"]
    assert read(b'[{"a": "%s", "b": 1}]' % text)[2] == []


def test_depth_and_size_are_bounded_and_the_rest_is_read():
    deep = b'{"[{":' * 101 + b"1" + b"}" * 101
    assert read(b"[" + deep + b"]") == ("array", [("$[0]", "objects and lists nest more than 100 deep")], [])
    assert read(b"[" + b'{"x":' * 100 + b'"[[["' + b"}" * 100 + b"]")[1][0][1] != ""
    assert read(b"[" * 200_000)[1] == [("$[0]", "the JSON ends too early")]
    large = b'{"a": "%s"}' % (b"x" * 2000)
    assert read(b'[1, {"b": %s}, 2]' % large, document_bytes=1000)[1] == [
        ("$[0]", 1),
        ("$[1]", "the document is larger than 1000 bytes; --max-document raises the limit"),
        ("$[2]", 2),
    ]
    shape, documents, notes = read(b'{"n":1}\n%s\n{"n":2}\n' % large, document_bytes=1000)
    assert (shape, documents) == ("jsonl", [("line 1", {"n": 1}), ("line 3", {"n": 2})])
    assert notes == ["the line is longer than 1000 bytes"]
    with pytest.raises(BadDocument, match="larger than 1000 bytes"):
        BytesEntry(large, "x", limits=Limits(document_bytes=1000)).document()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{},: é\n', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"[', max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=examples(80))
@given(st.lists(JSON, max_size=6), st.integers(1, 9), st.sampled_from([None, 1]))
def test_values_are_split_the_same_however_the_bytes_come(documents, size, indent):
    data = json.dumps(documents, indent=indent).encode()
    pieces = [data[n : n + size] for n in range(0, len(data), size)]
    assert [json.loads(value) for value in values(iter(pieces), 10**6, "array")] == documents
    joined = "\n".join(json.dumps(document) for document in documents).encode()
    pieces = [joined[n : n + size] for n in range(0, len(joined), size)]
    assert [json.loads(line) for _, line in lines(iter(pieces), 10**6)] == documents
    assert [json.loads(value) for value in values(iter(pieces), 10**6, "text")] == documents


@settings(max_examples=examples(150))
@given(
    st.binary(max_size=60) | st.text('[]{},:"\\ \n1a', max_size=40).map(str.encode), st.sampled_from(["array", "text"])
)
def test_no_bytes_make_the_reading_stumble(data, within):
    for name in ("x", "x.jsonl", "x.yaml"):
        entry = BytesEntry(data, name)
        list(entry.documents())
        looks_like(entry, head_of(entry))
    for value in values(iter([b"[", data]), 20, within):
        assert isinstance(value, bytes | Oversized | BadDocument)


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        ('{"a": 1}'.encode("utf-16"), "UTF-16 text"),
        (b"", "an empty file"),
        (b"a: 1", "text"),
        (b"\x00\x01", "binary data"),
        (b'{"a":1,"b":2}', "a JSON document with the keys a, b"),
        (b'{"a":1}\n{"b":2}', "JSON lines with the keys a"),
        (b"[3]", "a JSON array of int values"),
    ],
)
def test_what_nobody_knows_is_described(data, looks):
    entry = BytesEntry(data, "x")
    assert looks_like(entry, head_of(entry)) == looks


BIG = random.Random(1).randbytes(MIB)
MEMBERS = {
    "z/x.json": b'{"a":1}',
    "n" * 150 + "/y.jsonl": b'{"a":1}\n{"b":2}',
    "big.bin": BIG,
    ".DS_Store": b"x",
    "__MACOSX/x": b"x",
    "../../etc/evil.json": b"[]",
}
SHOWN = {"z/x.json", "n" * 150 + "/y.jsonl", "big.bin"}


def zipped(members, method=zipfile.ZIP_DEFLATED):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return held.getvalue()


def tarred(members, format=tarfile.PAX_FORMAT):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=format) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return held.getvalue()


def found(folder, **limits):
    """Bytes by name below the folder, each read twice, and the reasons of the notes."""
    notes, read = [], {}
    for entry in entries([folder], notes.append, Limits(**limits)):
        first, second = b"".join(entry.chunks()), b"".join(entry.chunks())
        assert first == second
        read[entry.name.removeprefix(f"{folder.name}/")] = first
    return read, [note.why for note in notes]


def test_members_of_archives_are_read_where_they_lie(tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "_KEPT_OF_MEMBER", 300_000)
    tar = tarred(MEMBERS)
    (tmp_path / "a.zip").write_bytes(zipped(MEMBERS))
    (tmp_path / "b.zip").write_bytes(
        zipped({"in.zip": zipped(MEMBERS, zipfile.ZIP_STORED), "t.tgz": gzip.compress(tar)})
    )
    (tmp_path / "c.tar").write_bytes(tarred(MEMBERS, tarfile.GNU_FORMAT))
    (tmp_path / "d.tar.zst").write_bytes(zstandard.compress(tar))
    before = sorted(tmp_path.rglob("*"))
    read, notes = found(tmp_path)

    for archive in ("a.zip", "b.zip!in.zip", "b.zip!t.tar", "c.tar", "d.tar"):
        inside = {name.removeprefix(f"{archive}!"): data for name, data in read.items() if name.startswith(archive)}
        assert inside == {name: MEMBERS[name] for name in SHOWN}
    assert set(notes) == {"links in archives are not followed", "a name that leads out of the archive is refused"}
    assert sorted(tmp_path.rglob("*")) == before


def test_files_that_are_compressed_alone(tmp_path):
    data = b'{"a":1}\n' * 3
    for name, packed in {
        "a.jsonl.gz": gzip.compress(data[:8]) + gzip.compress(data[8:]),
        "b.jsonl.bz2": bz2.compress(data),
        "c.jsonl.xz": lzma.compress(data),
        "d.jsonl.zst": zstandard.compress(data[:8]) + zstandard.compress(data[8:]),
    }.items():
        (tmp_path / name).write_bytes(packed)
    assert found(tmp_path) == ({f"{letter}.jsonl": data for letter in "abcd"}, [])


def test_what_is_cut_off_is_read_as_far_as_it_goes(tmp_path):
    tar, data = tarred(MEMBERS), b'{"a":1}\n' * 2000
    (tmp_path / "a.gz").write_bytes(gzip.compress(BIG)[:-1000])
    (tmp_path / "b.tgz").write_bytes(gzip.compress(tar)[:100_000])
    (tmp_path / "c.zip").write_bytes(zipped(MEMBERS)[:-10])
    (tmp_path / "d.zst").write_bytes(zstandard.compress(data)[:-2])
    (tmp_path / "e.xz").write_bytes(b"\xfd7zXZ\x00 no such thing")
    read, notes = found(tmp_path)

    assert BIG.startswith(read["a"])
    assert len(read["a"]) > 0.9 * MIB
    assert read["b.tar!z/x.json"] == b'{"a":1}'
    assert notes.count("its compressed bytes end too early") == 3
    assert "the zip archive is broken: File is not a zip file" in notes
    assert any(why.startswith("its compressed bytes are broken") for why in notes)


def test_bombs_are_refused(tmp_path):
    zeros = bytes(20 * MIB)
    (tmp_path / "a.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "b.zip").write_bytes(zipped({"x": zeros}))
    (tmp_path / "c.zst").write_bytes(zstandard.compress(zeros))
    nested = b"{}"
    for _ in range(5):
        nested = zipped({"n.zip": nested})
    (tmp_path / "d.zip").write_bytes(nested)
    (tmp_path / "e.zip").write_bytes(zipped({f"{n}.json": b"{}" for n in range(60)}))
    (tmp_path / "f.tar").write_bytes(tarred({f"{n}.json": b"{}" for n in range(60)}))
    (tmp_path / "g.zip").write_bytes(zipped({f"{n}.json": bytes(600) for n in range(9)}, zipfile.ZIP_STORED))
    read, notes = found(tmp_path, members=50)

    assert sum(map(len, read.values())) < 60 * MIB
    assert sorted(why for why in notes if "links" not in why) == [
        "archives are nested more than 3 deep; it is not read",
        "it grows to more than 200 times its compressed size; the rest is not read",
        "it grows to more than 200 times its compressed size; the rest is not read",
        "it grows to more than 200 times its compressed size; the rest is not read",
        "the archive has more than 50 members; it is not read",
        "the archive has more than 50 members; what follows is not read",
    ]
    _, notes = found(tmp_path, archive_bytes=2000, member_bytes=599)
    assert "the members are larger than 2000 bytes; this one is not read" in notes
    assert "it is larger than 599 bytes; the rest is not read" in notes


def test_folders_are_read_in_order_without_what_is_hidden_or_leads_out(tmp_path):
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    folder = tmp_path / "folder"
    for path in ("b/2.json", "b/10.json", "a.json", ".git/x.json", "b/.DS_Store", ".agent/x.json", "b/.x.json"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}")
    (folder / "c.json").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    read, notes = found(folder)

    assert list(read) == ["a.json", "b/10.json", "b/2.json"]
    assert notes == [
        "a link that leads out of the folder is not followed",
        "2 hidden files and folders are not read, such as .agent",
    ]
    assert list(found(folder / ".agent")[0]) == ["x.json"]
    assert list(found(folder, members=2)[0]) == ["a.json", "b/10.json"]
