"""Which scope of a key a request needs. What is not named here needs the scope admin, so that nothing is open by
oversight.
"""

from __future__ import annotations

from agentworld.api.otlp_replies import PATH as TRACES
from agentworld.client.wire import API
from agentworld.pool.keys import Scope

OPEN = ("/healthz", "/readyz", "/api/docs", "/api/openapi.json", f"{API}/session", "/")
"""Paths that need no key: they tell nothing of what the pool holds."""
PAGE = "/dashboard"
"""The page, which is the same for everybody."""
Scopes = tuple[Scope, ...]
_NONE: Scopes = ()
_READ: Scopes = ("read",)
_LEASE: Scopes = ("lease",)
_WRITE: Scopes = ("write",)
_SAY: Scopes = ("write", "feedback")
_TRAINER: Scopes = ("read", "lease")
_AGENT: Scopes = ("write", "read")
_ANY: Scopes = ("write", "read", "lease")
_BY_PREFIX: dict[str, tuple[Scopes, Scopes]] = {
    # The first part of a path behind /api/v1: scopes for GET, scopes for POST.
    "trajectories": (_READ, _WRITE),
    "steps": (_READ, _WRITE),
    "explain": (_READ, _NONE),
    "fields": (_READ, _NONE),
    "facets": (_READ, _NONE),
    "previews": (_READ, _NONE),
    "pieces": (_READ, _NONE),
    "credit": (_READ, _NONE),
    "rewards": (_READ, _WRITE),
    "feedback": (_READ, _SAY),
    "annotations": (_READ, _WRITE),
    "media": (_READ, _WRITE),
    "groups": (_READ, _NONE),
    "awaited": (_READ, _NONE),
    "events": (_READ, _NONE),
    "stats": (_READ, _NONE),
    "dead-letters": (_READ, _NONE),
    # Trying a policy writes nothing. Putting one in force (PUT) or out of it (DELETE) is for admins.
    "curation": (_READ, _READ),
    "decisions": (_READ, _WRITE),
    "reviews": (_READ, _WRITE),
    "review-counts": (_READ, _NONE),
    "evaluations": (_READ, _WRITE),
    "followers": (_READ, _WRITE),
    # Deleting a version is for admins.
    "datasets": (_READ, _WRITE),
    "dataset-layouts": (_READ, _NONE),
    "labels": (_READ, _NONE),
    "label-schemes": (_READ, _NONE),
    "agreement": (_READ, _NONE),
    "runs": (_READ, _NONE),
    "methods": (_TRAINER, _NONE),
    "server": (_READ, _NONE),
    "merge": (_READ, _NONE),
    "batches": (_TRAINER, _LEASE),
    "consumers": (_TRAINER, _LEASE),
    "policy": (_TRAINER, _LEASE),
    "metrics": (_NONE, _LEASE),
    "gateway": (_READ, _NONE),
}


def needed(method: str, path: str, *, llm: bool) -> Scopes | None:
    """The scopes of which one is needed; None where no key is. The scope admin is enough for everything."""
    if path in OPEN or path.startswith(PAGE) or method == "OPTIONS":
        return None
    if llm:
        if method in ("GET", "HEAD"):
            return _ANY if path.endswith("/models") else _AGENT
        return _WRITE
    if path == "/metrics":
        return _READ
    if path == TRACES:
        return _WRITE
    if not path.startswith(f"{API}/"):
        return ("admin",)
    if method in ("GET", "HEAD") and path.startswith(f"{API}/trajectories/") and path.endswith("/exchanges"):
        return _AGENT  # Who may only write sees those of its own trajectory alone.
    if method == "POST" and path == f"{API}/evaluations/known":
        return _READ  # Asked for by so many digests that they go as a body.
    if method == "POST" and path.startswith(f"{API}/datasets/") and path.endswith("/verify"):
        return _READ  # It computes, and writes nothing.
    reading, writing = _BY_PREFIX.get(path[len(API) + 1 :].partition("/")[0], (_NONE, _NONE))
    asked = reading if method in ("GET", "HEAD") else writing if method == "POST" else _NONE
    return asked or ("admin",)
