"""Archives that say what is not so: sizes, places, names and checksums."""

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib

import pytest

from agentworld.ingest.finding import entries
from agentworld.ingest.limits import MIB, Limits

ROW = b'{"n":1}'


def found(path, **limits):
    """Bytes by name, and the notes as place, reason and whether something is lost."""
    notes = []
    read = {entry.name: b"".join(entry.chunks()) for entry in entries([path], notes.append, Limits(**limits))}
    return read, [(note.place, note.why, note.lost) for note in notes]


def header(name, size, kind=tarfile.REGTYPE):
    """A header with any number as its size, negative ones in base 256."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size if isinstance(size, bytes) else b"\xff" + (size % (1 << 88)).to_bytes(11, "big")
    block[148:156] = b"%06o\0 " % (256 + sum(block[:148]) + sum(block[156:]))
    return bytes(block)


def tarred(members):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return held.getvalue()


def zipped(members):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return held.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "kind", [tarfile.REGTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE]
)
@pytest.mark.parametrize("size", [-1, -512, -1024, -(10**15), b"-0000000512\0"])
def test_a_negative_size_ends_a_tar_archive(tmp_path, size, kind, packed):
    data = tarred({"a.json": ROW})[:1024] + header("b.json", size, kind) + bytes(1024)
    path = tmp_path / "x.tar"
    path.write_bytes(gzip.compress(data) if packed else data)
    read, notes = found(path)

    assert read == {"x.tar!a.json": ROW}
    assert notes == [("byte 1024", "the tar archive is broken: a size is negative; what follows is not read", True)]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"9" * 5000 + b" a=b\n", "a record of an extended header is no number"),
        (b"-9 a=b\n", "a record of an extended header is no number"),
        (b"0 a=b\n", "a record of an extended header has no such length"),
        (b"99 a=b\n", "a record of an extended header has no such length"),
        (b"11 size=-5\n", "a size is no number"),
        (b"5010 size=" + b"9" * 4999 + b"\n", "a size is no number"),
    ],
)
def test_numbers_of_extended_headers_are_bounded(tmp_path, record, why):
    size = b"%011o\0" % len(record)
    extended = header("x", size, tarfile.XHDTYPE) + record + bytes(-len(record) % 512)
    path = tmp_path / "x.tar"
    path.write_bytes(tarred({"a.json": ROW})[:1024] + extended + tarred({"b.json": ROW}))

    assert found(path) == (
        {"x.tar!a.json": ROW},
        [("byte 1024", f"the tar archive is broken: {why}; what follows is not read", True)],
    )


def test_a_size_beyond_the_end_is_said(tmp_path):
    path = tmp_path / "x.tar"
    for kind, seen in ((tarfile.CHRTYPE, {}), (tarfile.REGTYPE, {"x.tar!b.json": b"{}" + bytes(1022)})):
        path.write_bytes(header("b.json", b"%011o\0" % 10**6, kind) + b"{}" + bytes(1022))
        read, notes = found(path)
        assert read == seen
        assert ("byte 0", "the tar archive is broken: 998976 bytes that it announces are not there", True) in notes
    many = b"".join(b"%d comment=%s\n" % (len(str(n)) + 12, str(n).encode()) for n in range(1000, 9000))
    path.write_bytes(
        header("x", b"%011o\0" % len(many), tarfile.XHDTYPE) + many + bytes(-len(many) % 512) + tarred({"a.json": ROW})
    )
    assert found(path) == ({"x.tar!a.json": ROW}, [])


def changed(data, member, at, number, width="<I"):
    """A zip with another number at a place of the entry that lists a member."""
    data = bytearray(data)
    begin = -1
    for _ in range(member + 1):
        begin = data.find(b"PK\x01\x02", begin + 1)
    struct.pack_into(width, data, begin + at, number)
    return bytes(data)


def test_members_of_a_zip_that_lie_over_one_another_are_refused(tmp_path):
    data = zipped({"a.json": ROW, "b.json": ROW * 2, "c.json": ROW * 3})
    path = tmp_path / "x.zip"
    why = "the zip archive is broken: 1 members lie over others or outside of it; they are not read"
    for broken in (changed(data, 2, 42, 0), changed(data, 2, 42, 2**31), changed(data, 2, 20, 10**6)):
        path.write_bytes(broken)
        assert found(path) == ({"x.zip!a.json": ROW, "x.zip!b.json": ROW * 2}, [("$", why, True)])

    # Thousands of members over the same bytes.
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(bytes(15 * MIB)) + packer.flush()
    facts = (zlib.crc32(bytes(15 * MIB)), len(packed), 15 * MIB)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, *facts, 1, 0) + b"a" + packed
    listed = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 0, *facts, len(name), 0, 0, 0, 0, 0, 0) + name
        for name in (b"%d" % number for number in range(2000))
    )
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2000, 2000, len(listed), len(local), 0)
    path.write_bytes(local + listed + end)
    read, notes = found(path)
    assert list(read) == ["x.zip!0"]
    assert notes == [("$", why.replace("1 members", "1999 members"), True)]


def test_a_zip_as_a_whole_does_not_grow_beyond_its_ratio(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({f"{number}.json": bytes(3 * MIB) for number in range(9)}))
    read, notes = found(path)
    assert len(read) == 5
    why = "with this member, it grows to more than 200 times its compressed size; the rest is not read"
    assert notes == [("5.json", why, True)]
    assert len(found(path, archive_ratio=2000)[0]) == 9


def test_what_does_not_fit_its_checksum_is_read_and_said(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(changed(zipped({"a.json": ROW, "b.json": ROW}), 0, 16, 123))
    why = "its checksum is another: what was read is not what was stored"
    assert found(path) == ({"x.zip!a.json": ROW, "x.zip!b.json": ROW}, [("byte 7", why, True)])

    rows = b"".join(json.dumps({"n": number}).encode() + b"\n" for number in range(100_000))
    packed = bytearray(gzip.compress(rows))
    packed[-8] ^= 1
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(packed)
    read, ((place, why, lost),) = found(path)
    assert read == {"x.jsonl": rows}
    assert (place, lost) == (f"byte {len(rows)}", True)
    assert why == "its compressed bytes are broken: Error -3 while decompressing data: incorrect data check"

    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    path.write_bytes(packed)
    read, notes = found(path)
    good = next(n for n, (mine, its) in enumerate(zip(rows, read["x.jsonl"], strict=False)) if mine != its)
    assert good > 0.45 * len(rows)
    assert notes[0][2]
    path.write_bytes(gzip.compress(ROW) + b"no gzip")
    assert found(path)[0] == {"x.jsonl": ROW}


def test_hidden_folders_of_archives_are_read_and_names_that_lead_out_are_refused(tmp_path):
    members = dict.fromkeys(
        (".claude/projects/p/s.jsonl", "./.codex/r.jsonl", "home/.x/y.json", "/abs.json", ".git/z.json"), ROW
    )
    members |= dict.fromkeys(("__MACOSX/._s.json", "a/.DS_Store", "a/._b", "../up.json", "a/..\\b.json"), ROW)
    read = {".claude/projects/p/s.jsonl", ".codex/r.jsonl", "home/.x/y.json", "abs.json"}
    why = "a name that leads out of the archive is refused"
    for name, data in {"x.zip": zipped(members), "x.tar": tarred(members)}.items():
        (tmp_path / name).write_bytes(data)
        inside, notes = found(tmp_path / name)
        assert inside == {f"{name}!{member}": ROW for member in read}
        assert sorted(notes) == [("../up.json", why, True), ("a/../b.json", why, True)]
