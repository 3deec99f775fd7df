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


def anthropic(source):
    line = {
        "sessionId": "s",
        "type": "user",
        "message": {"role": "user", "content": [{"type": "image", "source": source}]},
    }
    reply = {"role": "assistant", "id": "m", "content": [{"type": "text", "text": "."}]}
    return [line, {"sessionId": "s", "type": "assistant", "message": reply}]


def chat(part):
    return [{"messages": [{"role": "user", "content": [part]}, {"role": "assistant", "content": "."}]}]


def span(part):
    asked = [{"role": "user", "parts": [part]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "."}]}]
    return [{"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, "gen_ai.output.messages": said}]


AT, BROKEN = "https://example.com/1.png", "%%%"
NAMED, NOTHING = "what it shows is not in the file; its address is kept", "a medium has neither bytes nor an address"


@pytest.mark.parametrize(
    ("name", "documents", "bytes_kept", "why"),
    [
        ("claude-code", anthropic({"type": "url", "url": AT}), AT, NAMED),
        ("openai-fine-tuning", chat({"type": "image_url", "image_url": {"url": AT}}), AT, NAMED),
        ("otlp", span({"type": "uri", "modality": "image", "uri": AT}), AT, NAMED),
        ("sharegpt", [{"images": [AT], "conversations": chat("<image>")[0]["messages"]}], AT, NAMED),
        ("claude-code", anthropic({"type": "url"}), "about:blank", NOTHING),
        ("openai-fine-tuning", chat({"type": "image_url", "image_url": {}}), "about:blank", NOTHING),
        ("otlp", span({"type": "blob", "modality": "image"}), "about:blank", NOTHING),
        ("sharegpt", [{"images": [{}], "conversations": chat("<image>")[0]["messages"]}], "about:blank", NOTHING),
        ("claude-code", anthropic({"type": "base64", "data": BROKEN}), "about:blank", "a medium cannot be read: "),
        ("otlp", span({"type": "blob", "content": BROKEN}), "about:blank", "a medium cannot be read: "),
    ],
)
def test_what_is_only_named_is_the_same_in_every_format(tmp_path, name, documents, bytes_kept, why):
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    (run,), notes = read_path(name, file)
    (part,) = run.steps[0].prompt_messages[0].media
    assert part.media_type == ADDRESS
    assert run.media == {part.digest: (bytes_kept.encode(), ADDRESS)}
    assert [(note.why.startswith(why), note.lost) for note in notes] == [(True, why != NAMED)]
