"""The agent runtimes of the experiments: the loop in process, the `openai` script, a LangGraph graph."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from agentworld.agents.definition import Agent, CommandAgent, LoopAgent
from agentworld.errors import ConfigError
from experiments.cells import Runtime

FRAMEWORK_PYTHON = "AGENTWORLD_FRAMEWORK_PYTHON"
"""Names the interpreter whose environment has langgraph and langchain-openai; by default the running one."""
TIMEOUT = 120.0


def agent_for(runtime: Runtime, turns: int) -> Agent:
    """The agent; ConfigError where its framework is not installed."""
    if runtime == "loop":
        return LoopAgent(name="loop", max_turns=turns, timeout=TIMEOUT)
    if runtime == "openai":
        command: tuple[str, ...] = ("{python}", "-m", "agentworld.agents.openai_agent", "--lines")
    else:
        python = os.environ.get(FRAMEWORK_PYTHON)
        if python is None and importlib.util.find_spec("langgraph") is None:
            raise ConfigError(
                "the runtime langgraph needs langgraph and langchain-openai",
                hint=f"pip install them, or have {FRAMEWORK_PYTHON} name a Python that has them",
            )
        command = (python or sys.executable, str(Path(__file__).with_name("langgraph_lines.py")))
    return CommandAgent(name=runtime, command=command, lines=True, max_turns=turns, timeout=TIMEOUT, concurrency=32)
