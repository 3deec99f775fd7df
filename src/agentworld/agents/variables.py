"""The environment variables through which known agents find their model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

NO_KEY = "agentworld"
ANTHROPIC_TOKEN = "ANTHROPIC_AUTH_TOKEN"


def agent_environment(
    around: Mapping[str, str], program: str, base_url: str, api_key: str | None, trajectory_id: str
) -> dict[str, str]:
    """The environment of an agent that `program` runs: `around`, with the variables by which it finds its model.

    The Anthropic package warns of two keys, so its second one, a user's too, is left out; for Claude Code it is set, as
    that asks a person before it uses the first.
    """
    variables = {**around, **base_url_variables(base_url, api_key, trajectory_id)}
    variables.pop(ANTHROPIC_TOKEN, None)
    if os.path.basename(program) == "claude":
        variables[ANTHROPIC_TOKEN] = api_key or NO_KEY
    return variables


def base_url_variables(base_url: str, api_key: str | None, trajectory_id: str) -> dict[str, str]:
    """Variables for the OpenAI and Anthropic packages and the agents built on them.

    `base_url` ends in /v1, which the Anthropic clients add themselves. The keys are always set, so that a real key of
    the user never goes to the gateway. A proxy of the user's is kept from the gateway's host.
    """
    key = api_key or NO_KEY
    host = urlsplit(base_url).hostname or ""
    direct = ",".join(dict.fromkeys([*filter(None, os.environ.get("NO_PROXY", "").split(",")), host]))
    return {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": key,
        # Claude Code also asks for titles of sessions and the like, which are no part of the task.
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "AGENTWORLD_TRAJECTORY_ID": trajectory_id,
        # Not the user's own key, which may do more than an agent should.
        "AGENTWORLD_API_KEY": key,
        "NO_PROXY": direct,
        "no_proxy": direct,
    }
