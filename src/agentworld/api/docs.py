"""The OpenAPI document and a page that shows it, with nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.openapi import OpenAPIConfig

_CONFIG = OpenAPIConfig(
    title="AgentWorld control API",
    version="1",
    use_handler_docstrings=True,
    description="Trajectories, steps, rewards, batches, policies and events of a data pool.",
)
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "path", "hint"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "path": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]},
            },
        }
    },
}
_REFERENCE = "#/components/schemas/{name}"


def document(routes: Sequence[Any]) -> dict[str, Any]:
    """The OpenAPI document: the framework's, with the request bodies, which the handlers decode themselves, and with
    the one shape of errors.

    The application that serves is made without the framework's own pages, as those load from elsewhere; so this makes
    another one, which only describes itself.
    """
    app = Litestar(routes, openapi_config=_CONFIG)
    schema: dict[str, Any] = app.openapi_schema.to_schema()
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    components["Error"] = _ERROR
    schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}, {}]  # Where keys are optional, none will do.
    bodies: dict[str, Any] = {}
    error = {"description": "An error", "content": {"application/json": {"schema": _reference("Error")}}}
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in handler.http_methods:
                operation = schema["paths"].get(route.path_format, {}).get(method.lower())
                if operation is None:
                    continue
                operation["responses"].pop("400", None)
                operation["responses"]["default"] = error
                kind = handler.opt.get("body")
                if kind is not None:
                    operation["requestBody"] = _body(kind, components, bodies)
    # Defaults can be records; the document is plain JSON.
    plain: dict[str, Any] = msgspec.to_builtins(schema)
    return plain


def _body(kind: Any, components: dict[str, Any], bodies: dict[str, Any]) -> dict[str, Any]:
    """The body of a kind; what it is made of goes into `components`, and of all bodies so far into `bodies`."""
    kinds = list(getattr(kind, "__args__", (kind,)))
    schemas, found = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for name, component in found.items():
        if bodies.setdefault(name, component) != component:
            raise TypeError(f"two kinds of bodies are called {name}, so the document would mean one of them for both")
        components.setdefault(name, component)
    shapes = list(schemas)
    return {
        "required": True,
        "content": {"application/json": {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}},
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=name)}


@get("/api/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi_json(state: State) -> dict[str, Any]:
    """The OpenAPI document."""
    if "document" not in state:
        state.document = document(state.routes)
    found: dict[str, Any] = state.document
    return found


@get("/api/docs", include_in_schema=False, sync_to_thread=False)
def docs_page() -> Response[bytes]:
    """A page that lists the operations of the OpenAPI document."""
    page = resources.files("agentworld.api").joinpath("docs.html").read_bytes()
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return Response(page, media_type="text/html", headers=headers)


ROUTES = [openapi_json, docs_page]
