"""What the gateway remembers of each trajectory: the tips that a request can continue, and the bodies it has seen.

A cache over the pool: bounded by bytes, least recently used first out, and filled from the pool again when a
trajectory comes back or another worker has served it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from agentworld.capture.failures import Failures
from agentworld.capture.holdings import Holdings, owner
from agentworld.capture.keys import LateKeys
from agentworld.capture.keys import ids_key as ids_key
from agentworld.capture.keys import message_keys as message_keys
from agentworld.capture.looks import Looks
from agentworld.capture.replies import is_sound, joined_reply
from agentworld.capture.spelling import Repeat, alike, spoken
from agentworld.errors import NotFoundError
from agentworld.forest import Tip, TokenArray, common_prefix, match_key, token_array, tools_digest
from agentworld.pool.protocol import Pool
from agentworld.records import Message, Step, Trajectory

MAX_TIPS = 256
MAX_BYTES = 256 * 1024 * 1024
_PAGE = 64
_LOOKS = 4
_LOOK_BACK = 8
"""So many of the latest steps are compared with a request's messages."""
_PER_SESSION = 1024
_PER_STEP = 512
"""Its ids and the digest of its body."""


class Session:
    """One trajectory as this process knows it. `trajectory` is None while the pool has none."""

    def __init__(self, trajectory_id: str, trajectory: Trajectory | None) -> None:
        self.trajectory_id = trajectory_id
        self.trajectory = trajectory
        self.claimed_group: str | None = None
        """The group that the calls in flight will create the trajectory in."""
        self.tips: list[Tip] = []
        self.renderers: dict[str, str] = {}
        """Step id -> renderer digest, for sound steps whose prompt the gateway rendered: those may be built upon."""
        self.leads: dict[str, int] = {}
        """Step id -> so many of its prompt's last ids begin its reply."""
        self.completions: set[str] = set()
        """Steps whose prompt went to the engine without a chat template."""
        self.repeats: dict[tuple[str, int], list[Repeat]] = {}
        """Body digest and choice index -> the steps with that body that no other supersedes from the start."""
        self._failures = Failures()
        self._last_at = 0.0
        self.passed_over = 0
        """Steps in the pool that were too many to load."""
        self.on_growth: Callable[[int], None] | None = None
        self._holdings = Holdings()
        self._known: set[str] = set()
        self.on_their_way: set[str] = set()
        """Steps that are known here, and that the pool may not count yet."""
        self._ordinal = 0

    @property
    def last_at(self) -> float:
        """When the latest call that is known here came, else when the trajectory was made; now where it is not there:
        seconds since the epoch.
        """
        if self._last_at:
            return self._last_at
        return time.time() if self.trajectory is None else self.trajectory.created_at

    @property
    def size(self) -> int:
        """About how many bytes this session keeps alive."""
        return _PER_SESSION + _PER_STEP * len(self._known) + self._holdings.bytes + self._failures.bytes

    def recall(self, messages: Sequence[Message]) -> tuple[list[Message], list[bytes]]:
        """The messages, with the session's own objects in place of those that say the same, and their match keys.

        A request repeats its whole history, decoded anew. With one object for each message, a conversation takes
        memory for what is new in it, and comparing it is quick. What a client spells in another way than it was sampled
        (the spaces of tool arguments, null beside tool calls) is as it was sampled again, so that the engine renders
        it as before.
        """
        if not self.tips:
            return list(messages), []
        best: Tip | None = None
        depth = 0
        for tip in reversed(self.tips[-_LOOK_BACK:]):
            if len(tip.keys) != len(tip.messages):
                continue  # Its prompt is ids.
            shared = alike(tip.messages, messages)
            if shared > depth:
                best, depth = tip, shared
            if shared >= len(tip.messages) - 1:
                break
        if best is None:
            return list(messages), []
        kept = [
            spoken(mine, yours) if position < depth else mine if mine == yours else yours
            for position, (mine, yours) in enumerate(zip(best.messages, messages, strict=False))
        ]
        return [*kept, *messages[len(kept) :]], list(best.keys[:depth])

    def add(
        self, step: Step, keys: Sequence[bytes] | None = None, ids: TokenArray | None = None, tools: bytes | None = None
    ) -> None:
        """Remember a stored step. `keys`: match keys of its prompt messages, `ids`: its prompt and reply, `tools`: the
        digest of its tools, if known.
        """
        if step.step_id in self._known:
            return
        before = self._holdings.bytes
        self._known.add(step.step_id)
        if step.created_at > self._last_at:
            self._last_at = step.created_at
        overtaken = "superseded_by" in step.metadata
        digest = step.metadata.get("body_digest")
        if isinstance(digest, str) and not overtaken:
            count, after_failure = step.metadata.get("retry_count") or 0, bool(step.metadata.get("after_failure"))
            repeat = Repeat(step.step_id, count, step.created_at, after_failure)
            self.repeats.setdefault((digest, step.choice_index), []).append(repeat)
        # Who was overtaken by a retry is not continued: its client asked again and took the other reply.
        if step.response_message is not None and step.finish_reason != "abort" and not overtaken:
            if ids is None and step.prompt_ids is not None and step.response_ids is not None:
                ids = token_array([*step.prompt_ids, *step.response_ids])
            prompt, reply = list(step.prompt_messages or []), step.response_message
            tools = tools_digest(step.tools) if tools is None else tools
            self._add_tip(step, prompt, reply, ids, keys, tools)
            if prompt and step.metadata.get("continues"):
                # Clients put the beginning and what came of it together; others keep two messages.
                whole = joined_reply(prompt[-1], reply)
                self._add_tip(step, prompt[:-1], whole, ids, None if keys is None else keys[:-1], tools)
        self._grown(_PER_STEP + self._holdings.bytes - before)

    def _add_tip(
        self,
        step: Step,
        prompt: list[Message],
        reply: Message,
        ids: TokenArray | None,
        keys: Sequence[bytes] | None,
        tools: bytes,
    ) -> None:
        messages, known = self.recall([*prompt, reply])
        tip_keys: Sequence[bytes]
        if isinstance(keys, LateKeys):
            tip_keys = keys.then(messages[-1])
        elif keys and len(keys) == len(messages) - 1:
            tip_keys = [*keys, match_key(keys[-1], messages[-1])]
        elif prompt or step.prompt_ids is None:
            tip_keys = message_keys(messages, keys if keys is not None else known)
        else:
            tip_keys = [root := ids_key(step.prompt_ids), match_key(root, reply)]
        if "completion" in step.metadata:
            self.completions.add(step.step_id)
        self._ordinal += 1
        tip = Tip(
            step_id=step.step_id,
            keys=tip_keys,
            messages=messages,
            tools=tools,
            ids=ids,
            prompt_length=0 if step.prompt_ids is None else len(step.prompt_ids),
            finish_reason=step.finish_reason,
            ordinal=self._ordinal,
            agent=step.agent,
        )
        if ids is not None and step.parent_step_id is not None:
            self._share_ids(step.parent_step_id, ids)
        self.tips.append(tip)
        self._holdings.take(tip)
        renderer = step.metadata.get("renderer")
        if isinstance(renderer, str) and is_sound(step):
            self.renderers[step.step_id] = renderer
            if lead := step.metadata.get("prefilled"):
                self.leads[step.step_id] = lead
        while len(self.tips) > MAX_TIPS:
            oldest = self.tips.pop(0)
            self.renderers.pop(oldest.step_id, None)
            self.leads.pop(oldest.step_id, None)
            self.completions.discard(oldest.step_id)
            self._holdings.drop(oldest)

    def _share_ids(self, parent_id: str, ids: TokenArray) -> None:
        """Let the parent, where the ids go on from all of its own, look into them instead of holding a copy.

        So do the steps before it that look into the parent's.
        """
        parent = next((tip for tip in reversed(self.tips) if tip.step_id == parent_id), None)
        if parent is None or parent.ids is None or owner(parent.ids) is not parent.ids:
            return
        array = parent.ids
        if not len(array) or common_prefix(array, ids) < len(array):
            return
        for tip in self.tips:
            if tip.ids is not None and owner(tip.ids) is array:
                view = ids[: len(tip.ids)]
                self._holdings.take_ids(view)
                self._holdings.drop_ids(tip.ids)
                msgspec.structs.force_setattr(tip, "ids", view)

    def _grown(self, size: int) -> None:
        if self.on_growth is not None:
            self.on_growth(size)

    def discard(self, step_id: str) -> None:
        """Forget a step that did not become durable."""
        before = self.size
        self._known.discard(step_id)
        self.renderers.pop(step_id, None)
        self.leads.pop(step_id, None)
        self.completions.discard(step_id)
        for tip in [tip for tip in self.tips if tip.step_id == step_id]:
            self.tips = [other for other in self.tips if other is not tip]
            self._holdings.drop(tip)
        for place, steps in list(self.repeats.items()):
            left = [repeat for repeat in steps if repeat.step_id != step_id]
            if not left:
                del self.repeats[place]
            elif len(left) < len(steps):
                self.repeats[place] = left
        self._grown(self.size - before)

    def overtaken_by(self, body_digest: str, choice: int, retry_count: int, created_at: float) -> str | None:
        """The step of a retry that was asked later than this call and stored sooner; None where there is none."""
        for repeat in reversed(self.repeats.get((body_digest, choice), ())):
            if repeat.retry_count > retry_count and repeat.created_at > created_at and not repeat.after_failure:
                return repeat.step_id
        return None

    def repeated(self, body_digest: str, choice: int) -> str | None:
        """The latest step with this body."""
        steps = self.repeats.get((body_digest, choice))
        return steps[-1].step_id if steps else None

    def failed(self, body_digest: str, half_done: Mapping[int, str] | None = None) -> None:
        """Remember that a call with this body failed or was left; its client may ask again. See `take_failure`."""
        before = self.size
        self._failures.add(body_digest, half_done)
        self._grown(self.size - before)

    def take_failure(self, body_digest: str) -> dict[int, str] | None:
        """The half-done steps of the latest failed call of this body that no retry has taken up; None without one."""
        before = self.size
        taken = self._failures.take(body_digest)
        self._grown(self.size - before)
        return taken

    def has_failed(self, body_digest: str) -> bool:
        """Whether a call with this body failed here, be it that a retry has taken it up."""
        return body_digest in self._failures

    def knows(self, step_id: str) -> bool:
        """Whether the step has been added."""
        return step_id in self._known

    def missing(self, step_count: int, uncounted: int = 0) -> int:
        """How many of the trajectory's steps this session has not seen. `uncounted`: so many that it knows are not in
        the count.
        """
        return max(step_count - (len(self._known) - uncounted) - self.passed_over, 0)


class Sessions:
    """All sessions of this process. Call from the event loop."""

    def __init__(self, pool: Pool, max_bytes: int = MAX_BYTES) -> None:
        self._pool = pool
        self._looks = Looks(pool)
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Session]] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def total(self) -> int:
        """About how many bytes all sessions keep alive."""
        return self._total

    async def get(self, trajectory_id: str) -> Session:
        """The session with its trajectory as the pool has it now; its steps are loaded the first time."""
        session = self._sessions.get(trajectory_id)
        if session is not None:
            self._sessions.move_to_end(trajectory_id)
            found = await self._looks.of(self._find, trajectory_id)
            session.trajectory = found or session.trajectory
            return session
        task = self._loading.get(trajectory_id)
        if task is None and self._looks.at_once:
            trajectory = self._looks.now(self._find, trajectory_id)
            if trajectory is None or not trajectory.step_count:  # There is nothing to load.
                return self._keep(Session(trajectory_id, trajectory))
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
        session.on_growth = self._count
        self._count(session.size)
        return session

    def _count(self, size: int) -> None:
        self._total += size
        self.trim()

    def _find(self, trajectory_id: str) -> Trajectory | None:
        """The trajectory without its free JSON, as task and metadata can be of any size."""
        try:
            found = self._pool.get_trajectory(trajectory_id)
        except NotFoundError:
            return None
        return msgspec.structs.replace(found, task=None, metadata={}, labels={}, rewards={}, annotations=[])

    def _read(self, trajectory_id: str) -> Session:
        trajectory = self._find(trajectory_id)
        session = Session(trajectory_id, trajectory)
        if trajectory is None:
            return session
        for step in self._steps(session, trajectory.step_count):
            session.add(step)
        session.passed_over = session.missing(trajectory.step_count)
        return session

    def _steps(self, session: Session, step_count: int) -> list[Step]:
        """The latest steps that the session lacks, in order."""
        missing = min(session.missing(step_count), MAX_TIPS)
        # Those on their way may hide as many that others stored: one page tells.
        waiting = len(session.on_their_way)
        most = min(session.missing(step_count, waiting), MAX_TIPS)
        found: list[Step] = []
        cursor = None
        while len(found) < most:
            page = self._pool.list_steps(
                trajectory_id=session.trajectory_id,
                order="newest",
                cursor=cursor,
                limit=_PAGE if waiting else min(_PAGE, missing),
                include=("tokens", "messages"),
            )
            found.extend(step for step in page.items if not session.knows(step.step_id))
            cursor = page.next_cursor
            if cursor is None or len(found) >= missing:
                break
        return found[:most][::-1]

    def _news(self, session: Session) -> list[Step]:
        trajectory = self._find(session.trajectory_id)
        steps: list[Step] = []
        for _ in range(_LOOKS):
            if trajectory is None:
                break
            count = trajectory.step_count
            steps = self._steps(session, count)
            trajectory = self._find(session.trajectory_id)
            if trajectory is not None and trajectory.step_count == count:
                break  # Else what came in between may have taken the place of what was lacking.
        return steps

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
        """Drop the least recently used sessions beyond the bound; the latest stays."""
        while self._total > self._max_bytes and len(self._sessions) > 1:
            _, oldest = self._sessions.popitem(last=False)
            oldest.on_growth = None
            self._total -= oldest.size
