"""Replies that say which question they answer, a token at a time, so that kills fall inside replies."""

import random

from agentworld.testing.scripted_engine import ScriptedReply


def echo(request):
    """The last message's text again, at a pace that differs from question to question."""
    question = request.messages[-1]["content"] if request.messages else request.prompt_text
    pace = random.Random(str(question)).uniform(0.0, 0.004)
    return ScriptedReply(text=f"heard {question}", first_token_delay=pace * 3, token_delay=pace)
