"""`agentworld import`: what it prints, what it ends with, and what it refuses."""

import io
import json

import pytest

from agentworld.cli import import_report, invoke
from agentworld.factory import open_pool

ROW = {"messages": [{"role": "user", "content": "two and two"}, {"role": "assistant", "content": "4"}]}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n" * 3)
    return path


def said(capsys, *arguments):
    """Exit code, what was printed, and what was said of errors."""
    code = invoke(["import", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_files_come_in_and_are_known_afterwards(rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AGENTWORLD_POOL", f"sqlite:///{tmp_path}/pool.db")
    code, out, _ = said(capsys, "auto", rows, "--channel", "old", "--group", "g")
    assert code == 0
    assert out.splitlines()[0].split() == ["format", "files", "runs", "new", "steps", "messages"]
    assert out.splitlines()[2].split() == ["openai-fine-tuning", "1", "3", "3", "3", "6"]
    with open_pool(f"sqlite:///{tmp_path}/pool.db") as pool:
        assert {(t.channel, t.group_id) for t in pool.list_trajectories().items} == {("old", "g")}

    code, out, _ = said(capsys, "openai-fine-tuning", rows, "--json")
    counts = json.loads(out)["formats"]["openai-fine-tuning"]
    assert (code, counts["known"], counts["added"]) == (0, 3, 0)


def test_what_is_lost_is_printed_as_plain_text_with_exit_code_1(rows, tmp_path, capsys):
    rows.write_text(f'{json.dumps(ROW)}\n{{"\x1b[31m{"x" * 70}\n')
    (tmp_path / "other\x1b[31m.json").write_text('{"\\u001b[2J": 1}')
    code, out, _ = said(capsys, "auto", tmp_path, "--dry-run")

    assert code == 1
    assert "\x1b" not in out
    assert "1 file that no format reads" in out
    assert "Nothing was stored: this was a dry run" in out
    assert " notes, 1 of something lost" in out
    assert f"lost: {tmp_path.name}/rows.jsonl: line 2: " in out
    assert "\\x1b[2J" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other\x1b[31m.json", "rows.jsonl"]

    rows.write_text("{\n" * 50)
    code, out, _ = said(capsys, "openai-fine-tuning", rows, "--dry-run", "--notes", "0")
    assert code == 1
    assert "No run was found" in out
    assert "by reason:" in out


def test_losses_come_first_and_what_is_not_printed_is_counted(rows, capsys):
    empty = json.dumps({"messages": ROW["messages"][:1]})
    rows.write_text("\n".join([json.dumps(ROW)] + [empty] * 1005 + ["{", "[1", json.dumps(ROW)]))
    code, out, _ = said(capsys, "auto", rows, "--dry-run", "--notes", "3")
    lines = [line for line in out.splitlines() if line.startswith(("lost", "note", "and", " "))]
    assert code == 1
    assert [line.split(": ")[2] for line in lines[:3]] == ["line 1007", "line 1008", "run 1"]
    no_reply = "there is no reply of a model in it, so it is skipped"
    assert lines[3:] == ["and 1004 more, by reason:", f"    1004 {no_reply}"]
    assert "1007 notes, 2 of something lost" in out
    notes = json.loads(said(capsys, "auto", rows, "--dry-run", "--json")[1])["notes"]
    assert [note["lost"] for note in notes[:3]] == [True, True, False]
    assert len(notes) == 1000
    # Reasons beyond the first ones are counted too.
    rows.write_text("\n".join(json.dumps({"messages": [{"role": chr(65 + n), "content": ""}]}) for n in range(25)))
    out = said(capsys, "sharegpt", rows, "--dry-run", "--notes", "1")[1]
    (line,) = (line for line in out.splitlines() if line.startswith("and "))
    counts = [int(line.split()[0]) for line in out[out.index(line) :].splitlines()[1:]]
    assert line == f"and {sum(counts)} more, by reason:"


def test_it_says_where_it_wrote_and_without_a_terminal_how_far_it_is(rows, tmp_path, capsys, monkeypatch):
    code, out, err = said(capsys, "auto", rows, "--pool", f"sqlite:///{tmp_path}/p.db", "--channel", "old")
    assert (code, err) == (0, "")
    assert f"Stored in sqlite:///{tmp_path}/p.db, channel old" in out
    monkeypatch.setattr(import_report, "EVERY", 0.0)
    code, out, err = said(capsys, "auto", rows, "--pool", f"sqlite:///{tmp_path}/p.db", "--json")
    assert (json.loads(out)["pool"], json.loads(out)["channel"]) == (f"sqlite:///{tmp_path}/p.db", "train")
    assert err.splitlines()[-1] == "bytes read: 0.0 of 0.0 MB"
    assert "Nothing new was stored in" in said(capsys, "auto", rows, "--pool", f"sqlite:///{tmp_path}/p.db")[1]
    # No line sooner than the time is over, and none twice.
    monkeypatch.setattr(import_report, "EVERY", 5.0)
    clock, to = iter([0.0, 4.9, 5.0, 9.9, 10.1]), io.StringIO()
    show = import_report.lines_of_progress(to, lambda: next(clock))
    for done in (1, 2_000_000, 3_000_000, 4_000_000):
        show("bytes read", done, 8_000_000 if done < 4_000_000 else None)
    assert to.getvalue() == "bytes read: 2.0 of 8.0 MB\nbytes read: 4.0 MB\n"


def test_limits_are_options(rows, capsys):
    rows.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "more": "x" * 2**20}) + "\n")
    code, out, _ = said(capsys, "auto", rows, "--dry-run", "--max-document", "1")
    assert (code, "the line is longer than 1048576 bytes. See --max-document" in out) == (1, True)
    array = rows.with_suffix(".json")
    array.write_text(json.dumps([ROW, {**ROW, "more": "x" * 2**20}, ROW]))
    code, out, _ = said(capsys, "auto", array, "--dry-run", "--max-document", "1")
    assert (code, "$[1]: the document is larger than 1048576 bytes; --max-document raises" in out) == (1, True)
    code, out, _ = said(capsys, "auto", rows, "--dry-run", "--limit", "1", "--json")
    assert (code, json.loads(out)["formats"]["openai-fine-tuning"]["runs"]) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["rows.jsonl"], 2, "say the format first, or auto"),
        (["nothing", "rows.jsonl"], 2, "there is no format 'nothing'"),
        (["auto"], 2, "no path is given"),
        (["auto", "gone.jsonl"], 1, "There is no gone.jsonl"),
        (["auto", "rows.jsonl", "--pool", "memory://"], 2, "memory:// is a new and empty pool"),
        (["auto", "rows.jsonl", "--tokenizer", "gone"], 1, "no tokenizer at gone"),
        ([], 2, "say the format first"),
    ],
)
def test_what_cannot_be_meant_is_refused(rows, capsys, monkeypatch, arguments, code, error):
    monkeypatch.chdir(rows.parent)
    found, _, err = said(capsys, *arguments)
    assert (found, error in err) == (code, True), err
    assert [path.name for path in rows.parent.iterdir()] == ["rows.jsonl"]


def test_formats_are_listed(capsys):
    code, out, _ = said(capsys, "--formats")
    assert code == 0
    assert "openai-fine-tuning" in out
    assert json.loads(said(capsys, "--formats", "--json")[1])[0].keys() == {"format", "title"}


def test_stopped_on_the_way_it_tells_what_came_in(rows, tmp_path, capsys, monkeypatch):
    from agentworld.ingest import loader

    monkeypatch.setattr(loader, "_TRAJECTORIES", 2)
    taken = loader.Importer._take

    def stop(self, read):
        if read.number == 2:
            raise KeyboardInterrupt
        taken(self, read)

    monkeypatch.setattr(loader.Importer, "_take", stop)
    code, out, err = said(capsys, "auto", rows, "--pool", f"sqlite:///{tmp_path}/p.db", "--json")
    assert (code, json.loads(out)["formats"]["openai-fine-tuning"]["added"]) == (130, 2)
    assert "The same command goes on" in err
