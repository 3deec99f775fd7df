"""PostgreSQL's errors as ours: what failed, where, what to do."""

from __future__ import annotations

import psycopg

from agentworld.errors import AgentWorldError, InvalidRequestError, PoolError, PoolFullError

# The last: what is too long for the key of an index.
_VALUES = (psycopg.DataError, OverflowError, UnicodeEncodeError, psycopg.errors.ProgramLimitExceeded)
_DISK_FULL = ("53100",)
_TOO_MANY = ("53300",)
_NOT_ALLOWED = ("42501",)
_READ_ONLY = ("25006",)
_LOCKED = ("55P03",)
_TIMED_OUT = ("57014",)
_MISSING = ("42P01", "42703", "3F000")
_DAMAGED = ("XX001", "XX002")
_REFUSALS = ("password", "authentication", "pg_hba", "role ")


def as_value_error(error: Exception) -> InvalidRequestError | None:
    """The error of a caller whose value PostgreSQL cannot hold; None for any other."""
    if not isinstance(error, _VALUES):
        return None
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequestError(
            "text with a lone surrogate cannot be stored or searched", hint="Decode the text as UTF-8"
        )
    return InvalidRequestError(
        f"a value cannot be stored or searched: {first_line(error)}", hint="Send a smaller or simpler value"
    )


def is_lost(error: Exception) -> bool:
    """Whether the connection, or the server behind it, is gone."""
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    state = error.sqlstate
    return state is None or state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")


def as_pool_error(error: Exception, url: str) -> AgentWorldError:
    """What a fault of the server, or of a value sent to it, means and what to do; errors of ours as they are."""
    if isinstance(error, AgentWorldError):
        return error
    if (ours := as_value_error(error)) is not None:
        return ours
    said, state = first_line(error), getattr(error, "sqlstate", None)
    if state in _DISK_FULL:
        return PoolFullError(
            f"no space is left for the pool {url}; nothing was written",
            hint="Free space on the server's disk and send again",
        )
    if state in _TOO_MANY:
        return PoolError(
            f"{url} takes no more connections: {said}", hint="Raise max_connections, or put a pooler in front"
        )
    if state in _NOT_ALLOWED:
        return PoolError(
            f"the pool {url} does not allow that: {said}",
            hint="The user needs CREATE and USAGE on the schema and must own the pool's tables",
        )
    if state in _READ_ONLY:
        return PoolError(
            f"{url} is a server that only reads: {said}",
            hint="Name the primary, or add ?target_session_attrs=read-write",
        )
    if state in _LOCKED:
        return PoolError(
            f"the pool {url} was held by another writer for too long; nothing was written",
            hint="Look for a stopped process: pg_locks of type advisory, with pg_stat_activity, name who holds it",
        )
    if state in _TIMED_OUT:
        return PoolError(f"{url} ended a statement: {said}", hint="See statement_timeout of the user and the database")
    if state in _MISSING:
        return PoolError(
            f"the pool {url} is not as this version made it: {said}",
            hint="`agentworld pool migrate` brings it up to date",
        )
    if state in _DAMAGED:
        return PoolError(f"the pool {url} is damaged: {said}", hint="Restore it from a backup")
    if is_lost(error):
        return PoolError(
            f"the connection to the pool {url} was lost; nothing was written: {said}",
            hint="Send again once the server is back; ids make it safe",
        )
    return PoolError(f"the pool {url} failed: {said}", hint="See the log of the PostgreSQL server")


def as_connection_error(error: psycopg.Error, url: str, database: str) -> PoolError:
    """Why no connection could be made. The server's words are the only sign that the driver gives."""
    said = " ".join(str(error).split())
    if any(word in said for word in _REFUSALS):
        hint = "Check the user and the password of the URL, and the server's pg_hba.conf"
        return PoolError(f"{url} does not let this user in: {_fault(said)}", hint=hint)
    if f'"{database}" does not exist' in said and "database" in said:
        return PoolError(f"there is no database {database!r} at {url}", hint=f"Make it: createdb {database}")
    if "too many clients" in said or "remaining connection slots" in said or "too many connections" in said:
        hint = "Raise max_connections, or put a pooler in front"
        return PoolError(f"{url} takes no more connections: {_fault(said)}", hint=hint)
    return PoolError(
        f"{url} cannot be reached: {_fault(said)}", hint="Check that PostgreSQL runs there, and the host and port"
    )


def may_pass(error: psycopg.Error) -> bool:
    """Whether a connection that could not be made may be to be had later, as after a restart of the server."""
    said = str(error)
    return not any(word in said for word in _REFUSALS) and "does not exist" not in said


def first_line(error: Exception) -> str:
    """The driver's message without the statement that it repeats."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _fault(said: str) -> str:
    _, found, after = said.rpartition("FATAL:")
    return after.strip() if found else said
