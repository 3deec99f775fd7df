"""What one transaction appends, planned in memory and written table by table.

What may be there already (trajectories, steps, exchanges) is looked up for all of it together. Planning decides the
outcome of every step in the order in which they came, as if each were written before the next is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentworld.errors import ConflictError, GoneError, InvalidRequestError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool import counters, rules
from agentworld.pool.bounds import NOT_STORABLE, refusal
from agentworld.pool.events import stored_channel
from agentworld.pool.exact_text import stored_json
from agentworld.pool.intake import Prepared
from agentworld.pool.misplaced import conflict_of
from agentworld.pool.protocol import AppendResult, Rejected
from agentworld.pool.rejections import kept_text, rejection
from agentworld.pool.sql import append_rows, trajectories
from agentworld.pool.sql.append_intake import Intake, Payload, PreparedExchange, trajectories_of
from agentworld.pool.sql.call_marks import set_marks
from agentworld.pool.sql.forests import ForestWriter
from agentworld.pool.sql.packing import pack_logprobs, pack_mask, pack_tails, raw_logprobs
from agentworld.pool.sql.rewards import keep_rewards
from agentworld.pool.sql.rows import STEP_APPENDED
from agentworld.pool.sql.signals import apply_awaited
from agentworld.pool.sql.standing import settle_touched
from agentworld.pool.sql.step_digest import same_content
from agentworld.pool.sql.supersede import Superseded, supersede
from agentworld.pool.sql.tally import Tallies, Tally
from agentworld.pool.sql.traces import UNSPOKEN, MessageTrace, TokenTrace, ToolTrace
from agentworld.pool.sql.transaction import Mark, Transaction
from agentworld.records import NewTrajectory, Reward


class Batch:
    """What one transaction appends: rows by table, and what is known of what they refer to."""

    def __init__(self, txn: Transaction, forests: ForestWriter, tallies: Tallies, undisturbed: bool) -> None:
        self._txn = txn
        self._forests = forests
        self._undisturbed = undisturbed
        forests.begin(txn, undisturbed)
        self._counting = tallies
        self._tallies: dict[str, Tally] = {}  # by trajectory
        self._implied = trajectories.Implied(txn)
        self._begun: dict[str, Tally] = {}  # of trajectories that begin here
        self._changed: dict[int, Tally] = {}
        self._known: dict[str, tuple[bytes, int]] = {}
        self._exchanges: dict[str, bytes] = {}
        self._deleted: dict[str, str] = {}
        self._deleted_of: set[str] = set()
        self._steps: list[list[Any]] = []  # as append_rows.step_row makes them
        # kind, trajectory, step, data, channel of the trajectory
        self._events: list[tuple[str, str, str | None, str | None, str]] = []
        self._event_pks: list[int] = []  # of the first of them
        self._dead: list[dict[str, Any]] = []
        self._new_exchanges: list[tuple[Any, ...]] = []
        self._new_marks: list[dict[str, Any]] = []
        self._rewards: list[tuple[str, Reward]] = []  # on steps
        self._superseded: list[Superseded] = []
        self._late: dict[int, None] = {}  # trajectories
        self._late_steps: list[int] = []
        self._tails: list[tuple[list[Any], bytes]] = []
        self._first_step = self._next_step = txn.next_pk("steps", 0)
        self._first_exchange = txn.next_pk("exchanges", 0)
        self._ids = self._ids_in_tails = self._sampled = self._excluded = 0
        self._in_channel: dict[str, int] = {}

    # --- looking up -------------------------------------------------------------------------------------------
    def load(self, payloads: Sequence[Payload]) -> None:
        """Read what is there of all that the payloads name."""
        if len(payloads) == 1 and self._finds_nothing(payloads[0]):
            return
        named: set[str] = set()
        steps: set[str] = set()
        exchanges: set[str] = set()
        refused: list[Rejected] = []
        for payload in payloads:
            if isinstance(payload, PreparedExchange):
                exchanges.add(payload.exchange.exchange_id)
                named.add(payload.exchange.trajectory_id)
                payload = payload.steps
            for one in payload:
                if isinstance(one, Prepared):
                    steps.add(one.step.step_id)
                    named.add(one.step.trajectory_id)
                else:
                    refused.append(one)
        # Also where none is named, so that what is not known any more is forgotten: nobody disturbs what comes next.
        self._tallies = self._counting.load(self._txn, named, self._undisturbed)
        if steps and exchanges:
            self._known, self._exchanges = append_rows.known_calls(self._txn, steps, exchanges)
        elif steps:
            self._known = append_rows.known_steps(self._txn, steps)
        elif exchanges:
            self._exchanges = append_rows.known_exchanges(self._txn, exchanges)
        if (steps or refused) and self._txn.counter(counters.TOMBSTONES) > 0:
            steps.update(rules.printable(one.step_id) for one in refused)
            self._deleted = append_rows.deleted_steps(self._txn, steps)
            if refused:
                self._deleted_of = append_rows.deleted_trajectories(
                    self._txn, {rules.printable(one.trajectory_id) for one in refused}
                )

    def _finds_nothing(self, payload: Payload) -> bool:
        """Whether it is a lone call of which nothing is there but its trajectory, as one look tells."""
        if not isinstance(payload, PreparedExchange) or len(payload.steps) != 1:
            return False
        trajectory_id, step = payload.exchange.trajectory_id, payload.steps[0]
        if not isinstance(step, Prepared) or step.step.trajectory_id != trajectory_id:
            return False
        if self._txn.counter(counters.TOMBSTONES) > 0:
            return False
        tallies = self._counting.load(self._txn, (), self._undisturbed)
        sought = "" if trajectory_id in tallies else trajectory_id
        if append_rows.is_any_there(self._txn, sought, step.step.step_id, payload.exchange.exchange_id):
            return False
        self._tallies = tallies
        return True

    def go_on(self, before: Batch, payloads: Sequence[Payload]) -> None:
        """In the place of `load`: `before` has looked up what these name; what it left unwritten goes with this one."""
        self._known, self._exchanges = before._known, before._exchanges
        self._deleted, self._deleted_of = before._deleted, before._deleted_of
        if self._undisturbed:
            self._tallies, self._changed = before._tallies, before._changed
            self._events, self._event_pks = before._events, before._event_pks
        else:
            self._tallies = self._counting.load(self._txn, trajectories_of(payloads), undisturbed=False)

    # --- planning ---------------------------------------------------------------------------------------------
    def add_exchange(self, prepared: PreparedExchange) -> ConflictError | None:
        """Plan the exchange's own row; ConflictError where other content is there. Returns why its steps may not be in
        the trajectory, as it is by now; then it is not planned.
        """
        exchange, txn = prepared.exchange, self._txn
        known = self._exchanges.get(exchange.exchange_id)
        if known is not None:
            if known != prepared.content:
                raise ConflictError(
                    f"exchange {exchange.exchange_id!r} is there with other content", path="exchange_id"
                )
            return None
        made = self._tallies.get(exchange.trajectory_id)
        if made is not None and (misplaced := conflict_of(exchange, made.group_id, made.channel)) is not None:
            return misplaced
        tally = self._tally(exchange.trajectory_id, exchange.group_id, exchange.channel, exchange.agent)
        self._exchanges[exchange.exchange_id] = prepared.content
        record = prepared.record_at(txn.now)
        pk = self._first_exchange + len(self._new_exchanges)
        self._new_exchanges.append((pk, exchange.exchange_id, prepared.content, tally.pk, prepared.status, record))
        if prepared.marks and tally.status == "open":
            self._new_marks += [
                {"mark": mark, "trajectory_id": exchange.trajectory_id, "said": said, "at": txn.now}
                for mark, said in prepared.marks
            ]
        if exchange.error is not None:
            txn.count(counters.EXCHANGES_FAILED)
            data = stored_json({"exchange_id": exchange.exchange_id}).decode()
            self._event("exchange.failed", exchange.trajectory_id, None, data, tally.channel)
        return None

    def add(self, taken: Intake) -> AppendResult:
        """Plan one step; a fault that is the step's own rejects it alone."""
        if not isinstance(taken, Prepared):
            return self._reject(taken)
        try:
            return self.add_sound(taken)
        except GoneError as error:
            return self._reject(rejection(taken.step, error.one_line()), gone=True)
        except (InvalidRequestError, ConflictError) as error:
            return self._reject(rejection(taken.step, error.one_line()))

    def add_sound(self, prepared: Prepared) -> AppendResult:
        """Plan one step; raises the fault that is the step's own."""
        step, txn, forests = prepared.step, self._txn, self._forests
        step_id, trajectory_id = step.step_id, step.trajectory_id
        if self._deleted and step_id in self._deleted:
            raise append_rows.was_deleted(step_id, self._deleted[step_id])
        tokens: TokenTrace | None = None
        if prepared.prompt is not None or prepared.response is not None:
            tokens = forests.trace_tokens(trajectory_id, step.vocabulary, prepared.prompt, prepared.response)
        if step.tools is None and step.prompt_messages is None and step.response_message is None:
            tools, messages = UNSPOKEN
        else:
            try:
                tools = forests.trace_tools(step.tools)
                messages = forests.trace_messages(
                    trajectory_id, tools.digest, step.prompt_messages, step.response_message
                )
            except NOT_STORABLE as error:
                raise refusal(error) from None
        mask = None if prepared.mask is None else pack_mask(prepared.mask)
        logprobs = None if prepared.logprobs is None else raw_logprobs(prepared.logprobs)
        present = append_rows.present_bits(prepared)
        content = append_rows.content_digest(prepared, tokens, messages, mask, logprobs, present)
        known = self._known.get(step_id)
        if known is not None:
            if same_content(known[0], content):
                return AppendResult(step_id, "duplicate", known[1])
            return AppendResult(step_id, "conflict", known[1], "other content is there under this id")
        tally = self._tally(trajectory_id, step.group_id, step.channel, step.agent)
        late = tally.status != "open"
        reasons = [*prepared.reasons, "late"] if late else prepared.reasons
        excluded = rules.joined_reasons(reasons) if reasons else None
        channel = rules.step_channel(step.channel, tally.channel)
        pk, index = self._next_step, tally.step_count
        self._next_step += 1
        call, present = append_rows.call_columns(prepared, present, tally)
        row = append_rows.step_row(
            prepared, pk, content, tally, channel, call, present, mask, logprobs, excluded, late, txn.now
        )
        self._keep_content(row, prepared, tokens, tools, messages)
        self._steps.append(row)
        self._known[step_id] = (content, index)
        tally.add(pk, prepared, channel, excluded is not None)
        self._changed[tally.pk] = tally
        if late:
            self._late[tally.pk] = None
            self._late_steps.append(pk)
        self._sampled += prepared.sampled
        self._excluded += excluded is not None
        self._in_channel[channel] = self._in_channel.get(channel, 0) + 1
        if prepared.rewards:
            for name, value in prepared.rewards.items():
                self._rewards.append((step_id, Reward(value=value, name=name, source="step")))
        if step.supersedes is not None:
            self._superseded.append(Superseded(step.supersedes, tally.pk, pk))
        outcome: Literal["late", "stored"] = "late" if late else "stored"
        told = '{"outcome":"late"}' if late else None
        self._events.append((STEP_APPENDED, trajectory_id, step_id, told, stored_channel(tally.channel)))
        return AppendResult(step_id, outcome, index, excluded)

    def _keep_content(
        self,
        row: list[Any],
        prepared: Prepared,
        tokens: TokenTrace | None,
        tools: ToolTrace,
        messages: MessageTrace,
    ) -> None:
        """Put ids and messages into the forests; rows that are not numbered yet are named by digest until `write`."""
        step, forests = prepared.step, self._forests
        if tokens is not None:
            row[append_rows.BLOCK] = forests.keep_tokens(step.trajectory_id, tokens)
            row[append_rows.ID_COUNT] = tokens.length
            self._tails.append((row, tokens.tail))
            self._ids += tokens.length
            self._ids_in_tails += tokens.length % BLOCK_SIZE
        if tools.body is not None:
            row[append_rows.TOOLS] = forests.keep_tools(tools, step.tools)
        if messages.messages:
            prompt, last = forests.keep_messages(step.trajectory_id, messages)
            row[append_rows.PROMPT_NODE] = prompt
            row[append_rows.REPLY_NODE] = last if step.response_message is not None else None

    def _tally(self, trajectory_id: str, group_id: str | None, channel: str, agent: str | None) -> Tally:
        """The trajectory, implied where it is not there."""
        known = self._tallies.get(trajectory_id)
        if known is None:
            if group_id is not None:
                self._number_events()  # What becomes of groups is told too.
            row = self._implied.plan(trajectory_id, NewTrajectory(group_id=group_id, channel=channel, agent=agent))
            known = self._tallies[trajectory_id] = self._begun[trajectory_id] = Tally(row, channel, group_id)
            self._event(trajectories.CREATED, trajectory_id, None, None, channel)
        return known

    def _event(self, kind: str, trajectory_id: str, step_id: str | None, data: str | None, channel: str) -> None:
        self._events.append((kind, trajectory_id, step_id, data, stored_channel(channel)))

    def _number_events(self) -> None:
        """Those planned so far get their numbers, before what others write that comes after them."""
        count = len(self._events) - len(self._event_pks)
        if not count:
            return
        first = self._txn.next_pk("events", count)
        self._event_pks += range(first, first + count)

    def _reject(self, rejected: Rejected, gone: bool = False) -> AppendResult:
        """Plan the dead letter; nothing of what was deleted on request is kept."""
        step_id, trajectory_id = rules.printable(rejected.step_id), rules.printable(rejected.trajectory_id)
        gone = gone or step_id in self._deleted or trajectory_id in self._deleted_of
        reason = kept_text(rejected.reason)
        self._dead.append(
            {
                "pk": self._txn.next_pk("dead_letters"),
                "kind": "step",
                "step_id": step_id,
                "trajectory_id": trajectory_id,
                "reason": reason,
                "record": "" if gone else kept_text(rejected.record),
                "at": self._txn.now,
            }
        )
        return AppendResult(step_id, "rejected", reason=reason)

    # --- writing ----------------------------------------------------------------------------------------------
    def write(self, *, whole: bool = False, goes_on: bool = False) -> Mark:
        """Write what was planned; returns the pool as it is before signals that came with it change what it counts.

        `whole`: see ForestWriter.finish. `goes_on`: another batch of the transaction follows; events and what
        trajectories count are left to it, unless signals look at that before.
        """
        txn, forests = self._txn, self._forests
        self._number_events()
        self._write_trajectories()
        forests.finish(txn, whole=whole)
        packed = pack_tails([tail for _, tail in self._tails])
        for (row, _), data in zip(self._tails, packed, strict=True):
            row[append_rows.TAIL] = data
        probable = [row for row in self._steps if row[append_rows.LOGPROBS]]
        if probable:
            packed = pack_logprobs([row[append_rows.LOGPROBS] for row in probable])
            for row, data in zip(probable, packed, strict=True):
                row[append_rows.LOGPROBS] = data
        places = (
            (append_rows.BLOCK, forests.blocks),
            (append_rows.TOOLS, forests.tool_sets),
            (append_rows.PROMPT_NODE, forests.nodes),
            (append_rows.REPLY_NODE, forests.nodes),
        )
        for place, rows in places:
            if rows:
                for row in self._steps:
                    ref = row[place]
                    if ref.__class__ is bytes:
                        row[place] = rows[ref]
        txn.next_pk("steps", self._next_step - self._first_step)
        append_rows.insert_steps(txn, self._steps)
        if self._new_exchanges:
            txn.next_pk("exchanges", len(self._new_exchanges))
            txn.many_in_order(append_rows.INSERT_EXCHANGE, self._new_exchanges)
        if self._new_marks:
            set_marks(txn, self._new_marks)
        txn.many(append_rows.INSERT_DEAD, self._dead)
        if not goes_on or self._has_signals():
            self._insert_events()
            self._save_tallies()
            self._events, self._event_pks, self._changed = [], [], {}
        self._count()
        mark = txn.mark()
        self._keep_rewards()
        if self._superseded:
            supersede(txn, self._superseded)
        # What consumers ask of a trajectory may have changed: its numbers of steps and tokens, its oldest policy.
        if self._late:
            settle_touched(txn, self._late, self._late_steps)
        self._apply_awaited()
        return mark

    def _has_signals(self) -> bool:
        return bool(self._rewards or self._superseded or self._late) or self._txn.counter(counters.AWAITED) > 0

    def _insert_events(self) -> None:
        now = self._txn.now
        told = [
            (pk, kind, now, trajectory, step, data, channel)
            for pk, (kind, trajectory, step, data, channel) in zip(self._event_pks, self._events, strict=True)
        ]
        self._txn.many_in_order(append_rows.INSERT_EVENT, told)

    def _write_trajectories(self) -> None:
        self._implied.write(self._begun)
        for tally in self._begun.values():
            tally.restated = False
            self._changed.pop(tally.pk, None)

    def _save_tallies(self) -> None:
        self._counting.save(self._txn, self._changed.values())

    def _keep_rewards(self) -> None:
        if self._rewards:
            keep_rewards(self._txn, [("step", step_id, reward) for step_id, reward in self._rewards])

    def _apply_awaited(self) -> None:
        if self._steps and self._txn.counter(counters.AWAITED) > 0:
            apply_awaited(self._txn, "step", [row[append_rows.STEP_ID] for row in self._steps])

    def _count(self) -> None:
        counted = {
            counters.STEPS: len(self._steps),
            counters.STEPS_EXCLUDED: self._excluded,
            counters.TOKENS_FLAT: self._ids,
            counters.TOKENS_IN_TAILS: self._ids_in_tails,
            counters.TOKENS_SAMPLED: self._sampled,
            counters.EXCHANGES: len(self._new_exchanges),
            counters.DEAD_LETTERS: len(self._dead),
            **{counters.CHANNEL_STEPS + name: number for name, number in self._in_channel.items()},
        }
        self._txn.count_all(counted)
