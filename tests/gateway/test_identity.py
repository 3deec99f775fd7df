"""Keys and paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.gateway.keys import session_key, trajectory_of
from agentworld.gateway.routes import find_route


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@~-]{0,127}", fullmatch=True))
def test_a_session_key_names_its_trajectory(trajectory: str) -> None:
    assert trajectory_of(session_key(trajectory)) == trajectory


@pytest.mark.parametrize("key", ["", "sk-123", "aw-t-", "aw-t-a b", "aw-t-../x", "AW-T-x"])
def test_other_keys_name_none(key: str) -> None:
    assert trajectory_of(key) is None


def test_a_key_for_no_id() -> None:
    with pytest.raises(InvalidRequestError):
        session_key("a b")


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/chat/completions", ("/v1/chat/completions", None, None)),
        ("/v1/chat/completions/", ("/v1/chat/completions", None, None)),
        ("/t/a/v1/chat/completions", ("/v1/chat/completions", "a", None)),
        ("/t/a/g/b/v1/chat/completions", ("/v1/chat/completions", "a", "b")),
    ],
)
def test_routes(path: str, route: tuple[str, str | None, str | None]) -> None:
    found = find_route("POST", path)
    assert (found.name, found.trajectory, found.group) == route


@given(st.text(max_size=60))
def test_any_other_path_is_a_clear_error(path: str) -> None:
    with pytest.raises(AgentWorldError) as caught:
        find_route("POST", "/t/x/" + path)
    assert caught.value.status in (400, 404, 405)
