"""What cells are made of: experts that are right, curation without a reference, batches that are changed."""

import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("reasoning_gym")

from experiments.batches import step_logprobs  # noqa: E402
from experiments.cells import CELLS, Plan  # noqa: E402
from experiments.changing import change_for, retokenised_figures  # noqa: E402
from experiments.curating import grounded  # noqa: E402
from experiments.progress import ProgressFile  # noqa: E402
from experiments.task_sets import Conversion, Lesson, LongSums, Sums, TextGame  # noqa: E402

from agentworld.engines.builtin.pocket import load_pocket  # noqa: E402
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH  # noqa: E402
from agentworld.engines.tokenizer import load_tokenizer  # noqa: E402
from agentworld.records import Batch, BatchItem, BatchTrajectory, Message, Step, Trajectory  # noqa: E402
from agentworld.tasks import JudgingEnvironment  # noqa: E402


@pytest.mark.parametrize("kind", [Sums, LongSums, Conversion])
def test_the_expert_solves_its_tasks_in_its_turns(kind: type[Lesson]) -> None:
    lesson = kind()
    tasks = lesson.task_set.tasks(40, split="train", seed=1)
    assert not {task.task_id for task in tasks} & {
        task.task_id for task in lesson.task_set.tasks(40, split="heldout", seed=1)
    }
    for task in tasks:
        environment, said = lesson.task_set.environment(task), lesson.worked(task)
        assert environment is not None
        assert len(said) == lesson.turns - 1  # One is left for a detour.
        for reply in said[:-1]:
            call = json.loads(reply.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
            seen = environment.step(call["name"], json.dumps(call["arguments"]))
        assert said[-1].endswith(seen.content)
        assert lesson.task_set.check(task, said[-1]).value == 1.0
        assert lesson.task_set.check(task, lesson.direct(task)[0]).value == 1.0
    ways = {len(lesson.expert(task)) == 1 for task in tasks}
    assert ways == {True, False}
    assert {len(kind(direct_share=0.0).expert(task)) for task in tasks} == {lesson.turns - 1}


def test_the_expert_wins_its_games() -> None:
    pytest.importorskip("textworld")
    lesson = TextGame()
    for task in lesson.task_set.tasks(3, split="train", seed=1):
        environment, said = lesson.task_set.environment(task), lesson.worked(task)
        assert isinstance(environment, JudgingEnvironment)
        assert len(said) <= lesson.turns
        for reply in said:
            call = json.loads(reply.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
            seen = environment.step(call["name"], json.dumps(call["arguments"]))
        assert seen.done
        assert environment.check(None).value == 1.0
        assert lesson.direct(task)[0].startswith("Answer: ")


def test_the_scripted_expert_says_what_is_in_the_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments import expert

    (tmp_path / "book.json").write_text(json.dumps({"1 + 1": ["call", "2"]}))
    monkeypatch.setitem(os.environ, expert.VARIABLE, str(tmp_path / "book.json"))

    class Asked:
        messages = ({"role": "user", "content": [{"type": "text", "text": "1 + 1"}]}, {"role": "assistant"})

    assert expert.reply(Asked()) == "2"


def test_an_answer_is_grounded_where_it_is_the_tools_last_word() -> None:
    def said(answer: str, *results: str) -> float:
        tools = [Message(role="tool", content=result) for result in results]
        return grounded([Message(role="user", content="?"), *tools, Message(role="assistant", content=answer)])

    assert said("Answer: 12", "7", "12") == 1.0
    assert said("Answer: 7", "7", "12") == 0.0
    assert said("Answer: 12") == 0.0
    assert said("12", "12") == 0.0


@pytest.fixture(scope="module")
def model() -> object:
    torch.set_num_threads(1)
    return load_pocket(seed=0)[0]


def step(number: int, prompt: list[int], reply: list[int]) -> Step:
    """A step that was sampled."""
    return Step(
        step_id=f"s{number}",
        trajectory_id="t",
        prompt_ids=prompt,
        response_ids=reply,
        response_logprobs=[-1.0] * len(reply),
        logprob_space="raw",
    )


def batch(steps: list[Step], reward: float) -> Batch:
    """One trajectory."""
    trajectory = Trajectory(trajectory_id="t", reward=reward)
    item = BatchItem(key="t", trajectories=[BatchTrajectory(trajectory=trajectory, steps=steps)])
    return Batch(batch_id="b", consumer="c", epoch=1, deadline=0.0, unit="trajectory", method="ppo", items=[item])


def test_log_probabilities_are_those_of_the_model(model: object) -> None:
    found = step_logprobs(model, step(0, [5, 6, 7], [8, 9]))
    logits = model(torch.tensor([[5, 6, 7, 8, 9]])).logits[0].detach().log_softmax(-1)  # type: ignore[operator]
    assert found == pytest.approx([float(logits[2, 8]), float(logits[3, 9])], abs=1e-5)


def test_texts_are_rendered_as_the_template_has_them(tmp_path: Path) -> None:
    """Whoever goes on from the file of progress still knows of how many steps the ids are others."""
    tokenizer = load_tokenizer(str(POCKET_TOKENIZER_PATH))
    progress = ProgressFile(tmp_path, Plan(iterations=1))
    progress.begin_batch(0, 1, [])
    change = change_for(CELLS["retokenised"], progress)
    assert change is not None
    assert change_for(CELLS["ppo"], progress) is None
    asked = [Message(role="user", content="1 + 1")]
    prompt = tokenizer.encode("<|im_start|>user\n1 + 1<|im_end|>\n<|im_start|>assistant\n")
    sampled = step(0, list(prompt), list(tokenizer.encode("Answer: 2<|im_end|>")))
    sampled.prompt_messages, sampled.response_message = asked, Message(role="assistant", content="Answer: 2")
    (made,) = change(batch([sampled], 1.0)).items[0].trajectories[0].steps
    assert made.prompt_ids == sampled.prompt_ids
    assert tokenizer.decode(made.response_ids or [], skip_special_tokens=False) == (
        "<think>\n\n</think>\n\nAnswer: 2<|im_end|>"
    )
    assert made.response_logprobs == [0.0] * len(made.response_ids or [])
    curve = ProgressFile(tmp_path, Plan(iterations=1)).now.curve
    assert curve[0]["retokenised"] == curve[0]["other_ids"] == 1
    assert retokenised_figures([*curve, {"retokenised": 3, "other_ids": 0}]) == {"steps_with_other_ids": 0.25}
    assert retokenised_figures([{"reward": 1.0}]) == {}
