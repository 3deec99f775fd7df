"""Many generated requests at a gateway, some at once, by callers of every kind; each reply must be whole."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp

from agentworld.testing.scripted_engine import ScriptedRequest

from .generated import Call, follow, generate

AT_ONCE = 16
CALL_SECONDS = 60.0
SHARING = 200
"""So many calls in a row have a trajectory in common, where they go to a shared one."""
REPLIES = (
    "ok",
    "<think>\nhm\n</think>\n\nfür 数",
    '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>',
    '<tool_call>\n{"name": "look", "arguments": {"a',
    "",
)
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")
_CALLS = itertools.count()


def script(request: ScriptedRequest) -> str:
    """What the engine says: text, a thought, a tool call, half of one, nothing."""
    return REPLIES[next(_CALLS) % len(REPLIES)]


class Answer(NamedTuple):
    """How a call ended. `trajectory`: where it is on record, None where it was refused before it had one; `reply`: the
    body of a plain reply.
    """

    status: int
    trajectory: str | None
    reply: dict[str, Any] | None


Check = Callable[[Call, Answer], Awaitable[None]]


class Caller(NamedTuple):
    """Who says that it calls, and where."""

    prefix: str
    headers: dict[str, str]


def caller(rng: random.Random, number: int) -> Caller:
    """Who sends the request of this number: it names its trajectory in one way or another, or none."""
    own = f"g{number}"
    how = rng.choices(("header", "path", "group", "key", "shared", "nobody"), (4, 1, 1, 1, 1, 4))[0]
    if how == "path":
        return Caller(f"/t/{own}", {})
    if how == "group":
        return Caller(f"/t/{own}/g/grp{number // 8}", {"x-agentworld-agent": "für"})
    if how == "key":
        return Caller("", {"authorization": f"Bearer aw-t-{own}"})
    if how == "nobody":
        return Caller("", {"x-api-key": f"k{number % 3}"})
    return Caller("", {"x-agentworld-trajectory": f"s{number // SHARING}" if how == "shared" else own})


async def send(http: aiohttp.ClientSession, url: str, call: Call, by: Caller, retry: int = 0) -> Answer:
    """A reply that came must be whole, an error must be one of the API and the caller's."""
    headers = {"content-type": "application/json", "x-stainless-retry-count": str(retry), **by.headers}
    async with (
        asyncio.timeout(CALL_SECONDS),
        http.post(url + by.prefix + call.path, data=call.data, headers=headers) as response,
    ):
        data = await response.read()
        status = response.status
        trajectory = response.headers.get("x-agentworld-trajectory")
        streamed = response.content_type == "text/event-stream"
    seen = (call, by, status, data[:500])
    assert status == 200 or 400 <= status < 500, seen
    if not streamed:
        body = json.loads(data)
        assert status == 200 or body["error"]["message"], seen
        return Answer(status, trajectory, body)
    assert status == 200, seen
    assert b'"error":{' not in data, seen
    assert data.endswith(b"\n\n"), seen
    assert any(end in data for end in ENDS), seen
    return Answer(status, trajectory, None)


class Storm:
    """Generated requests at one gateway. `check` sees each call with its answer; those of a number depend on it alone,
    and on the replies.

    `ended`: how many calls by path, kind and hundreds of the status. `recorded`: how many are on record, as their
    answers say.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str, check: Check, seed: int = 7) -> None:
        self._http = http
        self._url = url
        self._check = check
        self._seed = seed
        self.ended: Counter[tuple[str, str, int]] = Counter()
        self.recorded = 0

    async def run(self, numbers: range) -> None:
        """Send the requests of these numbers; about one in five is sent again or followed by a further turn."""
        left = iter(numbers)

        async def work() -> None:
            for number in left:
                await self._one(number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(work())

    async def _one(self, number: int) -> None:
        rng = random.Random(f"{self._seed}.{number}")
        call, by = generate(rng), caller(rng, number)
        answer = await self._send(call, by)
        if rng.random() < 0.1:
            answer = await self._send(call._replace(kind="again"), by, retry=1)
        while call.kind in ("valid", "further") and answer.status == 200 and answer.reply and rng.random() < 0.6:
            further = follow(rng, call, answer.reply)
            if further is None:
                break
            call = further
            answer = await self._send(call, by)

    async def _send(self, call: Call, by: Caller, retry: int = 0) -> Answer:
        answer = await send(self._http, self._url, call, by, retry)
        self.ended[call.path, call.kind, answer.status // 100] += 1
        self.recorded += answer.trajectory is not None
        await self._check(call, answer)
        return answer
