"""Fakes for tests of programs that use AgentWorld: an engine that follows a script, a byte tokenizer."""

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
