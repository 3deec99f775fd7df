"""Conversations that no window of a model holds: prompts grow with their square, so they are bounded, as is said."""

import json

from agentworld.factory import open_pool
from agentworld.ingest import limits
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_path
from agentworld.ingest.run import linear_steps
from agentworld.records import Message


def turns(count, word="a"):
    return [
        message
        for number in range(count)
        for message in ({"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"{word}{number}"})
    ]


def test_replies_beyond_the_bound_are_kept_as_messages_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_PROMPTS", 16)
    weighed = [{**each, "weight": 1} if each["role"] == "assistant" else each for each in turns(6)]
    wide = [{"role": "user", "content": "u"}] * 40 + turns(1)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"messages": each}) + "\n" for each in (weighed, wide, turns(4))))
    runs, _ = read_path("openai-fine-tuning", path)

    # 1 + 3 + 5 + 7 messages are shown.
    assert [(len(run.steps), len(run.trailing)) for run in runs] == [(4, 4), (0, 42), (4, 0)]
    assert len(runs[0].feedback) == 4
    monkeypatch.setattr(limits, "MAX_TRAILING", 200)
    with open_pool("memory://") as pool:
        report = import_paths(pool, [path])
        kept = [one.metadata.get("trailing", []) for one in pool.list_trajectories().items]
    why = "the prompts of the run grow too large together: %d replies are kept as messages alone"
    cut = "36 messages after the last step are not kept: they are larger than 200 bytes"
    assert [note.why for note in report.notes if note.lost] == [why % 2, why % 1, cut]
    assert report.formats["openai-fine-tuning"].added == 3
    assert sorted(map(len, kept)) == [0, 4, 6]


def test_answers_to_a_long_prompt_are_within_the_same_bound(tmp_path, monkeypatch):
    row = {"prompt": [*turns(3), {"role": "user", "content": "last"}]}
    row |= {"chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row))
    outcomes = {}
    for most in (23, 22, 16, 15, 8, 0):
        monkeypatch.setattr(limits, "MAX_PROMPTS", most)
        (run,), _ = read_path("sharegpt", path)
        outcomes[most] = (len(run.steps), len(run.trailing), len(run.feedback))
        shown = sum(len(step.prompt_messages) for step in run.steps)
        said = {id(step.response_message) for step in run.steps}
        assert shown <= most
        assert len(said) == len(run.steps)
    assert outcomes == {23: (5, 0, 1), 22: (4, 1, 0), 16: (4, 1, 0), 15: (3, 3, 0), 8: (2, 5, 0), 0: (0, 9, 0)}


def test_a_long_conversation_takes_what_the_bound_says():
    asked, said = Message(role="user", content="q"), Message(role="assistant", content="a")
    steps, trailing = linear_steps([asked, said] * 40_000)

    shown = sum(len(step.prompt_messages) for step in steps)
    assert 0.99 * limits.MAX_PROMPTS < shown <= limits.MAX_PROMPTS
    assert 2 * len(steps) + len(trailing) == 80_000
