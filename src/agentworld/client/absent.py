"""What a pool has and a server does not offer, and the error that says so."""

from __future__ import annotations

from agentworld.errors import InvalidRequestError

# By the name of the method or attribute of a pool: what to use in its place.
_OPEN = "Open the pool itself: agentworld.open_pool(URL)"
_COMMAND = f"{_OPEN}, or use `agentworld pool` on its machine"
NOT_OVER_HTTP = {
    "submit_steps": "Use append_steps, from several threads where it must not wait",
    "submit_exchange": _OPEN,
    "append_exchange": "Send the call through the gateway, or its choices with append_steps",
    "close_due_groups": "Nothing: the next lease closes them",
    "watch": "Use follow",
    "poll_seconds": "Use follow",
    "to_ray": _OPEN,
    **dict.fromkeys(("pin", "unpin", "pins", "mark_call", "find_marks", "take_reply"), _OPEN),
    "purge": f"Use purge=True of what deletes. {_COMMAND}",
    **dict.fromkeys(("tombstones", "put_media", "get_media", "report_worker", "forget_worker"), _OPEN),
    "check_writable": "Ask /readyz",
    **dict.fromkeys(("find_key", "get_key"), "Use list_keys; who asks a server has had its key checked already"),
    **dict.fromkeys(("begin_dataset", "put_dataset_rows", "freeze_dataset", "drop_building"), "Use create_dataset"),
    "add_whole": _OPEN,
    "feedback_on": "Use list_feedback",
    "datasets_of": _OPEN,
    **dict.fromkeys(("check", "backup", "export_parquet", "import_parquet"), _COMMAND),
}


class NotOverHttpError(InvalidRequestError, AttributeError):
    """This is for a pool in this process alone; an AttributeError too, so that `hasattr` says no."""


def absent(name: str) -> AttributeError:
    """The error of an attribute that a factory over HTTP has not."""
    if name in NOT_OVER_HTTP:
        return NotOverHttpError(f"a server does not offer {name}", path=name, hint=NOT_OVER_HTTP[name])
    return AttributeError(f"'Factory' object has no attribute {name!r}")
