"""Programs as evaluators: what they are given, and what their word is."""

import sys
import textwrap

import pytest

from agentworld.errors import ConfigError
from agentworld.rewards import EvaluationError, checked, evaluator_fingerprint
from agentworld.rewards.isolation.sandbox import IsolationError, best_mechanism
from agentworld.rewards.printed import read_printed
from agentworld.rewards.registry import make_evaluator
from tests.rewards.runs import run_of


def isolation():
    """The sandbox where there is one, else none: what is tested here holds for both."""
    try:
        return "sandbox" if best_mechanism() else "none"
    except IsolationError:
        return "none"


ISOLATION = isolation()


def program(*command, **settings):
    return make_evaluator({"kind": "program", "command": list(command), "isolation": ISOLATION, **settings}, "test")


def python(code, **settings):
    return program(sys.executable, "-c", textwrap.dedent(code), **settings)


def judged(evaluator, run=None):
    return checked(evaluator, run or run_of("x"))["t"]


@pytest.mark.parametrize(("code", "value"), [(0, 1.0), (1, 0.0), (5, 0.0), (125, 0.0)])
def test_the_exit_code_is_the_word(code, value):
    verdict = judged(program("sh", "-c", f"echo said; exit {code}"))
    assert verdict.values == {"reward": value}
    assert (verdict.details["code"], verdict.details["stdout"]) == (code, "said\n")
    assert verdict.details["isolation"] in ("bubblewrap", "namespaces", "none")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["sh", "-c", "echo bad >&2; exit 127"], "ended with code 127: bad"),
        (["sh", "-c", "kill -9 $$"], "ended by signal 9"),
        (["sleep", "60"], r"did not end within 0\.5 s"),
        (["yes"], "wrote over 1 MiB"),
        (["no-such-program"], "cannot be run"),
    ],
)
def test_what_is_no_word_is_a_failed_evaluation(command, reason):
    with pytest.raises(EvaluationError, match=reason):
        judged(program(*command, limits={"seconds": 0.5 if "sleep" in command else 60.0, "output_mb": 1}))


def test_a_time_out_has_a_value_where_that_is_said():
    verdict = judged(program("sleep", "60", on_timeout=0.0, limits={"seconds": 0.3}))
    assert (verdict.values, verdict.details["timed_out"]) == ({"reward": 0.0}, True)


def test_the_last_line_is_the_word():
    code = """
        import json, sys
        given = json.load(sys.stdin)
        assert given["messages"][-1]["content"] == "so 4"
        print("counting")
        print(json.dumps({"reward": len(given["answer"]), "task": given["task"], "id": given["trajectory_id"]}))
    """
    verdict = judged(python(code, result="printed", reward="size"), run_of("so 4", task={"n": 1}))
    assert verdict.values == {"size": 4.0}
    assert verdict.details["printed"] == {"task": {"n": 1}, "id": "t"}


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "it printed nothing"),
        ("fine", "'fine' is no reward"),
        ("nan", "no finite number"),
        ('{"reward": true}', "no finite number"),
        ('{"value": 1}', "is no reward"),
    ],
)
def test_a_last_line_that_is_no_number(output, reason):
    with pytest.raises(ValueError, match=reason):
        read_printed(output)
    with pytest.raises(EvaluationError, match=reason):
        judged(program("printf", "%s", output, result="printed"))


def test_a_printing_program_that_fails_says_nothing():
    with pytest.raises(EvaluationError, match="ended with code 1"):
        judged(program("sh", "-c", "echo 1; exit 1", result="printed"))


def test_the_tests_of_the_task_judge_the_agents_code(tmp_path):
    tests = tmp_path / "checks"
    tests.mkdir()
    (tests / "run.py").write_text("import case, solution\nraise SystemExit(solution.add(2, 3) != case.EXPECTED)\n")
    settings = {
        "kind": "program",
        "command": [sys.executable, "run.py"],
        "folder": "checks",
        "task_files": "files",
        "answer_file": "solution.py",
        "answer": "code",
        "isolation": ISOLATION,
    }
    evaluator = make_evaluator(settings, "test", tmp_path)
    task = {"settings": {"files": {"case.py": "EXPECTED = 5\n"}}}
    right, wrong = "```python\ndef add(a, b):\n    return a + b\n```", "```python\ndef add(a, b):\n    return 0\n```"
    assert judged(evaluator, run_of(right, task=task)).values == {"reward": 1.0}
    assert judged(evaluator, run_of(wrong, task=task)).values == {"reward": 0.0}
    assert judged(evaluator, run_of("no code", task=task)).values == {"reward": 0.0}
    with pytest.raises(EvaluationError, match="has no files in 'files'"):
        judged(evaluator, run_of(right))
    before = evaluator_fingerprint(evaluator)
    (tests / "run.py").write_text("raise SystemExit(0)\n")
    assert evaluator_fingerprint(evaluator) != before


def test_files_that_a_program_reads_are_in_its_fingerprint(tmp_path, monkeypatch):
    script, library, tool = tmp_path / "judge.py", tmp_path / "library" / "sub", tmp_path / "bin" / "judging"
    for path, text in ((script, "1"), (library / "a.py", "1"), (tool, "#!/bin/sh\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tool.chmod(0o755)
    python_file = program(sys.executable, str(script), readable=[str(tmp_path / "library")])
    by_name = program("judging", environment={"PATH": str(tmp_path / "bin")})
    digests = [evaluator_fingerprint(python_file)]
    assert evaluator_fingerprint(python_file) == digests[0]
    for path in (script, library / "a.py"):
        path.write_text("2")
        digests.append(evaluator_fingerprint(python_file))
    (library / "a.py").rename(library / "b.py")
    digests.append(evaluator_fingerprint(python_file))
    assert len(set(digests)) == 4
    before = evaluator_fingerprint(by_name)
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert evaluator_fingerprint(by_name) != before
    # Of more than is read, the sizes.
    monkeypatch.setattr("agentworld.rewards.contents.MOST_BYTES", 0)
    before = evaluator_fingerprint(python_file)
    script.write_text("3")
    assert evaluator_fingerprint(python_file) == before
    script.write_text("33")
    assert evaluator_fingerprint(python_file) != before


def test_any_text_can_be_a_file_and_files_are_bounded(monkeypatch):
    code = "import sys; raise SystemExit(open('a.txt', 'rb').read() != b'\\xed\\xa0\\x80')"
    assert judged(python(code, answer_file="a.txt"), run_of("\ud800")).values == {"reward": 1.0}
    monkeypatch.setattr("agentworld.rewards.program._FILES_BYTES", 10)
    with pytest.raises(EvaluationError, match="the files have over"):
        judged(program("true", task_files="files"), run_of("x", task={"files": {"a": "x" * 11}}))


@pytest.mark.parametrize("name", ["tests.py", "./tests.py", ".//tests.py"])
def test_what_a_task_brings_replaces_no_file_of_this_machine(tmp_path, name):
    (tmp_path / "tests.py").write_text("raise SystemExit(1)")
    both = python("import tests", folder=str(tmp_path), task_files="files")
    with pytest.raises(EvaluationError, match=r"the task brings '[./]*tests\.py', which is in `folder` too"):
        judged(both, run_of("x", task={"files": {name: ""}}))


@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "a/../../out.txt", ""])
def test_files_stay_within_the_scratch_folder(name):
    with pytest.raises(EvaluationError, match="no path within the scratch folder"):
        judged(program("true", task_files="files"), run_of("x", task={"files": {name: "x"}}))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"command": []}, "command is empty"),
        ({"command": ["true"], "folder": "/no/such/folder"}, "is no folder"),
        ({"command": ["true"], "limits": {"seconds": 0}}, "seconds must be over 0"),
        ({"command": ["true"], "limits": {"second": 1}}, "second"),
        ({"command": ["true"], "isolation": "docker"}, "docker"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make_evaluator({"kind": "program", **settings}, "test")
