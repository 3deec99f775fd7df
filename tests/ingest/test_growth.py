"""Sessions that have grown since they were imported, and copies that broke off before."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentworld.factory import open_pool
from agentworld.ingest.examining import examine
from agentworld.ingest.files import DiskEntry
from agentworld.ingest.finding import entries
from agentworld.ingest.growth import relation
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_entries
from agentworld.ingest.wholes import Placing, make_whole
from agentworld.records import Message, NewTrajectory, Step, WholeTrajectory

FIXTURES = Path(__file__).parent / "fixtures"
UUID = "8d4a1f0e-1111-4222-8333-944455556666"


@pytest.fixture(params=["memory", "sqlite"])
def pool(request, tmp_path_factory):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path_factory.mktemp('pool')}/pool.db"
    with open_pool(url) as opened:
        yield opened


def session(name, *, other=0):
    """Lines of Claude Code: three replies, the first in two lines, with a call; from `other` on, other words."""
    said = [
        ("user", "fix it"),
        ("assistant", [{"type": "text", "text": "I look"}]),
        ("assistant", [{"type": "tool_use", "id": "c1", "name": "Read", "input": {"file": "a"}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "text of a"}]),
        ("assistant", [{"type": "text", "text": "It is a"}]),
        ("user", "now b"),
        ("assistant", [{"type": "text", "text": "It is b"}]),
        ("user", "thanks"),
    ]
    lines = []
    for place, (role, content) in enumerate(said):
        if other and place >= other and role == "assistant":
            content = [{"type": "text", "text": f"otherwise {place}"}]
        message = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"m{max(place, 2)}", "model": "m", "type": "message"}
        lines.append(
            {
                "type": role,
                "uuid": f"u{place}",
                "parentUuid": f"u{place - 1}" if place else None,
                "sessionId": name,
                "timestamp": f"2026-01-01T00:00:{place:02d}Z",
                "message": message,
            }
        )
    return [json.dumps(line) + "\n" for line in lines]


def put(pool, path, lines, cut=""):
    path.write_text("".join(lines) + cut)
    report = import_paths(pool, [path], "claude-code")
    counts = report.formats["claude-code"]
    return counts.added, counts.replaced, counts.known, [note.why for note in report.notes]


def standing(pool):
    return [len(pool.list_steps(trajectory_id=t.trajectory_id).items) for t in served(pool)]


def served(pool):
    return [t for t in pool.list_trajectories().items if t.readiness != "excluded"]


@pytest.mark.parametrize("name", [UUID, "s1"], ids=["uuid", "by hand"])
def test_a_copy_that_broke_off_changes_nothing_and_one_that_has_grown_takes_the_place(pool, tmp_path, name):
    lines = session(name)
    path = tmp_path / "s.jsonl"
    assert put(pool, path, lines) == (1, 0, 0, [])
    (whole,) = pool.list_trajectories().items
    # From its first reply on, however it was cut: between lines, within a line, within a reply of two lines.
    part = f"it is an earlier part of {whole.trajectory_id}, which is there: nothing is stored"
    for count in range(2, len(lines)):
        assert put(pool, path, lines[:count]) == (0, 0, 1, [part])
    added, replaced, known, notes = put(pool, path, lines[:5], lines[5][:40])
    assert (added, replaced, known, notes[-1]) == (0, 0, 1, part)
    assert pool.list_trajectories().items == [whole]

    # The other order: each that has grown takes the place of the one before, and none of those comes back.
    pool.delete_trajectories([whole.trajectory_id], "asked")
    name = name[:-1] + "7"
    lines = session(name)
    assert put(pool, path, lines[:2])[:3] == (1, 0, 0)
    (first,) = (t.trajectory_id for t in served(pool))
    for number, count in enumerate((3, 4, 5, 7, 8), 2):
        changed = f"it has changed since it was imported: stored as {first}.{number}"
        assert put(pool, path, lines[:count]) == (0, 1, 0, [changed])
    assert standing(pool) == [3]
    assert put(pool, path, lines[:4])[:3] == (0, 0, 1)
    assert put(pool, path, lines[:6])[2:] == (1, [part.replace(whole.trajectory_id, f"{first}.6")])
    assert standing(pool) == [3]


def test_sessions_that_are_called_the_same_replace_only_what_they_have_grown_out_of(pool, tmp_path):
    path = tmp_path / "s.jsonl"
    assert put(pool, path, session("s1")[:5])[:3] == (1, 0, 0)
    (first,) = (t.trajectory_id for t in served(pool))
    beside = f"another run of its name is there: stored as {first}.2"
    assert put(pool, path, session("s1", other=4)[:5]) == (1, 0, 0, [beside])
    assert put(pool, path, session("s1")) == (
        0,
        1,
        0,
        [f"it has changed since it was imported: stored as {first}.3"],
    )
    assert standing(pool) == [2, 3]
    assert put(pool, path, session("s1", other=4)[:4])[2] == 1
    # With a name of its own in the world, what is said otherwise is a new version.
    path.write_text("")
    assert put(pool, path, session(UUID)[:5])[:3] == (1, 0, 0)
    assert put(pool, path, session(UUID, other=4)[:5])[:3] == (0, 1, 0)


def test_of_equal_steps_that_which_ends_later_stands():
    def told(ends, **reply):
        step = Step(step_id="t.0", trajectory_id="t", prompt_messages=[Message(role="user", content="a")])
        step.response_message = Message(role="assistant", **reply)
        return WholeTrajectory(
            new=NewTrajectory(trajectory_id="t"),
            steps=[step],
            created_at=1.0,
            completed_at=ends,
            origin={"digest": "d"},
        )

    with open_pool("memory://") as pool:
        pool.add_whole([told(5.0, content="one two", reasoning="r")])
        found = pool.get_trajectory("t")
        assert relation(pool, told(4.0, content="one two", reasoning="r"), found) == "earlier"
        assert relation(pool, told(5.0, content="one two", reasoning="r"), found) == "later"
        assert relation(pool, told(9.0, content="one", reasoning="r"), found) == "earlier"
        assert relation(pool, told(4.0, content="one two three", reasoning="r and"), found) == "later"
        assert relation(pool, told(4.0, content="one, too", reasoning="r"), found) == "other"


NAMELESS = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [{"role": "user", "content": "hi"}]}
NAMELESS |= {"gen_ai.output.messages": [{"role": "assistant", "content": "yes"}]}


@pytest.mark.parametrize("name", ["otlp", "langfuse", "langsmith", "atif/chain", "claude-code/agents", "codex/threads"])
def test_files_that_are_read_together_are_known_one_by_one_and_the_other_way_round(tmp_path, name):
    folder = tmp_path / "spans"
    shutil.copytree(FIXTURES / name, folder)
    if name == "otlp":  # traces without an id, equal ones in a file and in another one
        (folder / "a.json").write_text(json.dumps([NAMELESS, NAMELESS]))
        (folder / "b.json").write_text(json.dumps([NAMELESS]))
    files = sorted(path for path in folder.rglob("*") if path.is_file())

    def stand(pool):
        found = {}
        for one in served(pool):
            steps = pool.list_steps(trajectory_id=one.trajectory_id, include=["messages"]).items
            said = [(step.prompt_messages, step.response_message, step.rewards) for step in steps]
            found[str(one.trajectory_id).partition(".")[0]] = (
                said,
                one.rewards,
                Path(one.metadata["import"]["file"]).name,
            )
        return found

    with open_pool("memory://") as pool:
        import_paths(pool, [folder])
        whole, standing_first = pool.list_trajectories().items, stand(pool)
        for path in files:
            report = import_paths(pool, [path])
            assert (report.total("added"), report.total("replaced")) == (0, 0), path
        assert pool.list_trajectories().items == whole
    with open_pool("memory://") as pool:
        for path in files:
            import_paths(pool, [path])
        import_paths(pool, [folder])
        assert stand(pool) == standing_first
    if name == "otlp":
        assert sum("yes" in str(said) for said, _, _ in standing_first.values()) == 2


@pytest.mark.parametrize("format", ["otlp", "langfuse"])
def test_parts_of_a_trace_stand_beside_one_another_until_all_of_it_comes(pool, tmp_path, format):
    def call(number):
        prompt, said = {"role": "user", "content": f"ask {number}"}, {"role": "assistant", "content": f"say {number}"}
        if format == "langfuse":
            at = {"startTime": f"2026-01-01T00:00:0{number}Z", "input": [prompt], "output": said}
            return {"id": f"o{number}", "traceId": "t-1", "type": "GENERATION", **at}
        parts = {name: json.dumps([{"role": one["role"], "parts": [{"type": "text", "content": one["content"]}]}])
                 for name, one in (("gen_ai.input.messages", prompt), ("gen_ai.output.messages", said))}  # fmt: skip
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in parts.items()]
        attributes.append({"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}})
        span = {"traceId": "ab" * 16, "spanId": f"0{number}" * 8, "name": "chat", "attributes": attributes}
        span |= {"startTimeUnixNano": f"17672256{number}0000000000", "endTimeUnixNano": f"17672256{number}1000000000"}
        return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}

    def put(name, *numbers):
        path = tmp_path / name
        path.write_text("".join(json.dumps(call(number)) + "\n" for number in numbers))
        counts = import_paths(pool, [path], format).formats[format]
        return counts.added, counts.replaced, counts.known

    def served():
        return sorted(one.step_count for one in pool.list_trajectories().items if one.readiness != "excluded")

    assert put("first.jsonl", 1, 2) == (1, 0, 0)
    assert put("second.jsonl", 3) == (1, 0, 0)
    assert served() == [1, 2]
    assert [put("first.jsonl", 1, 2), put("second.jsonl", 3)] == [(0, 0, 1)] * 2
    assert served() == [1, 2]
    assert put("all.jsonl", 1, 2, 3) == (0, 1, 0)
    assert served() == [3]


def test_a_file_of_a_sub_agent_is_known_as_what_its_folder_had_of_it(pool):
    folder = FIXTURES / "claude-code" / "agents"
    sub_agents = sorted(folder.rglob("agent-*.jsonl"))
    first = import_paths(pool, [sub_agents[0]], "claude-code").formats["claude-code"]
    report = import_paths(pool, [folder], "claude-code")
    assert (first.added, report.formats["claude-code"].added) == (1, 1)
    # What was there of it alone gives way to the run of who began it, and does not come back while that is there.
    alone, whole = pool.list_trajectories().items
    assert (alone.readiness, whole.excluded_reason) == ("excluded", None)
    assert any(note.why == f"{alone.trajectory_id} is a part of it, and excluded" for note in report.notes)
    for path in sub_agents:
        report = import_paths(pool, [path], "claude-code")
        counts = report.formats["claude-code"]
        assert (counts.added, counts.replaced, counts.known, report.lost) == (0, 0, 1, 0)
    assert f"it is in {whole.trajectory_id}, which is there" in report.notes[0].why
    assert pool.list_trajectories().items == [alone, whole]
    pool.delete_trajectories([whole.trajectory_id], "asked")
    report = import_paths(pool, [sub_agents[0]], "claude-code")
    assert report.formats["claude-code"].known == 1
    assert pool.get_trajectory(alone.trajectory_id).readiness != "excluded"


TURNS = ("messages", "steps", "trajectory", "history", "simulations", "samples", "results", "observations", "attempts")


def earlier_states(path):
    """What a file held before: its first lines, or a document with less in each of its lists of turns."""
    lines = path.read_bytes().splitlines(True)
    if path.suffix == ".jsonl":
        yield from (b"".join(lines[:count]) for count in {len(lines) // 3, len(lines) // 2, len(lines) - 1} if count)
        return
    try:
        document = json.loads(b"".join(lines))
    except ValueError:  # one that is broken off already
        return
    for part, parts in ((1, 3), (1, 2), (2, 3)):

        def cut(turns, part=part, parts=parts):
            return turns[: -(-len(turns) * part // parts)]

        if isinstance(document, list):
            yield json.dumps(cut(document)).encode()
        elif any(isinstance(document.get(name), list) for name in TURNS):
            less = {name: cut(document[name]) for name in TURNS if isinstance(document.get(name), list)}
            yield json.dumps(document | less).encode()


def steps_served(pool):
    found = Counter()
    for one in served(pool):
        for step in pool.list_steps(trajectory_id=one.trajectory_id, limit=1000, include=["messages", "tokens"]).items:
            found[repr((step.prompt_messages, step.prompt_ids, step.response_message, step.response_ids))] += 1
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
def test_no_step_is_there_twice_however_often_a_file_comes_and_from_wherever(tmp_path, name):
    files = (path for path in sorted((FIXTURES / name).rglob("*")) if path.suffix in (".jsonl", ".json", ".traj"))
    for number, path in enumerate(files):
        here, there = tmp_path / f"{number}" / path.name, tmp_path / "elsewhere" / f"other-{path.name}"
        here.parent.mkdir()
        there.parent.mkdir(exist_ok=True)
        shutil.copy(path, there)
        with open_pool("memory://") as pool:
            import_paths(pool, [path], name)
            wanted = steps_served(pool)
            for again in (path, there):
                import_paths(pool, [again], name)
                assert steps_served(pool) == wanted, again
        for state in earlier_states(path):
            with open_pool("memory://") as pool:
                for content in (state, path.read_bytes(), state):
                    here.write_bytes(content)
                    report = import_paths(pool, [here], name)
                    assert report.total("refused") == 0
                assert steps_served(pool) == wanted, (path, state)


def test_what_an_earlier_version_imported_under_another_id_is_known_outgrown_or_stays_deleted(pool, tmp_path):
    document = json.loads((FIXTURES / "mini-swe-agent" / "calls.traj.json").read_text())
    path = tmp_path / "calls.traj.json"
    path.write_text(json.dumps(document))
    (now,) = [read.run for read in read_entries("auto", entries([path], print), print)]
    facts = examine(now)
    at_that_time = replace(now, grows_as=None)
    old = make_whole("mini-swe-agent", path.name, 0, at_that_time, facts, Placing(), lambda *said: None)
    pool.add_whole([old])
    counts = import_paths(pool, [path]).formats["mini-swe-agent"]
    assert (counts.known, [one.trajectory_id for one in pool.list_trajectories().items]) == (1, [old.new.trajectory_id])
    # As a row among others it is the same, whichever comes first.
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(document) + "\n" + json.dumps(document | {"instance_id": "other"}) + "\n")
    with open_pool("memory://") as other:
        import_paths(other, [path])
        report = import_paths(other, [rows])
        assert (report.total("known"), report.total("added")) == (1, 1)
        assert import_paths(pool, [rows]).formats["mini-swe-agent"].known == 1
    pool.delete_trajectories([old.new.trajectory_id], "asked")
    assert import_paths(pool, [path]).formats["mini-swe-agent"].deleted == 1
    assert len(pool.list_trajectories().items) == 1  # the other row

    # What `codex exec` prints was known by the name of its thread alone.
    lines = (FIXTURES / "codex" / "stream.jsonl").read_text().replace("7ead0000-0000-4000-8000-000000000006", "mine")
    path = tmp_path / "stream.jsonl"
    path.write_text("".join(lines.splitlines(True)[:5]))
    (part,) = [read.run for read in read_entries("auto", entries([path], print), print)]
    named = replace(part, native_id="mine", session=None)
    old = make_whole("codex", path.name, 0, named, examine(part), Placing(), lambda *said: None)
    pool.add_whole([old])
    path.write_text(lines)
    report = import_paths(pool, [path])
    assert report.total("replaced") == 1
    assert any(note.why == f"{old.new.trajectory_id} is a part of it, and excluded" for note in report.notes)
    standing = pool.list_trajectories().items[-1]
    assert pool.decisions(trajectory_id=old.new.trajectory_id)[0].verdict == "exclude"
    assert pool.decisions(trajectory_id=standing.trajectory_id) == []


def test_what_a_file_grew_by_since_it_was_found_is_read_in_large_pieces(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"a" * 10)
    entry = DiskEntry(path)
    with path.open("ab") as file:
        file.write(b"b" * 100_000)
    pieces = list(entry._stream())
    assert b"".join(pieces) == b"a" * 10 + b"b" * 100_000
    assert len(pieces) == 2
    assert entry.position == 100_010
