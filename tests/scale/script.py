"""Replies of the scripted engine: the last question in the prompt, so that a mix-up of conversations shows."""

import re

from agentworld.testing.scripted_engine import ScriptedReply


def echo(request):
    return ScriptedReply(text=f"heard {re.findall(r'question [0-9.]+', request.prompt_text)[-1]}")
