"""The pool's lock is not held while statements of an append are compiled."""

import subprocess
import sys

_APPENDS = """
import sys, threading
from agentworld.pool import open_store
from agentworld.pool.sql.statements import Statement
from agentworld.records import Message, Step

compiled = []
compile_one = Statement._compile

def noted(statement, engine):
    text = compile_one(statement, engine)
    compiled.append((threading.current_thread().name, text.split(" (")[0]))
    return text

Statement._compile = noted
pool = open_store(f"sqlite:///{sys.argv[1]}")
said = [Message(role="user", content="a question")]
reply = Message(role="assistant", content="an answer")
tools = [{"type": "function", "function": {"name": "look"}}]
for number in range(2):
    step = Step(
        step_id=f"s{number}",
        trajectory_id="t",
        prompt_ids=list(range(300)),
        response_ids=[1, 2],
        prompt_messages=said,
        response_message=reply,
        tools=tools,
    )
    assert pool.append_steps([step])[0].outcome == "stored"
pool.close()
print(len([text for name, text in compiled if name == "MainThread"]))
print([text for name, text in compiled if name != "MainThread"])
"""


def test_the_first_append_compiles_its_statements_before_it_waits_for_the_lock(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _APPENDS, str(tmp_path / "pool.db")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    number, under_the_lock = done.stdout.splitlines()
    assert int(number) > 10
    assert under_the_lock == "[]"
