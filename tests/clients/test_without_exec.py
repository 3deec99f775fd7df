"""Clients at the gateway's own base URL, which name no trajectory; and those whose calls fail at first."""

import pytest

from agentworld.testing import ScriptedReply
from tests.clients.conftest import needs
from tests.clients.replies import call, turn
from tests.clients.stage import chain
from tests.clients.test_guide import program

pytestmark = [
    pytest.mark.clients,
    needs("python"),
    pytest.mark.timeout(300),
    pytest.mark.parametrize("stage", ["token-in"], indirect=True),
]
CLIENTS = ["openai", "anthropic", "OpenAI Agents SDK", "LangGraph", "pydantic-ai"]
REPLIES = [turn("I look.", call("run", command="wc -l < notes.txt"), think="Count."), "It has 2 lines."]


def run_alone(stage, client):
    """Run the guide's program with the variables that a user would set."""
    (stage.work / "notes.txt").write_text("für\n数\n")
    run = stage.python(
        program(client),
        OPENAI_BASE_URL=f"{stage.url}/v1",
        OPENAI_API_KEY="none",
        ANTHROPIC_BASE_URL=stage.url,
        ANTHROPIC_API_KEY="none",
    )
    assert run.code == 0, run.errors
    assert run.output.strip() == "It has 2 lines."


@pytest.mark.parametrize("client", CLIENTS)
def test_a_conversation_that_names_no_trajectory_is_one(stage, client):
    stage.engine.script = REPLIES
    run_alone(stage, client)
    (trajectory,) = stage.new_trajectories()
    assert trajectory.status == "open"
    chain(stage.steps(trajectory))


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_what_a_client_asks_again_is_there_once(stage, client):
    """The gateway gives up on the first call, and the package asks again by itself."""
    replies = iter(REPLIES)
    down = 3  # The gateway's first try and its two further ones.

    def script(request):
        return ScriptedReply(status=503, error_body="away") if request.call < down else next(replies)

    stage.engine.script = script
    run_alone(stage, client)
    (trajectory,) = stage.new_trajectories()
    steps = list(stage.factory.all_steps(trajectory_id=trajectory.trajectory_id, include=("tokens", "messages")))
    chain(steps)
    assert len(steps) == 2
    exchanges = stage.factory.list_exchanges(trajectory.trajectory_id)
    assert sorted(exchange.error is None for exchange in exchanges) == [False, True, True]
    sampled = [list(ids) for request in stage.engine.requests for ids in request.sampled_ids if ids]
    assert [list(step.response_ids) for step in steps] == sampled
