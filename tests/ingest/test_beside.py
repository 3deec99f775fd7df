"""Images that lie beside a file are read where the folder is imported, and nothing else is."""

import json

import pytest

from agentworld.ingest.formats.media import ADDRESS
from agentworld.ingest.reading import read_path

PNG = b"\x89PNG\r\n\x1a\n and more"


@pytest.fixture
def folder(tmp_path):
    """A folder with an image and a secret, another secret beside it, and a way to have rows that name a path."""
    made = tmp_path / "data"
    (made / "rows").mkdir(parents=True)
    (made / "shots").mkdir()
    (made / "shots" / "1.png").write_bytes(PNG)
    (made / "shots" / "key.txt").write_bytes(b"secret")
    (tmp_path / "outside.png").write_bytes(PNG)
    (made / "shots" / "link.png").symlink_to(tmp_path / "outside.png")
    return made


def shown(folder, path, *, alone=False):
    """The medium of a row that shows `path`."""
    row = {
        "messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "."}],
        "images": [path],
    }
    file = folder / "rows" / "a.jsonl"
    file.write_text(json.dumps(row) + "\n")
    runs, notes = read_path("sharegpt", file if alone else folder)
    ((data, media_type),) = runs[0].media.values()
    assert bool([note for note in notes if "not in the file" in note.why]) is (media_type == ADDRESS)
    return data


@pytest.mark.parametrize("path", ["../shots/1.png", "shots/1.png", "data/shots/1.png"])
def test_images_within_the_folder_are_read(folder, path):
    assert shown(folder, path) == PNG


@pytest.mark.parametrize(
    "path",
    [
        "../../outside.png", "shots/link.png", "shots/key.txt", "shots", "shots/none.png", "https://example.com/1.png",
        "a\0b", "x" * 5000,
    ],
)  # fmt: skip
def test_everything_else_stays_an_address(folder, path):
    assert shown(folder, path) == path.encode()


def test_beside_a_file_that_is_named_alone_nothing_is_read(folder):
    assert shown(folder, "../shots/1.png", alone=True) == b"../shots/1.png"


def test_documents_of_atif_show_images_of_their_folder(folder):
    part = {"type": "image", "source": {"media_type": "image/png", "path": "shots/1.png"}}
    steps = [{"step_id": 1, "source": "user", "message": [part]}, {"step_id": 2, "source": "agent", "message": "."}]
    document = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": steps,
    }
    (folder / "rows" / "a.json").write_text(json.dumps(document))
    (run,), notes = read_path("atif", folder)
    assert list(run.media.values()) == [(PNG, "image/png")]
    assert not [note for note in notes if note.file.endswith("a.json")]
