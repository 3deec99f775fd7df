"""What an exporter of OpenTelemetry is told, in the encoding in which it sent: `ExportTraceServiceResponse`, and for
errors `google.rpc.Status`.
"""

from __future__ import annotations

import msgspec

from agentworld.errors import AgentWorldError
from agentworld.ingest.spans.protobuf import message

PATH = "/v1/traces"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
RETRY_SECONDS = 2
# Codes of google.rpc by HTTP status; exporters look at the status alone.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 409: 10, 413: 8, 415: 3, 429: 8, 503: 14}
_RETRYABLE = (429, 502, 503, 504)


class BusyError(AgentWorldError):
    """As many requests as this server takes at once are being worked on."""

    code = "busy"
    status = 429


def success(kind: str, refused: int, said: str) -> bytes:
    """The body for spans that were taken. `said`: what is wrong with those that were not, or a warning."""
    if kind == PROTOBUF:
        inner = [(1, refused)] if refused else []
        return message((1, message(*inner, (2, said.encode("utf-8", "replace"))))) if said else b""
    told = {"partialSuccess": {"rejectedSpans": str(refused), "errorMessage": said}} if said else {}
    return msgspec.json.encode(told)


def failure(kind: str, error: AgentWorldError) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body for an error."""
    status = 503 if error.status == 507 else error.status  # Exporters know no 507, and would drop what they have.
    code, said = _CODES.get(status, 13), error.one_line()
    if kind == PROTOBUF:
        body = message((1, code), (2, said.encode("utf-8", "replace")))
    else:
        body = msgspec.json.encode({"code": code, "message": said.encode("utf-8", "replace").decode()})
    headers = {"content-type": PROTOBUF if kind == PROTOBUF else JSON}
    if status in _RETRYABLE:
        headers["retry-after"] = str(RETRY_SECONDS)
    return status, headers, body


def kind_of(content_type: str) -> str:
    """The encoding that a Content-Type says."""
    return PROTOBUF if content_type.partition(";")[0].strip().lower() == PROTOBUF else JSON
