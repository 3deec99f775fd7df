"""Where a backup, an export or a restored pool goes: what is there stays, and what stands in the way is named."""

import errno
import os
import shutil

import pytest

from agentworld.errors import ConfigError, PoolFullError
from agentworld.pool.partial import partial_file, partial_folder
from agentworld.pool.restore import restore
from agentworld.pool.sqlite import SqlitePool
from tests.pool.samples import finished


@pytest.fixture
def pool(tmp_path, empty_file):
    pool = SqlitePool(shutil.copy(empty_file, tmp_path / "pool.db"))
    finished(pool, "t", reward=1.0)
    yield pool
    pool.close()


def put_back(pool, path):
    archive = path.with_name("given.backup")
    pool.backup(archive)
    try:
        restore(archive, f"sqlite:///{path}")
    finally:
        archive.unlink()


WAYS = {"backup": SqlitePool.backup, "export": SqlitePool.export_parquet, "restore": put_back}
ways = pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)


def seen(folder):
    """All that is in a folder: what kind of thing it is, and what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path.name] = os.readlink(path)
        else:
            found[path.name] = path.read_bytes() if path.is_file() else oct(path.stat().st_mode)
    return found


@ways
@pytest.mark.parametrize("kind", ["link to nothing", "link", "fifo", "folder"])
@pytest.mark.parametrize("name", ["it", "it.partial"])
def test_what_is_in_the_way_is_named_and_stays(pool, tmp_path, write, kind, name):
    place = tmp_path / "place"
    place.mkdir()
    (place / "precious").write_text("precious")
    (place / "valued").mkdir()
    (place / "valued" / "notes").write_text("notes")
    if kind == "fifo":
        os.mkfifo(place / name)
    elif kind == "folder":
        (place / "valued").rename(place / name)
    else:
        target = "valued" if write is SqlitePool.export_parquet else "precious"
        (place / name).symlink_to(place / ("nothing" if kind == "link to nothing" else target))
    before = seen(place)
    with pytest.raises(ConfigError, match=f"{name} is (there already|in the way)"):
        write(pool, place / "it")
    assert seen(place) == before


@ways
@pytest.mark.parametrize(
    ("path", "why"),
    [("/proc/it", "No such file"), ("n" * 250, "File name too long"), ("a\0b", "a NUL"), ("a\ud800", "no bytes")],
    ids=["no files there", "a long name", "a NUL", "a surrogate"],
)
def test_what_the_file_system_refuses_says_the_path(pool, tmp_path, write, path, why):
    if write is put_back and path == "/proc/it":
        pytest.skip("its archive would be there too")
    with pytest.raises(ConfigError, match=f"cannot be written: .*{why}") as caught:
        write(pool, tmp_path / path)
    assert repr(str(tmp_path / path)) in str(caught.value)
    assert not [one.name for one in tmp_path.iterdir() if "partial" in one.name]


@pytest.mark.parametrize("making", [partial_file, partial_folder])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_is_that_of_what_is_written(tmp_path, making, number):
    said = r"no space is left for .*it; nothing of it is kept"
    with pytest.raises(PoolFullError, match=said), making(tmp_path / "it"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_was_killed_is_taken_over_and_nothing_else(pool, tmp_path):
    left = tmp_path / "it.partial"
    left.mkdir()
    (left / "steps.parquet").write_bytes(b"PAR1half")
    (left / "manifest.json").write_bytes(b"{")
    pool.export_parquet(tmp_path / "it")
    assert not left.exists()
    other = tmp_path / "other.partial"
    other.mkdir()
    (other / "steps.parquet").write_bytes(b"PAR1half")
    (other / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="in the way"):
        pool.export_parquet(tmp_path / "other")
    assert sorted(seen(other)) == ["steps.parquet", "thesis.tex"]


def test_an_archive_that_is_damaged_is_named(pool, tmp_path):
    archive = tmp_path / "pool.backup"
    pool.backup(archive)
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(ConfigError, match=r"pool\.backup (cannot be restored|is no archive)"):
        restore(archive, f"sqlite:///{tmp_path / 'restored.db'}")
    assert not [one.name for one in tmp_path.iterdir() if "restored" in one.name]
