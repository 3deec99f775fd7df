"""LLM APIs as pure translation: a request body to the canonical request, a reply to that API's body or events.

One module an API; no I/O. `exchange` holds the canonical records that every dialect and every engine driver speaks.
"""

from agentworld.dialects.exchange import Choice, Delta, Reply, Request, ToolCallDelta

__all__ = ["Choice", "Delta", "Reply", "Request", "ToolCallDelta"]
