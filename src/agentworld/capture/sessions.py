"""What the gateway remembers of each trajectory: the tips that a request can continue, and the bodies it has seen.

A cache over the pool: bounded by bytes, least recently used first out, and filled from the pool again when a
trajectory comes back or another worker has served it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from agentworld.errors import NotFoundError
from agentworld.forest import Tip, chain, match_key, token_array, tools_digest
from agentworld.pool.protocol import Pool
from agentworld.records import Message, Step, Trajectory

ROOT = b"conversation"
"""Parent of every conversation's first message in match keys."""
MAX_TIPS = 256
MAX_BYTES = 256 * 1024 * 1024
_PAGE = 64


def message_keys(messages: list[Message] | tuple[Message, ...], known: list[bytes] | None = None) -> list[bytes]:
    """Match keys of a conversation's prefixes."""
    return chain(ROOT, messages, match_key, known or ())


class Session:
    """One trajectory as this process knows it. `trajectory` is None while the pool has none."""

    def __init__(self, trajectory_id: str, trajectory: Trajectory | None) -> None:
        self.trajectory_id = trajectory_id
        self.trajectory = trajectory
        self.tips: list[Tip] = []
        self.renderers: dict[str, str] = {}
        """Step id -> renderer digest, for sound steps whose prompt the gateway rendered: those may be built upon."""
        self.repeats: dict[str, dict[int, str]] = {}
        """Body digest -> choice index -> the latest step with that body."""
        self.size = 1024
        self.passed_over = 0
        """Steps in the pool that were too many to load."""
        self._known: set[str] = set()
        self._ordinal = 0

    def add(self, step: Step, keys: list[bytes] | None = None) -> None:
        """Remember a stored step. `keys`: match keys of its prompt messages, if known."""
        if step.step_id in self._known:
            return
        self._known.add(step.step_id)
        digest = step.metadata.get("body_digest")
        if isinstance(digest, str):
            self.repeats.setdefault(digest, {})[step.choice_index] = step.step_id
        if step.response_message is None or step.finish_reason == "abort":
            return
        messages = [*(step.prompt_messages or []), step.response_message]
        ids = None
        if step.prompt_ids is not None and step.response_ids is not None:
            ids = token_array([*step.prompt_ids, *step.response_ids])
        self._ordinal += 1
        tip = Tip(
            step_id=step.step_id,
            keys=message_keys(messages, keys),
            messages=messages,
            tools=tools_digest(step.tools),
            ids=ids,
            prompt_length=len(step.prompt_ids or []),
            finish_reason=step.finish_reason,
            ordinal=self._ordinal,
        )
        self.tips.append(tip)
        renderer = step.metadata.get("renderer")
        if isinstance(renderer, str) and _is_sound(step):
            self.renderers[step.step_id] = renderer
        self.size += _weight(tip)
        while len(self.tips) > MAX_TIPS:
            oldest = self.tips.pop(0)
            self.renderers.pop(oldest.step_id, None)
            self.size -= _weight(oldest)

    def discard(self, step_id: str) -> None:
        """Forget a step that did not become durable."""
        self._known.discard(step_id)
        self.renderers.pop(step_id, None)
        for tip in [tip for tip in self.tips if tip.step_id == step_id]:
            self.tips = [other for other in self.tips if other is not tip]
            self.size -= _weight(tip)
        for steps in self.repeats.values():
            for index in [index for index, known in steps.items() if known == step_id]:
                del steps[index]

    def knows(self, step_id: str) -> bool:
        """Whether the step has been added."""
        return step_id in self._known

    def missing(self, step_count: int) -> int:
        """How many of the trajectory's steps this session has not seen."""
        return max(step_count - len(self._known) - self.passed_over, 0)


def _is_sound(step: Step) -> bool:
    """Whether the step's counts agree, as the pool compares them, so that its ids are those of the engine."""
    prompt, response = len(step.prompt_ids or []), len(step.response_ids or [])
    usage, logprobs = step.usage, step.response_logprobs
    return (
        step.excluded_reason is None
        and (usage is None or (usage.prompt_tokens, usage.completion_tokens) == (prompt, response))
        and (logprobs is None or len(logprobs) == response)
    )


def _weight(tip: Tip) -> int:
    """About how many bytes a tip keeps alive that no other does: messages are shared with the tips before it."""
    ids = tip.ids.nbytes if tip.ids is not None else 0
    return 512 + ids + 80 * len(tip.keys) + 4 * len(tip.messages[-1].text)


class Sessions:
    """All sessions of this process. Call from the event loop."""

    def __init__(self, pool: Pool, max_bytes: int = MAX_BYTES) -> None:
        self._pool = pool
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Session]] = {}
        self._kept = 0

    def __len__(self) -> int:
        return len(self._sessions)

    async def get(self, trajectory_id: str) -> Session:
        """The session, loaded from the pool the first time."""
        session = self._sessions.get(trajectory_id)
        if session is not None:
            self._sessions.move_to_end(trajectory_id)
            return session
        task = self._loading.get(trajectory_id)
        if task is None:
            task = asyncio.create_task(self._load(trajectory_id))
            self._loading[trajectory_id] = task
            task.add_done_callback(lambda _: self._loading.pop(trajectory_id, None))
        return await asyncio.shield(task)

    async def _load(self, trajectory_id: str) -> Session:
        session = await asyncio.to_thread(self._read, trajectory_id)
        return self._keep(session)

    def fresh(self, trajectory_id: str) -> Session:
        """The session of a trajectory whose id was made just now, so that the pool cannot have it."""
        return self._keep(Session(trajectory_id, None))

    def _keep(self, session: Session) -> Session:
        self._sessions[session.trajectory_id] = session
        self._kept += 1
        if self._kept % 64 == 0:  # Summing up costs more than a few sessions too many.
            self.trim()
        return session

    def _read(self, trajectory_id: str) -> Session:
        try:
            trajectory = self._pool.get_trajectory(trajectory_id)
        except NotFoundError:
            return Session(trajectory_id, None)
        session = Session(trajectory_id, trajectory)
        for step in self._steps(session, trajectory.step_count):
            session.add(step)
        session.passed_over = session.missing(trajectory.step_count)
        return session

    def _steps(self, session: Session, step_count: int) -> list[Step]:
        """The latest steps that the session lacks, in order."""
        missing = min(session.missing(step_count), MAX_TIPS)
        found: list[Step] = []
        cursor = None
        while len(found) < missing:
            page = self._pool.list_steps(
                trajectory_id=session.trajectory_id,
                order="newest",
                cursor=cursor,
                limit=min(_PAGE, missing),
                include=("tokens", "messages"),
            )
            found.extend(step for step in page.items if not session.knows(step.step_id))
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[:missing][::-1]

    def _news(self, session: Session) -> list[Step]:
        try:
            trajectory = self._pool.get_trajectory(session.trajectory_id)
        except NotFoundError:
            return []
        return self._steps(session, trajectory.step_count)

    async def refresh(self, session: Session) -> bool:
        """Take in what other workers stored; whether there was something."""
        steps = await asyncio.to_thread(self._news, session)
        for step in steps:
            session.add(step)
        return bool(steps)

    def held(self) -> list[str]:
        """Ids of the sessions in memory, the least recently used first."""
        return list(self._sessions)

    def trim(self) -> None:
        """Drop the least recently used sessions beyond the bound."""
        total = sum(session.size for session in self._sessions.values())
        while total > self._max_bytes and len(self._sessions) > 1:
            _, oldest = self._sessions.popitem(last=False)
            total -= oldest.size
