"""Whole trajectories of one transaction: their rows are inserted once, as they are when all of them is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import insert

from agentworld.errors import AgentWorldError
from agentworld.pool import counters, rules, schema
from agentworld.pool.group_rules import LATE, Member, serves
from agentworld.pool.sql import append_rows, groups
from agentworld.pool.sql.append_batch import Batch
from agentworld.pool.sql.decisions import ACTIVE
from agentworld.pool.sql.events import Events
from agentworld.pool.sql.feedback import FeedbackRows, apply_feedback
from agentworld.pool.sql.forests import ForestWriter
from agentworld.pool.sql.rewards import RewardRows, apply_reward
from agentworld.pool.sql.rows import creation_columns, json_or_none
from agentworld.pool.sql.signals import add_signals, apply_awaited, waiting_among
from agentworld.pool.sql.standing import STANDING, Move, settle_all
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.supersede import supersede
from agentworld.pool.sql.tally import Tallies, Tally
from agentworld.pool.sql.targets import Found
from agentworld.pool.sql.trajectories import CREATED, Completion, complete_all
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.whole_rules import CheckedWhole
from agentworld.records import Feedback, Group, Reward

_t = schema.trajectories
_UNSET = ("annotations", "masked")
_INSERT = sql(insert(_t).values({column.name: parameter(column.name) for column in _t.c if column.name not in _UNSET}))
_COUNTED = ("step_count", "prompt_tokens", "response_tokens", "last_step", "usable_steps", "lacks", "sampled_tokens")
_COPIED = (*_COUNTED, "policy_model", "policy_run", "policy_version", "sampling")
STATEMENTS = (_INSERT,)


class StepFault(Exception):
    """Step `number` of a trajectory cannot be stored: why, or None where another step has its id."""

    def __init__(self, number: int, error: AgentWorldError | None) -> None:
        super().__init__(f"step {number}")
        self.number = number
        self.error = error


class WholeBatch(Batch):
    """`load_whole` first, then `add_whole` for each, then `end`.

    Of each group one, as what becomes of the others depends on it.
    """

    def __init__(self, txn: Transaction, forests: ForestWriter, tallies: Tallies) -> None:
        super().__init__(txn, forests, tallies, undisturbed=False)
        self._kept = RewardRows(txn)
        self._feedback = FeedbackRows(txn, [])
        self._ended: list[tuple[CheckedWhole, Tally, dict[str, Any]]] = []
        self._waited_for = False

    def load_whole(self, wholes: Sequence[CheckedWhole]) -> None:
        """Read what is there of what they name; none of the trajectories is."""
        self._tallies = {}
        steps = [prepared.step.step_id for whole in wholes for prepared in whole.steps]
        said = [signal.record for whole in wholes for signal in whole.signals]
        if steps:
            self._known = append_rows.known_steps(self._txn, steps)
            if self._txn.counter(counters.TOMBSTONES) > 0:
                self._deleted = append_rows.deleted_steps(self._txn, steps)
        self._feedback = FeedbackRows(self._txn, [one.feedback_id or "" for one in said if isinstance(one, Feedback)])
        self._waited_for = bool(
            waiting_among(self._txn, "step", steps)
            or waiting_among(self._txn, "trajectory", [whole.trajectory_id for whole in wholes])
        )
        if self._waited_for:
            self._kept.load("step", steps)

    def add_whole(self, whole: CheckedWhole, late: bool) -> dict[str, int]:
        """Plan one, which is `late` for its group; returns how many of its steps are excluded, by reason.

        StepFault where a step cannot be stored, other errors where a signal cannot; whoever calls undoes all then.
        """
        trajectory_id, new = whole.trajectory_id, whole.new
        tally = Tally(self._txn.next_pk("trajectories"), new.channel, new.group_id)
        self._tallies[trajectory_id] = tally
        self._event(CREATED, trajectory_id, None, None, new.channel)
        excluded: dict[str, int] = {}
        first = len(self._steps)
        for number, prepared in enumerate(whole.steps):
            try:
                result = self.add_sound(prepared)
            except AgentWorldError as error:
                raise StepFault(number, error) from None
            if result.outcome != "stored":
                raise StepFault(number, None)
            if result.reason is not None:
                excluded[result.reason] = excluded.get(result.reason, 0) + 1
        for step_id, reward in self._rewards:
            self._kept.keep("step", step_id, reward)
        self._rewards.clear()
        for signal in whole.signals:
            if isinstance(signal.record, Feedback):
                self._feedback.check(signal.record, signal.path)
        on_it: dict[str, Any] = {}
        if not self._waited_for:
            on_it = self._signal(whole, tally, self._steps[first:])
            told = json_or_none({"status": whole.status})
            self._event("trajectory.completed", trajectory_id, None, told, new.channel)
        self._ended.append((whole, tally, {**on_it, "excluded_reason": LATE if late else None}))
        return excluded

    def end(self, known: dict[str, Group]) -> None:
        """Write them. `known`: their groups."""
        superseded, self._superseded = self._superseded, []
        self.write(whole=True)
        txn = self._txn
        moves = [move for _, _, values in self._ended if (move := values.get("move")) is not None]
        if moves:
            groups.count_known(txn, [(None, move.was) for move in moves if move.was.group_id is not None], known)
        if moves and not self._waited_for:
            settle_all(txn, moves, known)
        if superseded:
            supersede(txn, superseded)
        if self._waited_for:
            self._end_with_awaited()
        for whole, _, _ in self._ended:
            self._forests.forget(whole.trajectory_id)

    def _end_with_awaited(self) -> None:
        """What waited for them comes first, then what they bring; then they end, as any other does."""
        txn = self._txn
        super()._apply_awaited()
        apply_awaited(txn, "trajectory", [whole.trajectory_id for whole, _, _ in self._ended])
        add_signals(txn, [signal for whole, _, _ in self._ended for signal in whole.signals])
        endings = [
            Completion(whole.trajectory_id, whole.status, None, whole.completed_at or txn.now)
            for whole, _, _ in self._ended
        ]
        for outcome in complete_all(txn, endings):
            if isinstance(outcome, AgentWorldError):
                raise outcome

    def _signal(self, whole: CheckedWhole, tally: Tally, rows: Iterable[list[Any]]) -> dict[str, Any]:
        """Plan signals, and put them into the rows of their steps; returns the columns that they set on the
        trajectory.
        """
        steps = {row[append_rows.STEP_ID]: (row, one) for row, one in zip(rows, whole.steps, strict=True)}
        about = {"trajectory": tally.pk, "trajectory_id": whole.trajectory_id, "channel": tally.channel}
        row: Any = {**about, "id": whole.trajectory_id, "pk": tally.pk, "length": None}
        on_it = Found("trajectory", row)
        on_it.said = {"rewards": {}, "labels": {}}
        found: dict[str, Found] = {}
        told = _Told(self, whole.trajectory_id, tally.channel)
        for signal in whole.signals:
            target, record = on_it, signal.record
            if signal.target == "step":
                if signal.target_id not in found:
                    values, prepared = steps[signal.target_id]
                    row = {**about, "id": signal.target_id, "pk": values[0], "length": prepared.response_length}
                    found[signal.target_id] = Found("step", row)
                    labels = dict(prepared.step.labels)
                    found[signal.target_id].said = {"rewards": dict(prepared.rewards), "labels": labels}
                target = found[signal.target_id]
            if isinstance(record, Reward):
                if self._kept.keep(signal.target, signal.target_id, record):
                    apply_reward(told, target, record)
            elif isinstance(record, Feedback) and self._feedback.keep(signal):
                apply_feedback(told, target, record)
        for step_id, target in found.items():
            values = steps[step_id][0]
            values[append_rows.REWARDS] = json_or_none(target.said["rewards"])
            values[append_rows.REWARD] = target.said["rewards"].get(rules.PRIMARY)
            values[append_rows.LABELS] = json_or_none(target.said["labels"])
        rewards, labels = on_it.said["rewards"], on_it.said["labels"]
        return {
            "rewards": json_or_none(rewards),
            "reward": rewards.get(rules.PRIMARY),
            "labels": json_or_none(labels),
        }

    def tell(self, kind: str, trajectory_id: str, step_id: str | None, data: Mapping[str, Any], channel: str) -> None:
        """Plan an event."""
        self._event(kind, trajectory_id, step_id, json_or_none(data), channel)

    # --- writing ----------------------------------------------------------------------------------------------
    def _write_trajectories(self) -> None:
        txn = self._txn
        # What ends later is open until then, and what becomes of it by its group and the policy follows.
        follows = self._waited_for or txn.counter(ACTIVE) > 0
        rows = []
        for whole, tally, values in self._ended:
            status = "open" if self._waited_for else whole.status
            late = values["excluded_reason"] is not None
            row = {
                "pk": tally.pk,
                "trajectory_id": whole.trajectory_id,
                "declared": 1,
                **creation_columns(whole.new),
                "status": status,
                "rewards": values.get("rewards"),
                "reward": values.get("reward"),
                "labels": values.get("labels"),
                "excluded_reason": values["excluded_reason"],
                **{name: getattr(tally, name) for name in _COPIED},
                "created_at": txn.now if whole.created_at is None else whole.created_at,
                "completed_at": None if status == "open" else whole.completed_at or txn.now,
                "ready_seq": None,
            }
            if follows or tally.group_id is not None:
                row["readiness"] = "excluded" if late else "open"
                was = Member(
                    tally.pk,
                    tally.group_id,
                    whole.new.rollout_index,
                    whole.new.attempt,
                    "open",
                    row["readiness"],
                    row["excluded_reason"],
                )
                values["move"] = Move(was, {name: row[name] for name in STANDING}, True)
            else:
                readiness = rules.trajectory_readiness(whole.status, row["reward"] is not None, None)
                row["readiness"] = readiness
                if serves(readiness):
                    row["ready_seq"] = txn.next_pk("ready_seq")
            rows.append(row)
            txn.count(counters.TRAJECTORIES + status)
            txn.count(counters.READINESS + row["readiness"])
            txn.count(counters.CHANNEL_TRAJECTORIES + tally.channel)
        txn.many(_INSERT, rows)

    def _save_tallies(self) -> None:
        """They are in the rows of their trajectories."""

    def _keep_rewards(self) -> None:
        self._kept.write()
        self._feedback.write()

    def _apply_awaited(self) -> None:
        """Follows once the trajectories stand."""


class _Told(Events):
    """Events of signals, planned with those of steps."""

    def __init__(self, batch: WholeBatch, trajectory_id: str, channel: str) -> None:
        self._batch = batch
        self._of = trajectory_id
        self._channel = channel

    def add(
        self,
        kind: str,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        data: dict[str, Any] | None = None,
        *,
        channel: str | None = None,
    ) -> None:
        """See Events; all are of one trajectory."""
        self._batch.tell(kind, self._of, step_id, data or {}, self._channel)
