"""Media: stored once by digest, verified when read, collected when no message shows them."""

import hashlib
import sqlite3

import pytest

from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError, PoolError, TooLargeError
from agentworld.pool import open_store
from agentworld.pool.media import MAX_BYTES
from agentworld.records import MediaPart, Message
from tests.pool.samples import finished

PICTURE = bytes(range(256)) * 10
DAY = 86_400.0


def showing(digest):
    return {"prompt_messages": [Message(role="user", content=(MediaPart(digest, "image/png"),))]}


def test_a_blob_is_stored_once_and_reads_back(pool):
    digest = pool.put_media(PICTURE, "image/png")
    assert digest == hashlib.blake2b(PICTURE, digest_size=16).hexdigest()
    assert pool.put_media(PICTURE, "image/jpeg") == digest
    read = pool.get_media(digest)
    assert (read.digest, read.media_type, read.data) == (digest, "image/png", PICTURE)


def test_what_is_none_is_refused(pool):
    for data, media_type in ((b"", "image/png"), (b"x", "png"), (b"x", "image/png; charset=x"), (b"x", "IMAGE/PNG")):
        with pytest.raises(InvalidRequestError):
            pool.put_media(data, media_type)
    with pytest.raises(TooLargeError):
        pool.put_media(bytes(MAX_BYTES + 1), "image/png")
    with pytest.raises(InvalidRequestError):
        pool.get_media("../../etc/passwd")
    with pytest.raises(NotFoundError):
        pool.get_media("0" * 32)


def test_a_shown_blob_stays_and_another_goes_after_a_day(pool, clock):
    shown, unused = pool.put_media(b"shown", "image/png"), pool.put_media(b"unused", "image/png")
    finished(pool, "a", step_changes=showing(shown))
    assert pool.collect().media == 0
    clock.now += DAY
    fresh = pool.put_media(b"fresh", "image/png")
    done = pool.collect()
    assert (done.media, done.media_bytes) == (1, 6)
    assert pool.get_media(shown).data == b"shown"
    assert pool.get_media(fresh).data == b"fresh"
    with pytest.raises(NotFoundError):
        pool.get_media(unused)
    assert pool.check() == []


def test_the_last_message_that_shows_it_takes_it_along(pool):
    digest = pool.put_media(PICTURE, "image/png")
    finished(pool, "a", step_changes=showing(digest))
    finished(pool, "b", step_changes=showing(digest))
    assert pool.delete_trajectories(["a"]).media == 0
    assert pool.get_media(digest).data == PICTURE
    assert pool.delete_trajectories(["b"]).media == 1
    with pytest.raises(NotFoundError):
        pool.get_media(digest)
    assert pool.check() == []


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "media"


@pytest.fixture(params=["sqlite", "postgres"])
def outside(request, tmp_path, folder):
    """A pool whose media lie in a folder, and its URL."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/pool.db"
    else:
        url = request.getfixturevalue("postgres").fresh_pool_url()
    store = open_store(f"{url}?media=file://{folder}")
    yield store, url
    store.close()


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_folder_holds_the_bytes(outside, folder):
    pool, url = outside
    digest = pool.put_media(PICTURE, "image/png")
    assert files(folder) == [digest]
    assert pool.get_media(digest).data == PICTURE
    finished(pool, "a", step_changes=showing(digest))
    assert pool.check() == []
    other = open_store(url)
    try:
        with pytest.raises(PoolError, match="media folder"):
            other.get_media(digest)
    finally:
        other.close()
    pool.delete_trajectories(["a"])
    assert files(folder) == []


def test_damage_in_the_folder_is_named(outside, folder):
    pool, _ = outside
    digest = pool.put_media(PICTURE, "image/png")
    gone = pool.put_media(b"gone", "image/png")
    (path,) = folder.rglob(digest)
    path.write_bytes(b"other")
    next(folder.rglob(gone)).unlink()
    with pytest.raises(PoolError, match="damaged"):
        pool.get_media(digest)
    assert {(problem.kind, problem.key) for problem in pool.check()} == {("media", digest), ("media", gone)}


def test_a_blob_that_is_missing_or_wrong_is_written_again(outside, folder):
    pool, _ = outside
    wrong, gone = pool.put_media(PICTURE, "image/png"), pool.put_media(b"gone", "image/png")
    next(folder.rglob(wrong)).write_bytes(b"other")
    next(folder.rglob(gone)).unlink()
    assert pool.put_media(PICTURE, "image/png") == wrong
    assert pool.put_media(b"gone", "image/png") == gone
    assert pool.get_media(wrong).data == PICTURE
    assert pool.get_media(gone).data == b"gone"
    assert pool.check() == []


def test_a_damaged_blob_in_the_table_is_written_again(sqlite_pool):
    digest = sqlite_pool.put_media(PICTURE, "image/png")
    with sqlite3.connect(sqlite_pool.path) as connection:
        connection.execute("UPDATE media SET data = x'00'")
    connection.close()
    with pytest.raises(PoolError, match="damaged"):
        sqlite_pool.get_media(digest)
    assert sqlite_pool.put_media(PICTURE, "image/png") == digest
    assert sqlite_pool.get_media(digest).data == PICTURE


def test_nothing_goes_while_the_folder_is_not_known(outside, folder):
    """A deletion that would leave the bytes behind is refused, with what to do."""
    pool, url = outside
    digest = pool.put_media(PICTURE, "image/png")
    finished(pool, "a", reward=1.0, step_changes=showing(digest))
    other = open_store(url)
    try:
        for what in (
            lambda: other.delete_trajectories(["a"]),
            lambda: other.delete_user("a"),
            lambda: other.collect(),
            lambda: other.purge(),
        ):
            with pytest.raises(ConfigError, match="not known here") as error:
                what()
            assert "?media=FOLDER" in error.value.hint
        assert other.get_trajectory("a").step_count == 1
        assert other.tombstones() == []
    finally:
        other.close()
    assert files(folder) == [digest]


def test_a_blob_without_a_row_is_collected(outside, folder):
    """What a crash between the blob and its row leaves behind."""
    pool, _ = outside
    kept = pool.put_media(PICTURE, "image/png")
    pool.media.write(hashlib.blake2b(b"stray", digest_size=16).digest(), b"stray")
    assert len(files(folder)) == 2
    pool.collect()
    assert files(folder) == [kept]


def test_a_backup_holds_the_folders_media(outside, tmp_path):
    pool, _ = outside
    digest = pool.put_media(PICTURE, "image/png")
    pool.backup(tmp_path / "pool.backup")
    with sqlite3.connect(tmp_path / "pool.backup") as connection:
        assert connection.execute("SELECT data FROM media").fetchone()[0] == PICTURE
    connection.close()
    archive = open_store(f"sqlite:///{tmp_path}/pool.backup")
    try:
        assert archive.get_media(digest).data == PICTURE
        assert archive.check() == []
    finally:
        archive.close()


@pytest.mark.parametrize("folder", ["nosuch://key:s3cret@bucket/x", "s3://key:s3cret/with/more@bucket/x"])
def test_no_message_shows_the_keys_of_a_media_folder(tmp_path, folder):
    with pytest.raises(ConfigError) as caught:
        open_store(f"sqlite:///{tmp_path}/pool.db?media={folder}")
    assert "s3cret" not in caught.value.one_line()
    assert "bucket/x" in caught.value.one_line()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="media folder"):
        open_store(f"sqlite:///{tmp_path}/pool.db?media=nosuch://x")
    with pytest.raises(ConfigError):
        open_store("memory://?media=file:///x")
