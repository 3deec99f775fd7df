"""Policies and decisions of the SQL stores."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import ConflictError
from agentworld.pool.base import check_limit
from agentworld.pool.bounds import MAX_INTEGER, check_name
from agentworld.pool.decision_rules import (
    Preview,
    Target,
    check_decisions,
    check_one_subject,
    check_policy,
    check_preview,
    compile_policy,
)
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.sql import curating, standings
from agentworld.pool.sql.decision_reads import read_decisions
from agentworld.pool.sql.decisions import decide
from agentworld.pool.sql.judging import holding, judging
from agentworld.pool.sql.standing import settle_touched
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import ActivePolicy, CurationPolicy, CurationPreview, Decision, Standing


class CurationMethods(SqlStore):
    """See agentworld.pool.curation_methods."""

    def set_curation(
        self, policy: CurationPolicy, *, source: str = "api", progress: Progress = no_progress
    ) -> ActivePolicy:
        """See Pool."""
        policy = check_policy(policy)
        check_name(source, "source")
        read = compile_policy(policy.rules, policy.default)
        for target in ("trajectory", "step"):
            judging(read, target).text(self._database.engine)  # Not under the lock that others wait for.
        self._writer.submit(lambda txn: curating.install(txn, policy, source)).result()
        self._decide_all(policy.channel, progress)
        for active in self.curation(policy.channel):
            if active.version == read.version:
                return active
        raise ConflictError(
            f"the policy of channel {policy.channel!r} was changed again meanwhile",
            path="channel",
            hint="See which one is in force, and set yours again where it should be",
        )

    def clear_curation(self, channel: str, *, progress: Progress = no_progress) -> bool:
        """See Pool."""
        check_name(channel, "channel")
        there = self._writer.submit(lambda txn: curating.end(txn, channel)).result()
        self._decide_all(channel, progress)
        return there

    def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """See Pool."""
        with self._database.reading() as reader:
            return curating.list_policies(reader, channel, True, 0)

    def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """See Pool."""
        with self._database.reading() as reader:
            return curating.list_policies(reader, channel, False, check_limit(limit))

    def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """See Pool."""
        policy = check_policy(policy)
        check_preview(samples, limit)
        read = compile_policy(policy.rules, policy.default)
        preview = Preview(read, samples)
        with self._database.reading() as reader:
            total = standings.count_ended(reader, policy.channel)
        wanted = total if limit is None else min(limit, total)
        done, below = 0, MAX_INTEGER
        targets: tuple[Target, ...] = ("trajectory", "step") if read.steps else ("trajectory",)
        while done < wanted:
            progress("look", done, wanted)
            with self._database.reading() as reader:
                pks = standings.newest(reader, policy.channel, below, min(standings.AT_ONCE, wanted - done))
                if not pks:
                    break
                made = {}
                for target in targets:
                    for row, one in standings.would_make(reader, read, target, pks):
                        preview.add(target, row["id"], holding(row))
                        if target == "trajectory":
                            made[row["pk"]] = one
                for now, then in standings.would_stand(reader, made, pks):
                    preview.stands(now, then)
            done, below = done + len(pks), pks[-1]
        progress("look", done, wanted)
        return preview.result(whole=done >= total)

    def decide(self, decisions: Sequence[Decision]) -> int:
        """See Pool."""
        sent = check_decisions(decisions)

        def operation(txn: Transaction) -> int:
            made = decide(txn, sent)
            settle_touched(txn, made.trajectories, made.steps)
            return made.changes

        return self._writer.submit(operation).result()

    def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """See Pool."""
        target, target_id = check_one_subject(trajectory_id, step_id)
        with self._database.reading() as reader:
            return read_decisions(reader, target, target_id)

    def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """See Pool."""
        target, target_id = check_one_subject(trajectory_id, step_id)
        with self._database.reading() as reader:
            return standings.standing(reader, target, target_id)

    def _decide_all(self, channel: str, progress: Progress) -> None:
        while (swept := self._writer.submit(lambda txn: curating.sweep(txn, channel)).result()).channel is not None:
            progress("decide", swept.upto, swept.of)
