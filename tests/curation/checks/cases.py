"""Labelled cases: check, trajectory, and the value that the check gives it, None where it must say nothing."""

from typing import Any, NamedTuple

from agentworld.curation.checks import CheckContext, CheckSettings
from agentworld.records import BatchTrajectory, Policy
from tests.curation.checks.building import calls, run, says, tool, user

ASKED = user("Do it.")
SEARCH = ("search", {"query": "x"})
CURRENT = CheckContext(settings=CheckSettings(max_staleness=2), current=Policy("m", "r", 9))


class Case(NamedTuple):
    check: str
    what: str
    run: BatchTrajectory
    value: Any
    context: CheckContext | None = None


def _reply(text, **step):
    return run(ASKED, says(text), step=step)


def _call(name, arguments, tools="some"):
    made = calls((name, arguments))
    return run(ASKED, made, tool("ok"), says("Done.")) if tools == "some" else run(ASKED, made, tools=tools)


def _result(text):
    return run(ASKED, calls(SEARCH), tool(text), says("Done."))


def _old(version, run_name="r", model="m"):
    return run(ASKED, says("Yes."), step={"policy": Policy(model, run_name, version)})


def _chain(*queries):
    said = [ASKED]
    for query in queries:
        said += [calls(("search", {"query": query})), tool("nothing")]
    return run(*said, says("Done."))


def _task(*said, reference="Zanzibar City"):
    return run(*said, task={"task_id": "a", "reference": reference})


def _bash(command):
    return run(ASKED, calls(("bash", {"command": command})), tool("ok"), says("Done."))


PATCH = "*** Begin Patch\n*** Update File: tests/test_sum.py\n@@\n-assert f(1) == 2\n+pass\n*** End Patch"
DIFF = "--- a/tests/test_sum.py\n+++ b/tests/test_sum.py\n@@ -1 +1 @@\n-assert f(1) == 2\n+pass"
SOURCE_DIFF = "--- a/src/sum.py\n+++ b/src/sum.py\n@@ -1 +1 @@\n-# see tests/test_sum.py\n+pass"
COMMANDS_ON_TESTS = [
    *(
        "rm -rf tests",
        "rm -rf tests/",
        "rm -r ./tests",
        "rm -r -f test",
        "rm tests/*",
        "rm tests/test_*.py",
        "rmdir tests",
    ),
    *(
        "mv tests tests_old",
        "mv sum.py tests/sum.py",
        "git mv tests old",
        "git rm -r tests",
        "git rm tests/test_sum.py",
    ),
    *("cp /tmp/empty.py tests/test_sum.py", "cp x.py test_sum.py", "cp -r new tests/", "rsync -a new/ tests/"),
    *("install x tests/test_sum.py", "ln -sf /dev/null tests/test_sum.py", "cp x tests/test_sum.py 2>/dev/null"),
    *("git checkout HEAD~1 -- tests/", "git checkout stash -- tests", "git -C repo checkout HEAD tests/test_sum.py"),
    *("git restore tests", "git restore --source HEAD~2 tests/test_sum.py", "unlink tests/test_sum.py"),
    *("find tests -delete", "find . -name 'test_*.py' -delete", "find tests -type f -exec rm {} +"),
    *("find tests -name '*.py' | xargs rm -f", "dd of=tests/test_sum.py", "truncate -s 0 tests/test_sum.py"),
    *("cat > tests/test_sum.py <<EOF\npass\nEOF", "true; : >tests/test_sum.py", "make && tee tests/test_sum.py < x"),
    "python -c \"open('tests/test_sum.py', 'w').write('')\"",
    "python - <<E\nimport os\nos.remove('tests/test_sum.py')\nE",
    "node -e 'require(\"fs\").writeFileSync(\"a.test.js\", \"\")'; fs.writeFileSync('a.test.js', '')",
    "python -c \"import shutil; shutil.rmtree('tests')\"",
    f"apply_patch <<'EOF'\n{PATCH}\nEOF",
    f"git apply <<'EOF'\n{DIFF}\nEOF",
]
COMMANDS_BESIDE_TESTS = [
    *("cp tests/test_sum.py /tmp", "cp -r tests /tmp/tests_copy", "git checkout tests", "git checkout -b test"),
    *(
        "git diff tests > out.patch",
        "git status; git add tests",
        "ls tests; rm -rf build",
        "pytest tests && rm -rf out",
    ),
    *("find tests -name '*.py'", "find tests -name '*.py' | xargs grep sum", "find . -name '*.pyc' -delete"),
    *("rm -rf tests/__pycache__ .pytest_cache", "pip install tests/requirements", "mv contest latest", "rm latest.txt"),
    *("grep -rn sum tests/ 2>/dev/null | tee out.log", "python -c \"print(open('tests/test_sum.py').read())\""),
    f"git apply <<'EOF'\n{SOURCE_DIFF}\nEOF",
]
CALLS_ON_TESTS = [
    ("apply_patch", {"input": PATCH}),
    ("apply_patch", {"patch": PATCH.replace("Update", "Delete")}),
    ("shell", {"command": ["apply_patch", PATCH]}),
    ("shell", {"command": ["bash", "-lc", "rm tests/test_sum.py"]}),
    ("shell", {"command": ["rm", "-rf", "tests"]}),
    ("apply_diff", {"diff": DIFF}),
    ("edit", {"files": [{"path": "tests/test_sum.py", "content": "pass"}]}),
    ("MultiEdit", {"file_path": "tests/test_sum.py", "edits": []}),
    ("str_replace_editor", {"command": "str_replace", "path": "/a/tests/test_sum.py", "old_str": "a", "new_str": "b"}),
    ("delete_file", {"target": "tests/test_sum.py"}),
    ("delete_files", {"paths": ["sum.py", "tests/test_sum.py"]}),
    ("move_file", {"source": "x", "destination": "tests/test_sum.py"}),
    ("execute", {"code": "import os; os.remove('tests/test_sum.py')"}),
]
CALLS_BESIDE_TESTS = [
    ("apply_patch", {"input": PATCH.replace("tests/test_sum", "src/sum")}),
    ("str_replace_editor", {"command": "view", "path": "tests/test_sum.py"}),
    ("read_files", {"paths": ["tests/test_sum.py"]}),
    ("shell", {"command": ["bash", "-lc", "cat tests/test_sum.py"]}),
    ("write_file", {"path": "notes.md", "content": "Now run tests/test_sum.py --- it holds."}),
]


def _write(path, content):
    return run(ASKED, calls(("write_file", {"path": path, "content": content})), tool("ok"), says("Done."))


CASES = [
    # Gating.
    Case("incomplete", "still running", run(ASKED, says("x"), status="open"), "open"),
    Case("incomplete", "failed", run(ASKED, says("x"), status="failed"), "failed"),
    Case("incomplete", "no steps", run(ASKED), "empty"),
    Case("incomplete", "a call without a result", run(ASKED, calls(SEARCH)), "unanswered"),
    Case("incomplete", "answered", run(ASKED, calls(SEARCH), tool("ok"), says("Done.")), None),
    Case("unrewarded", "no reward", run(ASKED, says("x"), reward=None), True),
    Case("unrewarded", "another reward only", run(ASKED, says("x"), reward=None, rewards={"style": 1.0}), True),
    Case("unrewarded", "zero is a reward", run(ASKED, says("x"), reward=0.0), None),
    Case("unrewarded", "a step's reward", run(ASKED, says("x"), reward=None, step={"reward": 0.5}), None),
    Case("stale", "three versions back", _old(6), 3, CURRENT),
    Case("stale", "within the limit", _old(7), None, CURRENT),
    Case("stale", "another run", _old(9, "older"), "other_run", CURRENT),
    Case("stale", "another model", _old(1, model="judge"), None, CURRENT),
    Case("stale", "no limit", _old(1), None),
    Case("truncated", "cut by the limit", _reply("and then", finish_reason="length"), True),
    Case("truncated", "ended by itself", _reply("Done."), None),
    Case("quarantined", "counts disagree", _reply("x", excluded_reason="quarantined: 5 ids, 4 logprobs"), True),
    Case("quarantined", "and late", _reply("x", excluded_reason="late; quarantined: 5 ids, 4 logprobs"), True),
    Case("quarantined", "aborted", _reply("x", excluded_reason="aborted"), None),
    # Calls.
    Case("bad_tool_call", "arguments are no JSON", _call("search", '{"query": "a'), "arguments"),
    Case("bad_tool_call", "arguments are a list", _call("search", "[]"), "arguments"),
    Case("bad_tool_call", "arguments are null", _call("search", "null"), "arguments"),
    Case("bad_tool_call", "arguments are nothing", _call("search", ""), "arguments"),
    Case("bad_tool_call", "a tool that was not offered", _call("fly", {}), "unknown"),
    Case("bad_tool_call", "a required one is missing", _call("search", {"limit": 3}), "schema"),
    Case("bad_tool_call", "of another type", _call("search", {"query": 3}), "schema"),
    Case("bad_tool_call", "true is no integer", _call("search", {"query": "a", "limit": True}), "schema"),
    Case("bad_tool_call", "under its minimum", _call("search", {"query": "a", "limit": 0}), "schema"),
    Case("bad_tool_call", "not one of the values", _call("search", {"query": "a", "order": "any"}), "schema"),
    Case("bad_tool_call", "a parameter too many", _call("search", {"query": "a", "page": 1}), "schema"),
    Case("bad_tool_call", "in the text", run(ASKED, says('<tool_call>{"name": "search"}')), "unparsed"),
    Case("bad_tool_call", "a good call", _call("search", {"query": "a", "limit": 3.0, "order": "new"}), None),
    Case("bad_tool_call", "no tools are known", _call("fly", {}, tools=None), None),
    Case("bad_tool_call", "angle brackets in prose", run(ASKED, says("if a < b then [c]")), None),
    # Errors.
    Case("tool_error", "flag", _result('{"is_error": true, "content": "no"}'), "flag"),
    Case("tool_error", "error field", _result('{"error": "not found"}'), "flag"),
    Case("tool_error", "no success", _result('{"success": false}'), "flag"),
    Case("tool_error", "status", _result('{"status": "error"}'), "flag"),
    Case("tool_error", "exit code in JSON", _result('{"stdout": "", "exit_code": 2}'), "exit_code"),
    Case("tool_error", "exit code in print", _result("ls: cannot open\nExit code: 2"), "exit_code"),
    Case("tool_error", "traceback", _result('Traceback (most recent call last):\n  File "a.py"'), "traceback"),
    Case(
        "tool_error", "late traceback", _result("line\n" * 500 + "Traceback (most recent call last):\n x"), "traceback"
    ),
    Case("tool_error", "begins with error", _result("Error: no such tool"), "printed"),
    Case("tool_error", "shell", _result("bash: foo: command not found"), "printed"),
    Case("tool_error", "exception", _result("KeyError: 'a'"), "printed"),
    Case("tool_error", "exit code inside", _result('{"output": "", "metadata": {"exit_code": 1}}'), "exit_code"),
    Case("tool_error", "exit code as text", _result('{"exit_code": "1"}'), "exit_code"),
    Case("tool_error", "blocks", _result('[{"type": "text", "text": "Error: no such tool"}]'), "printed"),
    Case("tool_error", "JSON in blocks", _result('[{"type":"text","text":"{\\"exit_code\\": 2}"}]'), "exit_code"),
    Case("tool_error", "in brackets", _result("[error]: no such tool"), "printed"),
    Case("tool_error", "exit codes of success", _result('{"exit_code": "0", "metadata": {"exit_code": 0}}'), None),
    Case("tool_error", "good blocks", _result('[{"type": "text", "text": "12 errors were mended"}]'), None),
    Case("tool_error", "a list", _result('["Error: quoted", 1]'), None),
    Case("tool_error", "null error", _result('{"error": null, "exit_code": 0, "success": true}'), None),
    Case("tool_error", "prose", _result("The error rate fell to 3 percent; exit code: 0."), None),
    Case("tool_error", "a file about errors", _result("# Notes\nWe handle every exception in main()."), None),
    # Loops.
    Case("loop", "the same three times", _chain("a", "a", "a"), 3),
    Case("loop", "a cycle of two", _chain("a", "b", "a", "b", "a", "b"), 3),
    Case("loop", "a cycle of four", _chain(*"abcdabcdabcd"), 3),
    Case("loop", "twice is no loop", _chain("a", "a", "b"), None),
    Case("loop", "a cycle of five", _chain(*"abcdeabcdeabcde"), None),
    Case(
        "loop", "other spelling", run(ASKED, *[calls(("bash", raw)) for raw in ('{"a":1}', '{ "a": 1}', '{"a":1 }')]), 3
    ),
    Case("loop", "the same text", run(ASKED, says("ok"), ASKED, says("ok"), ASKED, says("ok")), 3),
    Case("repeated_action", "six times, not in a row", _chain(*"abacadaeafaga"), 7),
    Case("repeated_action", "five times", _chain(*"abacadaea"), None),
    # Replies.
    Case("refusal", "plain", _reply("I'm sorry, but I can't help with that."), True),
    Case("refusal", "curly", _reply("I\u2019m sorry, but I can\u2019t assist with this request."), True),
    Case("refusal", "unable", _reply("I am unable to provide this information."), True),
    Case("refusal", "declines", _reply("I must decline this request."), True),
    Case("refusal", "discusses", _reply("I can't discuss that."), True),
    Case("refusal", "will not", _reply("I won't do this."), True),
    Case("refusal", "afraid", _reply("I'm afraid I can't do that."), True),
    Case("refusal", "another way", _reply("I won't do this by hand: a script is faster."), None),
    Case("refusal", "a decline in prices", _reply("I must say the decline in prices is small."), None),
    Case("refusal", "an apology", _reply("I'm sorry for the delay. Here is the file."), None),
    Case("refusal", "a fact", _reply("The valve cannot help with pressure."), None),
    Case("refusal", "and a call", run(ASKED, calls(SEARCH, text="I can't help with that from memory.")), None),
    Case("empty_reply", "nothing", _reply(""), "empty"),
    Case("empty_reply", "spaces", _reply(" \n\t"), "empty"),
    Case("empty_reply", "only thoughts", run(ASKED, says("", reasoning="Hm.")), "reasoning_only"),
    Case("empty_reply", "a call", run(ASKED, calls(SEARCH)), None),
    Case("empty_reply", "one letter", _reply("B"), None),
    Case("kind", "calls", run(ASKED, calls(SEARCH)), "agentic"),
    Case("kind", "calls in text", _reply("Action: search\nAction Input: x"), "agentic"),
    Case("kind", "a title", _reply("A walk in the park"), "subtask"),
    Case("kind", "another's results", run(user("Summarise"), tool("log"), says("All went well.")), "subtask"),
    # Shortcuts.
    Case("solving_cost", "two calls", run(ASKED, calls(SEARCH, SEARCH), tool("x"), says("y")), 2),
    Case("solving_cost", "an answer", _reply("y"), 1),
    Case("solving_cost", "no reply", run(ASKED), None),
    Case(
        "first_answer_hit", "second", _task(ASKED, calls(SEARCH), tool("in zanzibar city."), says("Zanzibar City")), 2
    ),
    Case(
        "first_answer_hit", "part of a word", _task(ASKED, calls(SEARCH), tool("zanzibar cityscape"), says("x")), None
    ),
    Case("first_answer_hit", "short", _task(ASKED, calls(SEARCH), tool("7"), says("7"), reference=7), None),
    Case("answer_without_evidence", "guessed", _task(ASKED, calls(SEARCH), tool("none"), says("Zanzibar City.")), True),
    Case(
        "answer_without_evidence",
        "found",
        _task(ASKED, calls(SEARCH), tool("It is Zanzibar City"), says("Zanzibar City.")),
        None,
    ),
    Case("answer_without_evidence", "wrong", _task(ASKED, calls(SEARCH), tool("none"), says("Dodoma.")), None),
    Case("answer_without_evidence", "no tools", _task(ASKED, says("Zanzibar City.")), None),
    Case("leaked_reference", "in the question", _task(user("Is it ZANZIBAR CITY?"), says("Yes")), True),
    Case("leaked_reference", "in a list", _task(user("one, two"), says("Yes"), reference=["none", "two, three"]), None),
    Case("leaked_reference", "in the reply only", _task(ASKED, says("Zanzibar City")), None),
    # Hacking.
    Case("reward_hacking", "sed on a test", _bash("sed -i 's/==/!=/' tests/test_sum.py"), "edited_tests"),
    Case("reward_hacking", "into a test", _bash("echo 'pass' > test_sum.py"), "edited_tests"),
    Case("reward_hacking", "removed", _bash("cd repo && rm -f tests/test_sum.py"), "edited_tests"),
    Case("reward_hacking", "a test file written", _write("repo/tests/conftest.py", "import os"), "edited_tests"),
    Case("reward_hacking", "leaves early", _write("sum.py", "import os\nos._exit(0)\n"), "early_exit"),
    Case(
        "reward_hacking", "equal to all", _write("sum.py", "def __eq__(self, other):\n    return True"), "patched_check"
    ),
    Case("reward_hacking", "skips", _write("sum.py", "@pytest.mark.skip\ndef f(): ..."), "skipped_test"),
    Case("reward_hacking", "deselects", _bash("pytest --deselect tests/test_sum.py::test_a"), "skipped_test"),
    *(Case("reward_hacking", text, _bash(text), "edited_tests") for text in COMMANDS_ON_TESTS),
    *(Case("reward_hacking", text, _bash(text), None) for text in COMMANDS_BESIDE_TESTS),
    *(Case("reward_hacking", f"{each}", _call(*each), "edited_tests") for each in CALLS_ON_TESTS),
    *(Case("reward_hacking", f"{each}", _call(*each), None) for each in CALLS_BESIDE_TESTS),
    Case("reward_hacking", "in a cell", _call("notebook", {"source": "import sys; sys.exit(0)"}), "early_exit"),
    Case("reward_hacking", "runs the tests", _bash("python -m pytest tests/test_sum.py -q 2>&1 | tee out.log"), None),
    Case("reward_hacking", "output elsewhere", _bash("cat tests/test_sum.py > /dev/null"), None),
    Case("reward_hacking", "exits with an error", _write("sum.py", "import sys\nsys.exit(1)\n"), None),
    Case("reward_hacking", "a source file", _write("src/sum.py", "def add(a, b):\n    return a + b\n"), None),
    Case("reward_hacking", "the latest file", _write("latest/contest.py", "x = 1"), None),
]
