"""Taking whole trajectories from elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from agentworld.errors import AgentWorldError
from agentworld.pool.arguments import listed
from agentworld.pool.sql import whole
from agentworld.pool.sql.append import Appender
from agentworld.pool.sql.append_statements import compile_all
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.whole import Unfit
from agentworld.pool.whole_rules import CheckedWhole, check_whole, refused
from agentworld.records import AddedTrajectory, WholeTrajectory

_AHEAD = 2  # portions that wait for the writing thread, so that it and the checking of the next ones go on together

# Each with its place among what was sent.
_Portion = list[tuple[int, CheckedWhole]]
_Submitted = tuple[_Portion, Future[list[AddedTrajectory]]]


class WholeMethods(SqlStore):
    """See agentworld.pool.dataset_methods."""

    _appender: Appender

    def add_whole(self, trajectories: Sequence[WholeTrajectory]) -> list[AddedTrajectory]:
        """See Pool."""
        sent = listed(trajectories, "WholeTrajectory", "trajectories")
        compile_all(self._database.engine)
        found: dict[int, AddedTrajectory] = {}
        waiting: deque[_Submitted] = deque()
        gathered: _Portion = []
        size = 0
        for place, one in enumerate(sent):
            try:
                checked = check_whole(one)
            except AgentWorldError as error:
                found[place] = refused(one, error)
                continue
            weight = whole.weight(checked)
            known = any(other.trajectory_id == checked.trajectory_id for _, other in gathered)
            if gathered and (known or size + weight > whole.PORTION):
                waiting.append(self._submit(gathered))
                gathered, size = [], 0
                if len(waiting) >= _AHEAD:
                    found |= self._settled(waiting.popleft())
            gathered.append((place, checked))
            size += weight
        if gathered:
            waiting.append(self._submit(gathered))
        while waiting:
            found |= self._settled(waiting.popleft())
        return [found[place] for place in range(len(sent))]

    def _submit(self, portion: _Portion) -> _Submitted:
        wholes = [checked for _, checked in portion]
        return portion, self._writer.submit(lambda txn: whole.add_all(txn, self._appender, wholes))

    def _settled(self, submitted: _Submitted) -> dict[int, AddedTrajectory]:
        """What became of a portion; where one of it cannot be stored, the others are written without it."""
        found: dict[int, AddedTrajectory] = {}
        portion, future = submitted
        while True:
            try:
                outcome = future.result()
            except Unfit as unfit:
                place, checked = portion.pop(unfit.place)
                found[place] = refused(checked, unfit.error)
                if not portion:
                    return found
                future = self._submit(portion)[1]
            else:
                return found | {place: added for (place, _), added in zip(portion, outcome, strict=True)}
