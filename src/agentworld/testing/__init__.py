"""Fakes for tests of programs that use AgentWorld: an engine that follows a script, a byte tokenizer.

Names are imported on first use, so that each fake costs only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentworld.engines.tokenizer import byte_tokenizer
    from agentworld.testing.scripted_engine import (
        RecordedCall,
        ScriptedEngine,
        ScriptedReply,
        ScriptedRequest,
    )
    from agentworld.testing.wire_faults import WireFaults

__all__ = [
    "RecordedCall",
    "ScriptedEngine",
    "ScriptedReply",
    "ScriptedRequest",
    "WireFaults",
    "byte_tokenizer",
]

_HOME = {
    "RecordedCall": "agentworld.testing.scripted_engine",
    "ScriptedEngine": "agentworld.testing.scripted_engine",
    "ScriptedReply": "agentworld.testing.scripted_engine",
    "ScriptedRequest": "agentworld.testing.scripted_engine",
    "WireFaults": "agentworld.testing.wire_faults",
    "byte_tokenizer": "agentworld.engines.tokenizer",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
