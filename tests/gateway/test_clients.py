"""Sessions of known clients: what they send is one trajectory, whatever else they send with it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.gateway.clients import ClientSession, read_client
from agentworld.gateway.http import Http
from tests.gateway.harness import Harness, running

SESSION = "0192f3a4-7c1d-7c3e-9a55-0f6b2c9d1e77"
OTHER = "0192f3a4-7c1d-7c3e-9a55-ffffffffffff"


def of(headers: dict[str, str], body: dict[str, Any] | None = None) -> ClientSession:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is read")

    http = Http({"type": "http", "method": "POST", "path": "/", "headers": pairs}, nothing, nothing)
    return read_client(http, body or {})


def turn(**fields: Any) -> str:
    return json.dumps({"session_id": SESSION, "thread_id": SESSION, "agent_name": "/root", **fields})


CODEX = {"session-id": SESSION, "thread-id": SESSION, "originator": "codex_exec"}


@pytest.mark.parametrize(
    ("headers", "body", "trajectory", "agent"),
    [
        ({"x-claude-code-session-id": SESSION}, {}, f"claude-code-{SESSION}", None),
        (
            {"x-claude-code-session-id": SESSION, "x-claude-code-agent-id": "agent-0001"},
            {},
            f"claude-code-{SESSION}",
            "agent-0001",
        ),
        ({}, {"metadata": {"user_id": f"user_0a1b_account__session_{SESSION}"}}, f"claude-code-{SESSION}", None),
        (
            {},
            {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": SESSION})}},
            f"claude-code-{SESSION}",
            None,
        ),
        ({**CODEX, "x-codex-turn-metadata": turn()}, {}, f"codex-{SESSION}", None),
        ({"session_id": SESSION, "originator": "codex_cli_rs"}, {}, f"codex-{SESSION}", None),
        ({"originator": "codex_vscode"}, {"prompt_cache_key": SESSION}, f"codex-{SESSION}", None),
        (
            {"originator": "codex_exec"},
            {"client_metadata": {"session_id": SESSION, "thread_id": OTHER}},
            f"codex-{SESSION}",
            OTHER,
        ),
        ({**CODEX, "thread-id": OTHER}, {}, f"codex-{SESSION}", OTHER),
        (
            {"session-id": OTHER, "x-codex-turn-metadata": turn(thread_id=OTHER, agent_name="/root/tests")},
            {},
            f"codex-{SESSION}",
            "/root/tests",
        ),
        ({**CODEX, "x-openai-subagent": "review"}, {}, f"codex-{SESSION}", "review"),
        ({"x-session-id": "ses_0123456789"}, {}, "opencode-ses_0123456789", None),
        (
            {"x-session-id": "ses_abcdefgh", "x-parent-session-id": "ses_0123456789"},
            {},
            "opencode-ses_0123456789",
            "ses_abcdefgh",
        ),
        # Names that others use too say nothing, nor do values that are no ids.
        ({"session_id": SESSION}, {"prompt_cache_key": SESSION}, None, None),
        ({"x-session-id": SESSION}, {}, None, None),
        ({}, {"metadata": {"user_id": "user-17"}}, None, None),
        ({}, {"metadata": {"user_id": json.dumps({"session_id": "../x"})}}, None, None),
        ({"x-claude-code-session-id": "a b"}, {"metadata": None}, None, None),
        ({}, {"metadata": "user_id"}, None, None),
    ],
)
def test_sessions(headers: dict[str, str], body: dict[str, Any], trajectory: str | None, agent: str | None) -> None:
    assert of(headers, body)[:2] == (trajectory, agent)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.just("{"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
HEADERS = ["originator", "thread-id", "session-id", "x-codex-turn-metadata", "x-session-id", "x-claude-code-session-id"]


@given(
    st.dictionaries(st.sampled_from(HEADERS), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)),
    st.dictionaries(st.sampled_from(["metadata", "client_metadata", "prompt_cache_key"]), ANYTHING),
)
def test_whatever_is_sent_is_a_session_or_none(headers: dict[str, str], body: dict[str, Any]) -> None:
    found = of(headers, body)
    assert found.trajectory_id is None or len(found.trajectory_id) <= 128


async def ask(harness: Harness, headers: dict[str, str], messages: list[dict[str, Any]]) -> str:
    url = harness.url + "/v1/chat/completions"
    async with harness.http.post(url, json={"messages": messages}, headers=headers) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("main", "sub"),
    [
        (
            {"x-claude-code-session-id": SESSION},
            {"x-claude-code-session-id": SESSION, "x-claude-code-agent-id": "agent-0001"},
        ),
        ({**CODEX, "x-codex-turn-metadata": turn()}, {**CODEX, "x-codex-turn-metadata": turn(agent_name="/root/b")}),
        ({"x-session-id": "ses_00000001"}, {"x-session-id": "ses_00000002", "x-parent-session-id": "ses_00000001"}),
    ],
)
@pytest.mark.parametrize("tokens", ["engine", "token-in"])
async def test_a_sub_agent_interleaves_with_its_parent(main: dict[str, str], sub: dict[str, str], tokens: str) -> None:
    """A1, B1, A2, B2, with one system prompt: each goes on from its own."""
    async with running(lambda request: f"reply {request.call}", tokens=tokens) as harness:
        system = {"role": "system", "content": "You are one of many."}
        a = [system, {"role": "user", "content": "Do it."}]
        b = [system, {"role": "user", "content": "Look into it."}]
        for turns in range(2):
            for headers, messages in ((main, a), (sub, b)):
                said = await ask(harness, headers, messages)
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"on {turns}"}]
        a1, b1, a2, b2 = harness.steps()
        assert len({step.trajectory_id for step in (a1, b1, a2, b2)}) == 1
        assert [step.fork_reason for step in (a1, b1, a2, b2)] == [None, "subagent", None, None]
        assert [step.parent_step_id for step in (a1, b1, a2, b2)] == [None, None, a1.step_id, b1.step_id]
        assert (a1.agent, a2.agent) == (None, None)
        assert b1.agent == b2.agent is not None


async def test_the_path_goes_before_a_clients_session() -> None:
    async with running() as harness, aiohttp.ClientSession() as http:
        url = harness.url + "/t/mine/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "hi"}]}
        async with http.post(url, json=body, headers={"x-claude-code-session-id": SESSION}) as response:
            assert response.headers["x-agentworld-trajectory"] == "mine"
