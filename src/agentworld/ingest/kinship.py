"""Under which other ids a pool may have a run, or some of it: those that earlier versions gave to it, the run that has
all of it, and the runs that its parts would be by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from agentworld.ingest.examining import Facts, examine, name_of, name_of_session
from agentworld.ingest.run import Run
from agentworld.ingest.wholes import Placing, is_session, user_of


class Kin(NamedTuple):
    """Ids in the pool. `content`: over all that the run says, where it is known by something else now. `former`: of the
    run itself, by its session alone. `alone`: of the same as a file of its own. `holder`: of the run that it may be in.
    `parts`: of runs that may be in it. `exported`: under which it was exported from a pool, which may be this one.
    """

    content: str | None = None
    former: str | None = None
    alone: str | None = None
    holder: str | None = None
    parts: tuple[str, ...] = ()
    exported: str | None = None


_ALONE = Kin()


def kin_of(format: str, run: Run, facts: Facts, placing: Placing) -> Kin:
    """To be asked before `make_whole`, which uses up the run."""
    session, held_by = is_session(run), run.held_by or run.parent_run
    if not session and not run.parts and held_by is None and run.exported is None and run.file_as is None:
        return _ALONE
    user = user_of(run, placing, lambda place, why, lost: None)  # It says what is wrong with it when it is asked again.
    content = former = alone = None
    if session and run.session is None:
        content = name_of(format, None, facts.digest, 1, user)
    elif session:
        nameless = examine(msgspec.structs.replace(run, session=None))
        content, former = name_of(format, None, nameless.digest, 1, user), name_of(format, run.session, "", 1, user)
    elif run.file_as is not None and run.steps:
        alone = name_of_session(format, Run(native_id=None, grows_as=run.file_as, steps=run.steps[:1]), user)
    holder = None if held_by is None else name_of(format, held_by, "", 1, user)
    return Kin(content, former, alone, holder, tuple(_parts(format, run, user)), run.exported)


def _parts(format: str, run: Run, user: str | None) -> list[str]:
    steps = {step.step_id: step for step in run.steps} if any(part.session for part in run.parts) else {}
    found = []
    for part in run.parts:
        if part.native_id is not None:
            found.append(name_of(format, part.native_id, "", 1, user))
        elif (first := steps.get(part.step or "")) is not None:
            found.append(name_of_session(format, Run(native_id=None, session=part.session, steps=[first]), user))
    return found
