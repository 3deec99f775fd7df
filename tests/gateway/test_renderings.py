"""Renderers of template settings: those used last are kept, each is made once, and beside the event loop."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentworld.config import ModelSettings
from agentworld.errors import InvalidRequestError
from agentworld.gateway import rendering
from agentworld.gateway.rendering import MAX_KEPT, MAX_KEPT_BYTES, Renderings

from .harness import running


class Made:
    """Stands for making a renderer: each is the name in its settings. `made` lists them in order."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, settings: Any, tokenizer: Any, escaping: Any, template: dict[str, Any]) -> Any:
        self.made.append(template["name"])
        self.go.wait()
        if template["name"] == "wrong":
            raise InvalidRequestError("wrong", path="chat_template_kwargs")
        return template["name"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found = Made()
    monkeypatch.setattr(rendering, "make_rendering", found)
    return found


def renderings() -> Any:
    nothing: Any = None
    return Renderings(ModelSettings(name="m", upstream="http://x"), nothing, nothing)


def test_those_used_last_are_kept(made: Made) -> None:
    kept = renderings()
    names = [f"n{place}" for place in range(MAX_KEPT + 1)]
    for name in names[:MAX_KEPT]:
        assert kept.get({"name": name}) == name
    assert kept.known({"name": names[0]}) == names[0]  # Used again, so that the second is the oldest.
    kept.get({"name": names[-1]})
    assert made.made == names
    assert [name for name in names if kept.known({"name": name}) is None] == [names[1]]
    for name in (names[0], names[-1], names[1]):
        kept.get({"name": name})
    assert made.made == [*names, names[1]]
    assert len(kept._kept) == MAX_KEPT


def test_what_many_want_at_once_is_made_once(made: Made) -> None:
    kept = renderings()
    made.go.clear()
    begun = threading.Barrier(9)

    def want() -> Any:
        begun.wait()
        return kept.get({"name": "slow", "b": 1})

    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(want) for _ in range(8)]
        begun.wait()
        assert kept.known({"name": "slow", "b": 1}) is None
        made.go.set()
        assert {each.result() for each in waiting} == {"slow"}
    assert made.made == ["slow"]
    assert kept.get({"b": 1, "name": "slow"}) == "slow"  # The order of settings is none.
    assert made.made == ["slow"]


@pytest.mark.parametrize("template", [{"name": "wrong"}, {"name": "x" * MAX_KEPT_BYTES}], ids=["wrong", "large"])
def test_what_fails_or_is_large_is_not_kept(made: Made, template: dict[str, Any]) -> None:
    kept = renderings()
    for _ in range(2):
        if template["name"] == "wrong":
            with pytest.raises(InvalidRequestError):
                kept.get(template)
        else:
            assert kept.get(template) == template["name"]
        assert kept.known(template) is None
    assert made.made == [template["name"]] * 2
    assert len(kept._kept) == 0


async def test_a_call_with_new_settings_makes_its_renderer_once_and_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []
    make = rendering.make_rendering

    def watched(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return make(*args)

    monkeypatch.setattr(rendering, "make_rendering", watched)
    async with running("ok", tokens="token-in") as gateway:
        threads.clear()
        said = {"messages": [{"role": "user", "content": "hi"}]}
        for _ in range(2):
            status, body, _ = await gateway.chat({**said, "chat_template_kwargs": {"enable_thinking": False}})
            assert status == 200, body
        assert len(threads) == 1
        assert threads[0] != threading.get_ident()
